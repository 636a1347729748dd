"""Orphaned records: stored records that no topic of the configuration takes.

A restart finds them and reports what they are and why no topic takes them; the caller of the
restart decides what becomes of them.
"""

from dataclasses import dataclass

import numpy as np

from sow.store.stored_definitions import StoredDefinition
from sow.topic.records import Records


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
