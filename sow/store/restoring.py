"""Restoring a backup, and verifying a store or a backup.

A data directory is restored as of the backup's moment or of an earlier one. The restored log is a
new log: records after the backup are lost, and new records would reuse their numbers. So all
records get new numbers, in the same order, beyond any that was ever given: a client that resumes
from a bookmark of the old log is refused, as if retention had removed it, and never receives other
changes instead. Times stay valid. Consumers are dropped, since their positions are invalid.

A moment before the backup's is restored from the log alone, which has to reach back to the
beginning of every topic: checkpoints have no earlier states.

The manifest is written first and the log last, put in place in one step: a start refuses an
incomplete restore.

Verifying reads what a start and a replay would read, of an open store or of an unlocked directory,
compares every checksum and changes nothing. It reports for each file how much was read and what is
wrong; the caller continues with the next file.
"""

import shutil
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from sow.core.definitions import CONSUMERS
from sow.errors import SowError, StoreError
from sow.store import make_directory
from sow.store.backup import CopiedStore, StoredBackup
from sow.store.checkpoint import LmdbCheckpoint, exact_in
from sow.store.directory import LOCK_FILE, DataDirectory, kept_from_servers
from sow.store.environment import repair_command, sync_directory
from sow.store.journal import DATA_FILE, LOG_UNFINISHED, LmdbJournal, accounts_in
from sow.store.layout import (
    ACCOUNT,
    GROUP,
    decode_entries,
    decode_slice,
    read_header,
)
from sow.store.manifest import (
    MANIFEST_FILE,
    Era,
    Manifest,
    ManifestFile,
    StoredDefinition,
    file_name,
    fingerprint,
)
from sow.store.protocols import LogEntry, Slice, numbers, part_of

APPENDED_BYTES = 16 * 1024**2
"""Of the log so much is written at once: each write waits for the disk."""

Advance = Callable[[int], None]


class Restored:
    """What is made: its newest record, how many there are of the log, the new number of record 0 of
    the old one, and whether consumers are in it."""

    def __init__(self, until_seq: int, shift: int, has_consumers: bool) -> None:
        self.until_seq = until_seq
        self.shift = shift
        self.has_consumers = has_consumers
        self.log_records = 0

    @property
    def bookmark(self) -> int:
        """The bookmark of the moment in the new log."""
        return self.until_seq + self.shift


def restore(
    backup: StoredBackup,
    directory: Path,
    *,
    now_us: int | None,
    until_seq: int | None = None,
    advance: Advance = lambda _bytes: None,
    goes_on: bool = False,
) -> Restored:
    """Make a data directory of a backup that was verified, as of record `until_seq`.

    `now_us` is the time, behind which numbers begin: no log is given a million records in each
    second of its life. None: to read it and never to serve it, under its own name and numbers; or
    to go on with it on a node of the log, if it `goes_on`: only then consumers keep their places.
    Raises StoreError for a directory that is not empty, or a moment that the backup does not have,
    Damaged and OSError.
    """
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise StoreError(
            f"{directory} is not empty; restore to a directory that is, or is not there"
        )
    until = backup.bookmark if until_seq is None else until_seq
    manifest = backup.manifest()
    _check_moment(backup, manifest, until)
    # A clock that is behind the server's does not lead back among numbers that it may have given.
    shift = 0
    if now_us is not None:
        shift = max(now_us, backup.contents.time_us, backup.bookmark + 1) - backup.oldest
    restored = Restored(until, shift, goes_on)
    make_directory(directory)
    try:
        # First: it lets a start detect an incomplete restore.
        make_directory(directory / LOG_UNFINISHED)
        shifted = _shifted_manifest(manifest, until, shift)
        log_id = "" if shift else manifest.log_id
        ManifestFile(directory).write(replace(shifted, log_id=log_id))
        for kept in shifted.kept:
            blocks = backup.checkpoint(kept.name) if until == backup.bookmark else iter(())
            if kept.name == CONSUMERS.name and not goes_on:
                blocks = islice(blocks, 1)  # how far it reaches, and no consumer
            _restore_checkpoint(directory, kept, blocks, shift, advance)
        _restore_log(backup, directory, manifest.journal, restored, advance)
    except BaseException:
        for path in directory.iterdir():  # all of it is ours: there was nothing
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        raise
    return restored


def _check_moment(backup: StoredBackup, manifest: Manifest, until: int) -> None:
    if not backup.oldest <= until <= backup.bookmark:
        raise StoreError(
            f"record {until} is not in the backup {backup.path}, which has {backup.oldest} to "
            f"{backup.bookmark}",
            reason="invalid bookmark",
        )
    late = [kept.name for kept in manifest.kept if kept.since_seq < backup.oldest]
    if until < backup.bookmark and late:
        raise StoreError(
            f"the log in {backup.path} begins behind record {backup.oldest}, and "
            f"{late[0]} is older than that: of what it was before only the end is known, bookmark "
            f"{backup.bookmark}; restore that, without --as-of",
            reason="invalid bookmark",
        )


