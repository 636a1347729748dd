"""Bootstrap: from a data directory and a configuration to an engine that holds all records.

Before anything is written, the content of the directory is compared with the configuration. Records
without a place are an error that names them or, with `--allow-loss`, are *given up*: they are
written to `removed/` with their checkpoint files, and their log entries are ignored from then on.
Nothing is deleted.

A removal is a chain of durable steps, so that it can be interrupted anywhere: the records are
written out, the manifest drops the topics and names the files to move, the files are moved, the
manifest drops the moves.

A manifest records for the next start what the directory was written for: the definitions whose
records it holds, the topics that were given up, and earlier owners of names. The first release
wrote none. A directory without one is assumed to have been written for the configuration it is
opened with; what contradicts that is an error, since nothing else would miss the records. An empty
directory is new.
"""

import logging
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from sow.core.cooperative import Task, run_to_completion
from sow.core.definitions import Configuration, Topic
from sow.engine.catalog import Catalog
from sow.engine.configurations import noted
from sow.engine.engine import Engine
from sow.engine.recovery import OrphanedRecords
from sow.engine.recovery.redo import Progress
from sow.errors import ConfigError, Damaged, StoreError
from sow.server.boot.quarantine import REMOVED, move_file, removed_at, write_out
from sow.sessions.queries.replay_starts import open_windows
from sow.store.checkpoint import LmdbCheckpoint, held_in
from sow.store.directory import DataDirectory
from sow.store.environment import ahead, repair_command
from sow.store.journal import DATA_FILE, LmdbJournal, is_journal
from sow.store.manifest import (
    Era,
    Manifest,
    ManifestFile,
    Past,
    StoredDefinition,
    file_name,
    kept_of,
    names_of,
    persistent_topics,
)
from sow.store.protocols import LogEntry

log = logging.getLogger("sow")

LOG_ID_BYTES = 8
"""Random bytes of a log's id: no two logs share one."""
NAMED_MAX = 5
"""Names listed in an error message, which has to fit a terminal; the others are counted."""
NOT_OF_TOPICS = (REMOVED, "staging", "pipelines", "followers", "following")
"""Directories that contain no topic's file."""


