"""A rehearsal: what two engines say while they process the same log, compared record by record.

The lines of a conflated topic or a view are its changes, as a subscriber to all of it gets them.
The engines (`sow.engine.replay`) advance side by side, and a line of a record waits until the other
one has said as many of it. Beyond `WAITING_MAX` waiting lines only their number and a checksum are
known: that a record differs is always found, and then not from which line on. So what is kept grows
with the records, and not with the lines.

Where a line stands counts, and what it says; its time counts on request. Its bookmark does not,
since a window that ends elsewhere may say the same as of another change. What the topics hold at
the end is compared, too: a record that never changed has no line.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from sow.core.cooperative import SharedTask, Task
from sow.engine.engine import Engine
from sow.engine.replay import Moment, Replay, Sent
from sow.engine.running_topics import LiveTopic, SourceTopic
from sow.topic.batch import Batch
from sow.topic.records import Records

WAITING_MAX = 100_000
"""Lines that wait in all, by reference to their bodies: some tens of megabytes. Configurations that
say about as much need a few for each open window."""
RECORDS_AT_ONCE = 1_000
"""Records that are compared in one step at the end: about a millisecond."""
OLD, NEW = 0, 1
"""The two sides: the configurations that were in force, and another one."""


class SaidLine(NamedTuple):
    """What was said of a record: its new state, or for what `reason` it left and the state that
    shows it; as of the change `seq`, at `at_us`."""

    reason: str | None
    body: bytes
    seq: int
    at_us: int


Meant = tuple[object, ...]
Written = Callable[[LiveTopic, str, SaidLine], object]
"""Gets each line that the new side says: the topic, the SowKey, and the line."""


class FirstDifference(NamedTuple):
    """The first line of a record that differs, counted from 1, on both sides; None: it has ended
    there."""

    number: int
    lines: tuple[SaidLine | None, SaidLine | None]


class RecordLines:
    """What both sides have said of one record."""

    __slots__ = ("_ahead", "_is_known", "_sums", "_whose", "counts", "first")

    def __init__(self) -> None:
        self.counts = [0, 0]
        self._sums = [0, 0]
        self.first: FirstDifference | None = None
        self._ahead: deque[tuple[Meant, SaidLine]] | None = None
        """Lines of the side `_whose` that the other one has not said yet."""
        self._whose = OLD
        self._is_known = True

    def say(self, side: int, line: SaidLine, meant: Meant, has_room: bool) -> int:
        """One side says a line, and this is what counts of it; returns by how many the waiting
        lines grow."""
        self.counts[side] += 1
        self._sums[side] = hash((self._sums[side], meant))
        if self.first is not None or not self._is_known:
            return 0
        ahead = self._ahead
        if ahead and self._whose != side:
            other_meant, other = ahead.popleft()
            if other_meant == meant:
                return -1
            self._note(side, line, other)
            return -1 - self._forget()
        if not has_room:
            self._is_known = False
            return -self._forget()
        if ahead is None:
            ahead = self._ahead = deque()
        ahead.append((meant, line))
        self._whose = side
        return 1

    def end(self) -> None:
        """Nothing follows: a line that still waits has no other one."""
        if self.differs and self.first is None and self._ahead:
            self._note(1 - self._whose, None, self._ahead[0][1])
        self._ahead = None

    def _note(self, side: int, line: SaidLine | None, other: SaidLine) -> None:
        lines = (line, other) if side == OLD else (other, line)
        self.first = FirstDifference(min(self.counts) + (line is None), lines)

    def _forget(self) -> int:
        count, self._ahead = len(self._ahead or ()), None
        return count

    @property
    def differs(self) -> bool:
        """Whether the sides have said something else of it."""
        return self.counts[OLD] != self.counts[NEW] or self._sums[OLD] != self._sums[NEW]


def _meant(line: SaidLine, counting: int) -> Meant:
    """What counts of a line."""
    return (line.reason, line.body, line.at_us)[:counting]


@dataclass(slots=True)
class ComparedRecord:
    """A record that differs: `lines` said of it, the first that differs (None: it is not known),
    and what it was at the end where that differs (None: the same)."""

    key: str
    lines: tuple[int, int]
    first: FirstDifference | None
    ends: tuple[bytes | None, bytes | None] | None


@dataclass(slots=True)
class ComparedTopic:
    """A topic on both sides: `kinds`, None where it never was, `lines` said, how many records were
    compared, and those that differ. `is_reordered`: every record says the same, and in another
    order among the others. `stopped`: why it has stopped, or ""."""

    name: str
    kinds: tuple[str | None, str | None]
    lines: tuple[int, int]
    compared: int
    differing: list[ComparedRecord] = field(default_factory=list)
    is_reordered: bool = False
    stopped: tuple[str, str] = ("", "")
    records: tuple[Records | None, Records | None] = (None, None)
    """Of each side, to show bodies with."""

    @property
    def differs(self) -> bool:
        """Whether anything counts as different."""
        is_other = self.kinds[OLD] != self.kinds[NEW] or self.stopped[OLD] != self.stopped[NEW]
        return is_other or self.is_reordered or bool(self.differing)


class TopicLines:
    """What both sides have said of one topic."""

    def __init__(self) -> None:
        self.topics: list[LiveTopic | None] = [None, None]
        self.records: dict[str, RecordLines] = {}
        self.counts = [0, 0]
        self.sums = [0, 0]


class OutputComparison:
    """Compares what two engines say of the topics that are `wanted` (None: of all); `times` count
    on request. `written` gets what the new one says.

    Each engine is listened to (`listening`) while it processes the log; `finished` reports.
    """

    def __init__(
        self,
        wanted: Callable[[str], bool] | None = None,
        *,
        times: bool = False,
        written: Written | None = None,
    ) -> None:
        self._wanted = wanted
        self._written = written
        self._counting = 3 if times else 2
        self._topics: dict[str, TopicLines] = {}
        self._waiting = 0
        self.is_open = True
        """Lines count; before the range of a rehearsal begins they do not."""

    def listening(self, side: int, now_us: Callable[[], int]) -> Sent:
        """What has to hear all changes of the engine of one side, whose time is `now_us`."""

        def hear(topic: LiveTopic, batch: Batch) -> None:
            if self.is_open and self._compares(topic):
                self._say(side, topic, batch, now_us())

        return hear

    def _compares(self, topic: LiveTopic) -> bool:
        if isinstance(topic, SourceTopic) or not topic.is_listed:
            return False
        return self._wanted is None or self._wanted(topic.name)

    def meet(self, side: int, engine: Engine) -> None:
        """Note all topics that an engine has now, also those that never say anything."""
        for topic in list(engine.topics.values()):
            if self._compares(topic):
                self._lines_of(topic.name).topics[side] = topic

    def _lines_of(self, name: str) -> TopicLines:
        found = self._topics.get(name)
        if found is None:
            found = self._topics[name] = TopicLines()
        return found

    def _say(self, side: int, topic: LiveTopic, batch: Batch, now_us: int) -> None:
        said, changes = self._lines_of(topic.name), batch.changes
        said.topics[side] = topic
        counting, records, total = self._counting, said.records, said.sums[side]
        for key, (body, seq, _) in zip(batch.keys(), batch.states(), strict=True):
            line = SaidLine(changes.reason, body, seq, now_us)
            record = records.get(key)
            if record is None:
                record = records[key] = RecordLines()
            has_room = self._waiting < WAITING_MAX
            meant = _meant(line, counting)
            self._waiting += record.say(side, line, meant, has_room)
            total = hash((total, key, meant))
            if self._written is not None and side == NEW:
                self._written(topic, key, line)
        said.sums[side] = total
        said.counts[side] += len(changes)

    def finished(self, engines: Sequence[Engine]) -> Task[list[ComparedTopic]]:
        """What was found, by the names of topics, as the engines are now; in steps."""
        for side, engine in enumerate(engines):
            self.meet(side, engine)
        found = []
        for name, said in sorted(self._topics.items()):
            found.append((yield from _compared(name, said)))
        return found


def _compared(name: str, said: TopicLines) -> Task[ComparedTopic]:
    old, new = said.topics
    ends = {} if old is None or new is None else (yield from _different_ends(old, new))
    found = ComparedTopic(
        name,
        (None if old is None else old.kind, None if new is None else new.kind),
        (said.counts[OLD], said.counts[NEW]),
        len(said.records.keys() | ends.keys()),
        stopped=("" if old is None else old.stopped, "" if new is None else new.stopped),
        records=(None if old is None else old.records, None if new is None else new.records),
    )
    if old is None or new is None:
        return found
    for at, key in enumerate([*said.records, *(ends.keys() - said.records.keys())]):
        record = said.records.get(key) or RecordLines()
        record.end()
        if record.differs or key in ends:
            counts = record.counts[OLD], record.counts[NEW]
            found.differing.append(ComparedRecord(key, counts, record.first, ends.get(key)))
        if at % RECORDS_AT_ONCE == 0:
            yield
    found.is_reordered = not found.differing and said.sums[OLD] != said.sums[NEW]
    return found


Ends = tuple[bytes | None, bytes | None]


def _different_ends(old: LiveTopic, new: LiveTopic) -> Task[Mapping[str, Ends]]:
    """The last states of the records that end differently, by SowKey."""
    found: dict[str, Ends] = {}
    there, here = old.records.table, new.records.table
    for some in _identities(old):
        for identity in some:
            slot = here.slots.get(identity)
            ends = there.bodies[there.slots[identity]], None if slot is None else here.bodies[slot]
            if ends[OLD] != ends[NEW]:
                found[old.records.sow_key_of(identity)] = ends
        yield
    for some in _identities(new):
        for identity in some:
            if identity not in there.slots:
                found[new.records.sow_key_of(identity)] = None, here.bodies[here.slots[identity]]
        yield
    return found


def _identities(topic: LiveTopic) -> Iterator[list[str]]:
    """The identities of a topic's records, some at a time."""
    table = topic.records.table
    slots = table.live()
    for start in range(0, len(slots), RECORDS_AT_ONCE):
        some = slots[start : start + RECORDS_AT_ONCE].tolist()
        yield [name for slot in some if (name := table.identities[slot]) is not None]


