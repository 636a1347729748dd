"""Message bodies as Spark rows hold them: text, or base64 for binary types."""

from functools import lru_cache

import orjson

from sow.core.definitions import MessageTypeOptions
from sow.messages import message_type
from sow.messages.base import MessageType

KINDS_KEPT = 64
"""Message types cached in each Python of Spark's: a query reads one and writes one."""


@lru_cache(maxsize=KINDS_KEPT)
def kind_of(name: str, kinds: tuple[MessageTypeOptions, ...]) -> MessageType:
    """The message type of a name, with the types that a configuration adds."""
    return message_type(name, {options.name: options for options in kinds})


def body_of(kind: MessageType, text: str) -> bytes:
    """The body that the text of a row represents."""
    return text.encode() if kind.name == "json" else kind.from_line(orjson.dumps(text))


def text_of(kind: MessageType, body: bytes) -> str:
    """The text of a row for a body."""
    if kind.name == "json":
        return body.decode()
    value = orjson.loads(kind.to_line(body))
    return value if isinstance(value, str) else orjson.dumps(value).decode()
