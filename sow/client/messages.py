"""The lines that a server sends, as types; bodies are decoded on demand."""

import base64
from typing import Any

import msgspec

from sow.client.errors import failure
from sow.client.shown import fields_html
from sow.core.lossless_numbers import LosslessNumber
from sow.errors import SowError

_NOTHING = msgspec.Raw(b"")
LONG_NUMBER = b"0" * 17
"""A number that no double represents has so many characters, with digits and point as 0."""
AS_ZEROS = bytes.maketrans(b"0123456789.", b"0" * 11)


def _exact(text: str) -> float:
    found = LosslessNumber(text)
    return float(found) if found.is_double else found


PLAIN_DECODER = msgspec.json.Decoder()
EXACT_DECODER = msgspec.json.Decoder(float_hook=_exact)


def exactly(text: bytes) -> Any:
    """Decoded JSON; a number that no double represents becomes a float that keeps its text."""
    decoder = EXACT_DECODER if LONG_NUMBER in text.translate(AS_ZEROS) else PLAIN_DECODER
    return decoder.decode(text)


class Message(msgspec.Struct, omit_defaults=True):
    """One line; `c` is its kind, which determines the other fields.

    ``sow`` is a record of the snapshot, ``p`` an update (with `delta` one to merge into the
    record), ``oof`` a record that left focus (with `reason`), ``group_begin`` and ``group_end``
    enclose the snapshot, ``turn_end`` ends a turn of a live window, ``unsubscribed`` means that the
    server ended the subscription (`reason`, and `detail` in a sentence). `k` is the SowKey, `bm`
    the bookmark, `d` the body, `at` the position in a window. An update with `edit` replaces the
    event `seq` of a series, which is not the newest one of its record if it is `past`.

    ``gap`` comes from this client: the connection and its session were lost. If `exact`, the
    following messages make up for it (a new snapshot, or the log from the last bookmark on);
    otherwise updates may be missing. ``heartbeat`` has the number of `conflated` and `dropped`
    messages. ``notice`` is of a chained server: its upstream is lost, or back (`reason`).
    """

    c: str
    s: str = ""
    t: str = ""
    k: str | None = None
    reason: str | None = None
    detail: str | None = None
    d: msgspec.Raw = _NOTHING
    enc: str | None = None
    delta: bool = False
    bm: str | None = None
    ts: str | None = None
    exact: bool = True
    at: int | None = None
    edit: bool = False
    seq: int | None = None
    past: bool = False
    conflated: int = 0
    dropped: int = 0

    @property
    def body(self) -> bytes:
        """The record as it is stored: JSON text, or the bytes or text of another type.

        Empty for a message without a record.
        """
        text = bytes(self.d)
        if self.enc == "base64":
            return base64.b64decode(msgspec.json.decode(text, type=str))
        if text.startswith(b'"'):
            return msgspec.json.decode(text, type=str).encode()
        return text

    def _repr_html_(self) -> str:
        """What notebooks show: the fields that it has."""
        fields = {name: getattr(self, name) for name in Message.__struct_fields__}
        absent = Message("")
        found = {name: value for name, value in fields.items() if value != getattr(absent, name)}
        return fields_html("Message", found | {"d": self.document() if self.d else None})

    def document(self) -> Any:
        """The record as Python objects: a dict for JSON, str or bytes for other types.

        Raises msgspec.DecodeError for a message without a record.
        """
        if self.enc == "base64":
            return self.body
        return msgspec.json.decode(self.d)

    def exact_document(self) -> Any:
        """The same without rounding: a number that no double represents is a float that keeps its
        text (`sow.core.lossless_numbers.LosslessNumber`)."""
        if self.enc == "base64":
            return self.body
        return exactly(bytes(self.d))


class Line(Message, omit_defaults=True):
    """Any line: a message, an ack, or the close of a connection."""

    cid: str | None = None
    a: str | None = None
    status: str | None = None
    index: int | None = None
    field: str | None = None
    position: int | None = None
    expected: str | int | None = None
    sequence: int | None = None
    duplicate: bool = False
    applied: int | None = None
    session: str = ""
    log: str = ""
    version: str = ""
    resumed: bool | None = None
    primary: str = ""
    deleted: int | None = None
    deliveries: int = 0
    acknowledged: int | None = None
    cancelled: int | None = None
    matches: int | None = None
    returned: int | None = None
    ignored: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether it is a failure ack."""
        return self.status == "failure"

    def error(self) -> SowError:
        """The error of a failure ack."""
        names = ("reason", "detail", "index", "field", "position", "expected", "primary")
        return failure({name: getattr(self, name) for name in names})


LINE_DECODER = msgspec.json.Decoder(Line)


def read_lines(frame: bytes | str) -> list[Line]:
    """The lines of one frame, in order; raises msgspec.DecodeError for an invalid line."""
    return LINE_DECODER.decode_lines(frame)
