"""The manifest: the files of a data directory, and the definitions it was written for.

Checkpoints and the journal have the records, but not which files must exist, nor the definition of
a topic when they were written. `manifest.json` has each definition that keeps records, as far as
its stored records depend on it, and from which number on its log entries count. A start compares it
with the configuration before anything is written; orphaned records are then refused by name instead
of being skipped.

Two copies are kept, each replaced in one step and synced, the second after the first. A server
accepts no message before both exist, so either of them alone is sufficient.

A topic's stored records are read by its message type, named by its keys and kept in its file
(`StoredDefinition`). If one of these has changed when the server starts again, the stored records
belong to the old definition, not to the new one (`sow.engine.recovery.redo`).
"""

import json
import os
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sow.core.cooperative import Task, run_to_completion
from sow.core.definitions import (
    Configuration,
    Definition,
    MessageTypeOptions,
    Series,
    Topic,
    View,
    describe_message_type,
    is_persistent,
    message_type_options,
)
from sow.errors import Damaged, StoreError
from sow.store import close_to_others, rewrite
from sow.store.environment import repair_command, sync_directory

EVERY_EVENT = Series(events_max=None)
"""What is known of a stored series: which events it retains is for its running topic to say."""


def file_name(topic: Topic) -> str:
    """A topic's FileName, or one made of its name and message type."""
    return topic.file_name or quote(f"{topic.name}.{topic.message_type}.sow", safe="")


def fingerprint(topic: Topic) -> str:
    """What decides which record a message is: if it changes, stored identities mean nothing."""
    parts = {"MessageType": topic.message_type, "Key": topic.keys, "KeyDomain": topic.domain}
    return json.dumps(parts)


def can_read(new: MessageTypeOptions | None, old: MessageTypeOptions | None) -> bool:
    """Whether a type with the options `new` reads messages of the type `old` as that did.

    None stands for a type without options. A record may have got more fields at its end, which old
    messages then lack, and a part of a composite may have been renamed.
    """
    if new is None or old is None:
        return new is old
    before = len(old.fields)
    return (
        (new.module, new.field_separator) == (old.module, old.field_separator)
        and new.fields[:before] == old.fields
        and len(new.parts) == len(old.parts)
        and all(map(can_read, new.parts, old.parts))
    )


@dataclass(frozen=True, slots=True)
class StoredDefinition:
    """A definition whose records the directory holds, as it was when they were stored.

    `topic` has what stored records depend on, its file's name included; `options` are those of its
    message type. Log entries up to and with `since_seq` do not count for it.
    """

    topic: Topic
    options: MessageTypeOptions | None = None
    since_seq: int = 0

    @property
    def name(self) -> str:
        """The name of the definition."""
        return self.topic.name

    @property
    def kinds(self) -> dict[str, MessageTypeOptions]:
        """The message types of the configuration, as far as this one needs them."""
        return {} if self.options is None else {self.options.name: self.options}

    def changes(self, now: Definition | None, configuration: Configuration) -> list[str]:
        """The elements whose change leaves the stored records without a place."""
        if now is None:
            return ["Name"]
        if isinstance(now, View) and not self.topic.keys and self.topic.domain == now.domain:
            # Rows that Spark made for a view have no key fields: their SowKeys came with them.
            return ["Engine"]
        if not isinstance(now, Topic):
            return ["UnderlyingTopic"]
        old, new = self.topic, kept_of(now, configuration)
        pairs = {
            "Key": (old.keys, now.keys),
            "KeyDomain": (old.domain, now.domain),
            "FileName": (old.file_name, new.topic.file_name),
            "Pattern": (old.pattern is None, now.pattern is None),
            "Durability": ("persistent", now.durability),
        }
        found = [element for element, (before, after) in pairs.items() if before != after]
        if old.message_type != now.message_type or not can_read(new.options, self.options):
            found.insert(0, "MessageType")
        # A file that is named after the type changes with it.
        return [e for e in found if e != "FileName" or "MessageType" not in found]


def kept_of(topic: Topic, configuration: Configuration, since_seq: int = 0) -> StoredDefinition:
    """The manifest's entry of a definition."""
    options = {one.name: one for one in configuration.message_types}.get(topic.message_type)
    stored = Topic(
        topic.name,
        topic.message_type,
        keys=topic.keys,
        key_domain=topic.key_domain,
        file_name=file_name(topic),
        pattern=topic.pattern,
        retain=topic.retain,
        expires=topic.expires,
        series=topic.series and EVERY_EVENT,
    )
    return StoredDefinition(stored, options, since_seq)


