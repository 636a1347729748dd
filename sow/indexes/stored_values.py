"""Stored values: index contents of a topic in its checkpoint.

Most of the time to build indexes at a start goes into reading the indexed fields of a million
bodies again, and finding the code of each value. So with each slice of a checkpoint goes a *part*:
the codes of its records in each hash index, the columns of each `Index`, and each value and text
once, at the first use of its code. These codes are the checkpoint's own: an index reassigns a code
when no record has its value any more.

A part names what it was made for (`binding`), and is numbered. A start uses parts only if they are
what it would build itself, up to the first missing one, and only for unchanged records; it reads
the bodies of all others.

The store decides where parts are kept.
"""

from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from sow.core.paths import Path, Value
from sow.indexes.column_cache import MemoColumn
from sow.indexes.hash import Codes, HashIndex
from sow.messages.base import Column
from sow.store.columns import NO_SLOTS, Mask, Slots
from sow.store.protocols import Numbers

FORMAT = 1
"""Format of the parts; others are ignored."""
GROUPED = 8
"""Parts that are loaded at once, of a thousand records each: a few milliseconds."""
UNSEEN = -1
"""The number of a code that was not seen yet, and of -1, which in every index is no code."""
PLAIN = {str, int, float, bool, type(None)}
"""Types of values that are written unchanged; nothing is stored of others, such as numbers of too
many digits."""

Meant = tuple[Slots, list[Codes], list[tuple[NDArray[Any], ...]]]
"""Slots, and for their records the codes in each hash index and the values of each memo column."""
Reader = Callable[[tuple[Path, ...], Slots], list[Column]]
"""Reads the values of paths, a column each, from the bodies of some slots."""


class HashPart(msgspec.Struct, array_like=True, gc=False):
    """Codes of records, int32; and, for each code that is new, a column of values for each path."""

    codes: bytes
    values: list[list[Value]]


class ColumnPart(msgspec.Struct, array_like=True, gc=False):
    """Values of a memo column; and, for each code that is new, its text."""

    kinds: bytes
    numbers: bytes
    whole: bytes
    codes: bytes
    texts: list[str]


class Part(msgspec.Struct, array_like=True, gc=False):
    """Index contents of one slice; `number` counts those of a checkpoint."""

    format: int
    binding: str
    number: int
    hashes: list[HashPart]
    columns: list[ColumnPart]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Part).decode


class _Renumbered:
    """The codes of an index, numbered as they are first used."""

    def __init__(self) -> None:
        self._numbers = np.full(1, UNSEEN, np.int32)
        """By code and one; the first is that of no code."""
        self._count = 0
        self._era = 0

    def of(self, codes: Codes, era: int) -> tuple[Codes, Slots]:
        """The numbers of these codes, and the positions of new ones.

        Codes keep their meaning while `era` is the same.
        """
        if era != self._era:
            self._era, self._numbers = era, np.full(1, UNSEEN, np.int32)
        most = int(codes.max(initial=UNSEEN))
        if most == UNSEEN:
            return codes, NO_SLOTS
        more = most + 2 - len(self._numbers)
        if more > 0:
            more = max(more, len(self._numbers))
            self._numbers = np.append(self._numbers, np.full(more, UNSEEN, np.int32))
        unmet = np.flatnonzero((codes != UNSEEN) & (self._numbers[codes + 1] == UNSEEN))
        new, first = np.unique(codes[unmet], return_index=True)
        self._numbers[new + 1] = np.arange(self._count, self._count + len(new))
        self._count += len(new)
        return self._numbers[codes + 1], unmet[first]


class ValuesWriter:
    """Makes the parts of one checkpoint from these indexes; `read` reads bodies."""

    def __init__(
        self, binding: str, hashes: Sequence[HashIndex], columns: Sequence[MemoColumn], read: Reader
    ) -> None:
        self._binding = binding
        self._hashes = [(index, _Renumbered()) for index in hashes]
        self._columns = [(column, _Renumbered()) for column in columns]
        self._read = read
        self._number = 0
        self._is_over = not hashes and not columns

    def part(self, slots: Slots) -> bytes | None:
        """Index contents of the records in these ascending slots; None where some are stale."""
        if self._is_over or not len(slots):
            return None
        for column, _ in self._columns:
            if column.has_noted(int(slots[0]), int(slots[-1]) + 1):
                return None
        try:
            hashes = [self._of_hash(index, numbers, slots) for index, numbers in self._hashes]
            columns = [_of_column(column, numbers, slots) for column, numbers in self._columns]
            part = _encode(Part(FORMAT, self._binding, self._number, hashes, columns))
        except (TypeError, OverflowError, UnicodeEncodeError):
            # A value that cannot be written, of a code that counts as seen.
            self._is_over = True
            return None
        self._number += 1
        return part

    def _of_hash(self, index: HashIndex, numbers: _Renumbered, slots: Slots) -> HashPart:
        codes, new = numbers.of(index.codes(slots), index.era)
        values = self._read(index.paths, slots[new]) if len(new) else []
        for column in values:
            for value in column:
                if not PLAIN.issuperset(map(type, value if type(value) is list else [value])):
                    raise TypeError
        return HashPart(codes.tobytes(), [*map(list, values)])


