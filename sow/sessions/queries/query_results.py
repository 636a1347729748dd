"""Query results: the records of an answer, pinned as of one moment, and their frames.

Finding the records may take long and is done in steps; with the last of these the rows are pinned,
before anything can change. The rest of the work reads nothing that changes.

Rows that clients have requested and not read are counted, and bounded (`UnreadQuota`): a short
request may select a million, which are pinned until the client has read them. A client is a
session, or over HTTP the user that a request counts for; one may leave a fraction unread of what
all may leave together.

A pattern may match a hundred thousand topics with a record each, so totals are counted as topics
are added, and rows are encoded for many topics at a time.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace
from types import TracebackType
from typing import NamedTuple, Self

from sow.core.cooperative import Task
from sow.engine.engine import Engine
from sow.engine.running_topics import LiveTopic
from sow.errors import Busy
from sow.history.snapshot import ANSWER_CHUNK_ROWS, NOWHERE, Snapshot, rows_at_once
from sow.protocol.replies import Encoding, Frames
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
    with_expiries: bool = False,
) -> Task[QueryResult]:
    """What a query names of a topic; raises UnknownTopic and ClientError.

    `with_keys`: with SowKeys, bookmarks and times, and `with_expiries`. `admit` is called with the
    number of rows before they are pinned, and may raise.
    """
    answer = yield from engine.queries.answering(name, query, reads_before=True)
    admit(len(answer.slots))
    topic = engine.topic(name)
    records, seq = engine.queries.shown_of(topic)
    rows = pinned(topic, records, answer.slots, with_keys, with_expiries)
    yield
    yield from rows.settle()
    return QueryResult(answer, rows, seq)


def pinned(
    topic: LiveTopic,
    records: Records,
    slots: Slots,
    with_keys: bool = True,
    with_expiries: bool = False,
) -> Snapshot:
    """Rows of a topic from its records, or a frozen copy of them, which is not held: the answer may
    wait for its client for long."""
    taken = Snapshot.take(records, slots, with_keys, with_expiries)
    return replace(taken, topic=topic.records)


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
        self._advice: tuple[str, ...] = ()
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

    @property
    def remarks(self) -> dict[str, object]:
        """The field of acks with the advice, if there is any."""
        return {"advice": self._advice} if self._advice else {}

    def advise(self, advice: tuple[str, ...]) -> None:
        """Note what there is to say of fields that no record has."""
        self._advice = advice

    @property
    def counts(self) -> dict[str, object]:
        """The counts in the last ack of the answer, and the advice."""
        return {"matches": self.matches, "returned": self.returned, **self.remarks}

    def take(self, topic: LiveTopic, snapshot: Snapshot, matches: int) -> None:
        """What a topic holds, in the place of what it held before."""
        held = self._snapshots.get(topic)
        if held is not None:
            self._count(*held, -1)
        self._snapshots[topic] = snapshot, matches
        self._count(snapshot, matches, 1)
        if self._tracks:
            self.slots[topic.name] = snapshot.slots[snapshot.slots != NOWHERE]

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


UNREAD_ROWS_MAX = 4_000_000
"""Rows of answers that all sessions may leave unread; each takes up to some 50 bytes, and the body
once its record has changed."""
UNREAD_PART = 2
"""One session may leave this fraction unread. Its first answer may have any length."""


class UnreadQuota:
    """Rows that clients have requested and not read.

    A client is a session, or over HTTP the user that a request counts for.
    """

    def __init__(self, rows_max: int = UNREAD_ROWS_MAX) -> None:
        self.rows = 0
        self._rows_max = rows_max
        self._by_client: Counter[Hashable] = Counter()

    def check(self, client: Hashable, rows: int) -> None:
        """Raise Busy if something has to be read before so many more rows are given out."""
        own = self._by_client[client]
        if own and own + rows > self._rows_max // UNREAD_PART:
            raise Busy(
                f"answers of {own} rows wait for this client to read them; read them before "
                f"asking for {rows} more"
            )
        if self.rows and self.rows + rows > self._rows_max:
            raise Busy(
                f"answers of {self.rows} rows wait for clients to read them, as many as may; ask "
                "again in a moment, or for fewer rows"
            )

    def hold(
        self,
        client: Hashable,
        rows: int,
        frames: Frames,
        noted: Callable[[int], object] = lambda _rows: None,
    ) -> Frames:
        """The frames of an answer, whose rows count until they are read or dropped; `noted` is
        called with their number, and with minus that."""
        return _UnreadFrames(self, client, rows, frames, noted)

    def answer(self, client: Hashable) -> "UnreadAnswer":
        """An answer whose rows are not known yet."""
        return UnreadAnswer(self, client)

    def count(self, client: Hashable, rows: int) -> None:
        """Count so many more rows of a client; fewer if negative."""
        self.rows += rows
        self._by_client[client] += rows
        if not self._by_client[client]:
            del self._by_client[client]


class _UnreadFrames:
    """Frames that count as unread until they are exhausted."""

    def __init__(
        self,
        unread: UnreadQuota,
        client: Hashable,
        rows: int,
        frames: Frames,
        noted: Callable[[int], object],
    ) -> None:
        self._unread = unread
        self._client = client
        self._rows = rows
        self._frames = frames
        self._noted = noted
        unread.count(client, rows)
        noted(rows)

    def __iter__(self) -> Frames:
        return self

    def __next__(self) -> tuple[bytes, int]:
        made = next(self._frames, None)
        if made is None:
            self._release()
            raise StopIteration
        return made

    def __del__(self) -> None:
        # Clearing a queue only drops its entries.
        self._release()

    def _release(self) -> None:
        rows, self._rows = self._rows, 0
        if rows:
            self._unread.count(self._client, -rows)
            self._noted(-rows)


class UnreadAnswer:
    """An answer that `client` waits for: its rows count from `admit` to the end of the context."""

    def __init__(self, unread: UnreadQuota, client: Hashable) -> None:
        self._unread = unread
        self._client = client
        self._rows = 0

    def admit(self, rows: int) -> None:
        """So many rows are about to be pinned; raises Busy where they are too many. What is written
        in one go does not count."""
        if rows > ANSWER_CHUNK_ROWS:
            self._unread.check(self._client, rows)
            self._unread.count(self._client, rows)
            self._rows += rows

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        if self._rows:
            self._unread.count(self._client, -self._rows)
