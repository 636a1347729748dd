"""The backup format: the contents of a data directory at one moment, in frames.

A backup has blocks as they are stored (`sow.store.layout`), each verified by its checksum on the
way: first those of every checkpoint, then the log up to the newest record of one moment, with the
system topics as of it. So a backup is what a start would find if the process ended then.
Checkpoints and log retain what is being copied, and no client waits: each piece is read in a
transaction of its own.

A frame is its length, its kind and its content. The last one is the moment, with the number of
frames before it: a copy without it, or with fewer, is invalid. Staged, archived and other files are
not in a backup.
"""

import json
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from sow.errors import Damaged, SowError, StoreError
from sow.store.checkpoint import LmdbCheckpoint
from sow.store.journal import LmdbJournal
from sow.store.layout import BASE, seal
from sow.store.manifest import Manifest, ManifestFile, manifest_text

BACKUP_FORMAT = 1
"""The version of the format. A higher version is refused."""
MANIFEST_FRAME, CHECKPOINT_FRAME, LOG_FRAME, BLOCK_FRAME, END_FRAME, FAILED_FRAME = (
    b"m",
    b"c",
    b"l",
    b"b",
    b"e",
    b"x",
)
"""Kinds of frames: the manifest; here begins the checkpoint of the topic that is named; here begins
the log; a block of it; the moment; why there is no more."""
FRAME_LENGTH_BYTES = 4
"""Before each frame: enough for `FRAME_BYTES_MAX`."""
FRAME_BYTES_MAX = 2**31
"""Longer than any frame: blocks are some MiB, or as long as the longest message."""


class CopiedStore(Protocol):
    """The open store of a server."""

    @property
    def path(self) -> Path:
        """The data directory."""
        ...

    @property
    def journal(self) -> LmdbJournal:
        """The log."""
        ...

    @property
    def checkpoints(self) -> Mapping[str, LmdbCheckpoint]:
        """The checkpoints, by the names of their topics."""
        ...

    @property
    def log_id(self) -> str:
        """Identifies the log."""
        ...


def frame(kind: bytes, content: bytes) -> bytes:
    """A frame."""
    return (len(kind) + len(content)).to_bytes(FRAME_LENGTH_BYTES, "big") + kind + content


def frames(store: CopiedStore, time_us: int, version: str) -> Generator[bytes, None, None]:
    """A backup of an open store, frame by frame; the last frame reports success or the error.

    `time_us` is the time of the request, and `version` that of the release. Any thread may iterate;
    it waits for the disk.
    """
    try:
        yield from _frames(store, time_us, version)
    except SowError as error:
        failure = {"reason": error.reason, "detail": error.detail}
        yield frame(FAILED_FRAME, json.dumps(failure).encode())


def _frames(store: CopiedStore, time_us: int, version: str) -> Iterator[bytes]:
    manifest = _manifest(store.path)
    count = 0
    with store.journal.held() as base_seq:
        yield frame(MANIFEST_FRAME, manifest_text(manifest))
        for kept in manifest.kept:
            checkpoint = store.checkpoints.get(kept.name)
            if checkpoint is not None:
                yield frame(CHECKPOINT_FRAME, kept.name.encode("utf-8", "surrogatepass"))
                for block in checkpoint.blocks():
                    count += 1
                    yield frame(BLOCK_FRAME, block)
        moment = store.journal.moment()
        yield frame(LOG_FRAME, b"")
        base, _ = seal(BASE, b"", seq=base_seq, count=0)
        for block in (base, *moment.accounts):
            count += 1
            yield frame(BLOCK_FRAME, block)
        for block in store.journal.blocks(base_seq, moment.seq):
            count += 1
            yield frame(BLOCK_FRAME, block)
    if _manifest(store.path).generation != manifest.generation:
        raise StoreError("the configuration was changed while it was copied; make another backup")
    yield frame(
        END_FRAME,
        json.dumps(
            {
                "format": BACKUP_FORMAT,
                "version": version,
                "bookmark": str(moment.seq),
                "oldest": str(base_seq),
                "time_us": time_us,
                "log": store.log_id,
                "blocks": count,
            }
        ).encode(),
    )


def _manifest(path: Path) -> Manifest:
    manifest = ManifestFile(path).manifest
    if manifest is None:
        raise Damaged(f"the manifest of {path} is missing")
    return manifest


class FrameReader:
    """Splits incoming bytes into frames, and passes each to `take`; raises what that raises, and
    Damaged for an invalid frame."""

    def __init__(self, take: Callable[[bytes, bytes], None]) -> None:
        self._take = take
        self._rest = bytearray()

    def feed(self, data: bytes) -> None:
        """Some bytes more."""
        self._rest += data
        at = 0
        while len(self._rest) - at >= FRAME_LENGTH_BYTES:
            length = int.from_bytes(self._rest[at : at + FRAME_LENGTH_BYTES], "big")
            if not 0 < length < FRAME_BYTES_MAX:
                raise Damaged("what came is no backup")
            end = at + FRAME_LENGTH_BYTES + length
            if end > len(self._rest):
                break
            found = bytes(self._rest[at + FRAME_LENGTH_BYTES : end])
            self._take(found[:1], found[1:])
            at = end
        del self._rest[:at]


def reported_in(content: bytes) -> dict[str, Any]:
    """The JSON content of a frame; raises Damaged."""
    try:
        found = json.loads(content)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise Damaged("what came is no backup")
    return found
