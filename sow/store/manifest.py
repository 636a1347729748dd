"""The manifest: the files of a data directory, and the definitions it was written for.

Checkpoints and the journal have the records, but not which files must exist, nor the definition of
a topic when they were written. `manifest.json` has each definition that keeps records, as far as
its stored records depend on it, and from which number on its log entries count. A start compares it
with the configuration before anything is written; orphaned records are then refused by name instead
of being skipped.

Two copies are kept, each replaced in one step and synced, the second after the first. A server
accepts no message before both exist, so either of them alone is sufficient.
"""

import json
import os
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sow.core.cooperative import Task, run_to_completion
from sow.core.definitions import (
    MessageTypeOptions,
    Topic,
    describe_message_type,
    message_type_options,
    record_fields,
)
from sow.errors import Damaged, StoreError
from sow.store.environment import repair_command, sync_directory
from sow.store.files import close_to_others, rewrite
from sow.store.stored_definitions import Era, Names, StoredDefinition

MANIFEST_FILE = "manifest.json"
COPY_FILE = "manifest.json.copy"
FORMAT = 2
"""The version of everything in the data directory. A directory of a higher one is refused.

Since 2 a log has a name, and writers an account for each topic: a release that knows neither would
lose them, and apply batches twice.
"""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The contents of a directory.

    `given_up` names topics whose log entries up to a sequence number do not count any more; `moves`
    are files, and their destinations, of an archiving that may not have been completed. `names` and
    `eras` are the owners of the names in the log (`sow.store.stored_definitions`).
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
        generation = 1 + (self.manifest.generation if self.manifest else 0)
        self.manifest = replace(manifest, generation=generation)
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
        "version": FORMAT,
        "generation": manifest.generation,
        "journal": manifest.journal,
        "topics": [_described(kept) for kept in manifest.kept],
        "given_up": dict(manifest.given_up),
        "moves": dict(manifest.moves),
        "names": manifest.names,
        "eras": [[era.until_seq, era.names] for era in manifest.eras],
        "log_id": manifest.log_id,
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
    )
    options = None
    if entry["module"] is not None:
        separator = bytes.fromhex(entry["field_separator"])
        options = MessageTypeOptions(
            topic.message_type,
            entry["module"],
            separator,
            # Releases that knew neither records nor composites have written neither.
            record_fields(entry.get("fields", ())),
            tuple(map(message_type_options, entry.get("parts", ()))),
        )
    return StoredDefinition(topic, options, entry["since_seq"])