def persistent_topics(configuration: Configuration) -> list[Topic]:
    """The definitions whose records are kept on disk."""
    return [
        topic for topic in configuration.topics if isinstance(topic, Topic) and is_persistent(topic)
    ]


Names = tuple[tuple[str, str | None], ...]
"""The definitions that take names of topics, in order: what each is called, and its Pattern."""


def names_of(topics: Iterable[Definition]) -> Names:
    """The owners of names. Transient topics own some, too."""
    return tuple((topic.name, topic.pattern) for topic in topics if isinstance(topic, Topic))


@dataclass(frozen=True, slots=True)
class Era:
    """The owners of names from the era before up to and including record `until_seq`."""

    until_seq: int
    names: Names


@dataclass(frozen=True, slots=True)
class Past:
    """The definitions that a data directory was written for.

    `given_up` names topics whose log entries up to a sequence number do not count any more.
    `is_known` is false for a directory without a manifest: then entries without an owner count as
    records, too. `names` are the owners at the last run, by default those of `kept`; `eras` are
    earlier ones.
    """

    kept: tuple[StoredDefinition, ...] = ()
    given_up: Mapping[str, int] = field(default_factory=dict)
    is_known: bool = True
    names: Names = ()
    eras: tuple[Era, ...] = ()


def past_of(configuration: Configuration) -> Past:
    """The past of a directory that was always written for this configuration."""
    topics = persistent_topics(configuration)
    kept = tuple(kept_of(topic, configuration) for topic in topics)
    return Past(kept, names=names_of(configuration.topics))


MANIFEST_FILE = "manifest.json"
COPY_FILE = "manifest.json.copy"
FORMAT, WITHOUT_SERIES = 3, 2
"""The version of everything in the data directory, and the one without a series in it. A directory
of a higher one is refused.

Since 2 a log has a name, and writers an account for each topic: a release that knows neither would
lose them, and apply batches twice. In 3 there are events of series, which earlier releases would
take for records.
"""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The contents of a directory.

    `given_up` names topics whose log entries up to a sequence number do not count any more; `moves`
    are files, and their destinations, of an archiving that may not have been completed. `names` and
    `eras` are the owners of the names in the log (`sow.store.manifest`).
    """

    journal: str = "journal"
    kept: tuple[StoredDefinition, ...] = ()
    given_up: Mapping[str, int] = field(default_factory=dict)
    moves: Mapping[str, str] = field(default_factory=dict)
    generation: int = 0
    names: Names = ()
    eras: tuple[Era, ...] = ()
    log_id: str = ""
    """Identifies this log; empty until a start has assigned one."""
    has_series: bool = False
    """The log or a checkpoint may have events of a series."""
    begins_after: int = 0
    """The record behind which the log begins: nothing was before. Of a restored one not 0."""

    @property
    def newest_seq(self) -> int:
        """The newest record that it knows of: a journal that ends earlier is not whole."""
        since = [*(kept.since_seq for kept in self.kept), *self.given_up.values()]
        return max([0, *since, *(era.until_seq for era in self.eras)])


class _Unknown(ValueError):
    """Of a later release, by its format, with a checksum that this release does not know."""


class ManifestFile:
    """The manifest of the data directory at `directory`.

    `manifest` is None when there has never been one. `missing` lists copies to write again.
    Raises Damaged when no copy is whole, StoreError for one of a later release.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.missing: list[str] = []
        whole, later = [], None
        for name in (MANIFEST_FILE, COPY_FILE):
            try:
                whole.append(parse_manifest((directory / name).read_bytes(), directory / name))
                close_to_others(directory / name)
            except FileNotFoundError:
                self.missing.append(f"{name} is missing")
            except OSError as error:
                raise StoreError(f"{directory / name} cannot be read: {error.strerror}") from error
            except _Unknown as error:
                later = error
                self.missing.append(f"{name} is damaged (its format is that of a later release)")
            except ValueError as error:
                self.missing.append(f"{name} is damaged ({error})")
        if not whole and later:
            raise StoreError(str(later))
        if not whole and any("damaged" in problem for problem in self.missing):
            raise Damaged(
                f"the manifest of {directory} is not safe to read: {', '.join(self.missing)}. To "
                "set it aside and let the next start work out from the files what there is, run: "
                + repair_command(directory, directory / MANIFEST_FILE)
            )
        self.manifest = max(whole, key=lambda found: found.generation, default=None)

    def write(self, manifest: Manifest) -> Manifest:
        """Replace the manifest, durably; returns it with its generation."""
        before = self.manifest or Manifest()
        has_series = any(kept.topic.series for kept in manifest.kept)
        has_series |= manifest.has_series or before.has_series
        generation = 1 + before.generation
        self.manifest = replace(manifest, generation=generation, has_series=has_series)
        content = manifest_text(self.manifest)
        for name in (MANIFEST_FILE, COPY_FILE):
            run_to_completion(write_file(self._directory / name, (content,)))
        self.missing = []
        return self.manifest


