"""Redo: from a store to topics that continue where the last process stopped.

The log is read once. Records of checkpoints are put back, log entries after a topic's checkpoint
are applied to it (`sow.engine.recovery` decides to which topic), and time continues from
the newest time found. Then indexes, expiries, copies and views are built from the records. System
topics are kept beside the log and come last. It works in steps, since there may be millions of
records, and can be abandoned between two of them without a trace: nothing is sent, and nothing is
written. Orphaned records are rebuilt too, so that the caller can report how many there are and
archive them.

A log written record by record has a hundred thousand short entries, and applying each by itself
costs as much as a long one. So publishes of one topic are batched, and a removal is applied after
the publishes before it.

A checkpoint contains the records of a definition's topics, some slots at a time. The topics of a
pattern share one checkpoint, in which a topic's name stands before each identity; `topic_slices`
takes them apart. Index contents go with the records, bound to everything that they are derived
from. The store writes it; the server decides when.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, compress, islice, repeat

import numpy as np

from sow import __version__
from sow.core.cooperative import Task, run_to_completion
from sow.engine.catalog import Catalog
from sow.engine.patterns import is_made_alike
from sow.engine.recovery import OrphanedRecords, RestoreMapping
from sow.engine.running_topics import CopyTopic, LiveTopic, SourceTopic, ViewTopic
from sow.engine.wal import CommitSequencer
from sow.errors import BadMessage, ClientError, StoreError
from sow.store.manifest import Past, StoredDefinition
from sow.store.memory import Table
from sow.store.protocols import LogEntry, Slice, StoredRecords, expiries_of
from sow.topic.records import Records

BELONGS = "\x1e"
"""Between a topic's name and an identity; a name holds no control characters."""
COUNTED_AT_ONCE = 1000
"""Topics of a pattern whose sizes are added up in one step: a third of a millisecond."""


def stored_slices(
    catalog: Catalog, stored_as: str, count: int, known: bool = True
) -> Iterator[Slice]:
    """The current records of a checkpoint, `count` slots at a time, and the events of a series;
    `known`: with what indexes know of them.

    Records published meanwhile may or may not be included.
    """
    if stored_as not in catalog.patterns:
        for topic in catalog.members(stored_as):
            records = topic.records
            with_values = _slices_with_values(catalog, records, count)
            yield from with_values if known else _slices(records.table, count)
            if records.events is not None:
                yield from records.events.slices(count)
        return
    for topic in catalog.members(stored_as):
        parts, events = _slices(topic.records.table, count), topic.records.events
        for part in parts if events is None else chain(parts, events.slices(count)):
            yield named_in(topic, part)


def named_in(topic: LiveTopic, part: Slice) -> Slice:
    """Records of a topic as the checkpoint of its definition names them."""
    if topic.pattern is None:
        return part
    names = [f"{topic.name}{BELONGS}{identity}" for identity in part.identities]
    return replace(part, identities=names)


def topic_slices(stored_as: str, pattern: str | None, part: Slice) -> Iterator[tuple[str, Slice]]:
    """The part of a checkpoint's slice for each topic of a definition."""
    if pattern is None:
        yield stored_as, part
        return
    places: defaultdict[str, list[int]] = defaultdict(list)
    for at, identity in enumerate(part.identities):
        places[identity.partition(BELONGS)[0]].append(at)
    for topic, of_topic in places.items():
        yield topic, part.at(of_topic, lambda text: text.partition(BELONGS)[2])


def _slices_with_values(catalog: Catalog, records: Records, count: int) -> Iterator[Slice]:
    """The same with what indexes know of them, as long as the topic keeps these indexes."""
    table, indexes = records.table, records.indexes
    writer = indexes.writer(binding(catalog, records))
    for start in range(0, len(table.bodies), count):
        slots, values = table.held(start, count), None
        if records.indexes is indexes:
            indexes.refresh_columns()
            values = writer.part(np.array(slots, np.int64))
        yield replace(table.part(slots), values=values)


def _slices(table: Table, count: int) -> Iterator[Slice]:
    start = 0
    while start < len(table.bodies):
        yield table.slice(start, count)
        start += count


def binding(catalog: Catalog, records: Records) -> str:
    """What stored index contents depend on: if it changes, they are ignored."""
    kind = records.definition.message_type
    options = repr(catalog.kinds.get(kind))
    return json.dumps([__version__, kind, options, records.indexes.definition])


