"""BFlat messages: a run of tagged binary fields, without header or count.

A field is a lead byte (0x80: array; 0x78: type; 0x07: length of the tag, or 0 when a LEB128
length follows), the tag, for an array the LEB128 count of elements, and the element or elements.
A tag that comes more than once has the list of its values. Datetimes are read as integers
(milliseconds since 1970 UTC) and binary values as base64 text, which knows what it is and is
written back as binary. Bodies are kept as they come; only messages that the server makes are
written in the most compact form. All input is bounded: no length or count exceeds the message.
"""

import struct

from sow.core.paths import Scalar, Value
from sow.errors import BadMessage
from sow.messages.base import bytes_of
from sow.messages.documents import Base64, BytesType

ARRAY, TYPE, TAG_LENGTH = 0x80, 0x78, 0x07
NULL, STRING, BINARY, INT8, INT16, INT32, INT64, DOUBLE, DATETIME, LEB128 = range(0, 80, 8)
FIXED = {
    INT8: struct.Struct("<b"),
    INT16: struct.Struct("<h"),
    INT32: struct.Struct("<i"),
    INT64: struct.Struct("<q"),
    DOUBLE: struct.Struct("<d"),
    DATETIME: struct.Struct("<q"),
}
INTEGERS = (INT8, INT16, INT32, INT64)
# As many groups of seven bits as 64 and 128 bits take.
UNSIGNED_BYTES_MAX, SIGNED_BYTES_MAX = 10, 19
INTEGER_BITS_MAX = 128
"""Bytes of an integer of variable length (LEB128), which is unbounded in theory."""


class BFlat(BytesType):
    """The BFlat message type."""

    def parse(self, body: bytes) -> dict[str, Value]:
        """The fields in order; raises BadMessage with the offset where it went wrong."""
        return _BflatReader(body).document()

    def encode(self, document: object) -> bytes:
        """The most compact fields of the values; raises BadMessage for a nested container."""
        if not isinstance(document, dict):
            raise BadMessage("a bflat message must be an object of tags and values")
        return b"".join(_fields(tag, value) for tag, value in document.items())


