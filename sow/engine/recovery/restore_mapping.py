"""Restore mapping: the topic of the current configuration that takes stored records.

The manifest (`Past`) records what records were stored for, not the configuration: records go to a
topic of the configuration only if its definition still reads, names and keeps them as before.
Records without such a topic are *orphaned*. They are restored all the same, as what they were, into
tables that no client sees; no record is skipped.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sow.core.definitions import Topic
from sow.engine.catalog import Catalog
from sow.engine.recovery.definition_lineage import CountedFrom, Ownership
from sow.engine.recovery.orphaned_records import OrphanedRecords
from sow.engine.running_topics import CopyTopic, LiveTopic, ViewTopic
from sow.errors import ClientError
from sow.messages import message_type
from sow.store.protocols import LogEntry
from sow.store.stored_definitions import Past, StoredDefinition
from sow.topic.records import Records

STRAY = "the log holds them, and the configuration keeps no such topic"
UNKNOWN = (
    "the log holds them, and the manifest knows no such topic: it is older than the log; without "
    "manifest.json and its copy a start goes by the files"
)


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
        self._orphaned: dict[tuple[str, str], OrphanedRecords] = {}
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
            self._places[name] = RecordsPlace(self._stray(name), self._past.given_up.get(name, 0))

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
                return self._without_place(kept, name, "Retain is false now", is_gone=False)
        elif changes == ["Name"]:
            reason = f"{kept.name} is not defined any more"
        else:
            reason = f"{' and '.join(changes)} of {kept.name} changed"
        return self._without_place(kept, name, reason)

    def _placed(self, kept: StoredDefinition, name: str) -> tuple[LiveTopic | None, str]:
        """The running topic of a name, and why it cannot take the records, if so."""
        try:
            topic = self._catalog.placed(name)
        except ClientError as error:
            return None, error.detail
        return topic, _misplaced(topic, kept, name)

    def _without_place(
        self, kept: StoredDefinition, name: str, reason: str, is_gone: bool = True
    ) -> Records:
        definition = replace(kept.topic, name=name, pattern=None)
        kind = message_type(kept.topic.message_type, kept.kinds)
        records = Records(definition, kind, definition.keys, definition.domain)
        self._note(OrphanedRecords(records, kept, reason, is_gone))
        return records

    def _stray(self, name: str) -> Records:
        """A topic that only the log has: every publish counts as a record."""
        records = StrayRecords(Topic(name, "binary"), message_type("binary"), (), name)
        self._note(OrphanedRecords(records, None, UNKNOWN if self._past.is_known else STRAY))
        return records

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
                    self._note(OrphanedRecords(topic.records, self._kept[pattern.name], reason))
                else:
                    empty.append(topic)
        return empty

    @property
    def orphaned(self) -> list[OrphanedRecords]:
        """All orphaned records found; some may be empty."""
        return list(self._orphaned.values())

    def _note(self, found: OrphanedRecords) -> None:
        stored_as = found.kept.name if found.kept is not None else ""
        self._orphaned[stored_as, found.records.name] = found


class StrayRecords(Records):
    """Records whose key fields are unknown."""

    _named = 0

    def identities_of(self, bodies: Sequence[bytes]) -> list[str]:
        """One record for each body."""
        self._named += len(bodies)
        return [str(self._named - at) for at in range(len(bodies))]


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
