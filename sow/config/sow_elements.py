"""The part of the table of elements that stands inside `<SOW>`: all kinds of topics, in order."""

from sow.config.element import Element, later
from sow.config.topic_elements import CONFLATED_TOPIC, TOPIC
from sow.config.view_elements import VIEW

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
