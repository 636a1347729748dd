"""The table of elements, continued: `<SOW>`, all kinds of topics, in order."""

from sow.config.elements.element import Element, later
from sow.config.elements.topic import CONFLATED_TOPIC, TOPIC
from sow.config.elements.view import VIEW

SOW = Element(
    name="SOW",
    about="The topics, in order: one that is derived from another comes below it.",
    children=(
        TOPIC,
        CONFLATED_TOPIC,
        VIEW,
        *later("Queue", "QueueDefinition"),
        *later("LocalQueue", "GroupLocalQueue"),
    ),
)
