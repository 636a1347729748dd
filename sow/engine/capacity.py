"""How much may be stored: bytes of a message (`Limits/MessageSize`), records of a topic
(`MaxRecords`), memory for all (`Limits/Memory`), and the space of the disk.

Checked before anything is changed, with everything that a publish or a staged batch would do, so
that it is accepted completely or not at all. Far from a limit the check is a sum; only near one it
finds out which messages replace records. Changes that do not grow are always accepted, and so are
removals. What waits in windows of conflated topics is counted for each copy when it is published,
and exactly when it is released; rows of views are counted when they are made.

A change in several steps *reserves* its room before the first: for all others it counts as if
nothing of it replaced a record, so that what fits at the start fits until the end.

On the disk, messages need free space beside what is being written. What helps a full disk (removals
free space, and so do consumers that advance) may use the reserve that is kept for it. While the
disk refuses to write, nothing is accepted. The store knows how much space there is.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from sow.core.cooperative import Task
from sow.core.definitions import Topic
from sow.engine.catalog import Catalog
from sow.engine.running_topics import LiveTopic, SourceTopic
from sow.engine.wal import CommitSequencer
from sow.errors import DiskFull, Full, StoreError, TooLarge
from sow.store.memory import RECORD_BYTES, Table
from sow.topic.series import TopicEvents

NEAR = 0.9
"""The share of the limit from which a warning is reported."""
GONE = -1
"""Stands for the size of a record that is removed."""


class Deed(NamedTuple):
    """An action on records of these identities: stored with these sizes; None: removed."""

    identities: Sequence[str]
    sizes: Sequence[int] | None


class Reservation:
    """Room reserved for actions on the topic `name`, until each is done; `tables` is how many
    tables store them."""

    def __init__(
        self, name: str, deeds: Iterable[Deed], tables: int, held: dict["Reservation", None]
    ) -> None:
        self.name = name
        self._deeds = deque(
            (len(deed.sizes), tables * (sum(deed.sizes) + RECORD_BYTES * len(deed.sizes)))
            for deed in deeds
            if deed.sizes is not None
        )
        self.records = sum(records for records, _ in self._deeds)
        self.bytes = sum(size_bytes for _, size_bytes in self._deeds)
        self._held = held
        held[self] = None

    def take_next(self) -> None:
        """The next action is done now."""
        records, size_bytes = self._deeds.popleft()
        self.records -= records
        self.bytes -= size_bytes
        if not self._deeds:
            self.release()

    def release(self) -> None:
        """Give the remaining room back."""
        self._held.pop(self, None)


class Capacity:
    """The room for records of one catalog."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._reserved: dict[Reservation, None] = {}

    @property
    def used_bytes(self) -> int:
        """Bytes of all records, and of the state of views."""
        return self._catalog.usage.bytes

    @property
    def limit_bytes(self) -> int | None:
        """The limit of these bytes; None: unlimited."""
        return self._catalog.configuration.limits.memory_bytes_max

    @property
    def warning(self) -> str | None:
        """How full it is, from `NEAR` on."""
        limit = self.limit_bytes
        if limit is None or self.used_bytes < NEAR * limit:
            return None
        return f"records and views take {self.used_bytes} of {limit} bytes (Limits/Memory)"

    @property
    def is_full(self) -> bool:
        """No new record can be stored."""
        limit = self.limit_bytes
        return limit is not None and self.used_bytes >= limit

    def check_sizes(self, bodies: Sequence[bytes]) -> None:
        """Raise TooLarge if one of `bodies` is over `Limits/MessageSize`."""
        largest = max(map(len, bodies), default=0)
        most = self._catalog.configuration.limits.message_bytes_max
        if largest > most:
            raise TooLarge(
                f"a message of {largest} bytes is over the limit of {most} bytes "
                "(Limits/MessageSize)"
            )

    def bounds(self, topic: LiveTopic) -> bool:
        """Whether there is a limit to check."""
        # Called at every publish, so without calls for its two parts.
        limits = self._catalog.configuration.limits
        return limits.memory_bytes_max is not None or (
            getattr(topic.definition, "records_max", None) is not None
        )

    def check_count(self, topic: LiveTopic, count: int) -> None:
        """Raise Full if so many records that are to be there together are too many, whatever they
        replace: so nobody has to read the rest of them to know."""
        limit, most = self.limit_bytes, records_max(topic)
        if most is not None and count > most and topic.records.retains:
            raise Full(
                f"topic {topic.name} may hold {most} records (MaxRecords), and these are more: "
                "nothing was stored. Write fewer, or raise MaxRecords",
                reason="topic full",
            )
        if limit is not None and count * RECORD_BYTES * len(self._holding(topic)) > limit:
            raise Full(
                f"records and views may take {limit} bytes (Limits/Memory), and these take more: "
                "nothing was stored. Write fewer, or raise Memory"
            )

    def reserve(self, topic: LiveTopic, deeds: Sequence[Deed]) -> Reservation:
        """Reserve room for actions that remove nothing; `check` decides whether there is so much.
        To be released if they are not done."""
        tables = len(self._holding(topic)) + _queues(topic)
        return Reservation(topic.name, deeds, tables, self._reserved)

    def _holding(self, topic: LiveTopic) -> list[Table]:
        """The tables that store a record of a topic: its own, and those of its copies."""
        catalog = self._catalog
        copies = [catalog.topics[name] for name in catalog.with_copies(topic)[:-1]]
        return [one.records.table for one in (topic, *copies) if one.records.retains]

    def check(
        self, topic: LiveTopic, deeds: Sequence[Deed], own: Reservation | None = None
    ) -> Task[None]:
        """Raise Full if these actions do not all fit; `own` is their reservation."""
        if not self.bounds(topic):
            return
        limit, most = self.limit_bytes, records_max(topic)
        held, queues = self._holding(topic), _queues(topic)
        if not (held or queues):
            return
        others = [one for one in self._reserved if one is not own]
        promised_bytes = sum(one.bytes for one in others)
        # Decided now: reservations keep what fits now until the end.
        used_bytes = self.used_bytes
        there = len(topic.records.table) + sum(o.records for o in others if o.name == topic.name)
        count = sum(len(deed.identities) for deed in deeds if deed.sizes)
        size = sum(sum(deed.sizes) for deed in deeds if deed.sizes) + RECORD_BYTES * count
        queued = size * queues
        size *= 1 if topic.records.events is None else 3  # as a record, and with its events
        room = None if limit is None else limit - used_bytes - promised_bytes
        most_bytes = size * len(held) + queued
        if (room is None or most_bytes <= room) and (most is None or there + count <= most):
            return
        more = grown = 0
        if held:
            more, grown = yield from growth(held[0], deeds, topic.records.events)
        taken = max(0, grown) * len(held) + queued
        if most is not None and more > 0 and there + more > most and topic.records.retains:
            raise Full(
                f"topic {topic.name} may hold {most} records (MaxRecords); it has "
                f"{there}, and {more} more are too many: nothing was stored. Delete some, or "
                "raise MaxRecords",
                reason="topic full",
            )
        if room is not None and taken > max(0, room):
            raise Full(
                f"records and views take {used_bytes + promised_bytes} of {limit} bytes "
                f"(Limits/Memory), and {taken} more do not fit: nothing was stored. "
                "Delete some records, or raise Memory"
            )


