"""Snapshots: the rows of an answer, pinned while they are written out.

An answer names slots, and slots change with the next publish. A snapshot pins the bodies themselves
(8 bytes a row: bodies never change) and copies the numbers beside them, so that a million rows can
be written piece by piece, as fast as a client reads them, and still be the state of one moment.
Numbers become text a chunk at a time.

A `PinnedColumn` is what some rows of a table held at one moment, by reference. A body is never
changed, only replaced, so references pin a moment. Few rows are copied at once. Copying those of a
million rows takes a tenth of a second, so many are copied afterwards, in steps; until then the rows
are read in place, except those that have changed since, which the table keeps
(`sow.store.columns`). Columns have plain values only, so the cycle collector need not look at
them.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from sow.core.cooperative import Task, run_to_completion, untracked
from sow.core.definitions import Topic
from sow.protocol.replies import Encoding, Frames
from sow.topic.records import Records
from sow.topic.rendering import WHOLE, LineColumns, Shape

Value = TypeVar("Value")

Rows = NDArray[np.int64]

PICKED_ROWS_MAX = 500
"""Rows that are copied when they are pinned: a tenth of a millisecond."""
SETTLED_AT_ONCE = 5_000
"""Rows copied in one step: a millisecond, in any order."""


class PinnedColumn(Generic[Value]):
    """A pinned column of rows. `places` are their places in `values`; None: one by one.

    `before` has what was in a place and was replaced. Negative places are those of `more`, from its
    start: -1 is the first.
    """

    __slots__ = ("_before", "_more", "_places", "_values")

    def __init__(
        self,
        values: list[Value],
        places: Rows | None = None,
        before: Mapping[int, Value] | None = None,
        more: Sequence[Value] = (),
    ) -> None:
        self._values = untracked(values)
        self._places = places
        self._before: Mapping[int, Value] = {} if before is None else before
        self._more = more

    @classmethod
    def take(
        cls, column: "list[Value]", slots: Rows, hold: Callable[[], Mapping[int, Value]]
    ) -> "PinnedColumn[Value]":
        """Pin what some slots of a column hold; `hold` gives what is replaced from now on."""
        if len(slots) <= PICKED_ROWS_MAX:
            return cls([column[slot] for slot in slots.tolist()])
        return cls(column, slots, hold())

    def __len__(self) -> int:
        return len(self._values) if self._places is None else len(self._places)

    def part(self, start: int, stop: int) -> list[Value]:
        """The values of the rows from `start` up to `stop`."""
        values, before, more = self._values, self._before, self._more
        if self._places is None:
            return values[start:stop]
        places = self._places[start:stop].tolist()
        if more:
            return [
                more[-1 - place] if place < 0 else before.get(place, values[place])
                for place in places
            ]
        if before:
            return [before[place] if place in before else values[place] for place in places]
        return [values[place] for place in places]

    def at(self, rows: Rows) -> "PinnedColumn[Value]":
        """Some of the rows, of the same values."""
        places = rows if self._places is None else self._places[rows]
        return PinnedColumn(self._values, places, self._before, self._more)

    def and_more(self, values: Sequence[Value]) -> "PinnedColumn[Value]":
        """The rows, followed by others."""
        more = [*self._more, *values]
        places = np.arange(len(self._values)) if self._places is None else self._places
        added = -1 - np.arange(len(self._more), len(more))
        both = np.concatenate([places, added])
        return PinnedColumn(self._values, both, self._before, untracked(more))

    def settle(self) -> Task[None]:
        """Release what is in no row."""
        if self._places is None:
            return
        settled: list[Value] = untracked([])
        for start in range(0, len(self._places), SETTLED_AT_ONCE):
            settled += self.part(start, start + SETTLED_AT_ONCE)
            yield
        self._values, self._places = settled, None
        self._before, self._more = {}, ()


ANSWER_CHUNK_ROWS = 500
"""Rows that are written in one go; between two such chunks others may be served."""
SELECTED_PART = 5
"""Rows with a select list are parsed and encoded again, which takes ten times as long: this
fraction of a chunk is as much as is written in one go."""
ANSWER_CHUNK_BYTES = 256 * 1024
"""Bytes of bodies that are written in one go, or one body: where rows are long, fewer are as much
work."""
NOWHERE = -1
"""The slot of a row that has no record any more."""


def rows_at_once(shape: Shape) -> int:
    """Rows of a shape that are written in one go."""
    if shape.select is None:
        return ANSWER_CHUNK_ROWS
    return max(1, ANSWER_CHUNK_ROWS // SELECTED_PART)


def held_identities(topic: Records, slots: Rows) -> PinnedColumn[str]:
    """The identities of the records in some slots."""
    table = topic.table
    identities: list[str] = table.identities  # type: ignore[assignment]
    return PinnedColumn.take(identities, slots, table.hold_identities)  # type: ignore[arg-type]


def _held_bodies(topic: Records, slots: Rows) -> PinnedColumn[bytes]:
    table = topic.table
    bodies: list[bytes] = table.bodies  # type: ignore[assignment]
    return PinnedColumn.take(bodies, slots, table.hold_bodies)  # type: ignore[arg-type]


class HeldKeys:
    """SowKeys of rows: numbers, or texts where records have keys of their own."""

    __slots__ = ("_numbers", "_texts")

    def __init__(self, numbers: NDArray[np.uint64] | None, texts: PinnedColumn[str] | None) -> None:
        self._numbers = numbers
        self._texts = texts

    @classmethod
    def take(cls, topic: Records, slots: Rows) -> "HeldKeys":
        """Those of the records in some slots."""
        numbers = topic.table.sow_key_numbers(slots)
        if numbers is not None:
            return cls(numbers, None)
        return cls(None, held_identities(topic, slots))

    @property
    def numbers(self) -> NDArray[np.uint64] | None:
        """The SowKeys as numbers; None if they are texts."""
        return self._numbers

    def part(self, start: int, stop: int) -> list[str]:
        """As text, those of the rows from `start` up to `stop`."""
        if self._texts is not None:
            return self._texts.part(start, stop)
        assert self._numbers is not None
        return list(map(str, self._numbers[start:stop].tolist()))

    def at(self, rows: Rows) -> "HeldKeys":
        """Those of some of the rows."""
        return HeldKeys(
            None if self._numbers is None else self._numbers[rows],
            None if self._texts is None else self._texts.at(rows),
        )

    def and_more(self, keys: Sequence[int] | Sequence[str]) -> "HeldKeys":
        """Those of the rows, followed by others: numbers or texts, as these are."""
        if self._texts is not None:
            return HeldKeys(None, self._texts.and_more(keys))  # type: ignore[arg-type]
        assert self._numbers is not None
        return HeldKeys(np.append(self._numbers, np.array(keys, np.uint64)), None)

    def settle(self) -> Task[None]:
        """Release what is in no row."""
        if self._texts is not None:
            yield from self._texts.settle()


class Stamps(NamedTuple):
    """What is known of records beside their bodies. `expires_us` is when they expire: 0 is never,
    -1 that in spite of the lifetime that their topic gives; None: none does, or nobody wants it."""

    sow_keys: HeldKeys
    seqs: Rows
    ts_us: Rows
    expires_us: Rows | None = None


def _expiries(topic: Records, slots: Rows) -> Rows | None:
    column, definition = topic.table.expires_us, topic.definition
    if not isinstance(definition, Topic) or not definition.expiration_us:
        return None if column is None else column[slots]
    expires_us = np.zeros(len(slots), np.int64) if column is None else column[slots]
    return np.where(expires_us == 0, -1, expires_us)


@dataclass(slots=True)
class Snapshot:
    """Rows of one topic as columns; `slots` are the slots of their records, -1 for none.

    `stamps` are None where they are not needed.
    """

    topic: Records
    slots: Rows
    bodies: PinnedColumn[bytes]
    stamps: Stamps | None

    @classmethod
    def take(
        cls, topic: Records, slots: Rows, with_keys: bool = True, with_expiries: bool = False
    ) -> "Snapshot":
        """The records in these slots as they are now; `settle` it afterwards, in steps."""
        table = topic.table
        slots = slots.copy()  # a page of all slots would keep all of them
        stamps = None
        if with_keys:
            keys = HeldKeys.take(topic, slots)
            expires_us = _expiries(topic, slots) if with_expiries else None
            stamps = Stamps(keys, table.seqs[slots], table.ts_us[slots], expires_us)
        return cls(topic, slots, _held_bodies(topic, slots), stamps)

    def settle(self) -> Task[None]:
        """Pin nothing but the rows; they can be read at any time, and stay the same."""
        yield from self.bodies.settle()
        if self.stamps is not None:
            yield from self.stamps.sow_keys.settle()

    def identities(self) -> Iterator[str]:
        """The identities of the records, while they are in their slots."""
        identities = self.topic.table.identities
        return (identities[slot] or "" for slot in self.slots.tolist())

    def __len__(self) -> int:
        return len(self.slots)

    def at(self, rows: Rows) -> "Snapshot":
        """Some of the rows."""
        return run_to_completion(self.picking(rows))

    def picking(self, rows: Rows) -> Task["Snapshot"]:
        """The same, a column in each step."""
        stamps = None
        if self.stamps is not None:
            keys = self.stamps.sow_keys.at(rows)
            yield
            seqs = self.stamps.seqs[rows]
            yield
            expires_us = self.stamps.expires_us
            expires_us = None if expires_us is None else expires_us[rows]
            stamps = Stamps(keys, seqs, self.stamps.ts_us[rows], expires_us)
            yield
        slots = self.slots[rows]
        yield
        return Snapshot(self.topic, slots, self.bodies.at(rows), stamps)

    def adding(
        self,
        sow_keys: Sequence[int] | Sequence[str],
        bodies: Sequence[bytes],
        seqs: Sequence[int],
        ts_us: Sequence[int],
    ) -> Task["Snapshot"]:
        """The rows, followed by others without a slot; a column in each step."""
        assert self.stamps is not None
        keys = self.stamps.sow_keys.and_more(sow_keys)
        yield
        all_seqs = np.append(self.stamps.seqs, np.array(seqs, np.int64))
        yield
        stamps = Stamps(keys, all_seqs, np.append(self.stamps.ts_us, np.array(ts_us, np.int64)))
        yield
        slots = np.append(self.slots, np.full(len(bodies), NOWHERE))
        yield
        return Snapshot(self.topic, slots, self.bodies.and_more(bodies), stamps)

    @property
    def is_short(self) -> bool:
        """Whether all rows can be written in one go, which one long body cannot."""
        count = len(self.slots)
        if count > ANSWER_CHUNK_ROWS:
            return False
        return sum(map(len, self.bodies.part(0, count))) <= ANSWER_CHUNK_BYTES

    def chunks(self, rows_max: int = 0, bytes_max: int = 0) -> Iterator[tuple[int, int]]:
        """The bounds of chunks of at most so many rows and bytes; of one row at least."""
        rows_max, bytes_max = rows_max or ANSWER_CHUNK_ROWS, bytes_max or ANSWER_CHUNK_BYTES
        start, count = 0, len(self.slots)
        while start < count:
            sizes = list(map(len, self.bodies.part(start, start + rows_max)))
            stop = start + len(sizes)
            if sum(sizes) > bytes_max:
                stop = start + max(1, bisect_right(list(accumulate(sizes)), bytes_max))
            yield start, stop
            start = stop

    def lines(
        self, encoding: Encoding, head: bytes, shape: Shape, start: int, stop: int
    ) -> list[bytes]:
        """Rendered `sow` lines of the rows from `start` up to `stop`."""
        columns = self.part(start, stop)
        lines = self.topic.renderer.lines("sow", shape, columns, head)
        return encoding.records("sow", lines, columns.seqs)

    def part(self, start: int, stop: int) -> LineColumns:
        """The rows from `start` up to `stop`."""
        bodies, stamps = self.bodies.part(start, stop), self.stamps
        if stamps is None:
            return LineColumns((), bodies, (), ())
        return LineColumns(
            stamps.sow_keys.part(start, stop),
            bodies,
            stamps.seqs[start:stop].tolist(),
            stamps.ts_us[start:stop].tolist(),
            expires_us=() if stamps.expires_us is None else stamps.expires_us[start:stop].tolist(),
        )

    def frames(self, encoding: Encoding, head: bytes, shape: Shape) -> Frames:
        """The same in frames, made on demand."""
        for start, stop in self.chunks(rows_at_once(shape)):
            lines = self.lines(encoding, head, shape, start, stop)
            yield encoding.frame(lines), len(lines)

    def messages(self, shape: Shape = WHOLE) -> Iterator[Sequence[bytes]]:
        """Chunks of bodies as they are stored, or the selected part of them."""
        for start, stop in self.chunks(rows_at_once(shape)):
            yield self.topic.renderer.shown(shape, self.bodies.part(start, stop))

    def framed(self, shape: Shape) -> Iterator[list[bytes]]:
        """Chunks of messages as they are stored, each behind its key, bookmark and time in JSON."""
        for start, stop in self.chunks(rows_at_once(shape)):
            columns = self.part(start, stop)
            heads = self.topic.renderer.heads(columns)
            bodies = self.topic.renderer.shown(shape, columns.bodies)
            pairs = zip([head + b"}" for head in heads], bodies, strict=True)
            yield list(chain.from_iterable(pairs))

    def documents(self, meta: bool, shape: Shape = WHOLE) -> Iterator[list[bytes]]:
        """Chunks of rows as JSON texts: bodies, or bodies wrapped with key, bookmark and time."""
        for start, stop in self.chunks(rows_at_once(shape)):
            yield self.topic.renderer.documents(shape, self.part(start, stop), meta)