def stored_bytes(catalog: Catalog, stored_as: str) -> Task[int]:
    """Bytes of bodies that a checkpoint would contain; some topics of a pattern in each step."""
    topics = catalog.members(stored_as)
    size_bytes = 0
    for start in range(0, len(topics), COUNTED_AT_ONCE):
        some = topics[start : start + COUNTED_AT_ONCE]
        size_bytes += sum([topic.records.table.bytes for topic in some])
        size_bytes += sum(
            [topic.records.events.size_bytes for topic in some if topic.records.events]
        )
        yield
    return size_bytes


class Progress:
    """How far a restart has got; nothing is known before `begin`."""

    def __init__(self) -> None:
        self.topic = ""
        """The topic whose records are being restored."""
        self.done = 0
        """Records restored so far, from checkpoints and log."""
        self.of = 0
        """How many there are."""
        self.is_settling = False
        """All records are restored; indexes and copies are being built."""

    def begin(self, of: int) -> None:
        """There are `of` records to restore; counting starts at 0."""
        self.topic, self.done, self.of, self.is_settling = "", 0, of, False

    def put_back(self, topic: str, count: int) -> None:
        """`count` more records are restored."""
        self.topic = topic
        # The log is read from the start of an entry, which may be before the first record needed.
        self.done = min(self.done + count, self.of)

    def settle(self, topic: str) -> None:
        """All records are restored; indexes and copies of this topic are built next."""
        self.topic, self.done, self.is_settling = topic, self.of, True


def restore(
    catalog: Catalog,
    sequencer: CommitSequencer,
    past: Past,
    checkpoints: Mapping[str, StoredRecords],
    log: Iterable[LogEntry],
    last_seq: int,
    progress: Progress,
    before: Catalog | None = None,
    part: Callable[[CopyTopic], None] = CopyTopic.part,
) -> Task[list[OrphanedRecords]]:
    """Rebuild the records of a catalog's topics; returns the orphaned ones.

    `checkpoints` has one for each definition in `past`; `log` holds at least every entry after the
    oldest of them, up to `last_seq`. `progress` is updated. The windows go on that the copies of
    `before` have, of those that are still made alike; `part` gives a topic a copy of its own where
    they differ. Afterwards the sequencer continues at the end of the log.
    """
    restoration = CheckpointRestore(catalog, past, checkpoints, last_seq)
    sequencer.moment((yield from restoration.load(progress)))
    for entry in log:
        sequencer.moment(entry.ts_us)
        restoration.replay(entry)
        progress.put_back(entry.topic, len(entry))
        yield
    orphaned = restoration.finish()
    for topic in restoration.empty:
        for name in catalog.with_copies(topic):
            catalog.forget(catalog.topics[name])
    sequencer.begin_after(last_seq)
    for topic in list(catalog):
        progress.settle(topic.name)
        sequencer.moment((yield from _settle(topic, last_seq)))
        if before is not None:
            yield from _go_on(topic, catalog, before, part)
        yield
    return orphaned


def _go_on(
    topic: LiveTopic, catalog: Catalog, before: Catalog, part: Callable[[CopyTopic], None]
) -> Task[None]:
    """Let a topic have the windows of the one before, if there was one that was made alike."""
    other = before.topics.get(topic.name)
    if not isinstance(topic, CopyTopic) or not isinstance(other, CopyTopic):
        return
    if is_made_alike(before.configuration, catalog.configuration, topic.name):
        if topic.is_shared and _names(topic) != _names(other):
            part(topic)
        yield from topic.go_on_with(other)


def _names(topic: CopyTopic) -> set[str]:
    """The names under which there is the same."""
    return {one.name for one in topic.copy.copies}


def _settle(topic: LiveTopic, last_seq: int) -> Task[int]:
    """Build what is derived from records, now that all are there; returns their newest time."""
    yield from topic.records.settle()
    newest_us = int(topic.records.table.ts_us.max(initial=0))
    if isinstance(topic, CopyTopic):
        yield from topic.fill(lambda: last_seq)
    elif isinstance(topic, ViewTopic):
        yield from topic.view.fill(last_seq)
    else:
        yield from topic.restore_expirations()
    return newest_us


