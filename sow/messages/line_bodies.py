"""Bodies of the messages that clients send as JSON texts: in lines, in JSON over HTTP, in rows.

For a topic of another type than JSON, an object is the document of the message, so that clients
that speak only JSON can publish to every topic; any other text is the message as in lines.
"""

from collections.abc import Sequence

from sow.errors import BadMessage
from sow.messages.base import MessageType
from sow.messages.json import read_document


def line_bodies(kind: MessageType, texts: Sequence[bytes]) -> list[bytes]:
    """The bodies for JSON texts, in messages of the type `kind`.

    Raises BadMessage, with the index of the first text that has none; the type's decoder validates
    the bodies.
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
