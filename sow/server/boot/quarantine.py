"""Quarantine: where records and files go that a server gives up.

Nothing is deleted. Records are written out as files that `sow publish` reads, and checkpoint files
are moved, all to a directory under `removed/` that is named for the time. Every step is durable
before the next one begins. What is given up is decided elsewhere (`sow.server.boot.bootstrap`,
`sow.server.boot.app`).
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from urllib.parse import quote

import orjson

from sow.core.cooperative import Task
from sow.engine.recovery import OrphanedRecords
from sow.errors import StoreError
from sow.store import close_to_others, make_directory
from sow.store.environment import sync_directory
from sow.store.manifest import write_file
from sow.topic.records import Records

log = logging.getLogger("sow")

REMOVED = "removed"
"""The subdirectory of the data directory for everything that was given up."""
FILE_NAME_MAX = 150
"""File systems limit a name to 255 bytes; the rest is for suffixes."""


WRITTEN_AT_ONCE = 1_000
"""Records of one step: a microsecond each, and a few where they are written as commands."""


def removed_at(directory: Path, now_us: int) -> Path:
    """The directory for what is given up now; it does not exist yet."""
    time = datetime.fromtimestamp(now_us / 1e6, UTC).strftime("%Y%m%dT%H%M%SZ")
    base = directory / REMOVED / time
    target, number = base, 1
    while target.exists():
        number += 1
        target = base.with_name(f"{time}-{number}")
    return target


def write_out(one: OrphanedRecords, target: Path, now_us: int) -> Task[None]:
    """Write the given-up records to a file in the directory `target`, some in each step, and log
    it. No records are added meanwhile; those that are removed are written, or not."""
    slots = one.live(now_us)
    pieces, ending = yield from written(one, slots)
    path = target / (_file_safe(one.name) + ending)
    make_durable(target)
    yield from write_file(path, pieces)
    count = len(slots)
    log.warning("given up: topic %s, %d records, now in %s; %s", one.name, count, path, one.reason)


def _file_safe(name: str) -> str:
    """A topic's name as a file name, which is limited in length; distinct names stay distinct."""
    safe = quote(name, safe="")
    if len(safe) <= FILE_NAME_MAX:
        return safe
    return f"{safe[:FILE_NAME_MAX]}~{blake2b(safe.encode(), digest_size=8).hexdigest()}"


def written(one: OrphanedRecords, slots: Sequence[int]) -> Task[tuple[Iterator[bytes], str]]:
    """Records as the lines of a file, some in each piece, and the file's suffix.

    Bodies where they contain the topic's keys and each is a line of text: `sow publish` reads
    these. Otherwise publish commands, as a WebSocket takes them. The type of a topic that only the
    log knows is unknown: then bodies, too, if each is a line.
    """
    records = one.records
    bodies = records.table.bodies
    kind = records.message_type
    in_body = one.kept is None or bool(records.keys and not kind.enc)
    parts = [
        slots[start : start + WRITTEN_AT_ONCE] for start in range(0, len(slots), WRITTEN_AT_ONCE)
    ]
    for part in parts if in_body else ():
        in_body = in_body and not any(b"\n" in body for _, body in _rows(records, part))
        yield
    ending = ".commands.ndjson"
    if in_body:
        ending = ".ndjson" if kind.name == "json" else ".txt"

    def piece(part: Sequence[int]) -> bytes:
        there = [slot for slot in part if bodies[slot] is not None]
        rows = _rows(records, there)
        if in_body:
            return b"".join([body + b"\n" for _, body in rows])
        return b"".join([_command(one, slot, body) for slot, body in rows])

    return map(piece, parts), ending


def _rows(records: Records, slots: Iterable[int]) -> Iterator[tuple[int, bytes]]:
    """The records in some slots; of a series, their events, which publishes bring back."""
    table, events = records.table, records.events
    for slot in slots:
        if events is None:
            yield slot, table.bodies[slot] or b""
        else:
            for event in events.last(table.identities[slot] or "", events.count):
                yield slot, event.body


def _command(one: OrphanedRecords, slot: int, body: bytes) -> bytes:
    head = {"c": "publish", "t": one.name}
    if not one.records.keys:
        head["k"] = one.records.table.identities[slot] or ""
    text = one.records.renderer.line_bodies([body])[0]
    return orjson.dumps(head)[:-1] + b',"d":' + text + b"}\n"


def move_file(path: Path, target: Path) -> None:
    """Move a file that may have been moved already; LMDB's lock file beside it is deleted."""
    try:
        if path.exists():
            make_durable(target.parent)
            close_to_others(path)
            path.rename(target)
            path.with_name(path.name + "-lock").unlink(missing_ok=True)
            sync_directory(path.parent)
            sync_directory(target.parent)
    except OSError as error:
        raise StoreError(f"{path} cannot be moved to {target}: {error.strerror}") from error


def make_durable(directory: Path) -> None:
    """Create a directory that survives a loss of power."""
    missing = [one for one in (directory, *directory.parents) if not one.exists()]
    try:
        make_directory(directory)
        for one in missing:
            sync_directory(one.parent)
    except OSError as error:
        raise StoreError(f"{directory} cannot be made: {error.strerror}") from error
