"""Opening: from a data directory and a configuration to an engine that holds all records.

Before anything is written, what the directory holds is compared with what the configuration takes
in. Records without a place are refused by name, or, if whoever starts the server says so, *given
up*: they are written out under `removed/` with their checkpoint files, and from then on their log
entries count for nobody. Nothing is deleted.

A removal is a chain of durable steps, so that it can be interrupted anywhere: the records are
written out, the manifest forgets the topics and names the files that are to go, the files are
moved, the manifest forgets the moves.
"""

import logging
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from urllib.parse import quote

import orjson

from sow.definitions import Configuration
from sow.engine.engine import Engine
from sow.engine.homeless import Homeless
from sow.errors import Damaged, StoreError
from sow.store.checkpoint import LmdbCheckpoint, held_in
from sow.store.directory import DataDirectory
from sow.store.environment import repair_command, sync_directory
from sow.store.journal import DATA_FILE, LmdbJournal, is_journal
from sow.store.manifest import Manifest, ManifestFile, write_file
from sow.store.private import close_to_others, make_directory
from sow.store.protocols import LogEntry
from sow.store.stored_definitions import (
    Era,
    Past,
    StoredDefinition,
    file_name,
    kept_of,
    names_of,
    persistent_topics,
)

log = logging.getLogger("sow")

REMOVED = "removed"
NAMED_MAX = 5
LOG_ID_BYTES = 8
"""No two logs will ever have the same."""
"""So many topics are named in a refusal; of the others there is a count."""
FILE_NAME_MAX = 150
"""File systems end a name at 255 bytes; the rest is for what stands behind it."""
NOT_OF_TOPICS = (REMOVED, "staging", "pipelines")
"""Directories of the data directory in which no topic's file is looked for."""


