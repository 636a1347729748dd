"""Homeless records: what a store holds and a configuration has no place for.

A restart finds them and says what they are and why they have no place; what becomes of them is the
business of whoever asked for the restart.
"""

from dataclasses import dataclass

import numpy as np

from sow.store.stored_definitions import StoredDefinition
from sow.topic.records import Records


@dataclass(frozen=True, slots=True)
class OrphanedRecords:
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