def restore_accounts(
    catalog: Catalog, sequencer: CommitSequencer, accounts: Iterable[LogEntry] | None
) -> list[SourceTopic]:
    """Restore the system topics from the journal's account entries, and from nothing else.

    Where it has none (None), an earlier version may have numbered them: what `restore` has found is
    then written to the journal as account entries. So is what an earlier version has numbered after
    the newest of them, when it has run on this directory since. Returns the topics.
    """
    own = {
        topic.name: topic for topic in catalog if topic.is_system and isinstance(topic, SourceTopic)
    }
    kept = list(accounts or ())
    known_seq = max((entry.seq for entry in kept), default=sequencer.seq)
    numbered = _numbered_accounts(own, 0 if accounts is None else known_seq, sequencer.seq)
    for entry in numbered:
        sequencer.write(entry)
    for topic in own.values():
        topic.records.clear()
    for entry in (*kept, *numbered):
        sequencer.moment(entry.ts_us)
        if entry.topic in own:  # else of a later release: the journal keeps it
            identities = list(entry.identities or ())
            own[entry.topic].records.put(
                identities, entry.bodies, {}, [entry.seq], [entry.ts_us], entry.expires_us
            )
    for topic in own.values():
        run_to_completion(topic.restore_expirations())
    return list(own.values())


def _numbered_accounts(own: Mapping[str, SourceTopic], after_seq: int, seq: int) -> list[LogEntry]:
    """Entries that an earlier version has numbered after `after_seq`, as account entries."""
    found: list[LogEntry] = []
    for name, topic in own.items():
        table = topic.records.table
        part = table.slice(0, len(table.bodies))
        columns = zip(
            part.identities, part.bodies, part.seqs, part.ts_us, part.expires_us, strict=True
        )
        found += [
            LogEntry("publish", name, seq, ts_us, [identity], [body], expires_us, True)
            for identity, body, entry_seq, ts_us, expires_us in columns
            if entry_seq > after_seq
        ]
    return found


class CheckpointRestore:
    """Rebuilds the records of a catalog's topics, from `checkpoints` and what comes after them."""

    def __init__(
        self, catalog: Catalog, past: Past, checkpoints: Mapping[str, StoredRecords], last_seq: int
    ) -> None:
        self._catalog = catalog
        self.empty: list[LiveTopic] = []
        """Empty topics over a pattern's limit, as `finish` has found."""
        self._checkpoints = checkpoints
        self._kept = {kept.name: kept for kept in past.kept}
        seqs = {name: checkpoint.seq for name, checkpoint in checkpoints.items()}
        self._places = RestoreMapping(catalog, past, seqs, last_seq)
        self._tail = LogTailReplay()

    def load(self, progress: Progress) -> Task[int]:
        """Restore the records of the checkpoints; returns the newest time in them."""
        newest_us = 0
        for name, checkpoint in self._checkpoints.items():
            kept = self._kept[name]
            for part in checkpoint.load():
                newest_us = max(newest_us, int(np.max(part.ts_us, initial=0)))
                for topic, piece in topic_slices(kept.name, kept.topic.pattern, part):
                    self._load(kept, topic, piece)
                progress.put_back(name, len(part.identities))
                yield
        return newest_us

    def _load(self, kept: StoredDefinition, topic: str, piece: Slice) -> None:
        ownership = self._places.ownership
        if ownership.has_passed(kept.name, topic):
            return
        since_seq = ownership.since(kept.name, topic)
        if since_seq:
            wanted = [at for at, seq in enumerate(piece.seqs) if seq > since_seq]
            piece = piece.at(wanted, str)
        if piece.is_events:
            events = self._places.of_kept(kept, topic).records.events
            if events is not None:
                events.restore(piece)
        elif piece.identities and kept.topic.retain:
            records = self._places.of_kept(kept, topic).records
            if kept.topic.pattern is None and records.events is None:
                records.table.expect(self._checkpoints[kept.name].records)
            start = len(records.table.bodies)
            records.table.restore(piece)
            if piece.values is not None:
                records.indexes.restored(start, piece, binding(self._catalog, records))

    def replay(self, entry: LogEntry) -> None:
        """Apply a log entry to a table that may already contain later changes."""
        if is_unstored(entry):
            return
        place = self._places.of_entry(entry)
        if place is None or entry.seq + len(entry) - 1 <= place.after_seq:
            return
        records = place.records
        if not records.retains:
            return
        # An empty body is a message of types without fields.
        if entry.op == "publish" and records.message_type.partial and not any(entry.bodies):
            return  # the first release logged the names of topics whose messages it did not store
        self._tail.add(records, entry)

    def finish(self) -> list[OrphanedRecords]:
        """Apply what still waits; returns all orphaned records, topics over a pattern's limit
        included; some may be empty.

        Topics over the limit without records are in `empty`, and should be removed.
        """
        self._tail.apply()
        self.empty = self._places.over_limits()
        return list(self._places.orphans)


def is_unstored(entry: LogEntry) -> bool:
    """Whether a transient topic has logged this; its definition is not recorded."""
    return entry.op == "publish" and entry.identities is None and not any(entry.bodies)


