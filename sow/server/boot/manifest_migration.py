"""The next manifest: what it contains once a directory is open for a configuration.

A manifest records for the next start what the directory was written for: the definitions whose
records it holds, the topics that were given up, and earlier owners of names. Pure: nothing is
opened or written.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sow.core.definitions import Configuration
from sow.store.manifest import Manifest
from sow.store.stored_definitions import (
    Era,
    StoredDefinition,
    kept_of,
    names_of,
    persistent_topics,
)


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