def write_file(path: Path, pieces: Iterable[bytes]) -> Task[None]:
    """Replace a file in one step, the last, durably: it is there as it was, or as it is now. Each
    piece is written in a step of its own."""
    unfinished = path.with_name(path.name + ".writing")
    try:
        with rewrite(unfinished) as file:
            for piece in pieces:
                file.write(piece)
                yield
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(path)
        sync_directory(path.parent)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}") from error


def manifest_text(manifest: Manifest) -> bytes:
    """A manifest as its file holds it."""
    content = {
        "version": FORMAT if manifest.has_series else WITHOUT_SERIES,
        "generation": manifest.generation,
        "journal": manifest.journal,
        "topics": [_described(kept) for kept in manifest.kept],
        "given_up": dict(manifest.given_up),
        "moves": dict(manifest.moves),
        "names": manifest.names,
        "eras": [[era.until_seq, era.names] for era in manifest.eras],
        "log_id": manifest.log_id,
        "begins_after": manifest.begins_after,
    }
    return json.dumps({**content, "checksum": checksum_of(content)}, indent=1).encode()


def checksum_of(content: Mapping[str, Any]) -> int:
    """The checksum of a JSON document, whatever the order of its names."""
    return zlib.crc32(json.dumps(content, sort_keys=True).encode())


def _described(kept: StoredDefinition) -> dict[str, Any]:
    topic, options = kept.topic, kept.options
    more = None if options is None else describe_message_type(options)
    return {
        "name": topic.name,
        "file": topic.file_name,
        "message_type": topic.message_type,
        "module": None if options is None else options.module,
        "field_separator": None if options is None else options.field_separator.hex(),
        "fields": [] if more is None else more["fields"],
        "parts": [] if more is None else more["parts"],
        "keys": list(topic.keys),
        "key_domain": topic.key_domain,
        "pattern": topic.pattern,
        "retain": topic.retain,
        "expires": topic.expires,
        "since_seq": kept.since_seq,
        **({"series": True} if topic.series else {}),
    }


def parse_manifest(text: bytes, path: Path) -> Manifest:
    """The manifest in a file; raises ValueError when it is not as it was written."""
    try:
        content = json.loads(text)
        version = content["version"]
        checksum = content.pop("checksum", None)
        is_whole = checksum == checksum_of(content)
        if isinstance(version, int) and version > FORMAT:
            # Where the checksum does not match, it may be a damaged one of ours.
            raise (StoreError if is_whole else _Unknown)(
                f"{path} says that the directory was written by a later release (format {version}, "
                f"this one reads up to {FORMAT}); use that release, or another directory with "
                "--data-dir"
            )
        if not is_whole:
            raise ValueError("the checksum does not match")
        return Manifest(
            content["journal"],
            tuple(map(_kept, content["topics"])),
            content["given_up"],
            content["moves"],
            content["generation"],
            _names(content["names"]),
            tuple(Era(until_seq, _names(names)) for until_seq, names in content["eras"]),
            content.get("log_id", ""),  # the first releases gave none
            version > WITHOUT_SERIES,
            content.get("begins_after", 0),
        )
    except (KeyError, TypeError, AttributeError, UnicodeDecodeError) as error:
        raise ValueError("it is not a manifest") from error
    except json.JSONDecodeError as error:
        raise ValueError("it is not JSON") from error


def _names(names: Iterable[tuple[str, str | None]]) -> Names:
    return tuple((name, pattern) for name, pattern in names)


def _kept(entry: Mapping[str, Any]) -> StoredDefinition:
    topic = Topic(
        entry["name"],
        entry["message_type"],
        keys=tuple(entry["keys"]),
        key_domain=entry["key_domain"],
        file_name=entry["file"],
        pattern=entry["pattern"],
        retain=entry["retain"],
        expires=entry["expires"],
        series=EVERY_EVENT if entry.get("series") else None,
    )
    options = None
    if entry["module"] is not None:
        # Releases that knew neither records nor composites have written neither.
        separator = bytes.fromhex(entry["field_separator"]).decode("latin-1")
        described = {**entry, "name": topic.message_type, "field_separator": separator}
        options = message_type_options(described)
    return StoredDefinition(topic, options, entry["since_seq"])
