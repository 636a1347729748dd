"""The interface of a message type.

A topic keeps bytes as they were received. A message type decodes batches of them into *columns*:
one list of values per path that keys, indexes or filters name. It parses whole messages only on
request. Another type is one file beside this one and a line in `sow.messages`.

Values are str, int, float, bool, None (absent or null) or a list of these (a path met more than
once). Containers have no value: None. What a column holds is exactly what `sow.core.paths.value_at`
finds in the parsed message.

Bodies that are not JSON are strings in JSON lines, or base64 in a string: functions for both are
below the interface.
"""

from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Protocol

import orjson

from sow.core.paths import Path, Value
from sow.errors import BadMessage, clipped

Column = list[Value]


class Decoder(Protocol):
    """Reads the same few paths out of batch after batch; made once for all topics of a type."""

    def columns(self, bodies: Sequence[bytes]) -> list[Column]:
        """One column per path, in the order the decoder was made with; bodies are known good."""
        ...

    def read(self, bodies: Sequence[bytes]) -> tuple[list[bytes], list[Column]]:
        """Check bodies that just arrived and read their columns in the same pass.

        Returns the bodies as they are to be stored (a JSON body loses its line breaks) and their
        columns. Raises BadMessage with the index of the first bad one.
        """
        ...


class MessageType(Protocol):
    """One family of message bodies."""

    name: str
    structured: bool
    """Has named fields, so that the server can make keys, filter and index."""
    partial: bool
    """A message may hold some of its fields only: what deltas and select lists need. Of other types
    a delta is the whole message."""
    has_only_texts: bool
    """A number or a time is its text."""
    has_root: bool
    """A document has one field, and a part of it has it, too."""
    media_type: str
    """The media type of a raw message over HTTP."""
    enc: str | None
    """The encoding of a body inside a JSON line: None, or "base64" if it is not text."""

    def __hash__(self) -> int:
        """It is itself: what is made of it is kept by it."""
        ...

    def decoder(self, paths: tuple[Path, ...]) -> Decoder:
        """A decoder of these paths."""
        ...

    def parse(self, body: bytes) -> object:
        """A whole message: a document (dict) of a structured type, else the bytes.

        For bodies that `Decoder.read` has accepted; of any other, raises BadMessage if it cannot
        be parsed at all.
        """
        ...

    def encode(self, document: object) -> bytes:
        """The body that `parse` would read as `document`; raises BadMessage if there is none."""
        ...

    def to_line(self, body: bytes) -> bytes:
        """The JSON text of this stored body for `d` of a line, without line breaks."""
        ...

    def from_line(self, d: bytes) -> bytes:
        """The body for the JSON text `d` of a client's line.

        Raises BadMessage if there is none; `Decoder.read` validates the body.
        """
        ...


def text_of(body: bytes) -> str:
    """`body` as UTF-8 text; raises BadMessage."""
    try:
        return str(body, "utf-8")
    except UnicodeDecodeError as error:
        raise BadMessage(f"byte {error.start} is not UTF-8 text") from None


def bytes_of(text: str) -> bytes:
    """`text` in UTF-8; raises BadMessage for half a surrogate pair."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise BadMessage(f"character {error.start} is half a surrogate pair") from None


def string_line(body: bytes) -> bytes:
    """The JSON string that holds `body`, which is UTF-8 text."""
    return orjson.dumps(text_of(body))


def string_body(d: bytes) -> bytes:
    """The content of the JSON string `d`, in UTF-8; raises BadMessage."""
    return _string(d).encode()


def base64_line(body: bytes) -> bytes:
    """The JSON string that holds `body` in base64."""
    return b'"' + b64encode(body) + b'"'


def base64_body(d: bytes) -> bytes:
    """The bytes that the JSON string `d` holds in base64; raises BadMessage."""
    try:
        return b64decode(_string(d), validate=True)
    except ValueError as error:
        raise BadMessage(
            f"the body is not base64: {clipped(str(error))}; write it with + and /, padded with ="
        ) from None


def _string(d: bytes) -> str:
    try:
        value = orjson.loads(d)
    except ValueError as error:
        raise BadMessage(f"the body is not a JSON string: {clipped(str(error))}") from None
    if not isinstance(value, str):
        raise BadMessage('the body of this message type must be a JSON string, such as "text"')
    return value
