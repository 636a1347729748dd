"""Recovery: from a store to topics that continue where the last process stopped.

The log is read once: entries after a topic's checkpoint are applied to it
(`sow.engine.recovery.checkpoint_restore` knows to which topic), and time continues from the newest
time found. Then indexes, expiries, copies and views are built from the records. System topics are
kept beside the log and come last. It works in steps, since there may be millions of records, and
can be abandoned between two of them without a trace: nothing is sent, and nothing is written.
"""

from collections.abc import Iterable, Mapping

from sow.core.cooperative import Task, run_to_completion
from sow.engine.catalog import Catalog
from sow.engine.progress import Progress
from sow.engine.recovery.checkpoint_restore import CheckpointRestore
from sow.engine.recovery.orphaned_records import OrphanedRecords
from sow.engine.running_topics import CopyTopic, LiveTopic, SourceTopic, ViewTopic
from sow.engine.wal import CommitSequencer
from sow.store.protocols import Checkpoint, LogEntry
from sow.store.stored_definitions import Past


def restore(
    catalog: Catalog,
    ledger: CommitSequencer,
    past: Past,
    checkpoints: Mapping[str, Checkpoint],
    log: Iterable[LogEntry],
    last_seq: int,
    progress: Progress,
) -> Task[list[OrphanedRecords]]:
    """Rebuild the records of a catalog's topics; returns the orphaned ones.

    `checkpoints` has one for each definition in `past`; `log` holds at least every entry after the
    oldest of them, up to `last_seq`. `progress` is updated. Afterwards the ledger continues at the
    end of the log.
    """
    restoration = CheckpointRestore(catalog, past, checkpoints, last_seq)
    ledger.moment((yield from restoration.load(progress)))
    for entry in log:
        ledger.moment(entry.ts_us)
        restoration.replay(entry)
        progress.put_back(entry.topic, len(entry))
        yield
    orphaned = restoration.finish()
    for topic in restoration.empty:
        for name in catalog.with_copies(topic):
            catalog.forget(catalog.topics[name])
    ledger.begin_after(last_seq)
    for topic in list(catalog):
        progress.settle(topic.name)
        ledger.moment((yield from _settle(topic, last_seq)))
        yield
    return orphaned


def _settle(topic: LiveTopic, last_seq: int) -> Task[int]:
    """Build what is derived from records, now that all are there; returns their newest time."""
    yield from topic.records.settle()
    newest_us = int(topic.records.table.ts_us.max(initial=0))
    if isinstance(topic, CopyTopic):
        yield from topic.fill(lambda: last_seq)
    elif isinstance(topic, ViewTopic):
        yield from topic.view.fill(last_seq)
    else:
        yield from topic.restore_expirations()
    return newest_us


def restore_accounts(
    catalog: Catalog, ledger: CommitSequencer, accounts: Iterable[LogEntry] | None
) -> list[SourceTopic]:
    """Restore the system topics from the journal's account entries, and from nothing else.

    Where it has none (None), an earlier version may have numbered them: what `restore` has found is
    then written to the journal as account entries. So is what an earlier version has numbered after
    the newest of them, when it has run on this directory since. Returns the topics.
    """
    own = {
        topic.name: topic for topic in catalog if topic.is_system and isinstance(topic, SourceTopic)
    }
    kept = list(accounts or ())
    known_seq = max((entry.seq for entry in kept), default=ledger.seq)
    numbered = _numbered_accounts(own, 0 if accounts is None else known_seq, ledger.seq)
    for entry in numbered:
        ledger.write(entry)
    for topic in own.values():
        topic.records.clear()
    for entry in (*kept, *numbered):
        ledger.moment(entry.ts_us)
        if entry.topic in own:  # else of a later release: the journal keeps it
            identities = list(entry.identities or ())
            own[entry.topic].records.put(
                identities, entry.bodies, {}, [entry.seq], [entry.ts_us], entry.expires_us
            )
    for topic in own.values():
        run_to_completion(topic.restore_expirations())
    return list(own.values())


def _numbered_accounts(own: Mapping[str, SourceTopic], after_seq: int, seq: int) -> list[LogEntry]:
    """Entries that an earlier version has numbered after `after_seq`, as account entries."""
    found: list[LogEntry] = []
    for name, topic in own.items():
        table = topic.records.table
        part = table.slice(0, len(table.bodies))
        columns = zip(
            part.identities, part.bodies, part.seqs, part.ts_us, part.expires_us, strict=True
        )
        found += [
            LogEntry("publish", name, seq, ts_us, [identity], [body], expires_us, True)
            for identity, body, entry_seq, ts_us, expires_us in columns
            if entry_seq > after_seq
        ]
    return found