class Opening:
    """The store of one server; `close` gives everything back.

    `make_engine` makes an engine of the configuration without records. With `allow_loss` records
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

    def open(self, counted: Callable[[Iterable[LogEntry]], Iterable[LogEntry]]) -> None:
        """Restore all records into `engine`; `counted` is given the log as it is replayed."""
        manifest = self._file.manifest or self._first_manifest()
        self._check_journal_directory(manifest)
        manifest = self._finish_moves(manifest)
        self._open_files(manifest)
        manifest = self._without_gaps(manifest)
        for _ in range(2):
            homeless = self._restore(manifest, counted)
            # As the server's time does: the machine's clock may have been set back.
            self._now_us = max(self._now_us, self.engine.now_us)
            live = [one for one in homeless if one.count(self._now_us)]
            if live and not self._allow_loss:
                raise StoreError(self._refusal(live), reason="records would be lost")
            manifest = self._give_up(manifest, homeless, live)
            if not live:
                break
        self._settle(manifest)

    def close(self) -> None:
        """Give back the journal, the checkpoints and the directory."""
        while self._closers:
            self._closers.pop()()
        self._directory.close()

    # What the directory holds.

    def _first_manifest(self) -> Manifest:
        """What there is in a directory without a manifest: nothing, or what its files tell."""
        settings, directory = self._configuration.journal, self._directory
        topics = persistent_topics(self._configuration)
        files = [directory.resolve(file_name(topic)) for topic in topics]
        journal = directory.resolve(settings.directory) / DATA_FILE
        self._is_known = not any(path.exists() for path in (journal, *files))
        for path in () if journal.exists() else _files_in(directory.path):
            if path.name == DATA_FILE and is_journal(path):
                raise self._elsewhere(str(path.parent.relative_to(directory.path)))
        if not self._is_known:
            log.warning(
                "data directory %s has no manifest, as those of the first release; it gets one, "
                "made of its files and the %d persistent topics of the configuration",
                directory.path,
                len(topics),
            )
            self._refuse_unclaimed(files)
        return Manifest(
            settings.directory,
            tuple(kept_of(topic, self._configuration) for topic in topics),
            names=names_of(self._configuration.topics),
        )

    def _refuse_unclaimed(self, files: Sequence[Path]) -> None:
        """Checkpoints that belong to no topic: without a manifest nobody else would miss them."""
        directory = self._directory.path
        others = [(path, held_in(path)) for path in _files_in(directory) if path not in files]
        found = {path: held for path, held in others if held}
        if not found:
            return
        if not self._allow_loss:
            named = [
                f"{path.relative_to(directory)} ({held:,} records)" for path, held in found.items()
            ]
            raise StoreError(
                f"files in {directory} hold records of no topic of this configuration: "
                f"{_handful(named)}; restore the topics, or start with --allow-loss: the files "
                f"move to {directory / REMOVED}/TIME then, and nothing is deleted",
                reason="records would be lost",
            )
        target = removed_at(self._directory.path, self._now_us)
        for path in found:
            _move(path, target / path.relative_to(directory))
            log.warning("given up: %s, now in %s", path, target)

    def _check_journal_directory(self, manifest: Manifest) -> None:
        resolve, now = self._directory.resolve, self._configuration.journal.directory
        if resolve(manifest.journal) != resolve(now) and resolve(manifest.journal).exists():
            raise self._elsewhere(manifest.journal)

    def _elsewhere(self, journal: str) -> StoreError:
        return StoreError(
            f"the journal is in {self._directory.resolve(journal)}, and JournalDirectory is "
            f"{self._configuration.journal.directory}; rename the directory, or write {journal}"
        )

    def _finish_moves(self, manifest: Manifest) -> Manifest:
        """Move the files that a removal has named."""
        if not manifest.moves:
            return manifest
        for name, target in manifest.moves.items():
            _move(self._directory.resolve(name), self._directory.resolve(target))
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
        """Refuse a checkpoint that ends before the journal begins: what came between is lost."""
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

    # What becomes of it.

    def _restore(
        self, manifest: Manifest, counted: Callable[[Iterable[LogEntry]], Iterable[LogEntry]]
    ) -> list[Homeless]:
        checkpoints = {kept.name: self.checkpoints[kept.name] for kept in manifest.kept}
        after = min((checkpoint.seq for checkpoint in checkpoints.values()), default=0)
        # The newest entry is read in any case: time goes on from there.
        after = max(min(after, self.journal.last_seq - 1), self.journal.first_seq - 1)
        past = Past(manifest.kept, manifest.given_up, self._is_known, manifest.names, manifest.eras)
        self.engine = self._make_engine()
        return self.engine.restore(
            checkpoints, counted(self.journal.read(after)), self.journal.last_seq, past
        )

    def _refusal(self, live: Sequence[Homeless]) -> str:
        named = [
            f"{one.name} ({count:,} record{'s' if count > 1 else ''}; {one.reason})"
            for one in live
            if (count := one.count(self._now_us))
        ]
        total = sum(one.count(self._now_us) for one in live)
        return (
            f"{total:,} acknowledged records have no place in this configuration: "
            f"{_handful(named)}; restore what was there, or start with --allow-loss: they move to "
            f"{self._directory.path / REMOVED}/TIME then, and nothing is deleted"
        )

    def _give_up(
        self, manifest: Manifest, homeless: Sequence[Homeless], live: Sequence[Homeless]
    ) -> Manifest:
        """Let go of topics that hold nothing, and of `live` ones having written them out."""
        definitions = {one.name: one for one in self._configuration.topics}
        leaving = [
            kept
            for kept in manifest.kept
            if kept.changes(definitions.get(kept.name), self._configuration)
        ]
        gone = {one.name: self.journal.last_seq for one in homeless if one.is_gone}
        gone |= {kept.name: self.journal.last_seq for kept in leaving if not kept.topic.pattern}
        if not leaving and not live and not gone.keys() - manifest.given_up.keys():
            return manifest
        target = removed_at(self._directory.path, self._now_us)
        for one in live:
            write_out(one, target, self._now_us)
        files = [file_name(kept.topic) for kept in leaving]
        folder = target.relative_to(self._directory.path)
        names = {kept.name for kept in leaving}
        stays = [kept for kept in manifest.kept if kept.name not in names]
        for kept in leaving:
            self.checkpoints.pop(kept.name).close()
        manifest = replace(
            manifest,
            kept=tuple(self._as_now(kept) for kept in stays),
            given_up={**manifest.given_up, **gone},
            moves={name: str(folder / name) for name in files},
        )
        return self._finish_moves(self._file.write(manifest))

    def _as_now(self, kept: StoredDefinition) -> StoredDefinition:
        """What a definition is now; it retains nothing before `_settle` lets it begin."""
        topics = {topic.name: topic for topic in persistent_topics(self._configuration)}
        now = kept_of(topics[kept.name], self._configuration, kept.since_seq)
        return replace(now, topic=replace(now.topic, retain=now.topic.retain and kept.topic.retain))

    def _settle(self, manifest: Manifest) -> None:
        """Open the files of new topics, and write down what the directory is for now."""
        was = {kept.name: kept for kept in manifest.kept}
        now = []
        for topic in persistent_topics(self._configuration):
            old = was.get(topic.name)
            since_seq = self.journal.last_seq if old is None else old.since_seq
            kept = kept_of(topic, self._configuration, since_seq)
            if old is None:
                self._begin(kept)
            elif kept.topic.retain and not old.topic.retain:
                # What has passed through has never been a record.
                self.checkpoints[kept.name].write(self.journal.last_seq, ())
            now.append(kept)
        settled = replace(
            manifest,
            journal=self._configuration.journal.directory,
            kept=tuple(now),
            given_up=self._still_in_log(manifest.given_up),
            names=names_of(self._configuration.topics),
            eras=self._eras(manifest),
            log_id=manifest.log_id or secrets.token_hex(LOG_ID_BYTES),
        )
        self.log_id = settled.log_id
        if settled != self._file.manifest or self._file.missing:
            if self._file.manifest is not None:
                for problem in self._file.missing:
                    log.warning("%s of %s; written again", problem, self._directory.path)
            self._file.write(settled)

    def _begin(self, kept: StoredDefinition) -> None:
        """A topic that the directory does not know: its file is made, or was put there."""
        checkpoint = self._open_checkpoint(kept)
        if checkpoint.records:
            path = self._directory.resolve(file_name(kept.topic))
            raise StoreError(
                f"topic {kept.name} is new to {self._directory.path}, and {path} holds "
                f"{checkpoint.records:,} records already; move the file away, or give the topic "
                "another FileName"
            )
        if checkpoint.seq > self.journal.last_seq:
            # It is empty, but of another log, of which it would hide as much here.
            checkpoint.write(kept.since_seq, ())

    def _still_in_log(self, given_up: Mapping[str, int]) -> dict[str, int]:
        """Topics of which the log or an older checkpoint may still tell."""
        return {name: seq for name, seq in given_up.items() if seq > self._forgotten_seq}

    def _eras(self, manifest: Manifest) -> tuple[Era, ...]:
        """To whom names belonged before, as far as anything still tells of that."""
        eras = [era for era in manifest.eras if era.until_seq > self._forgotten_seq]
        last_seq, names = self.journal.last_seq, manifest.names
        before_seq = eras[-1].until_seq if eras else self._forgotten_seq
        now = names_of(self._configuration.topics)
        # Only patterns take over names. Of a life in which nothing was logged nothing is told.
        passes_on = names != now and any(pattern is not None for _, pattern in (*names, *now))
        if passes_on and last_seq > before_seq:
            eras.append(Era(last_seq, names))
        return tuple(eras)

    @property
    def _forgotten_seq(self) -> int:
        """Neither the log nor a checkpoint tells of what came up to here.

        A checkpoint up to the very record at which a topic was given up was written before.
        """
        oldest = min((checkpoint.seq for checkpoint in self.checkpoints.values()), default=0)
        return min(oldest, self.journal.first_seq) - 1


def removed_at(directory: Path, now_us: int) -> Path:
    """Where what is given up now goes; not there yet."""
    time = datetime.fromtimestamp(now_us / 1e6, UTC).strftime("%Y%m%dT%H%M%SZ")
    base = directory / REMOVED / time
    target, number = base, 1
    while target.exists():
        number += 1
        target = base.with_name(f"{time}-{number}")
    return target


def write_out(one: Homeless, target: Path, now_us: int) -> None:
    """Write the records that are given up to a file in the directory `target`, and log it."""
    pieces, ending = written(one, one.live(now_us))
    path = target / (_file_safe(one.name) + ending)
    _make(target)
    write_file(path, pieces)
    count = one.count(now_us)
    log.warning("given up: topic %s, %d records, now in %s; %s", one.name, count, path, one.reason)


def _file_safe(name: str) -> str:
    """A topic's name as that of a file, which may not be so long; distinct names stay distinct."""
    safe = quote(name, safe="")
    if len(safe) <= FILE_NAME_MAX:
        return safe
    return f"{safe[:FILE_NAME_MAX]}~{blake2b(safe.encode(), digest_size=8).hexdigest()}"


