"""MessagePack messages: a record is one map, kept byte for byte.

A body is first passed over by a decoder that keeps nothing: where a length or a count exceeds what
follows it ends, before anything is allocated for it. Of a long one that arrives the values are
counted, container by container, which makes nothing of those that are too many. Then it is decoded,
which checks its texts.
Few fields of bodies that are known good are read without the others (`sow.messages.json_columns`
has the structs for it).

Bytes and extensions are base64 text in documents, and keys that are no text the text of them; both
are written back as what they were. What msgspec would turn into a time, and so cut to microseconds,
is read by `sow.messages.msgpack_values`, which is slower and keeps every bit.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from sow.definitions import MessageTypeOptions
from sow.errors import BadMessage, clipped
from sow.media_types import MSGPACK
from sow.messages.base import Column
from sow.messages.documents import VALUES_MAX, DocumentDecoder, check_values, too_many_values
from sow.messages.json_columns import READ_FAILURES, UnsuitedError, struct_reader
from sow.messages.lines import base64_body, base64_line
from sow.messages.marked import Base64, MarkedText
from sow.messages.msgpack_values import ARRAYS, MAPS, Extension, extension_bytes, read_map
from sow.paths import Path

NESTING_MAX = 100
"""Levels of maps and arrays in one message; what MongoDB takes of BSON, which is read alike."""
INTEGERS = range(-(2**63), 2**64)
"""What the format holds."""
ATOMS = frozenset({str, int, float, bool, type(None)})
TEXTS = frozenset({str})
PLAIN_VALUES_MAX = 2_000_000
"""Of one list, which is read at once: a tenth of a second."""
IN_A_MAP = b"\x81\xa0"
"""A map of one field, whose value follows: a decoder of structs passes over any value of it."""


class _Nothing(msgspec.Struct):
    """No field: a decoder of this passes over all fields, and makes nothing of them."""


_pass_over = msgspec.msgpack.Decoder(_Nothing).decode
_write = msgspec.msgpack.Encoder().encode


def _extension(code: int, data: memoryview) -> Extension:
    return Extension(code, bytes(data))


def _counted() -> Callable[[int, memoryview], Extension]:
    """The same for so many extensions as a message may have: each is a call into Python."""
    left = iter(range(VALUES_MAX))

    def extension(code: int, data: memoryview) -> Extension:
        if next(left, None) is None:
            raise ValueError(f"it has more than {VALUES_MAX:,} values that are extensions")
        return _extension(code, data)

    return extension


_read = msgspec.msgpack.Decoder(dict[Any, Any], ext_hook=_extension).decode


def _read_long(body: bytes) -> dict[Any, Any]:
    return msgspec.msgpack.decode(body, type=dict[Any, Any], ext_hook=_counted())


def _count_values(body: bytes) -> None:
    """Raise BadMessage for too many values, where lists of plain ones do not count; in time that
    goes by how many may be, and by the bytes. What is not well formed is for the decoder to say."""
    waiting: list[Any] = [msgspec.Raw(body)]
    left = VALUES_MAX
    while waiting:
        container = waiting.pop()
        count, lead = _size_of(container)
        if count > PLAIN_VALUES_MAX:
            raise BadMessage(
                f"a list or map has more than {PLAIN_VALUES_MAX:,} values; send several messages"
            )
        is_list = lead in ARRAYS or 0x90 <= lead <= 0x9F
        if is_list and _is_plain(container):
            continue
        left -= count
        if left < 0:
            raise too_many_values()
        values = _read_list(container) if is_list else _read_values(container).values()
        waiting += [one for one in values if _size_of(one)[0] >= 0]


def _is_plain(container: Any) -> bool:
    """Whether a list holds nothing but plain values, of which there may be very many."""
    try:
        _read_plain(container)
    except msgspec.ValidationError:
        return False
    return True


def _size_of(value: Any) -> tuple[int, int]:
    """How many members a map or list says that it has, and its first byte; of others -1."""
    head = memoryview(value)[:5].tobytes()
    lead = head[0] if head else 0
    if 0x80 <= lead <= 0x9F:
        return lead & 0x0F, lead
    width = MAPS.get(lead) or ARRAYS.get(lead)
    return (int.from_bytes(head[1 : 1 + width], "big") if width else -1), lead


_read_plain = msgspec.msgpack.Decoder(list[str | int | float | bool | None]).decode
_read_list = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_read_values = msgspec.msgpack.Decoder(dict[Any, msgspec.Raw]).decode


class MsgPack:
    """The MessagePack message type."""

    structured = True
    partial = True
    enc: str | None = "base64"
    media_type = MSGPACK

    def __init__(self, options: MessageTypeOptions) -> None:
        self.name = options.name

    def decoder(self, paths: tuple[Path, ...]) -> "MsgPackDecoder":
        """A decoder of these paths."""
        return MsgPackDecoder(paths, self.parse, arriving=self._arriving)

    def parse(self, body: bytes) -> dict[str, Any]:
        """The document; raises BadMessage."""
        return self._parsed(body, is_stored=True)

    def _arriving(self, body: bytes) -> dict[str, Any]:
        return self._parsed(body, is_stored=len(body) <= VALUES_MAX)

    def _parsed(self, body: bytes, is_stored: bool) -> dict[str, Any]:
        """The document; one that is not `is_stored`, and may be too much, is counted."""
        try:
            _pass_over(IN_A_MAP + body)
            if not is_stored:
                _count_values(body)
            try:
                found = _read(body) if is_stored else _read_long(body)
                return _fields(found, 1)
            except _TimeError:
                if not is_stored:
                    check_values(found, len(body), every=True)
                return _fields(read_map(body), 1)
        except (*READ_FAILURES, TypeError) as error:
            raise BadMessage(f"not a MessagePack map: {clipped(str(error))}") from None

    def encode(self, document: object) -> bytes:
        """A map of the fields; raises BadMessage for what MessagePack cannot hold."""
        if not isinstance(document, dict):
            raise BadMessage("a MessagePack message must be an object of fields")
        try:
            return _write(_written(document, 1))
        except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as error:
            raise BadMessage(f"cannot be written as MessagePack: {clipped(str(error))}") from None

    def to_line(self, body: bytes) -> bytes:
        """The message in base64."""
        return base64_line(body)

    def from_line(self, d: bytes) -> bytes:
        """The bytes that `d` holds in base64; raises BadMessage."""
        return base64_body(d)


class MsgPackDecoder(DocumentDecoder):
    """Reads known good bodies without the fields that nobody asks for, where they are scalars."""

    def __init__(self, paths: tuple[Path, ...], parse: Any, arriving: Any) -> None:
        super().__init__(paths, parse, arriving=arriving)
        found = struct_reader(paths)
        self._few = None
        if found is not None:
            kind, self._pick = found
            self._few = msgspec.msgpack.Decoder(kind).decode

    def columns(self, bodies: Sequence[bytes]) -> list[Column]:
        """One column per path of bodies that `read` has accepted."""
        if self._few is not None:
            try:
                return self._pick(list(map(self._few, bodies)))
            except READ_FAILURES:
                pass  # a field is an array, or bytes, or of a kind that only documents show
        return super().columns(bodies)


class _TimeError(ValueError):
    """There is a time in it that has to be read in another way."""


def _fields(found: dict[Any, Any], level: int) -> dict[str, Any]:
    """A map as an object: its values, and its keys as text. What was decoded is changed in place,
    since most values stay."""
    if level > NESTING_MAX:
        raise UnsuitedError(f"nested more than {NESTING_MAX} levels deep")
    if not TEXTS.issuperset(map(type, found)):
        found = {_name(key): value for key, value in found.items()}
    if not ATOMS.issuperset(map(type, found.values())):
        for name, value in found.items():
            if type(value) not in ATOMS:
                found[name] = _value(value, level)
    return found


def _value(value: Any, level: int) -> Any:
    kind = type(value)
    if kind in ATOMS:
        return value
    if kind is dict:
        return _fields(value, level + 1)
    if kind is list:
        if level >= NESTING_MAX:
            raise UnsuitedError(f"nested more than {NESTING_MAX} levels deep")
        if ATOMS.issuperset(map(type, value)):
            return value
        return [_value(element, level + 1) for element in value]
    if kind is bytes:
        return Base64.of(value)
    if kind is Extension:
        return MarkedText(Base64.of(value.data), value)
    raise _TimeError


def _name(key: Any) -> str:
    """The name of a field whose key may be anything."""
    if type(key) is str:
        return key
    if isinstance(key, bytes):
        return Base64.of(key)
    if key is None or isinstance(key, bool | int | float):
        return MarkedText(msgspec.json.encode(key).decode(), key)
    raise UnsuitedError("a key is a container, an extension or a time; name fields by text")


def _written(value: Any, level: int) -> Any:
    """What the writer writes for a value of a document."""
    if level > NESTING_MAX + 1:
        raise ValueError(f"nested more than {NESTING_MAX} levels deep")
    match value:
        case dict():
            return {
                name if type(name) is str else _key(name): _written(inner, level + 1)
                for name, inner in value.items()
            }
        case list():
            return [_written(element, level + 1) for element in value]
        case Base64():
            return value.data
        case MarkedText(original=Extension() as original):
            return msgspec.Raw(extension_bytes(original))
        case MarkedText():
            return str(value)
        case bool() | None:
            return value
        case float():
            return float(value)
        case int():
            if value not in INTEGERS:
                raise ValueError("an integer has more than 64 bits")
            return value
        case str():
            return str(value)
    raise TypeError(f"it has no {type(value).__name__}")


def _key(name: Any) -> Any:
    match name:
        case Base64():
            return name.data
        case MarkedText(original=original):
            return original
        case str():
            return str(name)
    raise TypeError("a field is named by text")
