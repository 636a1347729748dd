"""The message types without fields: binary, string, int64 and double.

A message is one value. There is nothing to make a key of, so publishers send a SowKey with each
message, and there is nothing to filter by: every path is without a value.
"""

import re
from math import isfinite

from sow.definitions import MessageTypeOptions
from sow.errors import BadMessage
from sow.messages.documents import DocumentDecoder
from sow.messages.lines import (
    base64_body,
    base64_line,
    bytes_of,
    string_body,
    string_line,
    text_of,
)
from sow.paths import Path

INTEGER = re.compile(rb"-?[0-9]{1,19}\Z")
JSON_NUMBER = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?\Z")
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


class _Scalar:
    """What the four have in common: text in lines, one value a message."""

    structured = False
    enc: str | None = None

    def __init__(self, options: MessageTypeOptions) -> None:
        self.name = options.name

    def decoder(self, paths: tuple[Path, ...]) -> DocumentDecoder:
        """A decoder that checks bodies; no path has a value."""
        return DocumentDecoder(paths, self.parse)

    def parse(self, body: bytes) -> object:
        """The text; raises BadMessage."""
        return text_of(body)

    def to_line(self, body: bytes) -> bytes:
        """The text as a JSON string."""
        return string_line(body)

    def from_line(self, d: bytes) -> bytes:
        """What the JSON string `d` holds; raises BadMessage."""
        return string_body(d)


class Binary(_Scalar):
    """Any bytes."""

    enc: str | None = "base64"

    def parse(self, body: bytes) -> object:
        """The bytes."""
        return body

    def encode(self, document: object) -> bytes:
        """The bytes; raises BadMessage for anything else."""
        if not isinstance(document, bytes):
            raise BadMessage("a binary message must be bytes")
        return document

    def to_line(self, body: bytes) -> bytes:
        """The bytes in base64."""
        return base64_line(body)

    def from_line(self, d: bytes) -> bytes:
        """The bytes that `d` holds in base64; raises BadMessage."""
        return base64_body(d)


class String(_Scalar):
    """UTF-8 text."""

    def encode(self, document: object) -> bytes:
        """The text in UTF-8; raises BadMessage."""
        if not isinstance(document, str):
            raise BadMessage("a string message must be text")
        return bytes_of(document)


class Int64(_Scalar):
    """A signed 64-bit integer in decimal digits."""

    def parse(self, body: bytes) -> object:
        """The integer; raises BadMessage."""
        if INTEGER.match(body) and INT64_MIN <= (value := int(body)) <= INT64_MAX:
            return value
        raise BadMessage(
            f"{_shown(body)} is not an int64; write decimal digits from {INT64_MIN} to {INT64_MAX}"
        )

    def encode(self, document: object) -> bytes:
        """Its decimal digits; raises BadMessage for anything but an integer of 64 bits."""
        if type(document) is int and INT64_MIN <= document <= INT64_MAX:
            return b"%d" % document
        raise BadMessage(f"an int64 message must be an integer from {INT64_MIN} to {INT64_MAX}")

    def from_line(self, d: bytes) -> bytes:
        """The digits, from a JSON string or a JSON number; raises BadMessage."""
        return _number_body(d)


class Double(_Scalar):
    """A double in the notation of JSON numbers."""

    def parse(self, body: bytes) -> object:
        """The number as a float; raises BadMessage."""
        if JSON_NUMBER.match(body) and isfinite(value := float(body)):
            return value
        raise BadMessage(f"{_shown(body)} is not a double; write a number such as -1.5 or 6.02e23")

    def encode(self, document: object) -> bytes:
        """The shortest text that reads back the same; raises BadMessage for NaN and infinities."""
        if isinstance(document, float) and isfinite(document):
            return repr(document).encode()
        raise BadMessage("a double message must be a finite float")

    def from_line(self, d: bytes) -> bytes:
        """The number's text, from a JSON string or a JSON number; raises BadMessage."""
        return _number_body(d)


def _number_body(d: bytes) -> bytes:
    return d if JSON_NUMBER.match(d) else string_body(d)


def _shown(body: bytes) -> str:
    text = body[:40].decode("utf-8", "backslashreplace")
    return repr(text if len(body) <= 40 else text + "…")
