"""Places at which a replay may begin in the middle of the log, though windows are open there.

Two things have to be known of such a place: which windows were open, which the log keeps of some
(`sow.store.log_indexes`), and the records, which a checkpoint has that was kept before it, with
the log from there on. Both are written together, when so much has been logged since the last time
that a replay would take long (`sow.server.boot.checkpointer`).

What has to be read is then bound by how many records there are, not by how long the log is. Where
nothing is kept, a replay begins elsewhere, and gives the same.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from sow.core.cooperative import Task
from sow.core.definitions import Configuration, ConflatedTopic, Topic, is_persistent
from sow.engine.configurations import InForceSince
from sow.engine.engine import Engine
from sow.engine.patterns import is_made_alike, source_definition
from sow.engine.recovery.redo import BELONGS, topic_slices
from sow.engine.replay import FROM_THE_BEGINNING, Reach, Replay, StartingState
from sow.history.bookmarks import Moment
from sow.store.protocols import (
    NOTHING_STORED,
    Checkpoint,
    KeptCheckpoint,
    Log,
    Slice,
    WindowsPlace,
    numbers,
)


class KeptRecords:
    """The records that a checkpoint of a definition has of some topics, without lifetimes: the log
    has the expiries."""

    def __init__(
        self, definition: Topic, checkpoint: Checkpoint, kept: KeptCheckpoint, reach: Reach
    ) -> None:
        self._definition = definition
        self._checkpoint = checkpoint
        self._kept = kept
        self._reach = reach
        self.seq = kept.seq
        self.records = 0
        """How many there are is not known before they are read."""

    def load(self) -> Iterator[Slice]:
        """The records."""
        for part in self._checkpoint.load_kept(self._kept):
            if not part.is_events:
                expires_us = numbers([0] * len(part.identities))
                yield from self._wanted(replace(part, expires_us=expires_us, values=None))

    def _wanted(self, part: Slice) -> Iterator[Slice]:
        name, topics = self._definition.name, self._reach.topics
        if self._definition.pattern is None or topics is None:
            yield part
            return
        for topic, piece in topic_slices(name, self._definition.pattern, part):
            if topic in topics:
                names = [f"{topic}{BELONGS}{identity}" for identity in piece.identities]
                yield replace(piece, identities=names)


def kept_records(
    reach: Reach,
    definitions: Iterable[Topic],
    checkpoints: Mapping[str, Checkpoint],
    log: Log,
    seq: int,
) -> dict[str, KeptRecords] | None:
    """The records of definitions as of record `seq` or before, with the log behind that; None where
    they are not kept of each."""
    found: dict[str, KeptRecords] = {}
    for one in definitions:
        checkpoint = checkpoints.get(one.name)
        fitting = [] if checkpoint is None else kept_before(checkpoint, log, seq)
        if checkpoint is None or not fitting:
            return None
        found[one.name] = KeptRecords(one, checkpoint, fitting[-1], reach)
    return found


def kept_before(checkpoint: Checkpoint, log: Log, seq: int) -> list[KeptCheckpoint]:
    """The checkpoints that are kept, with the log behind them, and are exact at record `seq`, the
    oldest first."""
    oldest = log.first_seq - 1
    return [one for one in checkpoint.kept if one.seq >= oldest and one.exact_seq <= seq]


def places_before(log: Log, until: Moment) -> Iterator[WindowsPlace]:
    """Where open windows are kept up to a moment, the newest first."""
    for place in reversed(log.windows.places):
        if place.seq >= log.first_seq and tuple(place) <= tuple(until) and _is_of(place, log):
            yield place


def _is_of(place: WindowsPlace, log: Log) -> bool:
    """Whether a place is of this log: what came again after a repair came later."""
    newest = next(log.read(place.seq - 1), None)
    return newest is not None and newest.ts_us <= place.time_us


def are_stored_alike(
    history: Sequence[InForceSince],
    now: Configuration,
    names: Collection[str],
    place: tuple[int, int],
) -> bool:
    """Whether the topics that clients publish to were at a place what they are now, so that what
    the log says of them can be looked up, and what is stored is theirs."""
    passed = sum((one.seq, one.time_us) <= place for one in history)
    then = [one.configuration for one in history[max(0, passed - 2) : max(1, passed)]]
    for name in names:
        definition = source_definition(now, name)
        if definition is None or not (definition.retain and is_persistent(definition)):
            return False
        if any(source_definition(one, name) != definition for one in then):
            return False
    return True


def newest_state(
    history: Sequence[InForceSince],
    reach: Reach,
    now: Configuration,
    checkpoints: Mapping[str, Checkpoint],
    log: Log,
    until: Moment,
) -> Task[StartingState | None]:
    """What there was at the newest place up to a moment at which windows are kept, if all of it is
    known; read in steps."""
    definitions = stored_definitions(reach, now)
    for place in places_before(log, until):
        if not are_stored_alike(history, now, reach.sources, place):
            return None
        records = kept_records(reach, definitions, checkpoints, log, place.seq)
        if records is None:
            return None
        if (found := (yield from log.windows.load(place))) is not None:
            return StartingState(place.seq, place.time_us, records, found.windows)
    return None


def stored_definitions(reach: Reach, configuration: Configuration) -> list[Topic]:
    """The definitions in reach of the topics that clients publish to."""
    return [
        one
        for one in configuration.topics
        if isinstance(one, Topic) and one.name in reach.definitions
    ]


GONE_ON_MAX = 100_000
"""Records of a log that a start processes again for the windows that were open, a second or two.
With more of them behind the last place that is kept, these windows have ended."""


def open_windows(
    history: Sequence[InForceSince],
    configuration: Configuration,
    log: Log,
    now_us: int,
    checkpoints: Mapping[str, Checkpoint] = NOTHING_STORED,
    is_bound: bool = True,
) -> Task[Engine | None]:
    """An engine with the windows of conflated topics that are open at a time, for a start under a
    configuration, which may make some of them otherwise; None where all have ended, as they do if
    it `is_bound` and very much is to be processed."""
    if not history:
        return None
    before = history[-1].configuration
    reach = Reach([before], _copies_alike(before, configuration))
    newest = next(log.read(log.last_seq - 1), None) if log.last_seq >= log.first_seq else None
    if newest is None or newest.ts_us + reach.lag_us <= now_us:
        return None
    # The machine's clock may have been set back: behind the last start, too.
    now_us = max(now_us, newest.ts_us, history[-1].time_us)
    end = Moment(log.last_seq, now_us)
    kept = yield from newest_state(history, reach, before, checkpoints, log, end)
    start = kept or FROM_THE_BEGINNING._replace(seq=log.begins_after)
    if start.seq < log.first_seq - 1 or (is_bound and end.seq - start.seq > GONE_ON_MAX):
        return None
    replay = Replay(history, reach.names, log, start)
    yield from replay.advance(end)
    return replay.engine


def _copies_alike(before: Configuration, now: Configuration) -> set[str]:
    """The conflated topics that two configurations make alike, of topics that a start finds
    again."""
    found = set[str]()
    for one in now.topics:
        if isinstance(one, ConflatedTopic) and is_made_alike(before, now, one.name):
            sources = Reach([before], (one.name,)).sources
            if are_stored_alike((), before, sources, (0, 0)):
                found.add(one.name)
    return found
