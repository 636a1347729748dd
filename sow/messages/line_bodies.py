"""Bodies of the messages that clients send as JSON texts: in lines, in JSON over HTTP, in rows.

For a topic of another type than JSON an object stands for the message whose document it is, so that
who speaks only JSON can publish to every topic; any other text is the message as lines have it.
"""

from collections.abc import Sequence

from sow.errors import BadMessage
from sow.messages.base import MessageType
from sow.messages.json import read_document


def line_bodies(kind: MessageType, texts: Sequence[bytes]) -> list[bytes]:
    """The bodies that JSON texts stand for in messages of the type `kind`.

    Raises BadMessage, with the index of the first text that stands for none; whether a body is good
    is for the type's decoder to say.
    """
    if kind.name == "json":
        return list(texts)  # the texts themselves
    bodies: list[bytes] = []
    for index, text in enumerate(texts):
        try:
            bodies.append(_body(kind, text))
        except BadMessage as error:
            error.index = index
            raise
    return bodies


def _body(kind: MessageType, text: bytes) -> bytes:
    if not kind.structured or not text.lstrip().startswith(b"{"):
        return kind.from_line(text)
    return kind.encode(read_document(text, getattr(kind, "has_only_texts", False)))