def _shifted_manifest(manifest: Manifest, until: int, shift: int) -> Manifest:
    """What the new directory is for: the old one's definitions, and nothing newer than `until`. It
    has no name for the log yet: the first start gives it one."""

    def shifted(seq: int) -> int:
        return min(seq, until) + shift

    return replace(
        manifest,
        kept=tuple(replace(one, since_seq=shifted(one.since_seq)) for one in manifest.kept),
        given_up={name: shifted(seq) for name, seq in manifest.given_up.items()},
        eras=tuple(Era(shifted(era.until_seq), era.names) for era in manifest.eras),
        moves={},
        generation=0,
        log_id="",
        begins_after=manifest.begins_after + shift,
    )


def _restore_checkpoint(
    directory: Path,
    kept: StoredDefinition,
    blocks: Iterator[bytes],
    shift: int,
    advance: Advance,
) -> None:
    path = directory / file_name(kept.topic)
    make_directory(path.parent)
    contents = next(blocks, None)

    def slices() -> Iterator[Slice]:
        for block in blocks:
            advance(len(block))
            yield _shifted_slice(decode_slice(block), shift)

    with closing(
        LmdbCheckpoint(
            path,
            topic=kept.name,
            fingerprint=fingerprint(kept.topic),
            since_seq=kept.since_seq,
            data_directory=directory,
        )
    ) as checkpoint:
        if contents is not None:
            seq = max(read_header(contents).seq + shift, kept.since_seq)
            exact = exact_in(contents)
            moment = None if exact is None else (exact[0] + shift, exact[1])
            checkpoint.write(seq, slices(), lambda: moment)


def _shifted_slice(part: Slice, shift: int) -> Slice:
    return replace(
        part,
        seqs=numbers(seq + shift for seq in part.seqs),
        born=numbers(seq + shift for seq in part.born),
    )


def _restore_log(
    backup: StoredBackup, directory: Path, name: str, restored: Restored, advance: Advance
) -> None:
    unfinished = directory / LOG_UNFINISHED
    blocks = iter(backup.log())
    begin = read_header(next(blocks)).seq + restored.shift
    accounts: list[bytes] = []
    with closing(LmdbJournal(unfinished, after_seq=begin, data_directory=directory)) as journal:
        for entries in _gathered(blocks, accounts, restored, advance):
            journal.append(entries)
        journal.append([*_shifted_accounts(accounts, restored)])
    place = directory / name
    make_directory(place.parent)
    unfinished.rename(place)
    sync_directory(place.parent)


def _gathered(
    blocks: Iterator[bytes], accounts: list[bytes], restored: Restored, advance: Advance
) -> Iterator[list[LogEntry]]:
    """The records of the log, as many at a time as one write takes; accounts are put aside."""
    found: list[LogEntry] = []
    size = 0
    for block in blocks:
        advance(len(block))
        kind = read_header(block).kind
        if kind == ACCOUNT:
            accounts.append(block)
        if kind != GROUP:
            continue
        for entry in decode_entries(block):
            if entry.seq > restored.until_seq:
                continue
            kept = _until(entry, restored.until_seq)
            restored.log_records += len(kept)
            found.append(_shifted(kept, restored.shift))
        size += len(block)
        if size >= APPENDED_BYTES:
            yield found
            found, size = [], 0
    yield found


def _shifted(entry: LogEntry, shift: int) -> LogEntry:
    """An entry with other numbers, its own and that of the event that it edits."""
    origin = entry.origin
    if origin is not None and origin.edits:
        origin = origin._replace(edits=origin.edits + shift)
    return replace(entry, seq=entry.seq + shift, origin=origin)


def _until(entry: LogEntry, seq: int) -> LogEntry:
    """The records of an entry up to one."""
    count = seq - entry.seq + 1
    return entry if count >= len(entry) else part_of(entry, 0, count)


def _shifted_accounts(blocks: list[bytes], restored: Restored) -> Iterator[LogEntry]:
    """Accounts as of the moment: without newer ones. The first entry is empty, and marks that the
    log has accounts, if the old one had."""
    if blocks:
        seq = restored.bookmark
        yield LogEntry("delete", CONSUMERS.name, seq, 0, [], [], account=True)
    for entry in accounts_in(blocks):
        stays = restored.has_consumers or entry.topic != CONSUMERS.name
        if entry.seq <= restored.until_seq and stays:
            yield replace(entry, seq=entry.seq + restored.shift)


def until_time(backup: StoredBackup, time_us: int) -> int:
    """The newest record that is no newer than a time; raises Damaged, OSError, and StoreError if
    all are newer, or none has a time."""
    blocks = iter(backup.log())
    until = read_header(next(blocks)).seq
    is_first = True
    for block in blocks:
        if read_header(block).kind != GROUP:
            continue
        for entry in decode_entries(block):
            if entry.ts_us > time_us:
                if is_first:
                    raise StoreError(
                        f"the log in {backup.path} begins after that time, with record {entry.seq}",
                        reason="invalid bookmark",
                    )
                return until
            until, is_first = entry.seq + len(entry) - 1, False
    if is_first and until and time_us < backup.contents.time_us:
        raise StoreError(
            f"the log in {backup.path} has given way to its checkpoints: how things were before it "
            f"was copied is not known; leave out --as-of",
            reason="invalid bookmark",
        )
    return until


