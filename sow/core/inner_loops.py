"""The five loops that every published record passes, in C where that was built, else in Python.

What most spend is time for memory: an old body, or a place in a chain, is read long after it was
written, so that it is in no cache. The C of `_inner_loops.c` requests the memory of many records
before it needs the first. The loop over frames looks at single bytes. Both languages do exactly the
same (tests/core/test_inner_loops.py compares them); an installation without a compiler has Python
alone, and SOW_PURE=1 chooses it. Nothing here knows what a record, a topic or an index is for.
"""

import os
from array import array
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import Any, NamedTuple

NO_PLACE = -1
"""No code, no slot."""
INTERFACE = 4
"""As in the C source: what was built of an older one is not used."""


def _swap(held: list[Any], slots: Sequence[int], values: Sequence[Any]) -> list[Any]:
    """Put values into slots of a list; returns what was there. The same slot may occur twice."""
    olds = []
    for slot, value in zip(slots, values, strict=True):
        olds.append(held[slot])
        held[slot] = value
    return olds


def _stamp(block: Any, slots: Sequence[int], seqs: Sequence[int], ts_us: Sequence[int]) -> None:
    """Write the numbers and times of changes into the first two rows of a block of 64-bit numbers;
    of a slot that occurs twice the last ones stay."""
    for row, numbers in zip(block, (seqs, ts_us), strict=False):
        row[slots] = numbers


def _stand(
    codes: dict[Any, int],
    values: Iterable[Any],
    slots: Sequence[int],
    standing: "array[int]",
    moved: "array[int]",
    code_of: Callable[[Any], int],
) -> None:
    """Write the code of each value into `standing`, and add the slots that have another one now to
    `moved`. `code_of` finds the code of a value that is not in `codes`, or has no hash."""
    for slot, value in zip(slots, values, strict=True):
        try:
            code = codes[value]
        except (KeyError, TypeError):
            code = code_of(value)
        if standing[slot] != code:
            standing[slot] = code
            moved.append(slot)


def _relink(
    slots: "array[int]",
    standing: "array[int]",
    filed: "array[int]",
    heads: "array[int]",
    sizes: "array[int]",
    following: "array[int]",
    previous: "array[int]",
) -> None:
    """Move slots from the chains in which they are filed to those of the codes under which they
    stand: each code has a head and a size, each slot the ones after and before it."""
    for slot in slots:
        old, new = filed[slot], standing[slot]
        if old == new:
            continue
        if old != NO_PLACE:
            before, after = previous[slot], following[slot]
            if before == NO_PLACE:
                heads[old] = after
            else:
                following[before] = after
            if after != NO_PLACE:
                previous[after] = before
            sizes[old] -= 1
        if new != NO_PLACE:
            head = heads[new]
            previous[slot], following[slot] = NO_PLACE, head
            if head != NO_PLACE:
                previous[head] = slot
            heads[new] = slot
            sizes[new] += 1
        filed[slot] = new


TEXT, BINARY, MASKED, NO_LENGTH, TWO_BYTES = 0x81, 0x82, 0x80, 127, 126
"""The first byte of a frame that is a message by itself, a text or not; the bit of one with a mask;
what announces a length of eight bytes, or of two (RFC 6455 §5.2)."""


def _frames(data: bytes, bytes_max: int, count_max: int) -> tuple[list[bytes], int, bool]:
    """The messages of the first WebSocket frames in `data`, up to `count_max`: while a frame is
    masked, is a message of up to `bytes_max`, of ASCII if it is a text, and has a length of no more
    than two bytes. Also where they end, and whether a part of a frame follows that may be one."""
    found: list[bytes] = []
    at, size = 0, len(data)
    while at < size and len(found) < count_max and data[at] in (TEXT, BINARY):
        if size - at < 2:
            return found, at, True
        length, start = data[at + 1] ^ MASKED, at + 6
        if length >= NO_LENGTH:
            break
        if length == TWO_BYTES:
            if size - at < 4:
                return found, at, True
            length, start = data[at + 2] << 8 | data[at + 3], at + 8
        if length > bytes_max:
            break
        if size - start < length:
            return found, at, True
        message = _unmasked(data[start : start + length], data[start - 4 : start])
        if data[at] == TEXT and not message.isascii():
            break
        found.append(message)
        at = start + length
    return found, at, False


def _unmasked(payload: bytes, mask: bytes) -> bytes:
    size = len(payload)
    key = (mask * (size // 4 + 1))[:size]
    number = int.from_bytes(payload, "little") ^ int.from_bytes(key, "little")
    return number.to_bytes(size, "little")


class InnerLoops(NamedTuple):
    """The loops, and the language in which they run; in C there is an index of keys too, which
    `sow.core.containers` does without in Python."""

    language: str
    swap: Callable[..., list[Any]]
    stamp: Callable[..., None]
    stand: Callable[..., None]
    relink: Callable[..., None]
    frames: Callable[[bytes, int, int], tuple[list[bytes], int, bool]]
    key_index: Callable[..., Any] | None = None


IN_PYTHON = InnerLoops("Python", _swap, _stamp, _stand, _relink, _frames)


def in_c() -> InnerLoops | None:
    """The loops in C; None where they were not built, or of another source."""
    try:
        built = import_module("sow.core._inner_loops")
    except ImportError:
        return None
    if built.INTERFACE != INTERFACE:
        return None
    loops = built.swap, built.stamp, built.stand, built.relink, built.frames
    return InnerLoops("C", *loops, built.KeyIndex)


def wanted_in(environment: "os._Environ[str] | dict[str, str]") -> InnerLoops:
    """The loops to use: Python's where SOW_PURE is 1, else the fastest there are."""
    return IN_PYTHON if environment.get("SOW_PURE") == "1" else in_c() or IN_PYTHON


INNER_LOOPS = wanted_in(os.environ)
