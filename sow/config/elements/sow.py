"""The part of the table of elements that stands inside `<SOW>`: all kinds of topics, in order."""

from sow.config.elements.element import Element, later
from sow.config.elements.topic import CONFLATED_TOPIC, TOPIC
from sow.config.elements.view import VIEW

SOW = Element(
    name="SOW",
    about="The topics, in order: what is made of another topic stands below it.",
    children=(
        TOPIC,
        CONFLATED_TOPIC,
        VIEW,
        *later("Queue", "QueueDefinition"),
        *later("LocalQueue", "GroupLocalQueue"),
    ),
)