def written(one: Homeless, slots: Sequence[int]) -> tuple[Iterator[bytes], str]:
    """Records as the lines of a file, and how its name ends.

    Bodies where the topic's keys are in them and each is a line of text: `sow publish` takes these.
    Else publish commands, as a WebSocket takes them. Of what only the log tells the type is not
    known: then bodies, too, if each is a line.
    """
    records = one.records
    bodies = records.table.bodies
    kind = records.message_type
    in_body = one.kept is None or (records.keys and not kind.enc)
    if in_body and not any(b"\n" in (bodies[slot] or b"") for slot in slots):
        ending = ".ndjson" if kind.name == "json" else ".txt"
        return ((bodies[slot] or b"") + b"\n" for slot in slots), ending
    return (_command(one, slot) for slot in slots), ".commands.ndjson"


def _command(one: Homeless, slot: int) -> bytes:
    table = one.records.table
    head = {"c": "publish", "t": one.name}
    if not one.records.keys:
        head["k"] = table.identities[slot] or ""
    body = one.records.renderer.line_bodies([table.bodies[slot] or b""])[0]
    return orjson.dumps(head)[:-1] + b',"d":' + body + b"}\n"


def _files_in(directory: Path) -> Iterator[Path]:
    """Files that may be a topic's."""
    for path in sorted(directory.rglob("*")):
        if path.relative_to(directory).parts[0] not in NOT_OF_TOPICS and path.is_file():
            yield path


def _move(path: Path, target: Path) -> None:
    """Move a file that may have been moved already; LMDB's lock beside it is not wanted."""
    try:
        if path.exists():
            _make(target.parent)
            close_to_others(path)
            path.rename(target)
            path.with_name(path.name + "-lock").unlink(missing_ok=True)
            sync_directory(path.parent)
            sync_directory(target.parent)
    except OSError as error:
        raise StoreError(f"{path} cannot be moved to {target}: {error.strerror}") from error


def _make(directory: Path) -> None:
    """A directory that is there after a loss of power, too."""
    missing = [one for one in (directory, *directory.parents) if not one.exists()]
    try:
        make_directory(directory)
        for one in missing:
            sync_directory(one.parent)
    except OSError as error:
        raise StoreError(f"{directory} cannot be made: {error.strerror}") from error


def _handful(named: Sequence[str]) -> str:
    """The first few, and how many more there are."""
    shown = list(named[:NAMED_MAX])
    if len(named) > NAMED_MAX:
        shown.append(f"and {len(named) - NAMED_MAX:,} more")
    return ", ".join(shown)
