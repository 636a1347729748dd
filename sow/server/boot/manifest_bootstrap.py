"""The first manifest of a data directory that has none, made from its files.

The first release wrote no manifest. Such a directory is assumed to have been written for the
configuration it is opened with; what contradicts that is an error, since nothing else would miss
the records. An empty directory is new.
"""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

from sow.core.definitions import Configuration
from sow.errors import StoreError
from sow.server.boot.quarantine import REMOVED, move_file, removed_at
from sow.store.checkpoint import held_in
from sow.store.directory import DataDirectory
from sow.store.journal import DATA_FILE, is_journal
from sow.store.manifest import Manifest
from sow.store.stored_definitions import file_name, kept_of, names_of, persistent_topics

log = logging.getLogger("sow")

NAMED_MAX = 5
"""Names listed in an error message, which has to fit a terminal; the others are counted."""
NOT_OF_TOPICS = (REMOVED, "staging", "pipelines")
"""Directories that contain no topic's file."""


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
