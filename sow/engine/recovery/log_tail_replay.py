"""The tail: what the log says after a checkpoint, applied to tables many entries at a time.

A log that was written record by record has a hundred thousand short entries; read and stored one
by one, each would cost what a long one does. So publishes of one topic gather until there are
enough of them, and a removal takes effect after those that came before it.

Only tables are changed: indexes are made when all records are there.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, compress, islice, repeat

from sow.errors import BadMessage, ClientError, StoreError
from sow.store.protocols import LogEntry
from sow.topic.records import Records

WAITING_MAX = 2048
"""Records that wait: enough that the entries they came in cost nothing, and few enough that they
are applied in some ten milliseconds, for which a start answers nobody."""


class LogTailReplay:
    """Applies log entries, in order, to tables that may hold some of what follows them."""

    def __init__(self) -> None:
        self._waiting: defaultdict[Records, list[LogEntry]] = defaultdict(list)
        self._count = 0
        self._newest: dict[Records, int] = {}
        """The newest record that a checkpoint held, which is newer than its end."""

    def add(self, records: Records, entry: LogEntry) -> None:
        """An entry that concerns these records; raises StoreError if it cannot be theirs."""
        if entry.op != "publish":
            self._apply(records)
            self._remove(records, entry)
            return
        self._waiting[records].append(entry)
        self._count += len(entry)
        if self._count >= WAITING_MAX:
            self.apply()

    def apply(self) -> None:
        """Apply all that waits."""
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
        """Which of them are newer than what a checkpoint already held of them."""
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
    """What entries say once, for each of their records."""
    return [value for entry, value in zip(entries, values, strict=True) for _ in range(len(entry))]


def _expiries(entry: LogEntry) -> Iterable[int]:
    """When the records of an entry expire."""
    expires_us = entry.expires_us
    return repeat(expires_us, len(entry)) if isinstance(expires_us, int) else expires_us


def _identities(records: Records, entries: Sequence[LogEntry]) -> list[str]:
    """Whose records publishes hold: of those that do not say it, by their bodies."""
    read = _identities_in(records, [entry for entry in entries if entry.identities is None])
    found: list[str] = []
    for entry in entries:
        named = entry.identities
        found += islice(read, len(entry)) if named is None else named
    return found


def _identities_in(records: Records, entries: Sequence[LogEntry]) -> Iterator[str]:
    """Whose records bodies are. Only of a directory without a manifest it may be that they were
    stored for something else."""
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
