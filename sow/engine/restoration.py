"""Restoration: the records of another life, and where they belong now.

Each topic is rebuilt from its checkpoint and the log after it. What the records were stored for is
known from the manifest (`Past`), not from the configuration: a record goes to the topic that the
configuration has for it now only if that is the same definition, which reads, names and keeps it as
before. Records without such a place are *homeless*. They are rebuilt all the same, as what they
were, so that whoever asked for the restoration can say how many there are and hand them on; nothing
is passed over.

Nothing here decides what becomes of them, or writes anything.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sow.definitions import Configuration, Topic
from sow.engine.catalog import BELONGS, Catalog, LiveTopic
from sow.errors import ClientError, StoreError
from sow.messages import message_type
from sow.store.protocols import Checkpoint, LogEntry, Slice
from sow.store.stored_definitions import (
    Names,
    Past,
    StoredDefinition,
    kept_of,
    names_of,
    persistent_topics,
)
from sow.topic.records import Records
from sow.topic_patterns import topic_search

STRAY = "the log holds them, and the configuration keeps no such topic"
UNKNOWN = (
    "the log holds them, and the manifest knows no such topic: it is older than the log; without "
    "manifest.json and its copy a start goes by the files"
)


@dataclass(frozen=True, slots=True)
class Homeless:
    """Records that the configuration has no place for: what they are, and why it has none.

    `kept` is the definition they were stored for; None for those of which only the log tells.
    `is_gone`: what the log says of the topic has no place either.
    """

    records: Records
    kept: StoredDefinition | None
    reason: str
    is_gone: bool = True

    @property
    def name(self) -> str:
        """The topic's name."""
        return self.records.name

    def count(self, now_us: int) -> int:
        """How many there are whose time has not come."""
        return len(self.live(now_us))

    def live(self, now_us: int) -> list[int]:
        """Their slots, in order of first publication."""
        table = self.records.table
        slots = table.live()
        if table.expires_us is not None and self.kept is not None and self.kept.topic.expires:
            expires_us = table.expires_us[slots]
            slots = slots[np.logical_or(expires_us == 0, expires_us > now_us)]
        found: list[int] = slots.tolist()
        return found


@dataclass(frozen=True, slots=True)
class RecordsPlace:
    """Where the records of one name go. `after_seq`: what the log says up to here is not wanted."""

    records: Records
    after_seq: int


def past_of(configuration: Configuration) -> Past:
    """The past of a directory that was always written for this configuration."""
    topics = persistent_topics(configuration)
    kept = tuple(kept_of(topic, configuration) for topic in topics)
    return Past(kept, names=names_of(configuration.topics))


