"""Restoration: the records of another life, put where they belong now.

Each topic is rebuilt from its checkpoint and the log after it. Where records belong, and which of
them nowhere, is found out by `sow.engine.places`; those are rebuilt all the same, so that whoever
asked for the restoration can say how many there are and hand them on.

Nothing here decides what becomes of them, or writes anything.
"""

from collections.abc import Iterator, Mapping, Sequence

from sow.engine.catalog import BELONGS, Catalog
from sow.engine.homeless import Homeless
from sow.engine.live_topics import LiveTopic
from sow.engine.places import Places
from sow.errors import ClientError, StoreError
from sow.store.protocols import Checkpoint, LogEntry, Slice
from sow.store.stored_definitions import Past, StoredDefinition
from sow.topic.records import Records


class Restoration:
    """Rebuilds the records of a catalog's topics, from `checkpoints` and what comes after them."""

    def __init__(
        self, catalog: Catalog, past: Past, checkpoints: Mapping[str, Checkpoint], last_seq: int
    ) -> None:
        self.empty: list[LiveTopic] = []
        """Topics that `finish` has found to be too many."""
        self._checkpoints = checkpoints
        self._kept = {kept.name: kept for kept in past.kept}
        seqs = {name: checkpoint.seq for name, checkpoint in checkpoints.items()}
        self._places = Places(catalog, past, seqs, last_seq)

    def load(self) -> int:
        """Put back what the checkpoints hold; returns the newest time in them."""
        newest_us = 0
        for name, checkpoint in self._checkpoints.items():
            kept = self._kept[name]
            for part in checkpoint.load():
                newest_us = max(newest_us, max(part.ts_us, default=0))
                for topic, piece in _parts(kept, part):
                    self._load(kept, topic, piece)
        return newest_us

    def _load(self, kept: StoredDefinition, topic: str, piece: Slice) -> None:
        ownership = self._places.ownership
        if ownership.has_passed(kept.name, topic):
            return
        since_seq = ownership.since(kept.name, topic)
        if since_seq:
            wanted = [at for at, seq in enumerate(piece.seqs) if seq > since_seq]
            piece = piece.at(wanted, str)
        if piece.identities and kept.topic.retain:
            records = self._places.of_kept(kept, topic).records
            records.index(records.table.restore(piece))

    def replay(self, entry: LogEntry) -> None:
        """Apply a log entry to a table that may already hold some of what follows it."""
        if _is_unstored(entry):
            return
        place = self._places.of_entry(entry)
        if place is None or entry.seq + len(entry) - 1 <= place.after_seq:
            return
        records = place.records
        if not records.retains:
            return
        if entry.op == "publish" and records.message_type.structured and not any(entry.bodies):
            return  # the first release has told the names of what it did not store
        identities = entry.identities
        if identities is None:
            identities = _identities_in(records, entry)
        newer = _not_yet_seen(records, entry, identities)
        identities = [identities[at] for at in newer]
        if entry.op == "publish":
            bodies = [entry.bodies[at] for at in newer]
            seqs = [entry.seq + at for at in newer]
            stamps = [entry.ts_us] * len(newer)
            if identities:
                records.put(identities, bodies, {}, seqs, stamps, entry.expires_us)
        else:
            records.discard(identities)

    def finish(self) -> list[Homeless]:
        """All that has no place, topics over a pattern's limit included; some may be empty.

        Topics over the limit that hold nothing are `empty`, and should not be there any more.
        """
        self.empty = self._places.over_limits()
        return self._places.homeless


def _parts(kept: StoredDefinition, part: Slice) -> Iterator[tuple[str, Slice]]:
    """What a slice of a checkpoint holds of each topic."""
    if kept.topic.pattern is None:
        yield kept.name, part
        return
    places: dict[str, list[int]] = {}
    for at, identity in enumerate(part.identities):
        places.setdefault(identity.partition(BELONGS)[0], []).append(at)
    for topic, of_topic in places.items():
        yield topic, part.at(of_topic, lambda text: text.partition(BELONGS)[2])


def _identities_in(records: Records, entry: LogEntry) -> list[str]:
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


def _not_yet_seen(records: Records, entry: LogEntry, identities: Sequence[str]) -> list[int]:
    """Places of an entry that are newer than what the checkpoint already holds of them."""
    table = records.table
    found = table.slots.get
    return [
        at
        for at, identity in enumerate(identities)
        if (slot := found(identity)) is None or table.seqs[slot] < entry.seq + at
    ]
