"""MessagePack messages: a record is one map, kept byte for byte.

A body is first passed over by a decoder that keeps nothing: where a length or a count exceeds what
follows it ends, before anything is allocated for it. Of a long one that arrives the values are
counted, container by container, which makes nothing of those that are too many. Then it is decoded,
which checks its texts.
Few fields of bodies that are known good are read without the others (`sow.messages.json`
has the structs for it).

Bytes and extensions are base64 text in documents, and keys that are no text the text of them; both
are written back as what they were. What msgspec would turn into a time, and so cut to microseconds,
is read by `_Reader`, which is slower and keeps every bit: an extension of the type -1 is a time of
nanoseconds, to this server an extension like any other. The bodies that come there were passed over
before, so no length in them exceeds what follows.
"""

import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from sow.core.media_types import MSGPACK
from sow.core.paths import Path
from sow.errors import BadMessage, clipped
from sow.messages.base import Column
from sow.messages.documents import (
    VALUES_MAX,
    Base64,
    BinaryTypes,
    BytesType,
    DocumentDecoder,
    TypedInt,
    TypedText,
    too_deep,
    too_many_values,
)
from sow.messages.json import READ_FAILURES, UnsuitedError, struct_reader


class Extension(NamedTuple):
    """A value of a type that MessagePack leaves to applications."""

    code: int
    data: bytes


FIXED = {
    0xCA: struct.Struct(">f"),
    0xCB: struct.Struct(">d"),
    0xCC: struct.Struct(">B"),
    0xCD: struct.Struct(">H"),
    0xCE: struct.Struct(">I"),
    0xCF: struct.Struct(">Q"),
    0xD0: struct.Struct(">b"),
    0xD1: struct.Struct(">h"),
    0xD2: struct.Struct(">i"),
    0xD3: struct.Struct(">q"),
}
CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}
FIXED_EXTENSIONS = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16}
EXTENSIONS = {0xC7: 1, 0xC8: 2, 0xC9: 4}
BINARIES = {0xC4: 1, 0xC5: 2, 0xC6: 4}
TEXTS = {0xD9: 1, 0xDA: 2, 0xDB: 4}
ARRAYS = {0xDC: 2, 0xDD: 4}
MAPS = {0xDE: 2, 0xDF: 4}


def read_map(body: bytes) -> dict[Any, Any]:
    """The map that a body is; raises ValueError, or RecursionError where it nests very deeply."""
    found = _Reader(body).value()
    if not isinstance(found, dict):
        raise ValueError("it is no map")
    return found


def extension_bytes(extension: Extension) -> bytes:
    """An extension as it is in a message."""
    code, data = extension
    size = len(data)
    for lead, fixed in FIXED_EXTENSIONS.items():
        if size == fixed:
            return struct.pack(">Bb", lead, code) + data
    for lead, width in EXTENSIONS.items():
        if size < 256**width:
            return bytes([lead]) + size.to_bytes(width, "big") + struct.pack(">b", code) + data
    raise ValueError("an extension is longer than 4 GiB")