class ServerBootstrap:
    """The store of one server; `close` releases everything.

    `make_engine` creates an engine of the configuration without records. With `allow_loss` records
    that have no place are given up. `follows`: another server writes the log, and gave the open
    `windows` as of its end. `log_id` names the log where others have it, too. Raises StoreError
    when the directory cannot be used as it is.
    """

    def __init__(
        self,
        configuration: Configuration,
        path: Path,
        make_engine: Callable[[], Engine],
        now_us: int,
        *,
        allow_loss: bool = False,
        follows: bool = False,
        windows: Callable[[Configuration], Catalog | None] = lambda _configuration: None,
        log_id: str = "",
    ) -> None:
        self.engine: Engine
        self.journal: LmdbJournal
        self.checkpoints: dict[str, LmdbCheckpoint] = {}
        self.log_id = log_id
        self._accounts: Sequence[LogEntry] | None = None
        self.goes_on = False
        """Windows that were open when the last process ended go on."""
        self.path = path
        self.progress = Progress()
        self._configuration = configuration
        self._make_engine = make_engine
        self._now_us = now_us
        self._allow_loss = allow_loss
        self._follows = follows
        self._windows = windows
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
        manifest = self._file.manifest
        if manifest is None:
            manifest, self._is_known = first_manifest(
                self._configuration, self._directory, self._now_us, self._allow_loss
            )
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

    def files_for(
        self, queues: Sequence[Topic], configuration: Configuration
    ) -> dict[str, LmdbCheckpoint]:
        """Make the files of queues that a reload is about to add; returns those that were not
        there, for `checkpoints`. In a thread: it waits for the disk. Raises ConfigError and
        StoreError. What is not added after all is an empty topic to the next start."""
        manifest, coming = self._file.manifest, list[StoredDefinition]()
        assert manifest is not None
        there = {kept.name: kept for kept in manifest.kept}
        for topic in queues:
            if topic.name not in there:
                coming.append(kept_of(topic, configuration, self.journal.last_seq))
            elif changed := there[topic.name].changes(topic, configuration):
                raise ConfigError(
                    f"{' and '.join(changed)} of queue {topic.name}, which was removed, cannot be "
                    "changed: nothing was changed; restart the server for it"
                )
        found = {kept.name: self._begin(kept) for kept in coming}
        if coming:
            names = *manifest.names, *names_of(kept.topic for kept in coming)
            self._file.write(replace(manifest, kept=(*manifest.kept, *coming), names=names))
        return found

    def take_accounts(self) -> Sequence[LogEntry] | None:
        """The last state of each account, once; None where none was ever kept."""
        accounts, self._accounts = self._accounts, None
        return accounts

    def close(self) -> None:
        """Close the journal, the checkpoints and the directory."""
        while self._closers:
            self._closers.pop()()
        self._directory.close()

    # The content of the directory.

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
            self.checkpoints[kept.name] = self._open_checkpoint(kept)
        newest = max((checkpoint.seq for checkpoint in self.checkpoints.values()), default=0)
        self.journal = self._directory.journal(
            self._configuration.journal,
            at_least_seq=max(newest, manifest.newest_seq),
            must_exist=self._file.manifest is not None,
            begins_after=manifest.begins_after,
        )
        self._closers.append(self.journal.close)

    def _open_checkpoint(self, kept: StoredDefinition) -> LmdbCheckpoint:
        checkpoint = self._directory.checkpoint(kept.topic, kept.since_seq)
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
        self._accounts = self.journal.accounts()
        history = noted(self._accounts or ())
        # Who follows a server has the topics of the log, and limits of its own; nodes of a log have
        # all of it, but for one that leads under another file.
        follows = self._follows and not self.log_id
        now = history[-1].configuration if follows and history else self._configuration
        windows = self._windows(self._configuration)
        if windows is None:
            # Other nodes of a log have the windows, however much is to be read for them.
            place = self.journal, self._now_us, checkpoints
            before = yield from open_windows(history, now, *place, is_bound=not self.log_id)
            windows = None if before is None else before.catalog
        self.goes_on = windows is not None
        log_entries = chain.from_iterable(
            piece.entries for piece in ahead(self.journal.pieces(after))
        )
        return (
            yield from self.engine.restore(
                checkpoints, counted(log_entries), last_seq, past, self.progress, windows
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
                self.checkpoints[kept.name] = self._begin(kept)
            elif kept.topic.retain and not old.topic.retain:
                # Messages that were not retained have never been records.
                self.checkpoints[kept.name].write(self.journal.last_seq, ())
        settled = successor(
            manifest, self._configuration, kept_now, self.journal.last_seq, self._forgotten_seq
        )
        settled = replace(settled, log_id=self._log_name(settled.log_id))
        self.log_id = self.journal.log_id = settled.log_id
        if settled != self._file.manifest or self._file.missing:
            if self._file.manifest is not None:
                for problem in self._file.missing:
                    log.warning("%s of %s; written again", problem, self._directory.path)
            self._file.write(settled)

    def _log_name(self, held: str) -> str:
        """The name of the log, which the directory has as `held`. Raises StoreError where it has
        records of another one."""
        wanted = self.log_id
        if wanted not in ("", held) and self.journal.last_seq:
            has = f"log {held}" if held else "a backup, which belong to no log yet"
            raise StoreError(
                f"{self._directory.path} has records of {has}, and the shared log is {wanted}: "
                "start with an empty DataDirectory, which is filled from the shared log; or run "
                "sow log move with another Stream, and that begins with these records",
                reason="another log",
            )
        return wanted or held or secrets.token_hex(LOG_ID_BYTES)

    def _begin(self, kept: StoredDefinition) -> LmdbCheckpoint:
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
        return checkpoint

    @property
    def _forgotten_seq(self) -> int:
        """Neither the log nor a checkpoint has anything up to here.

        A checkpoint up to the very record at which a topic was given up was written before that.
        """
        oldest = min((checkpoint.seq for checkpoint in self.checkpoints.values()), default=0)
        return min(oldest, self.journal.first_seq) - 1


def first_manifest(
    configuration: Configuration, directory: DataDirectory, now_us: int, allow_loss: bool
) -> tuple[Manifest, bool]:
    """The manifest of a directory without one, and whether it is certain.

    It is certain for a new directory, and a guess for one with files. Files that belong to no topic
    of the configuration are an error or, with `allow_loss`, moved to a directory named for
    `now_us`. Also raises StoreError for a journal that is somewhere else.
    """
    settings, topics = configuration.journal, persistent_topics(configuration)
    files = [directory.resolve(file_name(topic)) for topic in topics]
    journal = directory.resolve(settings.directory) / DATA_FILE
    is_known = not any(path.exists() for path in (journal, *files))
    for path in () if journal.exists() else _files_in(directory.path):
        if path.name == DATA_FILE and is_journal(path):
            found = str(path.parent.relative_to(directory.path))
            raise journal_elsewhere(configuration, directory, found)
    if not is_known:
        log.warning(
            "data directory %s has no manifest, as those of the first release; it gets one, "
            "made of its files and the %d persistent topics of the configuration",
            directory.path,
            len(topics),
        )
        _refuse_unclaimed(directory.path, files, now_us, allow_loss)
    manifest = Manifest(
        settings.directory,
        tuple(kept_of(topic, configuration) for topic in topics),
        names=names_of(configuration.topics),
    )
    return manifest, is_known


def _refuse_unclaimed(
    directory: Path, files: Sequence[Path], now_us: int, allow_loss: bool
) -> None:
    """Checkpoints that belong to no topic: without a manifest nothing else would miss them."""
    others = [(path, held_in(path)) for path in _files_in(directory) if path not in files]
    found = {path: held for path, held in others if held}
    if not found:
        return
    if not allow_loss:
        named = [
            f"{path.relative_to(directory)} ({held:,} records)" for path, held in found.items()
        ]
        raise StoreError(
            f"files in {directory} hold records of no topic of this configuration: "
            f"{handful(named)}; restore the topics, or start with --allow-loss: the files "
            f"move to {directory / REMOVED}/TIME then, and nothing is deleted",
            reason="records would be lost",
        )
    target = removed_at(directory, now_us)
    for path in found:
        move_file(path, target / path.relative_to(directory))
        log.warning("given up: %s, now in %s", path, target)


def journal_elsewhere(
    configuration: Configuration, directory: DataDirectory, journal: str
) -> StoreError:
    """The error for a directory whose journal is not where the configuration has it."""
    return StoreError(
        f"the journal is in {directory.resolve(journal)}, and JournalDirectory is "
        f"{configuration.journal.directory}; rename the directory, or write {journal}"
    )


def handful(named: Sequence[str]) -> str:
    """The first few, and how many more there are."""
    shown = list(named[:NAMED_MAX])
    if len(named) > NAMED_MAX:
        shown.append(f"and {len(named) - NAMED_MAX:,} more")
    return ", ".join(shown)


def _files_in(directory: Path) -> Iterator[Path]:
    """Files that may be a topic's."""
    for path in sorted(directory.rglob("*")):
        if path.relative_to(directory).parts[0] not in NOT_OF_TOPICS and path.is_file():
            yield path


def as_now(kept: StoredDefinition, configuration: Configuration) -> StoredDefinition:
    """A remaining definition as it is now; it retains nothing that it did not retain before.

    The opener of its file changes that (`definitions_now`).
    """
    topics = {topic.name: topic for topic in persistent_topics(configuration)}
    now = kept_of(topics[kept.name], configuration, kept.since_seq)
    return replace(now, topic=replace(now.topic, retain=now.topic.retain and kept.topic.retain))


def definitions_now(
    manifest: Manifest, configuration: Configuration, last_seq: int
) -> list[StoredDefinition]:
    """The definitions that the directory keeps from now on; new ones begin after record
    `last_seq`."""
    since = {kept.name: kept.since_seq for kept in manifest.kept}
    return [
        kept_of(topic, configuration, since.get(topic.name, last_seq))
        for topic in persistent_topics(configuration)
    ]


def successor(
    manifest: Manifest,
    configuration: Configuration,
    kept: Sequence[StoredDefinition],
    last_seq: int,
    forgotten_seq: int,
) -> Manifest:
    """The manifest of a directory that is open for a configuration.

    `last_seq` is the newest record of the log; neither the log nor a checkpoint has anything up to
    `forgotten_seq`, so nothing before it is kept.
    """
    return replace(
        manifest,
        journal=configuration.journal.directory,
        kept=tuple(kept),
        # Topics that the log or an older checkpoint may still contain.
        given_up={name: seq for name, seq in manifest.given_up.items() if seq > forgotten_seq},
        names=names_of(configuration.topics),
        eras=_eras(manifest, configuration, last_seq, forgotten_seq),
    )


def _eras(
    manifest: Manifest, configuration: Configuration, last_seq: int, forgotten_seq: int
) -> tuple[Era, ...]:
    """Earlier owners of names, as far as entries of them are stored."""
    eras = [era for era in manifest.eras if era.until_seq > forgotten_seq]
    names, now = manifest.names, names_of(configuration.topics)
    before_seq = eras[-1].until_seq if eras else forgotten_seq
    # Only patterns take over names. A life without log entries leaves nothing to record.
    passes_on = names != now and any(pattern is not None for _, pattern in (*names, *now))
    if passes_on and last_seq > before_seq:
        eras.append(Era(last_seq, names))
    return tuple(eras)
