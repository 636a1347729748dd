"""Stored values: what the indexes of a topic know of its records, beside those of a checkpoint.

To read the indexed fields of a million bodies again, and to find the code of each value, is most of
what it takes to make indexes at a start. So with each slice of a checkpoint goes a *part*: the
codes under which its records stand in each hash index, the columns of each `Index`, and each value
and text once, when its code is first met. These codes are the checkpoint's own: an index gives its
codes anew when no record has the value any more.

A part says what it was made for (`binding`), and is numbered. A start takes parts only if they are
what it would make itself, up to the first one that is missing, and only of records that are as they
were then; it reads the bodies of all others.

Where parts are kept is the store's business.
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
from sow.store.columns import NO_SLOTS
from sow.store.protocols import Numbers

FORMAT = 1
"""Of the parts; one of another is not taken."""
GROUPED = 8
"""Parts that are taken in at once, of a thousand records each: a few milliseconds."""
UNTOLD = -1
"""The number of a code that was not met yet, and of -1, which in every index is no code."""
PLAIN = {str, int, float, bool, type(None)}
"""Types of values that are written as they are; of others, as numbers of too many digits, nothing
is stored."""

Mask = NDArray[np.bool_]
Slots = NDArray[np.int64]
Meant = tuple[Slots, list[Codes], list[tuple[NDArray[Any], ...]]]
"""Slots, and of their records the codes in each hash index and what each memo column has."""
Reader = Callable[[tuple[Path, ...], Slots], list[Column]]
"""Gives the values of paths, a column each, in the bodies of some slots."""


class HashPart(msgspec.Struct, array_like=True, gc=False):
    """Codes of records, int32; and, for each code that is new, a column of values for each path."""

    codes: bytes
    values: list[list[Value]]


class ColumnPart(msgspec.Struct, array_like=True, gc=False):
    """What a memo column has of records; and, for each code that is new, its text."""

    kinds: bytes
    numbers: bytes
    whole: bytes
    codes: bytes
    texts: list[str]


class Part(msgspec.Struct, array_like=True, gc=False):
    """What goes with one slice; `number` counts those of a checkpoint."""

    format: int
    binding: str
    number: int
    hashes: list[HashPart]
    columns: list[ColumnPart]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Part).decode


class _Renumbered:
    """The codes of an index, numbered as they are met."""

    def __init__(self) -> None:
        self._numbers = np.full(1, UNTOLD, np.int32)
        """By code and one; the first is that of no code."""
        self._count = 0
        self._era = 0

    def of(self, codes: Codes, era: int) -> tuple[Codes, Slots]:
        """The numbers of these codes, and at which places of them those stand that are new.

        What codes mean is as it was while `era` is.
        """
        if era != self._era:
            self._era, self._numbers = era, np.full(1, UNTOLD, np.int32)
        most = int(codes.max(initial=UNTOLD))
        if most == UNTOLD:
            return codes, NO_SLOTS
        more = most + 2 - len(self._numbers)
        if more > 0:
            more = max(more, len(self._numbers))
            self._numbers = np.append(self._numbers, np.full(more, UNTOLD, np.int32))
        unmet = np.flatnonzero((codes != UNTOLD) & (self._numbers[codes + 1] == UNTOLD))
        new, first = np.unique(codes[unmet], return_index=True)
        self._numbers[new + 1] = np.arange(self._count, self._count + len(new))
        self._count += len(new)
        return self._numbers[codes + 1], unmet[first]


class ValuesWriter:
    """Makes the parts of one checkpoint, of what these indexes know; `read` reads bodies."""

    def __init__(
        self,
        binding: str,
        hashes: Sequence[HashIndex],
        columns: Sequence[MemoColumn],
        read: Reader,
    ) -> None:
        self._binding = binding
        self._hashes = [(index, _Renumbered()) for index in hashes]
        self._columns = [(column, _Renumbered()) for column in columns]
        self._read = read
        self._number = 0
        self._is_over = not hashes and not columns

    def part(self, slots: Slots) -> bytes | None:
        """What is known of the records in these slots, which rise; None where not all is."""
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
            # A value that cannot be written, of a code that counts as told.
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
    """The parts of a checkpoint, to be taken into indexes that know nothing yet."""

    def __init__(
        self, binding: str, hashes: Sequence[HashIndex], columns: Sequence[MemoColumn]
    ) -> None:
        self._binding = binding
        self._hashes = hashes
        self._columns = columns
        self._parts: list[tuple[int, Numbers, bytes]] = []
        nothing = array("i", [UNTOLD])
        self._codes = [nothing[:] for _ in (*hashes, *columns)]
        """By index, the code of each number and one."""

    def add(self, start: int, seqs: Numbers, part: bytes | None) -> None:
        """The records from slot `start` on have come, each as of its number in `seqs`."""
        if part is not None:
            self._parts.append((start, seqs, part))

    def taking(self, held: Mask, seqs: NDArray[np.int64]) -> Iterator[Slots]:
        """Take in what is known of those records that are `held`, and as they were, by slot; gives
        the slots that are done."""
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
        """What a part says of the records at these places, in codes of the indexes themselves."""
        codes, count = [], len(self._hashes)
        for index, own, told in zip(self._hashes, self._codes, part.hashes, strict=False):
            own.extend(index.codes_of(told.values))
            codes.append(_renumbered(own, told.codes)[places])
        columns: list[tuple[NDArray[Any], ...]] = []
        for column, own, said in zip(self._columns, self._codes[count:], part.columns, strict=True):
            own.extend(column.codes_of(said.texts))
            columns.append(
                (
                    np.frombuffer(said.kinds, np.uint8)[places],
                    np.frombuffer(said.numbers, np.float64)[places],
                    np.frombuffer(said.whole, np.bool_)[places],
                    _renumbered(own, said.codes)[places],
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