class Restoration:
    """Rebuilds the records of a catalog's topics, from `checkpoints` and what comes after them."""

    def __init__(
        self, catalog: Catalog, past: Past, checkpoints: Mapping[str, Checkpoint], last_seq: int
    ) -> None:
        self.homeless: dict[tuple[str, str], Homeless] = {}
        self.empty: list[LiveTopic] = []
        """Topics that `finish` has found to be too many."""
        self._catalog = catalog
        self._past = past
        self._checkpoints = checkpoints
        self._last_seq = last_seq
        self._kept = {kept.name: kept for kept in past.kept}
        self._owners = _Owners(past.names or names_of(kept.topic for kept in past.kept))
        self._eras = [(era.until_seq, _Owners(era.names)) for era in past.eras]
        definitions = {one.name: one for one in catalog.configuration.topics}
        self._changes = {
            kept.name: kept.changes(definitions.get(kept.name), catalog.configuration)
            for kept in past.kept
        }
        self._places: dict[str, RecordsPlace | None] = {}
        self._members: dict[tuple[str, str], RecordsPlace] = {}
        self._note_since(definitions)

    def _note_since(self, definitions: Mapping[str, object]) -> None:
        """Tell the catalog from where on log entries count; a new definition's from now on."""
        since: dict[str, int] = {}
        for name, definition in definitions.items():
            kept = self._kept.get(name)
            if kept is not None and not self._changes[name]:
                since[name] = kept.since_seq
            elif isinstance(definition, Topic) and definition.durability == "persistent":
                since[name] = self._last_seq

        def since_of(definition: str, name: str) -> int:
            if self._owners.of(name) not in (definition, None):
                return self._last_seq
            return max(since.get(definition, 0), self._since(definition, name))

        self._catalog.since_of = since_of
        for topic in self._catalog:
            topic.records.since_seq = since_of(topic.stored_as, topic.definition.name)

    def _since(self, definition: str, name: str) -> int:
        """Up to where what is said of a topic does not count for a definition that has its name:
        it was given up, or belonged to another then."""
        until = [seq for seq, owners in self._eras if owners.of(name) != definition]
        return max(self._past.given_up.get(name, 0), *until[-1:], 0)

    def load(self) -> int:
        """Put back what the checkpoints hold; returns the newest time in them."""
        newest_us = 0
        for name, checkpoint in self._checkpoints.items():
            kept = self._kept[name]
            for part in checkpoint.load():
                newest_us = max(newest_us, max(part.ts_us, default=0))
                for topic, piece in self._parts(kept, part):
                    if self._has_passed(name, topic):
                        continue
                    since_seq = self._since(name, topic)
                    if since_seq:
                        seqs = piece.seqs
                        wanted = [at for at in range(len(seqs)) if seqs[at] > since_seq]
                        piece = piece.at(wanted, str)
                    if piece.identities and kept.topic.retain:
                        records = self._place(kept, topic).records
                        records.index(records.table.restore(piece))
        return newest_us

    def _has_passed(self, definition: str, name: str) -> bool:
        """Whether a topic's name has passed on since a checkpoint was written, and its records
        with it: then there were none left, and who has the name now hears how they went."""
        return self._past.is_known and self._owners.of(name) != definition

    @staticmethod
    def _parts(kept: StoredDefinition, part: Slice) -> Iterator[tuple[str, Slice]]:
        """What a slice of a checkpoint holds of each topic."""
        if kept.topic.pattern is None:
            yield kept.name, part
            return
        places: dict[str, list[int]] = {}
        for at, identity in enumerate(part.identities):
            places.setdefault(identity.partition(BELONGS)[0], []).append(at)
        for name, of_topic in places.items():
            yield name, part.at(of_topic, lambda text: text.partition(BELONGS)[2])

    def replay(self, entry: LogEntry) -> None:
        """Apply a log entry to a table that may already hold some of what follows it."""
        if _is_unstored(entry):
            return
        name = entry.topic
        if name not in self._places:
            self._find_place(entry)
        place = self._places.get(name)
        if place is None or entry.seq + len(entry) - 1 <= place.after_seq:
            return
        records = place.records
        if not records.retains:
            return
        if entry.op == "publish" and records.message_type.structured and not any(entry.bodies):
            return  # the first release has told the names of what it did not store
        names = entry.identities
        if names is None:
            names = _names_in(records, entry)
        newer = _not_yet_seen(records, entry, names)
        names = [names[at] for at in newer]
        if entry.op == "publish":
            bodies = [entry.bodies[at] for at in newer]
            seqs = [entry.seq + at for at in newer]
            stamps = [entry.ts_us] * len(newer)
            if names:
                records.put(names, bodies, {}, seqs, stamps, entry.expires_us)
        else:
            records.indexes.drop(records.table.drop(names)[1])

    def finish(self) -> list[Homeless]:
        """All that has no place, topics over a pattern's limit included; some may be empty.

        Topics over the limit that hold nothing are not there any more.
        """
        limit = self._catalog.configuration.limits.pattern_topics_max
        for pattern in self._catalog.patterns.values():
            if pattern.matches is None:
                continue
            topics, reason = pattern.over(limit)
            for topic in topics:
                if len(topic.records.table):
                    self._note(Homeless(topic.records, self._kept[pattern.name], reason))
                else:
                    self.empty.append(topic)
        return list(self.homeless.values())

    def _note(self, found: Homeless) -> None:
        stored_as = found.kept.name if found.kept is not None else ""
        self.homeless[stored_as, found.records.name] = found

    # Where records belong.

    def _find_place(self, entry: LogEntry) -> None:
        """Note the place of what the log says of a name; None if it was kept for no topic."""
        name = entry.topic
        kept = self._kept.get(self._owners.of(name) or "")
        if kept is not None:
            # A topic of which the log only tells what does not count is not there.
            since_seq = max(kept.since_seq, self._since(kept.name, name))
            if entry.seq > since_seq:
                self._places[name] = self._place(kept, name)
        elif self._past.is_known and self._owners.of(name) is not None:
            self._places[name] = None
        elif entry.op == "publish" and any(entry.bodies) and not self._was_known(entry):
            self._places[name] = RecordsPlace(self._stray(name), self._past.given_up.get(name, 0))

    def _was_known(self, entry: LogEntry) -> bool:
        """Whether what nobody takes any more is what somebody took."""
        if not self._past.is_known or entry.seq <= self._past.given_up.get(entry.topic, 0):
            return self._past.is_known
        owners = next((then for seq, then in self._eras if entry.seq <= seq), self._owners)
        return owners.of(entry.topic) is not None

    def _stray(self, name: str) -> Records:
        """A topic that nothing but the log tells of: every publish counts as a record."""
        records = _Stray(Topic(name, "binary"), message_type("binary"), (), name)
        self._note(Homeless(records, None, UNKNOWN if self._past.is_known else STRAY))
        return records

    def _place(self, kept: StoredDefinition, name: str) -> RecordsPlace:
        found = self._members.get((kept.name, name))
        if found is None:
            checkpoint = self._checkpoints.get(kept.name)
            after = max(
                kept.since_seq,
                self._since(kept.name, name),
                self._last_seq if not kept.topic.retain else 0,
                checkpoint.seq if checkpoint is not None else 0,
            )
            found = RecordsPlace(self._records(kept, name), after)
            self._members[kept.name, name] = found
        return found

    def _records(self, kept: StoredDefinition, name: str) -> Records:
        """What a topic's records are put into: the running topic, or one that nobody sees."""
        changes = self._changes[kept.name]
        if not changes:
            try:
                topic = self._catalog.placed(name)
                reason = _misplaced(topic, kept, name)
            except ClientError as error:
                topic, reason = None, error.detail
            if topic is not None and not reason:
                if topic.records.retains or not kept.topic.retain:
                    return topic.records
                return self._without_place(kept, name, "Retain is false now", is_gone=False)
        elif changes == ["Name"]:
            reason = f"{kept.name} is not defined any more"
        else:
            reason = f"{' and '.join(changes)} of {kept.name} changed"
        return self._without_place(kept, name, reason)

    def _without_place(
        self, kept: StoredDefinition, name: str, reason: str, is_gone: bool = True
    ) -> Records:
        definition = replace(kept.topic, name=name, pattern=None)
        kind = message_type(kept.topic.message_type, kept.kinds)
        records = Records(definition, kind, definition.keys, definition.domain)
        self._note(Homeless(records, kept, reason, is_gone))
        return records


