"""Functions of the message that holds a record: its SowKey, topic, size, bookmark and times.

They have no arguments, and are read as traits (`sow.expressions.message_attributes`), which the
owner of the messages supplies beside their fields. Attributes of AMPS that are not kept here are
refused with the reason.
"""

from sow.core.paths import Scalar
from sow.expressions.function import Example, Function
from sow.expressions.message_attributes import Trait
from sow.expressions.nodes import MessageTrait


def _of_message(trait: Trait, about: str, null: str, example: tuple[str, Scalar]) -> Function:
    signature = f"{trait}()"
    examples = (Example(*example),)
    return Function(signature, 0, 0, None, about, null, examples, stands_for=MessageTrait(trait))


MESSAGE_FUNCTIONS = {
    "AMPS_INSTANCE_NAME": _of_message(
        Trait.AMPS_INSTANCE_NAME,
        "the server's name, the `Name` of its configuration",
        "never NULL",
        ("AMPS_INSTANCE_NAME()", "desk"),
    ),
    "BOOKMARK": _of_message(
        Trait.BOOKMARK,
        "the bookmark of the change, as text, in subscriptions, replays and the log",
        "NULL in a query, and where the topic is not in the log",
        ("BOOKMARK() > 5", True),
    ),
    "LAST_UPDATED": _of_message(
        Trait.LAST_UPDATED,
        "when the record was last published, in seconds since 1970 UTC",
        "never NULL",
        ("LAST_UPDATED()", 1_700_000_000.5),
    ),
    "MESSAGE_SIZE": _of_message(
        Trait.MESSAGE_SIZE,
        "how many bytes the record has; after a delta, the whole of it",
        "never NULL",
        ("MESSAGE_SIZE()", 87),
    ),
    "SOW_KEY": _of_message(
        Trait.SOW_KEY,
        "the record's SowKey, as text",
        "never NULL",
        ("SOW_KEY()", "13378342716498349218"),
    ),
    "TOPIC_NAME": _of_message(
        Trait.TOPIC_NAME,
        "the name of the topic; in the `Filter` and `Enrichment` of a conflated topic that of the "
        "underlying one",
        "never NULL",
        ("TOPIC_NAME()", "orders"),
    ),
}
"""By name."""
NOT_KEPT = {
    **dict.fromkeys(
        ("CLIENT_ADDRESS", "CLIENT_NAME", "CONNECTION_NAME", "REMOTE_ADDRESS", "USER", "USER_NAME"),
        "the publisher of a record is not kept; have publishers write it into a field",
    ),
    "CORRELATION_ID": "no correlation ids are kept; have publishers write them into a field",
    "LAST_READ": "when a record was last read is not kept; LAST_UPDATED() is when it was published",
    "VALUE_LOOKUP": "no expression reads another topic; have publishers write the value into the "
    "record",
}
"""Attributes of AMPS that are not kept here, by name: the reason and the alternative."""
