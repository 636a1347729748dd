"""Bodies of messages as Spark's rows have them: as text, which is base64 where a type has bytes."""

from functools import lru_cache

import orjson

from sow.core.definitions import MessageTypeOptions
from sow.messages import message_type
from sow.messages.base import MessageType

KINDS_KEPT = 64
"""Message types that are kept, in each Python of Spark's: a query reads one and writes one."""


@lru_cache(maxsize=KINDS_KEPT)
def kind_of(name: str, kinds: tuple[MessageTypeOptions, ...]) -> MessageType:
    """The message type of a name, where a configuration has these of its own."""
    return message_type(name, {options.name: options for options in kinds})


def body_of(kind: MessageType, text: str) -> bytes:
    """The body that the text of a row stands for."""
    return text.encode() if kind.name == "json" else kind.from_line(orjson.dumps(text))


def text_of(kind: MessageType, body: bytes) -> str:
    """The text of a row that a body is written as."""
    if kind.name == "json":
        return body.decode()
    value = orjson.loads(kind.to_line(body))
    return value if isinstance(value, str) else orjson.dumps(value).decode()
