"""Log tail replay (redo): applies the log after a checkpoint to tables, many entries at a time.

A log written record by record has a hundred thousand short entries, and applying each by itself
costs as much as a long one. So publishes of one topic are batched, and a removal is applied after
the publishes before it.

Only tables are changed: indexes are built when all records are there.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, compress, islice, repeat

from sow.errors import BadMessage, ClientError, StoreError
from sow.store.protocols import LogEntry
from sow.topic.records import Records

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
        seqs = _seqs(entries)
        self._count -= len(seqs)
        newer = self._newer(records, identities, seqs)
        bodies = chain.from_iterable(entry.bodies for entry in entries)
        ts_us = _each(entries, [entry.ts_us for entry in entries])
        expires_us = [time_us for entry in entries for time_us in _expiries(entry)]
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


def _seqs(entries: Sequence[LogEntry]) -> list[int]:
    return [seq for entry in entries for seq in range(entry.seq, entry.seq + len(entry))]


def _each(entries: Sequence[LogEntry], values: Sequence[int]) -> list[int]:
    """Values of entries, repeated for each of their records."""
    return [value for entry, value in zip(entries, values, strict=True) for _ in range(len(entry))]


def _expiries(entry: LogEntry) -> Iterable[int]:
    """When the records of an entry expire."""
    expires_us = entry.expires_us
    return repeat(expires_us, len(entry)) if isinstance(expires_us, int) else expires_us


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