class Rehearsal:
    """Two replays of one log, compared: `replays` make that of each side, which reports what it
    sends to the function that it is given. `wanted`, `times` and `written` are those of
    `OutputComparison`."""

    def __init__(
        self,
        replays: Sequence[Callable[[Sent], Replay]],
        wanted: Callable[[str], bool] | None = None,
        *,
        times: bool = False,
        written: Written | None = None,
    ) -> None:
        self._comparison = OutputComparison(wanted, times=times, written=written)
        self._sides: list[Replay] = []
        for side, make in enumerate(replays):
            now_us = partial(self._now_us, side)
            self._sides.append(make(self._comparison.listening(side, now_us)))

    def _now_us(self, side: int) -> int:
        return self._sides[side].now_us

    @property
    def seq(self) -> int:
        """The last record that both sides have processed."""
        return min(side.seq for side in self._sides)

    @property
    def lag_us(self) -> int:
        """How long a change takes at most to reach all topics."""
        return max(side.reach.lag_us for side in self._sides)

    def run(self, start: Moment, end: Moment) -> Task[list[ComparedTopic]]:
        """Compare what is said after one moment, up to another one, and what there is then; in
        steps."""
        self._comparison.is_open = False
        yield from self._advance(start)
        self._comparison.is_open = True
        yield from self._advance(end)
        return (yield from self._comparison.finished([side.engine for side in self._sides]))

    def _advance(self, until: Moment) -> Task[None]:
        """Let both sides advance, the one that is behind first: so few lines wait for the other."""
        going = {side: SharedTask(side.advance(until)) for side in self._sides}
        while going:
            behind = min(going, key=lambda side: (side.seq, side.now_us))
            going[behind].step()
            if going[behind].is_over:
                going.pop(behind).result()
            yield
