"""A restart restores checkpoints and the tail of the log; here, which topic takes what records.

`sow.engine.recovery.redo` restores them. The manifest (`Past`) records what records were stored
for, not the configuration: records go to a topic of the configuration only if its definition still
reads, names and keeps them as before. A name belongs to the definition of exactly that name, or to
the first pattern that matches it. Only patterns take names over, from one configuration to the
next; log entries from before count for the earlier owner only. The manifest records earlier owners
(`Era`).

Records without such a topic are *orphaned* (`OrphanedRecords`). They are restored all the same, as
what they were, into tables that no client sees; no record is skipped. The caller of the restart
decides what becomes of them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sow.core.definitions import Configuration, Topic, is_persistent
from sow.engine.catalog import Catalog
from sow.engine.running_topics import CopyTopic, LiveTopic, ViewTopic
from sow.errors import ClientError
from sow.expressions.patterns import topic_search
from sow.messages import message_type
from sow.store.manifest import Names, Past, StoredDefinition, names_of
from sow.store.protocols import LogEntry
from sow.topic.records import Records


class Owners:
    """The owner of each name at one time."""

    def __init__(self, names: Names) -> None:
        self._exact = {name for name, pattern in names if pattern is None}
        self._patterns = [(name, topic_search(p)) for name, p in names if p is not None]
        self._found: dict[str, str | None] = {}

    def of(self, name: str) -> str | None:
        """The owning definition; None where no definition took the name."""
        if name in self._exact:
            return name
        if name not in self._found:
            matching = (owner for owner, matches in self._patterns if matches(name))
            self._found[name] = next(matching, None)
        return self._found[name]


class Ownership:
    """The owners of names, in all the eras that `past` records."""

    def __init__(self, past: Past) -> None:
        self._past = past
        self._owners = Owners(past.names or names_of(kept.topic for kept in past.kept))
        self._eras = [(era.until_seq, Owners(era.names)) for era in past.eras]

    def owner(self, name: str) -> str | None:
        """The last owner of the name; None where no definition took it."""
        return self._owners.of(name)

    def since(self, definition: str, name: str) -> int:
        """The number up to which log entries of a topic do not count for a definition: until then
        it was given up, or had another owner."""
        until = [seq for seq, owners in self._eras if owners.of(name) != definition]
        return max(self._past.given_up.get(name, 0), *until[-1:], 0)

    def has_passed(self, definition: str, name: str) -> bool:
        """Whether a topic's name has another owner since a checkpoint of the definition was
        written: then its records were removed, and the new owner's log has these removals."""
        return self._past.is_known and self._owners.of(name) != definition

    def was_known(self, entry: LogEntry) -> bool:
        """Whether a log entry without an owner now had one when it was written."""
        if not self._past.is_known or entry.seq <= self._past.given_up.get(entry.topic, 0):
            return self._past.is_known
        owners = next((then for seq, then in self._eras if entry.seq <= seq), self._owners)
        return owners.of(entry.topic) is not None


class CountedFrom:
    """The number up to which log entries do not count, for definitions of the new configuration.

    `changes` has, for each stored definition, what has changed in it; new or changed definitions
    begin after `last_seq`.
    """

    def __init__(
        self,
        configuration: Configuration,
        past: Past,
        ownership: Ownership,
        changes: Mapping[str, list[str]],
        last_seq: int,
    ) -> None:
        self._ownership = ownership
        self._last_seq = last_seq
        kept = {one.name: one for one in past.kept}
        self._since: dict[str, int] = {}
        for definition in configuration.topics:
            name = definition.name
            if name in kept and not changes[name]:
                self._since[name] = kept[name].since_seq
            elif is_persistent(definition):
                self._since[name] = last_seq

    def __call__(self, definition: str, name: str) -> int:
        """The number of the last entry before this definition owned the topic of this name."""
        if self._ownership.owner(name) not in (definition, None):
            return self._last_seq
        return max(self._since.get(definition, 0), self._ownership.since(definition, name))


@dataclass(frozen=True, slots=True)
class RecordsPlace:
    """The destination of the records of one name. Log entries up to `after_seq` do not count."""

    records: Records
    after_seq: int