def _queues(topic: LiveTopic) -> int:
    """How many queues store each message of a topic, whatever record it replaces."""
    return len(topic.queues) if isinstance(topic, SourceTopic) else 0


def records_max(topic: LiveTopic) -> int | None:
    """How many records a topic may hold, if limited."""
    return topic.definition.records_max if isinstance(topic.definition, Topic) else None


def growth(
    table: Table, deeds: Sequence[Deed], events: TopicEvents | None = None
) -> Task[tuple[int, int]]:
    """Growth in records and bytes, negative where they shrink; a step for each action. In a series
    each message is an event beside the record, in the place of the oldest one where so many are
    kept."""
    after: dict[str, int] = {}
    records = grown = 0
    for deed in deeds:
        if events is not None and deed.sizes is not None:
            grown += sum(deed.sizes) + sum(map(events.growth, deed.identities))
        sizes = [GONE] * len(deed.identities) if deed.sizes is None else deed.sizes
        for identity, size in zip(deed.identities, sizes, strict=True):
            before = after.get(identity)
            if before is None:
                slot = table.slots.get(identity)
                before = GONE if slot is None else len(table.bodies[slot] or b"")
            after[identity] = size
            if before != GONE:
                records -= 1
                grown -= before + RECORD_BYTES
            if size != GONE:
                records += 1
                grown += size + RECORD_BYTES
        yield
    return records, grown