class _BflatReader:
    """A place in a message, moving forward."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0
        # Elements of null arrays take no bytes, so their number has to be bounded some other way.
        self._elements_left = len(body)

    def document(self) -> dict[str, Value]:
        """All fields from here to the end."""
        document: dict[str, Value] = {}
        while self._at < len(self._body):
            tag, value = self._field()
            document[tag] = _joined(document[tag], value) if tag in document else value
        return document

    def _field(self) -> tuple[str, Value]:
        lead = self._take(1)[0]
        length = lead & TAG_LENGTH or self._unsigned()
        if not length:
            raise self._bad("a tag is empty")
        tag = self._text(length)
        kind = lead & TYPE
        if kind > LEB128:
            raise self._bad(f"the field {tag!r} has the unknown type {kind >> 3}")
        if not lead & ARRAY:
            return tag, self._value(kind)
        count = self._unsigned()
        self._elements_left -= count
        if self._elements_left < 0:
            raise self._bad(f"the array {tag!r} has more elements than the message has bytes")
        return tag, [self._value(kind) for _ in range(count)]

    def _value(self, kind: int) -> Scalar:
        if kind in FIXED:
            value: int | float = FIXED[kind].unpack(self._take(FIXED[kind].size))[0]
            return value
        if kind == STRING:
            return self._text(self._unsigned())
        if kind == BINARY:
            return Base64.of(self._take(self._unsigned()))
        return self._signed() if kind == LEB128 else None

    def _text(self, length: int) -> str:
        try:
            return str(self._take(length), "utf-8")
        except UnicodeDecodeError:
            raise self._bad("a text is not UTF-8") from None

    def _take(self, length: int) -> bytes:
        end = self._at + length
        if end > len(self._body):
            raise self._bad(f"{length} bytes should follow and {len(self._body) - self._at} do")
        taken = self._body[self._at : end]
        self._at = end
        return taken

    def _unsigned(self) -> int:
        return self._groups(UNSIGNED_BYTES_MAX)[0]

    def _signed(self) -> int:
        value, bits = self._groups(SIGNED_BYTES_MAX)
        if value >> (bits - 1):
            value -= 1 << bits
        if not -(1 << INTEGER_BITS_MAX - 1) <= value < 1 << INTEGER_BITS_MAX - 1:
            raise self._bad(f"an integer has more than {INTEGER_BITS_MAX} bits")
        return value

    def _groups(self, bytes_max: int) -> tuple[int, int]:
        """A LEB128 number as encoded, and the number of its bits."""
        value = bits = 0
        for _ in range(bytes_max):
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << bits
            bits += 7
            if byte < 0x80:
                return value, bits
        raise self._bad(f"a LEB128 number has more than {bytes_max} bytes")

    def _bad(self, why: str) -> BadMessage:
        return BadMessage(f"not BFlat: at byte {self._at} {why}")


def _joined(first: Value, second: Value) -> Value:
    """The values of a tag that came again."""
    firsts = first if isinstance(first, list) else [first]
    return firsts + (second if isinstance(second, list) else [second])


def _fields(tag: object, value: object) -> bytes:
    """The encoding of one tag: one field, or several for a list of mixed values."""
    if not isinstance(tag, str) or not tag:
        raise BadMessage(f"{tag!r} cannot be a bflat tag; it must be a text that is not empty")
    if not isinstance(value, list):
        return _field(tag, [value], 0)
    if not value:
        return _head(tag, NULL | ARRAY) + b"\0"
    mixed = len(set(map(type, value))) > 1
    if mixed or (value[0] is None and len(value) > 1):
        return b"".join(_field(tag, [element], 0) for element in value)
    return _field(tag, value, ARRAY)


def _field(tag: str, values: list[object], array: int) -> bytes:
    """One field of values of one Python type."""
    kind = _kind(tag, values)
    count = _unsigned_bytes(len(values)) if array else b""
    payload = b"".join(_payload(kind, value) for value in values)
    return _head(tag, kind | array) + count + payload


def _head(tag: str, kind: int) -> bytes:
    """The lead byte and the tag."""
    name = bytes_of(tag)
    if len(name) <= TAG_LENGTH:
        return bytes([kind | len(name)]) + name
    return bytes([kind]) + _unsigned_bytes(len(name)) + name


def _kind(tag: str, values: list[object]) -> int:
    """The type that writes all the values in the fewest bytes; raises BadMessage."""
    match values[0]:
        case None:
            return NULL
        case Base64():
            return BINARY
        case str():
            return STRING
        case float():
            return DOUBLE
        case int():
            return _integer_kind(tag, [value for value in values if isinstance(value, int)])
    raise BadMessage(f"tag {tag!r}: a bflat field holds text, numbers, or a flat list of these")


def _integer_kind(tag: str, values: list[int]) -> int:
    bits = 1 + max((value if value >= 0 else ~value).bit_length() for value in values)
    if bits > INTEGER_BITS_MAX:
        raise BadMessage(f"tag {tag!r}: an integer has more than {INTEGER_BITS_MAX} bits")
    leb128_bytes = sum(len(_signed_bytes(value)) for value in values)
    for kind in INTEGERS:
        if bits <= 8 * FIXED[kind].size:
            return kind if FIXED[kind].size * len(values) <= leb128_bytes else LEB128
    return LEB128


def _payload(kind: int, value: object) -> bytes:
    if kind in FIXED:
        return FIXED[kind].pack(value)
    if kind == LEB128 and isinstance(value, int):
        return _signed_bytes(value)
    if isinstance(value, str):
        data = value.data if isinstance(value, Base64) else bytes_of(value)
        return _unsigned_bytes(len(data)) + data
    return b""


def _unsigned_bytes(value: int) -> bytes:
    """Unsigned LEB128."""
    groups = bytearray()
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)


def _signed_bytes(value: int) -> bytes:
    """Signed LEB128: as unsigned, with the sign in the last group's highest bit."""
    groups = bytearray()
    while not -0x40 <= value < 0x40:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value & 0x7F)
    return bytes(groups)
