"""Manifests: the first one of a data directory, and how one follows from another.

A manifest records for the next start what the directory was written for: the definitions whose
records it holds, the topics that were given up, and earlier owners of names.

The first release wrote no manifest. A directory without one is assumed to have been written for the
configuration it is opened with; what contradicts that is an error, since nothing else would miss
the records. An empty directory is new.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from sow.core.definitions import Configuration
from sow.errors import StoreError
from sow.server.boot.quarantine import REMOVED, move_file, removed_at
from sow.store.checkpoint import held_in
from sow.store.directory import DataDirectory
from sow.store.journal import DATA_FILE, is_journal
from sow.store.manifest import Manifest
from sow.store.stored_definitions import (
    Era,
    StoredDefinition,
    file_name,
    kept_of,
    names_of,
    persistent_topics,
)

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
        given_up=_still_stored(manifest.given_up, forgotten_seq),
        names=names_of(configuration.topics),
        eras=_eras(manifest, configuration, last_seq, forgotten_seq),
    )


def _still_stored(given_up: Mapping[str, int], forgotten_seq: int) -> dict[str, int]:
    """Topics that the log or an older checkpoint may still contain."""
    return {name: seq for name, seq in given_up.items() if seq > forgotten_seq}


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