WAITING_MAX = 2048
"""Records in a batch: enough to make the cost of single entries negligible, and few enough to be
applied in some ten milliseconds, in which a starting server answers no request."""


class LogTailReplay:
    """Applies log entries, in order, to tables that may already contain later changes."""

    def __init__(self) -> None:
        self._waiting: defaultdict[Records, list[LogEntry]] = defaultdict(list)
        self._count = 0
        self._newest: dict[Records, int] = {}
        """The newest record of each checkpoint, which may be newer than its sequence number."""

    def add(self, records: Records, entry: LogEntry) -> None:
        """Apply an entry to these records; raises StoreError if it cannot be theirs."""
        if entry.op != "publish":
            self._apply(records)
            if entry.op == "edit":
                _take_in(records, entry.identities or (), entry)
            else:
                self._remove(records, entry)
            return
        self._waiting[records].append(entry)
        self._count += len(entry)
        if self._count >= WAITING_MAX:
            self.apply()

    def apply(self) -> None:
        """Apply all batches."""
        for records in list(self._waiting):
            self._apply(records)

    def _apply(self, records: Records) -> None:
        entries = self._waiting.pop(records, [])
        if not entries:
            return
        identities = _identities(records, entries)
        if records.events is not None:
            names = iter(identities)
            for entry in entries:
                _take_in(records, [*islice(names, len(entry))], entry)
        seqs = _seqs(entries)
        self._count -= len(seqs)
        newer = self._newer(records, identities, seqs)
        bodies = chain.from_iterable(entry.bodies for entry in entries)
        ts_us = _each(entries, [entry.ts_us for entry in entries])
        expires_us = [time_us for entry in entries for time_us in expiries_of(entry)]
        records.table.replay(
            list(compress(identities, newer)),
            list(compress(bodies, newer)),
            list(compress(seqs, newer)),
            list(compress(ts_us, newer)),
            list(compress(expires_us, newer)),
        )

    def _newer(
        self, records: Records, identities: Sequence[str], seqs: Sequence[int]
    ) -> Iterable[bool]:
        """Which of them are newer than the state of a checkpoint."""
        newest = self._newest.get(records)
        if newest is None:
            newest = self._newest[records] = int(records.table.seqs.max(initial=0))
        if not seqs or seqs[0] > newest:
            return repeat(True)
        found, held = records.table.slots.get, records.table.seqs
        return [
            (slot := found(identity)) is None or held[slot] < seq
            for identity, seq in zip(identities, seqs, strict=True)
        ]

    def _remove(self, records: Records, entry: LogEntry) -> None:
        identities = list(entry.identities or ())
        newer = self._newer(records, identities, _seqs([entry]))
        records.discard(compress(identities, newer))
        if records.events is not None:
            records.events.drop_before(identities, entry.seq)


def _take_in(records: Records, identities: Sequence[str], entry: LogEntry) -> None:
    """Apply what an entry has published or edited to the events of a series."""
    if records.events is not None:
        records.events.replay(identities, entry.bodies, entry.seq, entry.ts_us, entry.origin)


def _seqs(entries: Sequence[LogEntry]) -> list[int]:
    return [seq for entry in entries for seq in range(entry.seq, entry.seq + len(entry))]


def _each(entries: Sequence[LogEntry], values: Sequence[int]) -> list[int]:
    """Values of entries, repeated for each of their records."""
    return [value for entry, value in zip(entries, values, strict=True) for _ in range(len(entry))]


def _identities(records: Records, entries: Sequence[LogEntry]) -> list[str]:
    """The identities of published records: read from the bodies where entries have none."""
    read = _identities_in(records, [entry for entry in entries if entry.identities is None])
    found: list[str] = []
    for entry in entries:
        named = entry.identities
        found += islice(read, len(entry)) if named is None else named
    return found


def _identities_in(records: Records, entries: Sequence[LogEntry]) -> Iterator[str]:
    """The identities in bodies. Only in a directory without a manifest they may have been stored
    for another topic."""
    bodies = [body for entry in entries for body in entry.bodies]
    try:
        return iter(records.identities_of(bodies) if bodies else ())
    except ClientError as error:
        at = error.index if isinstance(error, BadMessage) else 0
        raise StoreError(
            f"topic {records.name}: what came as record {_seqs(entries)[at]} of the log cannot be "
            f"read as the configuration has it: {error.detail}; start with the Key and MessageType "
            "that the topic had, and change them after that"
        ) from error