class RestoreMapping:
    """The destinations of records that were stored in `past`, in topics of `catalog` if possible.

    `checkpoint_seqs` has the last number of the checkpoint of each definition, `last_seq` that of
    the log. Sets in the catalog from which number on log entries count.
    """

    def __init__(
        self,
        catalog: Catalog,
        past: Past,
        checkpoint_seqs: Mapping[str, int],
        last_seq: int,
    ) -> None:
        self.ownership = Ownership(past)
        self._catalog = catalog
        self._past = past
        self._checkpoint_seqs = checkpoint_seqs
        self._last_seq = last_seq
        self._kept = {kept.name: kept for kept in past.kept}
        configuration = catalog.configuration
        definitions = {one.name: one for one in configuration.topics}
        self._changes = {
            kept.name: kept.changes(definitions.get(kept.name), configuration) for kept in past.kept
        }
        self.orphans = Orphans()
        self._places: dict[str, RecordsPlace | None] = {}
        self._members: dict[tuple[str, str], RecordsPlace] = {}
        catalog.count_from(
            CountedFrom(configuration, past, self.ownership, self._changes, last_seq)
        )

    # Finding places.

    def of_entry(self, entry: LogEntry) -> RecordsPlace | None:
        """The destination of a log entry; None if it was kept for no topic."""
        if entry.topic not in self._places:
            self._find(entry)
        return self._places.get(entry.topic)

    def _find(self, entry: LogEntry) -> None:
        """Note the destination of an entry's topic, unless a later entry has to decide it."""
        name, owner = entry.topic, self.ownership.owner(entry.topic)
        kept = self._kept.get(owner or "")
        if kept is not None:
            # A topic with no entry that counts does not exist.
            since_seq = max(kept.since_seq, self.ownership.since(kept.name, name))
            if entry.seq > since_seq:
                self._places[name] = self.of_kept(kept, name)
        elif self._past.is_known and owner is not None:
            self._places[name] = None
        elif entry.op == "publish" and any(entry.bodies) and not self.ownership.was_known(entry):
            records = self.orphans.of_log(name, self._past.is_known)
            self._places[name] = RecordsPlace(records, self._past.given_up.get(name, 0))

    def of_kept(self, kept: StoredDefinition, name: str) -> RecordsPlace:
        """The destination of records that were stored for a definition, in a topic of this name."""
        found = self._members.get((kept.name, name))
        if found is None:
            after = max(
                kept.since_seq,
                self.ownership.since(kept.name, name),
                self._last_seq if not kept.topic.retain else 0,
                self._checkpoint_seqs.get(kept.name, 0),
            )
            found = RecordsPlace(self._records(kept, name), after)
            self._members[kept.name, name] = found
        return found

    def _records(self, kept: StoredDefinition, name: str) -> Records:
        """The records to restore into: those of a running topic, or hidden ones."""
        changes = self._changes[kept.name]
        if not changes:
            topic, reason = self._placed(kept, name)
            if topic is not None and not reason:
                if topic.records.retains or not kept.topic.retain:
                    return topic.records
                return self.orphans.of_kept(kept, name, "Retain is false now", is_gone=False)
        elif changes == ["Name"]:
            reason = f"{kept.name} is not defined any more"
        else:
            reason = f"{' and '.join(changes)} of {kept.name} changed"
        return self.orphans.of_kept(kept, name, reason)

    def _placed(self, kept: StoredDefinition, name: str) -> tuple[LiveTopic | None, str]:
        """The running topic of a name, and why it cannot take the records, if so."""
        try:
            topic = self._catalog.placed(name)
        except ClientError as error:
            return None, error.detail
        return topic, _misplaced(topic, kept, name)

    # Orphaned records.

    def over_limits(self) -> list[LiveTopic]:
        """Topics over the limits of patterns.

        Those with records are orphaned now; those without are returned.
        """
        limit = self._catalog.configuration.limits.pattern_topics_max
        empty: list[LiveTopic] = []
        for pattern in self._catalog.patterns.values():
            if pattern.matches is None:
                continue
            topics, reason = pattern.over(limit)
            for topic in topics:
                if len(topic.records.table):
                    self.orphans.add(topic.records, self._kept[pattern.name], reason)
                else:
                    empty.append(topic)
        return empty


def _misplaced(topic: LiveTopic | None, kept: StoredDefinition, name: str) -> str:
    """Why a current topic is not the one that records of its name were stored for, or ""."""
    if topic is None:
        return f"Pattern of {kept.name} does not match {name} any more"
    if isinstance(topic, CopyTopic):
        return f"{name} is the name of a conflated topic now"
    if isinstance(topic, ViewTopic):
        return f"{name} is the name of a view now"
    if topic.stored_as != kept.name:
        return f"{name} belongs to {topic.stored_as} now, and belonged to {kept.name}"
    return ""


ONLY_IN_LOG = "the log holds them, and the configuration keeps no such topic"
OLD_MANIFEST = (
    "the log holds them, and the manifest knows no such topic: it is older than the log; without "
    "manifest.json and its copy a start goes by the files"
)


@dataclass(frozen=True, slots=True)
class OrphanedRecords:
    """Records that no topic takes: what they are, and why.

    `kept` is the definition they were stored for; None for those that only the log has.
    `is_gone`: log entries of the topic are orphaned too.
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
        """How many there are that have not expired."""
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


class StrayRecords(Records):
    """Records whose key fields are unknown."""

    _named = 0

    def identities_of(self, bodies: Sequence[bytes]) -> list[str]:
        """One record for each body."""
        self._named += len(bodies)
        return [str(self._named - at) for at in range(len(bodies))]


class Orphans:
    """All orphaned records of a restart."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], OrphanedRecords] = {}

    def __iter__(self) -> Iterator[OrphanedRecords]:
        """All that were found; some may be empty."""
        return iter(self._found.values())

    def add(self, records: Records, kept: StoredDefinition, reason: str) -> None:
        """Records of a running topic have no place."""
        self._note(OrphanedRecords(records, kept, reason))

    def of_kept(
        self, kept: StoredDefinition, name: str, reason: str, is_gone: bool = True
    ) -> Records:
        """A table for the records of a topic that is as `kept` says, and runs no more."""
        definition = replace(kept.topic, name=name, pattern=None)
        kind = message_type(kept.topic.message_type, kept.kinds)
        records = Records(definition, kind, definition.keys, definition.domain)
        return self._note(OrphanedRecords(records, kept, reason, is_gone))

    def of_log(self, name: str, has_manifest: bool) -> Records:
        """A table for a topic that only the log has: every publish counts as a record."""
        reason = OLD_MANIFEST if has_manifest else ONLY_IN_LOG
        records = StrayRecords(Topic(name, "binary"), message_type("binary"), (), name)
        return self._note(OrphanedRecords(records, None, reason))

    def _note(self, found: OrphanedRecords) -> Records:
        stored_as = found.kept.name if found.kept is not None else ""
        self._found[stored_as, found.name] = found
        return found.records