NOT_COPIED = (LOCK_FILE, "removed", "staging", "pipelines")
"""What a copy that is only read can do without."""


def _not_copied(here: str, _names: list[str]) -> tuple[str, ...]:
    return NOT_COPIED if (Path(here) / MANIFEST_FILE).is_file() else ()


def copy_to_read(path: Path, target: Path) -> None:
    """Copy a data directory that no server holds, to read it; writes nothing there. Raises
    StoreError if one does, or there is none."""
    if not (path / MANIFEST_FILE).is_file():
        raise StoreError(f"{path} is no data directory, nor a backup; name one that holds data")
    with kept_from_servers(path):
        try:
            shutil.copytree(path, target, ignore=_not_copied)
        except shutil.Error as errors:
            file, _, problem = errors.args[0][0]
            raise StoreError(f"{file} cannot be copied: {problem}") from None


class VerifiedFile(NamedTuple):
    """A file, the bytes of all its blocks, and what is wrong with it, or "": with what to do."""

    file: str
    size_bytes: int
    problem: str


def verify_store(store: CopiedStore) -> Generator[VerifiedFile | None, None, None]:
    """Each file of an open store; None between two blocks, when the caller may stop."""
    found = _manifest(store.path)
    yield found[1]
    if found[0] is None:
        return
    for kept in found[0].kept:
        checkpoint = store.checkpoints.get(kept.name)
        if checkpoint is not None:
            path = store.path / file_name(kept.topic)
            yield from _verified(path, checkpoint.all_blocks())
    yield from _verified(store.path / found[0].journal, _log(store.journal))


def verify_directory(path: Path) -> Iterator[VerifiedFile | None]:
    """Each file of a data directory that no server holds; raises StoreError if one does, or there
    is none."""
    if not path.is_dir() or not (path / MANIFEST_FILE).exists():
        is_old = path.is_dir() and (path / LOCK_FILE).exists()
        raise StoreError(
            f"{path} has no {MANIFEST_FILE}: it was never opened by this release; start it once"
            if is_old
            else f"{path} is no data directory, nor a backup; name one that holds data"
        )
    directory = DataDirectory(path)
    try:
        manifest, found = _manifest(path)
        yield found
        for kept in manifest.kept if manifest is not None else ():
            place = directory.resolve(file_name(kept.topic))
            if not place.exists():
                yield VerifiedFile(
                    str(place),
                    0,
                    "it is missing; the next start makes it again if the journal still holds all "
                    "of it. If that is refused, run: " + repair_command(path, place),
                )
                continue
            try:
                with closing(directory.checkpoint(kept.topic, kept.since_seq)) as checkpoint:
                    yield from _verified(place, checkpoint.all_blocks())
            except SowError as error:
                yield VerifiedFile(str(place), 0, error.detail)
        if manifest is not None:
            yield from _verify_journal(directory, manifest)
    finally:
        directory.close()


def _verify_journal(directory: DataDirectory, manifest: Manifest) -> Iterator[VerifiedFile | None]:
    place = directory.resolve(manifest.journal)
    if not (place / DATA_FILE).exists():
        command = repair_command(directory.path, place)
        yield VerifiedFile(str(place), 0, f"it is missing; to go on without it, run: {command}")
        return
    try:
        journal = LmdbJournal(
            place,
            at_least_seq=manifest.newest_seq,
            must_exist=True,
            data_directory=directory.path,
        )
    except SowError as error:
        yield VerifiedFile(str(place), 0, error.detail)
        return
    with closing(journal):
        yield from _verified(place, _log(journal))


def _manifest(path: Path) -> tuple[Manifest | None, VerifiedFile]:
    place = path / MANIFEST_FILE
    try:
        file = ManifestFile(path)
    except SowError as error:
        return None, VerifiedFile(str(place), 0, error.detail)
    problem = "; ".join(file.missing)
    if problem:
        problem += "; to write it again, run: " + repair_command(path, place)
    size = place.stat().st_size if place.exists() else 0
    return file.manifest, VerifiedFile(str(place), size, problem)


def _log(journal: LmdbJournal) -> Iterator[bytes]:
    with journal.held() as base_seq:
        moment = journal.moment()
        yield from moment.accounts
        yield from journal.blocks(base_seq, moment.seq)


def _verified(path: Path, blocks: Iterable[bytes]) -> Iterator[VerifiedFile | None]:
    size_bytes, problem = 0, ""
    try:
        for block in blocks:
            size_bytes += len(block)
            yield None
    except StoreError as error:
        problem = error.detail
    yield VerifiedFile(str(path), size_bytes, problem)
