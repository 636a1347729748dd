"""How much may be stored: records of a topic (`MaxRecords`), memory for all (`Limits/Memory`).

Asked before anything is changed, with all that a publish or a staged batch would do, so that it is
taken as a whole or not at all. Far from a limit the answer is a sum; only near one is it found out
which of the messages replace something. What does not grow is always taken, and so are removals.
What waits in a conflated topic's windows is counted for each copy when it is published, and for
certain when it is released.
"""

from collections.abc import Sequence
from typing import NamedTuple

from sow.definitions import Topic
from sow.engine.catalog import Catalog
from sow.engine.live_topics import LiveTopic
from sow.errors import Full
from sow.store.memory import RECORD_BYTES, Table

NEAR = 0.9
"""How full is worth telling."""
GONE = -1
"""Stands for the size of a record that is removed."""


class Deed(NamedTuple):
    """What is done to records of these identities: stored with these sizes; None: removed."""

    identities: Sequence[str]
    sizes: Sequence[int] | None


class Capacity:
    """The room for records of one catalog."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    @property
    def used_bytes(self) -> int:
        """What all records take."""
        return self._catalog.usage.bytes

    @property
    def limit_bytes(self) -> int | None:
        """What they may take; None: as much as there is."""
        return self._catalog.configuration.limits.memory_bytes_max

    @property
    def told(self) -> str | None:
        """How full it is, if that is worth telling."""
        limit = self.limit_bytes
        if limit is None or self.used_bytes < NEAR * limit:
            return None
        return f"records take {self.used_bytes} of {limit} bytes (Limits/Memory)"

    @property
    def is_full(self) -> bool:
        """Nothing new can be stored."""
        limit = self.limit_bytes
        return limit is not None and self.used_bytes >= limit

    def bounds(self, topic: LiveTopic) -> bool:
        """Whether there is anything to check."""
        # Asked at every publish, so without the words for its two halves.
        limits = self._catalog.configuration.limits
        return limits.memory_bytes_max is not None or (
            getattr(topic.definition, "records_max", None) is not None
        )

    def check(self, topic: LiveTopic, deeds: Sequence[Deed]) -> None:
        """Raise Full if this cannot all be stored."""
        limit, most = self.limit_bytes, records_max(topic)
        copies = [self._catalog.topics[name] for name in self._catalog.with_copies(topic)[:-1]]
        held = [one.records.table for one in (topic, *copies) if one.records.retains]
        if not held:
            return
        count = sum(len(deed.identities) for deed in deeds if deed.sizes)
        size = sum(sum(deed.sizes) for deed in deeds if deed.sizes) + RECORD_BYTES * count
        room = None if limit is None else limit - self.used_bytes
        table = topic.records.table
        if (room is None or size * len(held) <= room) and (
            most is None or len(table) + count <= most
        ):
            return
        more, grown = growth(held[0], deeds)
        if most is not None and more > 0 and len(table) + more > most and topic.records.retains:
            raise Full(
                f"topic {topic.definition.name} may hold {most} records (MaxRecords); it has "
                f"{len(table)}, and {more} more are too many: nothing was stored. Delete some, or "
                "raise MaxRecords",
                reason="topic full",
            )
        if room is not None and grown > 0 and grown * len(held) > room:
            raise Full(
                f"records take {self.used_bytes} of {limit} bytes (Limits/Memory), and "
                f"{grown * len(held)} more do not fit: nothing was stored. Delete some records, or "
                "raise Memory"
            )


def records_max(topic: LiveTopic) -> int | None:
    """How many records a topic may hold, if that is bounded."""
    return topic.definition.records_max if isinstance(topic.definition, Topic) else None


def growth(table: Table, deeds: Sequence[Deed]) -> tuple[int, int]:
    """How many records and bytes there would be more; negative for less."""
    after: dict[str, int] = {}
    for deed in deeds:
        if deed.sizes is None:
            after |= dict.fromkeys(deed.identities, GONE)
        else:
            after |= zip(deed.identities, deed.sizes, strict=True)
    records = grown = 0
    for identity, size in after.items():
        slot = table.slots.get(identity)
        if slot is not None:
            records -= 1
            grown -= len(table.bodies[slot] or b"") + RECORD_BYTES
        if size != GONE:
            records += 1
            grown += size + RECORD_BYTES
    return records, grown
