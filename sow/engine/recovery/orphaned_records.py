"""Orphaned records: stored records that no topic of the configuration takes.

A restart rebuilds them in tables that no client sees, and reports what they are and why no topic
takes them; the caller of the restart decides what becomes of them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sow.core.definitions import Topic
from sow.messages import message_type
from sow.store.stored_definitions import StoredDefinition
from sow.topic.records import Records

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
