"""The interface of a message type.

A topic keeps bytes as they were received. A message type decodes batches of them into *columns*:
one list of values per path that keys, indexes or filters name. It parses whole messages only on
request. Another type is one file beside this one and a line in `sow.messages`.

Values are str, int, float, bool, None (absent or null) or a list of these (a path met more than
once). Containers have no value: None. What a column holds is exactly what `sow.core.paths.value_at`
finds in the parsed message.
"""

from collections.abc import Sequence
from typing import Protocol

from sow.core.paths import Path, Value

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
