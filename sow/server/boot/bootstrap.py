"""Bootstrap: from a data directory and a configuration to an engine that holds all records.

Before anything is written, the content of the directory is compared with the configuration. Records
without a place are an error that names them or, with `--allow-loss`, are *given up*: they are
written to `removed/` with their checkpoint files, and their log entries are ignored from then on.
Nothing is deleted.

A removal is a chain of durable steps, so that it can be interrupted anywhere: the records are
written out, the manifest drops the topics and names the files to move, the files are moved, the
manifest drops the moves.
"""

import logging
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from sow.core.cooperative import Task, run_to_completion
from sow.core.definitions import Configuration
from sow.engine.engine import Engine
from sow.engine.recovery.orphaned_records import OrphanedRecords
from sow.engine.recovery.redo import Progress
from sow.errors import Damaged, StoreError
from sow.server.boot.manifests import (
    as_now,
    definitions_now,
    first_manifest,
    handful,
    journal_elsewhere,
    successor,
)
from sow.server.boot.quarantine import REMOVED, move_file, removed_at, write_out
from sow.store.checkpoint import LmdbCheckpoint
from sow.store.directory import DataDirectory
from sow.store.environment import repair_command
from sow.store.journal import LmdbJournal
from sow.store.manifest import Manifest, ManifestFile
from sow.store.protocols import LogEntry
from sow.store.stored_definitions import (
    Past,
    StoredDefinition,
    file_name,
)

log = logging.getLogger("sow")

LOG_ID_BYTES = 8
"""Random bytes of a log's id: no two logs share one."""


