"""The message types of one value: string, int64 and double, and binary, whose value has no name.

A message is one text or number, the only field, `/value`, of its document. So it can be filtered
and indexed, and be the key of its record; it cannot be sent in part, so a delta is the whole
message. Bytes have not even that field: no path leads to them, and publishers send the key.
"""

import re
from abc import abstractmethod
from math import isfinite
from typing import ClassVar

from sow.errors import BadMessage
from sow.messages.base import bytes_of, string_body, text_of
from sow.messages.documents import BytesType, TextType
from sow.messages.json_texts import INT64_MAX, INT64_MIN, NUMBER_TEXT

ONLY_FIELD = "value"
"""The name of the only field."""
INTEGER = re.compile(rb"-?[0-9]{1,19}\Z")


class Binary(BytesType):
    """Any bytes."""

    structured = False
    partial = False

    def parse(self, body: bytes) -> object:
        """The bytes."""
        return body

    def encode(self, document: object) -> bytes:
        """The bytes; raises BadMessage for anything else."""
        if not isinstance(document, bytes):
            raise BadMessage("a binary message must be bytes")
        return document


class OneValue(TextType):
    """The common base of the three: a document of one field, and a text in lines."""

    partial = False
    description: ClassVar[str]
    """The allowed values, for errors."""

    def parse(self, body: bytes) -> dict[str, object]:
        """The document of the value; raises BadMessage."""
        return {ONLY_FIELD: self._value(body)}

    def encode(self, document: object) -> bytes:
        """The value of a document that has no other field; raises BadMessage."""
        if isinstance(document, dict) and document.keys() == {ONLY_FIELD}:
            body = self._body(document[ONLY_FIELD])
            if body is not None:
                return body
        raise BadMessage(
            f"messages of type {self.name} are {self.description}, "
            '{"value": …} with no other field'
        )

    @abstractmethod
    def _value(self, body: bytes) -> object:
        """The value of a body; raises BadMessage."""

    @abstractmethod
    def _body(self, value: object) -> bytes | None:
        """The body of a value; None for one of another kind."""


class String(OneValue):
    """UTF-8 text."""

    description = "a text"

    def _value(self, body: bytes) -> str:
        return text_of(body)

    def _body(self, value: object) -> bytes | None:
        return bytes_of(value) if isinstance(value, str) else None


class _Number(OneValue):
    """A number in its text."""

    def from_line(self, d: bytes) -> bytes:
        """The number's text, from a JSON string or a JSON number; raises BadMessage."""
        return d if NUMBER_TEXT.match(d) else string_body(d)


class Int64(_Number):
    """A signed 64-bit integer in decimal digits."""

    description = f"an integer from {INT64_MIN} to {INT64_MAX}"

    def _value(self, body: bytes) -> int:
        if INTEGER.match(body) and INT64_MIN <= (value := int(body)) <= INT64_MAX:
            return value
        raise BadMessage(
            f"{_shown(body)} is not an int64; write decimal digits from {INT64_MIN} to {INT64_MAX}"
        )

    def _body(self, value: object) -> bytes | None:
        if isinstance(value, int) and type(value) is not bool and INT64_MIN <= value <= INT64_MAX:
            return b"%d" % value
        return None


class Double(_Number):
    """A double in the notation of JSON numbers."""

    description = "a finite number"

    def _value(self, body: bytes) -> float:
        if NUMBER_TEXT.match(body) and isfinite(value := float(body)):
            return value
        raise BadMessage(f"{_shown(body)} is not a double; write a number such as -1.5 or 6.02e23")

    def _body(self, value: object) -> bytes | None:
        """The shortest text that reads back the same."""
        try:
            fits = isinstance(value, int | float) and type(value) is not bool and isfinite(value)
        except OverflowError:  # an integer beyond all doubles
            fits = False
        return repr(value).encode() if fits else None


def _shown(body: bytes) -> str:
    text = body[:40].decode("utf-8", "backslashreplace")
    return repr(text if len(body) <= 40 else text + "…")