SMALL_WRITE_BYTES = 12 * 1024
"""What a write to the journal takes however little it holds: two to three pages."""


class DiskReserve:
    """Admission control of writes.

    `has_room` returns whether the disk takes so many more bytes of messages, 0 for some, and
    `takes` whether the reserve takes so many; where the disk takes none although it is not full,
    `lost` returns why. `sequencer` knows what is being written.
    """

    def __init__(
        self,
        sequencer: CommitSequencer,
        has_room: Callable[[int], bool],
        takes: Callable[[int], bool],
        lost: Callable[[], StoreError | None] = lambda: None,
    ) -> None:
        self._sequencer = sequencer
        self._has_room = has_room
        self._takes = takes
        self._lost = lost
        self._failure: StoreError | None = None
        self.checkpoint_bytes = 0
        """What the checkpoints that are being written take: messages leave them so much room."""
        self.scarce_deletes = 0
        """Deletes under way for which the disk has few pages: the journal gathers their changes."""

    @property
    def is_full(self) -> bool:
        """The disk takes no more messages; removals may have the reserve."""
        return not self._has_room(0)

    @property
    def failure(self) -> StoreError | None:
        """The error of the last write, until one succeeds."""
        return self._failure

    def fail(self, failure: StoreError) -> None:
        """A write failed: refuse all messages with this error, deletes too."""
        self._failure = failure

    def recover(self) -> None:
        """Writes succeed again."""
        self._failure = None

    def check(self) -> None:
        """Raise DiskFull if the disk takes no more messages, or its error while it fails."""
        if self._failure is not None:
            self.check_failure()
        if not self._has_room(0):
            raise self._refused("the disk is full; nothing was stored, reads are still served")

    def _refused(self, full: str) -> StoreError:
        return self._lost() or DiskFull(full)

    def check_whole(self, size_bytes: int) -> None:
        """Raise DiskFull if messages of so many bytes do not all fit."""
        if not self._has_room(self.on_the_way_bytes() + size_bytes):
            raise self._refused(
                f"the disk has no room for {size_bytes} bytes: nothing was stored; send less at "
                "once, or free some space"
            )

    def on_the_way_bytes(self) -> int:
        """Bytes accepted and not stored yet; takes time in proportion to the entries."""
        return sum(entry.size_bytes() for entry in self._sequencer.in_flight())

    @contextmanager
    def keep_free(self, size_bytes: int) -> Iterator[None]:
        """Leave so much room to a checkpoint that is being written."""
        self.checkpoint_bytes += size_bytes
        try:
            yield
        finally:
            self.checkpoint_bytes -= size_bytes

    @contextmanager
    def share_writes(self, writes: int) -> Iterator[None]:
        """Where the disk has no pages for so many small writes, have the journal gather them."""
        is_scarce = not self._has_room(writes * SMALL_WRITE_BYTES)
        self.scarce_deletes += is_scarce
        try:
            yield
        finally:
            self.scarce_deletes -= is_scarce

    def check_reserve(self, size_bytes: Callable[[], int]) -> None:
        """Raise DiskFull if not even the reserve has room for so much.

        `size_bytes` is called only when the disk is full.
        """
        self.check_failure()
        if self._has_room(0):
            return
        if not self._takes(self.on_the_way_bytes() + size_bytes()):
            raise self._refused(
                "the disk is full, and so is its reserve: nothing was changed; free some space, "
                "or delete less at once"
            )

    def spares(self, size_bytes: int) -> bool:
        """Whether the disk has room for so much, or its reserve has."""
        return self._has_room(0) or self._takes(self.on_the_way_bytes() + size_bytes)

    def check_removal(self, identities: Iterable[str]) -> None:
        """Raise DiskFull if there is no room to log the removal of these records."""
        self.check_reserve(lambda: self.removal_bytes(identities))

    @staticmethod
    def removal_bytes(identities: Iterable[str]) -> int:
        """About how many bytes the removal of these records takes."""
        return sum(len(identity.encode(errors="replace")) for identity in identities)

    def check_failure(self) -> None:
        """Raise the error of the disk while it fails."""
        if self._failure is not None:
            # Raised many times: it would collect a traceback each time.
            raise self._failure.with_traceback(None)