class _Owners:
    """Which definition a topic's name belongs to: that of the name itself, or the first pattern."""

    def __init__(self, names: Names) -> None:
        self._exact = {name for name, pattern in names if pattern is None}
        self._patterns = [(name, topic_search(p)) for name, p in names if p is not None]
        self._found: dict[str, str | None] = {}

    def of(self, name: str) -> str | None:
        """The definition; None where nobody took the name."""
        if name in self._exact:
            return name
        if name not in self._found:
            matching = (owner for owner, matches in self._patterns if matches(name))
            self._found[name] = next(matching, None)
        return self._found[name]


class _Stray(Records):
    """Records of which nobody knows any more by what they are named."""

    _named = 0

    def identities_of(self, bodies: Sequence[bytes]) -> list[str]:
        """One record for each body."""
        self._named += len(bodies)
        return [str(self._named - at) for at in range(len(bodies))]


def _names_in(records: Records, entry: LogEntry) -> list[str]:
    """Whose records an entry holds. Only of a directory without a manifest it may be that they
    were stored for something else."""
    try:
        return records.identities_of(entry.bodies)
    except ClientError as error:
        raise StoreError(
            f"topic {records.name}: what came as record {entry.seq} of the log cannot be read as "
            f"the configuration has it: {error.detail}; start with the Key and MessageType that "
            "the topic had, and change them after that"
        ) from error


def _is_unstored(entry: LogEntry) -> bool:
    """Whether a transient topic has logged this. Who then had the name is not known any more."""
    return entry.op == "publish" and entry.identities is None and not any(entry.bodies)


def _misplaced(topic: LiveTopic | None, kept: StoredDefinition, name: str) -> str:
    """Why a topic of today is not the one that records of its name were stored for, or ""."""
    if topic is None:
        return f"Pattern of {kept.name} does not match {name} any more"
    if topic.copy is not None:
        return f"{name} is the name of a conflated topic now"
    if topic.stored_as != kept.name:
        return f"{name} belongs to {topic.stored_as} now, and belonged to {kept.name}"
    return ""


def _not_yet_seen(records: Records, entry: LogEntry, names: Sequence[str]) -> list[int]:
    """Places of an entry that are newer than what the checkpoint already holds of them."""
    table = records.table
    found = table.slots.get
    return [
        at
        for at, name in enumerate(names)
        if (slot := found(name)) is None or table.seqs[slot] < entry.seq + at
    ]