class ServerBootstrap:
    """The store of one server; `close` releases everything.

    `make_engine` creates an engine of the configuration without records. With `allow_loss` records
    that have no place are given up. Raises StoreError when the directory cannot be used as it is.
    """

    def __init__(
        self,
        configuration: Configuration,
        path: Path,
        make_engine: Callable[[], Engine],
        now_us: int,
        *,
        allow_loss: bool = False,
    ) -> None:
        self.engine: Engine
        self.journal: LmdbJournal
        self.checkpoints: dict[str, LmdbCheckpoint] = {}
        self.log_id = ""
        self.path = path
        self.progress = Progress()
        self._configuration = configuration
        self._make_engine = make_engine
        self._now_us = now_us
        self._allow_loss = allow_loss
        self._is_known = True
        self._closers: list[Callable[[], None]] = []
        self._directory = DataDirectory(path)
        try:
            self._file = ManifestFile(path)
        except BaseException:
            self._directory.close()
            raise

    def open(self, counted: Callable[[Iterable[LogEntry]], Iterable[LogEntry]]) -> Task[None]:
        """Restore all records into `engine`; `counted` wraps the log as it is replayed.

        If it is abandoned between two steps, as at any other moment, the next start continues from
        there.
        """
        manifest = self._file.manifest or self._first_manifest()
        self._check_journal_directory(manifest)
        manifest = self._finish_moves(manifest)
        self._open_files(manifest)
        manifest = self._without_gaps(manifest)
        for _ in range(2):
            orphaned = yield from self._restore(manifest, counted)
            # As the server's clock does: the machine's clock may have been set back.
            self._now_us = max(self._now_us, self.engine.now_us)
            live = [one for one in orphaned if one.count(self._now_us)]
            if live and not self._allow_loss:
                raise StoreError(self._refusal(live), reason="records would be lost")
            manifest = self._give_up(manifest, orphaned, live)
            if not live:
                break
        self._settle(manifest)

    def close(self) -> None:
        """Close the journal, the checkpoints and the directory."""
        while self._closers:
            self._closers.pop()()
        self._directory.close()

    # The content of the directory.

    def _first_manifest(self) -> Manifest:
        manifest, self._is_known = first_manifest(
            self._configuration, self._directory, self._now_us, self._allow_loss
        )
        return manifest

    def _check_journal_directory(self, manifest: Manifest) -> None:
        resolve, now = self._directory.resolve, self._configuration.journal.directory
        if resolve(manifest.journal) != resolve(now) and resolve(manifest.journal).exists():
            raise journal_elsewhere(self._configuration, self._directory, manifest.journal)

    def _finish_moves(self, manifest: Manifest) -> Manifest:
        """Move the files that an interrupted removal has named."""
        if not manifest.moves:
            return manifest
        for name, target in manifest.moves.items():
            move_file(self._directory.resolve(name), self._directory.resolve(target))
        return self._file.write(replace(manifest, moves={}))

    def _open_files(self, manifest: Manifest) -> None:
        for kept in manifest.kept:
            self._open_checkpoint(kept)
        newest = max((checkpoint.seq for checkpoint in self.checkpoints.values()), default=0)
        self.journal = self._directory.journal(
            self._configuration.journal,
            at_least_seq=max(newest, manifest.newest_seq),
            must_exist=self._file.manifest is not None,
        )
        self._closers.append(self.journal.close)

    def _open_checkpoint(self, kept: StoredDefinition) -> LmdbCheckpoint:
        checkpoint = self._directory.checkpoint(kept.topic, kept.since_seq)
        self.checkpoints[kept.name] = checkpoint
        self._closers.append(checkpoint.close)
        return checkpoint

    def _without_gaps(self, manifest: Manifest) -> Manifest:
        """Raise Damaged for a checkpoint that ends before the journal begins: what came between is
        lost."""
        first_seq = self.journal.first_seq
        definitions = {one.name: one for one in self._configuration.topics}
        found = []
        for kept in manifest.kept:
            checkpoint = self.checkpoints[kept.name]
            if max(checkpoint.seq, kept.since_seq) < first_seq - 1:
                stays = not kept.changes(definitions.get(kept.name), self._configuration)
                if self._is_known and (stays or not self._allow_loss):
                    raise self._gap(kept, checkpoint.seq)
                if checkpoint.seq:
                    log.warning(
                        "topic %s was out of the configuration while the journal was trimmed: "
                        "what came for it between records %d and %d is gone",
                        kept.name,
                        checkpoint.seq,
                        first_seq,
                    )
                kept = replace(kept, since_seq=first_seq - 1)
            found.append(kept)
        return replace(manifest, kept=tuple(found))

    def _gap(self, kept: StoredDefinition, seq: int) -> Damaged:
        path = self._directory.resolve(file_name(kept.topic))
        holds = f"ends at record {seq}" if seq else "is missing or empty"
        return Damaged(
            f"topic {kept.name}: the checkpoint {path} {holds}, and the journal begins with record "
            f"{self.journal.first_seq}: what came between is in neither. Restore the file from a "
            "backup of the whole directory; or, to go on with what there is, run: "
            + repair_command(self._directory.path, path)
        )

    # Comparing it with the configuration.

    def _restore(
        self, manifest: Manifest, counted: Callable[[Iterable[LogEntry]], Iterable[LogEntry]]
    ) -> Task[list[OrphanedRecords]]:
        checkpoints = {kept.name: self.checkpoints[kept.name] for kept in manifest.kept}
        after = min((checkpoint.seq for checkpoint in checkpoints.values()), default=0)
        # The newest entry is read in any case: time continues from there.
        after = max(min(after, self.journal.last_seq - 1), self.journal.first_seq - 1)
        past = Past(manifest.kept, manifest.given_up, self._is_known, manifest.names, manifest.eras)
        self.engine = self._make_engine()
        last_seq, checkpointed = self.journal.last_seq, self.checkpoints.values()
        self.progress.begin(sum(one.records for one in checkpointed) + last_seq - after)
        log_entries = self.journal.read(after)
        return (
            yield from self.engine.restore(
                checkpoints, counted(log_entries), last_seq, past, self.progress
            )
        )

    def _refusal(self, live: Sequence[OrphanedRecords]) -> str:
        named = [
            f"{one.name} ({count:,} record{'s' if count > 1 else ''}; {one.reason})"
            for one in live
            if (count := one.count(self._now_us))
        ]
        total = sum(one.count(self._now_us) for one in live)
        return (
            f"{total:,} acknowledged records have no place in this configuration: "
            f"{handful(named)}; restore what was there, or start with --allow-loss: they move to "
            f"{self._directory.path / REMOVED}/TIME then, and nothing is deleted"
        )

    def _give_up(
        self,
        manifest: Manifest,
        orphaned: Sequence[OrphanedRecords],
        live: Sequence[OrphanedRecords],
    ) -> Manifest:
        """Drop topics that hold nothing, and `live` ones after writing them out."""
        definitions = {one.name: one for one in self._configuration.topics}
        leaving = [
            kept
            for kept in manifest.kept
            if kept.changes(definitions.get(kept.name), self._configuration)
        ]
        gone = {one.name: self.journal.last_seq for one in orphaned if one.is_gone}
        gone |= {kept.name: self.journal.last_seq for kept in leaving if not kept.topic.pattern}
        if not leaving and not live and not gone.keys() - manifest.given_up.keys():
            return manifest
        target = removed_at(self._directory.path, self._now_us)
        for one in live:
            run_to_completion(write_out(one, target, self._now_us))
        files = [file_name(kept.topic) for kept in leaving]
        folder = target.relative_to(self._directory.path)
        names = {kept.name for kept in leaving}
        stays = [kept for kept in manifest.kept if kept.name not in names]
        for kept in leaving:
            self.checkpoints.pop(kept.name).close()
        manifest = replace(
            manifest,
            kept=tuple(as_now(kept, self._configuration) for kept in stays),
            given_up={**manifest.given_up, **gone},
            moves={name: str(folder / name) for name in files},
        )
        return self._finish_moves(self._file.write(manifest))

    def _settle(self, manifest: Manifest) -> None:
        """Open the files of new topics, and write the manifest of this configuration."""
        was = {kept.name: kept for kept in manifest.kept}
        kept_now = definitions_now(manifest, self._configuration, self.journal.last_seq)
        for kept in kept_now:
            old = was.get(kept.name)
            if old is None:
                self._begin(kept)
            elif kept.topic.retain and not old.topic.retain:
                # Messages that were not retained have never been records.
                self.checkpoints[kept.name].write(self.journal.last_seq, ())
        settled = successor(
            manifest, self._configuration, kept_now, self.journal.last_seq, self._forgotten_seq
        )
        if not settled.log_id:
            settled = replace(settled, log_id=secrets.token_hex(LOG_ID_BYTES))
        self.log_id = self.journal.log_id = settled.log_id
        if settled != self._file.manifest or self._file.missing:
            if self._file.manifest is not None:
                for problem in self._file.missing:
                    log.warning("%s of %s; written again", problem, self._directory.path)
            self._file.write(settled)

    def _begin(self, kept: StoredDefinition) -> None:
        """Create the file of a new topic, or accept an empty one that exists."""
        checkpoint = self._open_checkpoint(kept)
        if checkpoint.records:
            path = self._directory.resolve(file_name(kept.topic))
            raise StoreError(
                f"topic {kept.name} is new to {self._directory.path}, and {path} holds "
                f"{checkpoint.records:,} records already; move the file away, or give the topic "
                "another FileName"
            )
        if checkpoint.seq > self.journal.last_seq:
            # It is empty, but belongs to another log, and its position would hide entries of this
            # one.
            checkpoint.write(kept.since_seq, ())

    @property
    def _forgotten_seq(self) -> int:
        """Neither the log nor a checkpoint has anything up to here.

        A checkpoint up to the very record at which a topic was given up was written before that.
        """
        oldest = min((checkpoint.seq for checkpoint in self.checkpoints.values()), default=0)
        return min(oldest, self.journal.first_seq) - 1
