"""Checkpoint restore: puts stored records into the topics of the current configuration.

Each topic is rebuilt from its checkpoint and the log after it.
`sow.engine.recovery.restore_mapping` decides to which topic records belong; orphaned records are
rebuilt too, so that the caller can report how many there are and archive them. This module writes
nothing.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from sow.core.cooperative import Task
from sow.engine.catalog import Catalog
from sow.engine.progress import Progress
from sow.engine.recovery.log_tail_replay import LogTailReplay
from sow.engine.recovery.orphaned_records import OrphanedRecords
from sow.engine.recovery.restore_mapping import RestoreMapping
from sow.engine.running_topics import LiveTopic
from sow.engine.stored_topics import BELONGS, binding
from sow.store.protocols import Checkpoint, LogEntry, Slice
from sow.store.stored_definitions import Past, StoredDefinition


class CheckpointRestore:
    """Rebuilds the records of a catalog's topics, from `checkpoints` and what comes after them."""

    def __init__(
        self, catalog: Catalog, past: Past, checkpoints: Mapping[str, Checkpoint], last_seq: int
    ) -> None:
        self._catalog = catalog
        self.empty: list[LiveTopic] = []
        """Empty topics over a pattern's limit, as `finish` has found."""
        self._checkpoints = checkpoints
        self._kept = {kept.name: kept for kept in past.kept}
        seqs = {name: checkpoint.seq for name, checkpoint in checkpoints.items()}
        self._places = RestoreMapping(catalog, past, seqs, last_seq)
        self._tail = LogTailReplay()

    def load(self, progress: Progress) -> Task[int]:
        """Restore the records of the checkpoints; returns the newest time in them."""
        newest_us = 0
        for name, checkpoint in self._checkpoints.items():
            kept = self._kept[name]
            for part in checkpoint.load():
                newest_us = max(newest_us, int(np.max(part.ts_us, initial=0)))
                for topic, piece in _parts(kept, part):
                    self._load(kept, topic, piece)
                progress.put_back(name, len(part.identities))
                yield
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
            if kept.topic.pattern is None:
                records.table.expect(self._checkpoints[kept.name].records)
            start = len(records.table.bodies)
            records.table.restore(piece)
            if piece.values is not None:
                records.indexes.restored(start, piece, binding(self._catalog, records))

    def replay(self, entry: LogEntry) -> None:
        """Apply a log entry to a table that may already contain later changes."""
        if _is_unstored(entry):
            return
        place = self._places.of_entry(entry)
        if place is None or entry.seq + len(entry) - 1 <= place.after_seq:
            return
        records = place.records
        if not records.retains:
            return
        # An empty body is a message of types without fields.
        if entry.op == "publish" and records.message_type.partial and not any(entry.bodies):
            return  # the first release logged the names of topics whose messages it did not store
        self._tail.add(records, entry)

    def finish(self) -> list[OrphanedRecords]:
        """Apply what still waits; returns all orphaned records, topics over a pattern's limit
        included; some may be empty.

        Topics over the limit without records are in `empty`, and should be removed.
        """
        self._tail.apply()
        self.empty = self._places.over_limits()
        return self._places.orphaned


def _parts(kept: StoredDefinition, part: Slice) -> Iterator[tuple[str, Slice]]:
    """The part of a checkpoint's slice for each topic."""
    if kept.topic.pattern is None:
        yield kept.name, part
        return
    places: dict[str, list[int]] = {}
    for at, identity in enumerate(part.identities):
        places.setdefault(identity.partition(BELONGS)[0], []).append(at)
    for topic, of_topic in places.items():
        yield topic, part.at(of_topic, lambda text: text.partition(BELONGS)[2])


def _is_unstored(entry: LogEntry) -> bool:
    """Whether a transient topic has logged this; its definition is not recorded."""
    return entry.op == "publish" and entry.identities is None and not any(entry.bodies)
