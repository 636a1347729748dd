"""Query results: the records of an answer, pinned as of one moment, and their frames.

Finding the records may take long and is done in steps; with the last of these the rows are pinned,
before anything can change. The rest of the work reads nothing that changes.

A pattern may match a hundred thousand topics with a record each, so totals are counted as topics
are added, and rows are encoded for many topics at a time.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from sow.core.cooperative import Task
from sow.engine.engine import Engine
from sow.engine.running_topics import LiveTopic
from sow.history.snapshot import ANSWER_CHUNK_ROWS, Snapshot, rows_at_once
from sow.protocol.encodings import Encoding, Frames
from sow.query import Query
from sow.query.query import QueryAnswer
from sow.store.columns import Slots
from sow.topic.records import Records
from sow.topic.rendering import Shape


class QueryResult(NamedTuple):
    """What a query named, as of `bookmark`, and how it was found. `place` is the place in what a
    conflated topic or a view has sent, in the past; None: of any other topic."""

    answer: QueryAnswer
    rows: Snapshot
    bookmark: int
    place: int | None = None


def execute_query(
    engine: Engine,
    name: str,
    query: Query,
    with_keys: bool = True,
    admit: Callable[[int], None] = lambda _rows: None,
) -> Task[QueryResult]:
    """What a query names of a topic; raises UnknownTopic and ClientError.

    `with_keys`: with SowKeys, bookmarks and times. `admit` is called with the number of rows before
    they are pinned, and may raise.
    """
    answer = yield from engine.queries.answering(name, query, reads_before=True)
    admit(len(answer.slots))
    records, seq = engine.queries.shown(name)
    rows = pinned(engine.topic(name), records, answer.slots, with_keys)
    yield
    yield from rows.settle()
    return QueryResult(answer, rows, seq)


def pinned(topic: LiveTopic, records: Records, slots: Slots, with_keys: bool = True) -> Snapshot:
    """Rows of a topic from its records, or a frozen copy of them, which is not held: the answer may
    wait for its client for long."""
    return replace(Snapshot.take(records, slots, with_keys), topic=topic.records)


TOPIC_ROWS = 20
"""A topic by itself takes as much memory as so many rows, and a fifth of the time."""
TOPIC_CHUNK_ROWS = 4
"""So many rows take as long as beginning with a topic."""
SETTLED_AT_ONCE = 200
"""Topics whose small snapshots are settled in one step: some two microseconds each."""


class ResultSnapshot:
    """The snapshots of one answer, in the order in which they were first taken.

    `tracks`: keep which records they hold, for as long as these stay in their slots.
    """

    def __init__(self, tracks: bool = False) -> None:
        self.matches = 0
        """Records that match, whether they are in the answer or not."""
        self.returned = 0
        self.slots: dict[str, Slots] = {}
        """The slots of the rows of each topic, where that is to be known."""
        self._tracks = tracks
        self._snapshots: dict[LiveTopic, tuple[Snapshot, int]] = {}

    def __contains__(self, topic: LiveTopic) -> bool:
        return topic in self._snapshots

    def __iter__(self) -> Iterator[Snapshot]:
        return (snapshot for snapshot, _ in self._snapshots.values())

    @property
    def weight(self) -> int:
        """What it takes to hold it, in rows."""
        return self.returned + TOPIC_ROWS * max(0, len(self._snapshots) - 1)

    @property
    def is_whole(self) -> bool:
        """Everything that matches is in it."""
        return self.returned == self.matches

    def take(self, topic: LiveTopic, snapshot: Snapshot, matches: int) -> None:
        """What a topic holds, in the place of what it held before."""
        held = self._snapshots.get(topic)
        if held is not None:
            self._count(*held, -1)
        self._snapshots[topic] = snapshot, matches
        self._count(snapshot, matches, 1)
        if self._tracks:
            self.slots[topic.name] = snapshot.slots

    def drop(self, topic: LiveTopic) -> None:
        """A topic has gone."""
        held = self._snapshots.pop(topic, None)
        if held is not None:
            self._count(*held, -1)
            self.slots.pop(topic.name, None)

    def _count(self, snapshot: Snapshot, matches: int, times: int) -> None:
        self.matches += times * matches
        self.returned += times * len(snapshot)

    @property
    def is_short(self) -> bool:
        """Whether all rows can be written in one go."""
        return self.weight <= ANSWER_CHUNK_ROWS and all(snapshot.is_short for snapshot in self)

    def lines(
        self, encoding: Encoding, name: str, shape_of: Callable[[Records], Shape]
    ) -> Iterator[list[bytes]]:
        """Rows of a topic under the subscription's name, those of a chunk at a time."""
        for snapshot in self:
            head, shape = snapshot.topic.renderer.head("sow", name), shape_of(snapshot.topic)
            for start, stop in snapshot.chunks(rows_at_once(shape)):
                yield snapshot.lines(encoding, head, shape, start, stop)

    def frames(self, encoding: Encoding, name: str, shape_of: Callable[[Records], Shape]) -> Frames:
        """All rows in frames, each made lazily."""
        lines: list[bytes] = []
        made, made_max = (
            0,
            min([rows_at_once(shape_of(one.topic)) for one in self], default=ANSWER_CHUNK_ROWS),
        )
        for some in self.lines(encoding, name, shape_of):
            lines += some
            made += len(some) + TOPIC_CHUNK_ROWS
            if made >= made_max:
                yield encoding.frame(lines), len(lines)
                lines, made = [], 0
        if lines:
            yield encoding.frame(lines), len(lines)

    def settle(self) -> Task[None]:
        """Release pinned records that are in no row, now that the moment has passed."""
        yield
        for at, snapshot in enumerate(self):
            yield from snapshot.settle()
            if at % SETTLED_AT_ONCE == SETTLED_AT_ONCE - 1:
                yield
