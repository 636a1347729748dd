"""MessagePack read value by value: for messages with times, which msgspec reads less exactly.

An extension of the type -1 is a time of nanoseconds. To this server it is an extension like any
other: its bytes. The bodies that come here were passed over before (`sow.messages.msgpack`), so
no length in them exceeds what follows; what is read is what msgspec reads, but for times.
"""

import struct
from collections.abc import Callable
from typing import Any, NamedTuple


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
