"""Verifying: every checksum of a store, of an open one or of an unlocked directory.

It reads what a start and a replay would read, and changes nothing. It reports for each file how
much was read and what is wrong; the caller continues with the next file.
"""

from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from sow.errors import SowError, StoreError
from sow.store.backup import CopiedStore
from sow.store.directory import LOCK_FILE, DataDirectory
from sow.store.environment import repair_command
from sow.store.journal import DATA_FILE, LmdbJournal
from sow.store.manifest import MANIFEST_FILE, Manifest, ManifestFile
from sow.store.stored_definitions import file_name


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