class _Reader:
    """A place in a message, moving forward."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    def value(self) -> Any:
        """The value that begins here."""
        lead = self._take(1)[0]
        if lead < 0x80:
            return lead
        if lead >= 0xE0:
            return lead - 256
        if lead < 0x90:
            return self._map(lead & 0x0F)
        if lead < 0xA0:
            return self._array(lead & 0x0F)
        if lead < 0xC0:
            return self._text(lead & 0x1F)
        if lead in CONSTANTS:
            return CONSTANTS[lead]
        if lead in FIXED:
            return FIXED[lead].unpack(self._take(FIXED[lead].size))[0]
        if lead in FIXED_EXTENSIONS:
            return self._extension(FIXED_EXTENSIONS[lead])
        for widths, read in self._sized():
            if lead in widths:
                return read(int.from_bytes(self._take(widths[lead]), "big"))
        raise ValueError(f"byte {self._at - 1} begins no value")

    def _sized(self) -> tuple[tuple[dict[int, int], Callable[[int], Any]], ...]:
        """The first bytes of types with a length or count, by its width."""
        return (
            (TEXTS, self._text),
            (BINARIES, self._take),
            (EXTENSIONS, self._extension),
            (ARRAYS, self._array),
            (MAPS, self._map),
        )

    def _map(self, count: int) -> dict[Any, Any]:
        return {self.value(): self.value() for _ in range(count)}

    def _array(self, count: int) -> list[Any]:
        return [self.value() for _ in range(count)]

    def _text(self, size: int) -> str:
        return str(self._take(size), "utf-8")

    def _extension(self, size: int) -> Extension:
        (code,) = struct.unpack(">b", self._take(1))
        return Extension(code, self._take(size))

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._body):
            raise ValueError(f"{size} bytes should follow byte {self._at}")
        taken = self._body[self._at : end]
        self._at = end
        return taken


INTEGERS = range(-(2**63), 2**64)
"""The range of integers of the format."""
PLAIN_VALUES_MAX = 2_000_000
"""Members of one list, which is read in one step: a tenth of a second."""
IN_A_MAP = b"\x81\xa0"
"""A map of one field, whose value follows: a decoder of structs skips any value of it."""


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


def _count_values(body: bytes, every: bool = False) -> None:
    """Raise BadMessage for too many values; lists of plain ones do not count unless `every` is set.
    The time is bounded by the limit and by the bytes. The decoder reports malformed messages."""
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
        if is_list and not every and _is_plain(container):
            continue
        left -= count
        if left < 0:
            raise too_many_values()
        values = _read_list(container) if is_list else _read_values(container).values()
        waiting += [one for one in values if _size_of(one)[0] >= 0]


def _is_plain(container: Any) -> bool:
    """Whether a list holds only plain values; there may be very many."""
    try:
        _read_plain(container)
    except msgspec.ValidationError:
        return False
    return True


def _size_of(value: Any) -> tuple[int, int]:
    """The declared number of members of a map or list, and its first byte; -1 for others."""
    head = memoryview(value)[:5].tobytes()
    lead = head[0] if head else 0
    if 0x80 <= lead <= 0x9F:
        return lead & 0x0F, lead
    width = MAPS.get(lead) or ARRAYS.get(lead)
    return (int.from_bytes(head[1 : 1 + width], "big") if width else -1), lead


_read_plain = msgspec.msgpack.Decoder(list[str | int | float | bool | None]).decode
_read_list = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_read_values = msgspec.msgpack.Decoder(dict[Any, msgspec.Raw]).decode


class MsgPack(BytesType):
    """The MessagePack message type."""

    media_type = MSGPACK

    def decoder(self, paths: tuple[Path, ...]) -> "MsgPackDecoder":
        """A decoder of these paths."""
        return MsgPackDecoder(self, paths)

    def parse(self, body: bytes) -> dict[str, Any]:
        """The document; raises BadMessage."""
        return self._parsed(body, is_stored=True)

    def arriving(self, body: bytes) -> dict[str, Any]:
        """The document of a message with a bounded number of values; raises BadMessage."""
        return self._parsed(body, is_stored=len(body) <= VALUES_MAX)

    def _parsed(self, body: bytes, is_stored: bool) -> dict[str, Any]:
        """The document; one that is not `is_stored`, and may be too much, is counted."""
        try:
            _pass_over(IN_A_MAP + body)
            if not is_stored:
                _count_values(body)
            try:
                return KINDS.document(_read(body) if is_stored else _read_long(body))
            except (ValueError, msgspec.ValidationError):
                # There is a time in it, perhaps one that Python has no year for.
                if not is_stored:
                    _count_values(body, every=True)
                return KINDS.document(read_map(body))
        except RecursionError:
            raise too_deep() from None
        except (*READ_FAILURES, TypeError) as error:
            raise BadMessage(f"not a MessagePack map: {clipped(str(error))}") from None

    def encode(self, document: object) -> bytes:
        """A map of the fields; raises BadMessage for what MessagePack cannot hold."""
        if not isinstance(document, dict):
            raise BadMessage("a MessagePack message must be an object of fields")
        try:
            return _write(KINDS.message(document))
        except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as error:
            raise BadMessage(f"cannot be written as MessagePack: {clipped(str(error))}") from None


class MsgPackDecoder(DocumentDecoder):
    """Reads validated bodies without the fields that are not requested, if those are scalars."""

    def __init__(self, kind: MsgPack, paths: tuple[Path, ...]) -> None:
        super().__init__(kind, paths)
        found = struct_reader(paths)
        self._few = None
        if found is not None:
            struct_type, self._pick = found
            self._few = msgspec.msgpack.Decoder(struct_type).decode

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


class _MsgPackKinds(BinaryTypes):
    """The types of MessagePack that JSON lacks."""

    def shown(self, value: Any, _level: int) -> Any:
        """Bytes and extensions as their base64 form."""
        kind = type(value)
        if kind is bytes:
            return Base64.of(value)
        if kind is Extension:
            return TypedText(Base64.of(value.data), value)
        raise _TimeError

    def named(self, key: Any) -> str:
        """The name of a field; its key may be of any type."""
        if isinstance(key, bytes):
            return Base64.of(key)
        if key is None or isinstance(key, bool | int | float):
            return TypedText(msgspec.json.encode(key).decode(), key)
        raise UnsuitedError("a key is a container, an extension or a time; name fields by text")

    def remembered(self, value: TypedText | TypedInt) -> Any:
        """An extension; other kinds are not this format's."""
        if isinstance(value.original, Extension):
            return msgspec.Raw(extension_bytes(value.original))
        return super().remembered(value)

    def key(self, name: Any) -> Any:
        """Keys as what they were."""
        match name:
            case Base64():
                return name.data
            case TypedText(original=original):
                return original
        return super().key(name)

    def whole(self, value: int) -> int:
        """An integer of 64 bits."""
        if value not in INTEGERS:
            raise ValueError("an integer has more than 64 bits")
        return value


KINDS = _MsgPackKinds()