def _of_column(column: MemoColumn, numbers: _Renumbered, slots: Slots) -> ColumnPart:
    held = column.codes[slots]
    codes, new = numbers.of(held, column.era)
    return ColumnPart(
        column.kinds[slots].tobytes(),
        column.numbers[slots].tobytes(),
        column.whole[slots].tobytes(),
        codes.tobytes(),
        [column.texts[code] for code in held[new].tolist()],
    )


class StoredValues:
    """The parts of a checkpoint, to be loaded into empty indexes."""

    def __init__(
        self, binding: str, hashes: Sequence[HashIndex], columns: Sequence[MemoColumn]
    ) -> None:
        self._binding = binding
        self._hashes = hashes
        self._columns = columns
        self._parts: list[tuple[int, Numbers, bytes]] = []
        nothing = array("i", [UNSEEN])
        self._codes = [nothing[:] for _ in (*hashes, *columns)]
        """By index, the code of each number plus one."""

    def add(self, start: int, seqs: Numbers, part: bytes | None) -> None:
        """The records from slot `start` on are restored, each as of its number in `seqs`."""
        if part is not None:
            self._parts.append((start, seqs, part))

    def taking(self, held: Mask, seqs: NDArray[np.int64]) -> Iterator[Slots]:
        """Load the contents of records that are `held`, by slot, and unchanged; yields their
        slots."""
        for at in range(0, len(self._parts), GROUPED):
            group: list[Meant] = []
            for number, (start, were, stored) in enumerate(self._parts[at : at + GROUPED], at):
                part = self._known(stored, number)
                if part is None:
                    yield from self._take(group, len(held))
                    return
                stop = start + len(were)
                same = held[start:stop] & (seqs[start:stop] == np.frombuffer(were, np.int64))
                group.append(self._meant(part, start, np.flatnonzero(same)))
            yield from self._take(group, len(held))

    def _known(self, stored: bytes, number: int) -> Part | None:
        try:
            part = _decode(stored)
        except msgspec.MsgspecError:
            return None
        wanted = FORMAT, self._binding, number
        return part if (part.format, part.binding, part.number) == wanted else None

    def _meant(self, part: Part, start: int, places: Slots) -> Meant:
        """The contents of a part for the records at these places, in codes of the indexes."""
        codes, count = [], len(self._hashes)
        for index, own, stored in zip(self._hashes, self._codes, part.hashes, strict=False):
            own.extend(index.codes_of(stored.values))
            codes.append(_renumbered(own, stored.codes)[places])
        columns: list[tuple[NDArray[Any], ...]] = []
        for column, own, columns_part in zip(
            self._columns, self._codes[count:], part.columns, strict=True
        ):
            own.extend(column.codes_of(columns_part.texts))
            columns.append(
                (
                    np.frombuffer(columns_part.kinds, np.uint8)[places],
                    np.frombuffer(columns_part.numbers, np.float64)[places],
                    np.frombuffer(columns_part.whole, np.bool_)[places],
                    _renumbered(own, columns_part.codes)[places],
                )
            )
        return start + places, codes, columns

    def _take(self, group: Sequence[Meant], count: int) -> Iterator[Slots]:
        if not group:
            return
        slots = np.concatenate([slots for slots, _, _ in group])
        for at, index in enumerate(self._hashes):
            index.stand(slots, np.concatenate([codes[at] for _, codes, _ in group]), count)
        for at, column in enumerate(self._columns):
            of_each = zip(*(columns[at] for _, _, columns in group), strict=True)
            kinds, numbers, whole, codes = map(np.concatenate, of_each)
            column.take_in(slots, kinds, numbers, whole, codes, count)
        yield slots


def _renumbered(own: "array[int]", numbers: bytes) -> Codes:
    return np.frombuffer(own, np.int32)[np.frombuffer(numbers, np.int32) + 1]
