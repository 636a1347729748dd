"""The frames of a backup, the contents of a data directory at one moment, and of the feed.

A backup has blocks as they are stored (`sow.store.layout`), each verified by its checksum on the
way: first those of every checkpoint, then the log up to the newest record of one moment, with the
system topics as of it. Of a topic with a History the oldest checkpoint that is kept stands for the
newest: with the log behind it, it gives every state since. So a backup is what a start would find
if the process ended then, and answers for its past. Checkpoints and log retain what is being
copied, and no client waits: each piece is read in a transaction of its own.

A frame is its length, its kind and its content. The last one is the moment, with the number of
frames before it: a copy without it, or with fewer, is invalid. Staged, archived and other files are
not in a backup.

On a disk a backup is a directory of files of blocks. `backup.json` names each file with its length
and SHA-256, the moment that the backup shows, and the format. It is written last, and the directory
has its name only when all of it is on the disk: an unfinished one is never taken for a backup.
Files are numbered, so that no name that came over a network is one here. Reading verifies: first
the sums of the files, then the checksum of every block.

The feed, in which a follower receives the log of its primary, has frames of the same form:

    a   an account that a follower needs, as a block: a start, a reload, the types of columns
    b   a block of the log, in its stored form
    w   the open windows as of a record and a time; the first frame, sent on request
    t   a beat: the server has sent everything up to a record, and later frames have later times
    x   an error that ends the feed

An account comes before the records that were logged after it. Each block carries its checksum, so
the follower detects a flipped bit.
"""

import json
import os
import struct
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple, Protocol, Self

from sow.core.cooperative import run_to_completion
from sow.errors import Damaged, SowError, StoreError
from sow.store import make_directory, rewrite
from sow.store.checkpoint import LmdbCheckpoint
from sow.store.environment import sync_directory
from sow.store.journal import LmdbJournal, accounts_in
from sow.store.layout import (
    ACCOUNT,
    BASE,
    GROUP,
    HEADER_BYTES,
    decode_entries,
    encode_entries,
    read_header,
    seal,
    unseal,
)
from sow.store.log_indexes import decode_windows, encode_windows
from sow.store.manifest import Manifest, ManifestFile, checksum_of, manifest_text, parse_manifest
from sow.store.protocols import LogEntry, OpenWindows

BACKUP_FORMAT = 2
"""The version of the format, in which a checkpoint may be one that is kept; without such it is
still 1. A higher version is refused."""
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
    count, version_of_format = 0, 1
    with store.journal.held() as base_seq:
        yield frame(MANIFEST_FRAME, manifest_text(manifest))
        for kept in manifest.kept:
            checkpoint = store.checkpoints.get(kept.name)
            if checkpoint is not None:
                yield frame(CHECKPOINT_FRAME, kept.name.encode("utf-8", "surrogatepass"))
                kept_ones = [one for one in checkpoint.kept if one.seq >= base_seq]
                if kept_ones:
                    version_of_format = BACKUP_FORMAT
                for block in checkpoint.blocks(kept_ones[0] if kept_ones else None):
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
                "format": version_of_format,
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
            kind_at = at + FRAME_LENGTH_BYTES
            with memoryview(self._rest) as rest:  # a slice of it is no copy
                kind, content = bytes(rest[kind_at : kind_at + 1]), bytes(rest[kind_at + 1 : end])
            self._take(kind, content)
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


CONTENTS_FILE = "backup.json"
MANIFEST_NAME = "manifest.json"
LOG_NAME = "log.blocks"
UNFINISHED = ".unfinished"
"""What the name of a directory ends with that is being written."""
SUMMED_BYTES = 1024**2
"""What is read and summed at once: a file of any size takes no more memory."""


@dataclass(slots=True)
class BackedUpFile:
    """One file: whose checkpoint it is, if it is one."""

    name: str
    topic: str | None = None
    size_bytes: int = 0
    sha256: str = ""


@dataclass(slots=True)
class BackupContents:
    """The contents of `backup.json`."""

    format: int
    version: str
    bookmark: str
    oldest: str
    time_us: int
    log: str
    files: list[BackedUpFile] = field(default_factory=list)


class BackupWriter:
    """Writes a backup to the directory `path`, which must not be there (`with`).

    What is not `finished` at its end is removed.
    """

    def __init__(self, path: Path) -> None:
        if path.exists():
            raise StoreError(f"{path} is there already; name a directory that is not")
        self._path = path
        self._unfinished = path.with_name(path.name + UNFINISHED)
        self._files: list[BackedUpFile] = []
        self._file: BinaryIO | None = None
        self._sum = sha256()
        self._blocks = 0
        self.contents: BackupContents | None = None
        """What the backup is, once it is there as a whole."""

    def __enter__(self) -> Self:
        if self._unfinished.exists():
            _remove(self._unfinished)  # of one that was killed
        make_directory(self._unfinished)
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        try:
            if self._file is not None:
                # On a full disk it fails once more on what it has kept to write.
                self._file.close()
        finally:
            if self.contents is None:
                _remove(self._unfinished)

    def take(self, kind: bytes, content: bytes) -> None:
        """Write the next frame; raises Damaged where it does not belong, StoreError for an error of
        the server, OSError for one of the disk."""
        if self.contents is not None:
            raise Damaged("more came than the backup has")
        if kind == MANIFEST_FRAME and not self._files:
            self._begin(BackedUpFile(MANIFEST_NAME))
            self._write(content)
        elif kind == CHECKPOINT_FRAME and self._files and self._files[-1].name != LOG_NAME:
            number = len(self._files)
            topic = content.decode("utf-8", "surrogatepass")
            self._begin(BackedUpFile(f"topic-{number}.blocks", topic))
        elif kind == LOG_FRAME and self._files and self._files[-1].name != LOG_NAME:
            self._begin(BackedUpFile(LOG_NAME))
        elif kind == BLOCK_FRAME and len(self._files) > 1:
            _check(content, "what came")
            self._write(content)
            self._blocks += 1
        elif kind == END_FRAME and self._files and self._files[-1].name == LOG_NAME:
            self._finish(reported_in(content))
        elif kind == FAILED_FRAME:
            failure = reported_in(content)
            raise StoreError(str(failure.get("detail")), reason=str(failure.get("reason")))
        else:
            raise Damaged("what came is no backup")

    def _begin(self, file: BackedUpFile) -> None:
        self._end_file()
        self._files.append(file)
        self._sum = sha256()
        self._file = rewrite(self._unfinished / file.name)

    def _write(self, content: bytes) -> None:
        assert self._file is not None
        self._file.write(content)
        self._sum.update(content)
        self._files[-1].size_bytes += len(content)

    def _end_file(self) -> None:
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self._files[-1].sha256 = self._sum.hexdigest()

    def _finish(self, fields: dict[str, Any]) -> None:
        if fields.pop("blocks", None) != self._blocks:
            raise Damaged("some of the backup did not come")
        self._end_file()
        if fields.get("format") not in range(1, BACKUP_FORMAT + 1):
            raise StoreError(
                f"the server sends a backup of format {str(fields.get('format'))[:20]}, and this "
                f"release writes up to {BACKUP_FORMAT}; make it with the release of the server"
            )
        try:
            contents = BackupContents(**fields, files=self._files)
        except TypeError:
            raise Damaged("what came is no backup") from None
        content = asdict(contents)
        text = json.dumps({**content, "checksum": checksum_of(content)}, indent=1).encode()
        with rewrite(self._unfinished / CONTENTS_FILE) as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        sync_directory(self._unfinished)
        self._unfinished.rename(self._path)
        sync_directory(self._path.absolute().parent)
        self.contents = contents


def _remove(directory: Path) -> None:
    """Remove a directory that a backup was written to, and nothing but what was written."""
    for path in directory.iterdir():
        path.unlink()
    directory.rmdir()


class StoredBackup:
    """The backup in the directory `path`; raises StoreError if there is none, Damaged if its
    `backup.json` is not readable."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            fields = json.loads((path / CONTENTS_FILE).read_bytes())
            if isinstance(fields["format"], int) and fields["format"] > BACKUP_FORMAT:
                raise StoreError(
                    f"{path} was made by a later release (format {fields['format']}, this one "
                    f"reads up to {BACKUP_FORMAT}); restore it with that release"
                )
            if fields.pop("checksum") != checksum_of(fields):
                raise ValueError("the checksum does not match")
            files = [BackedUpFile(**one) for one in fields.pop("files")]
            self.contents = BackupContents(**fields, files=files)
        except FileNotFoundError:
            raise StoreError(
                f"{path} holds no backup: there is no {CONTENTS_FILE}; one that was not written to "
                "its end has none either"
            ) from None
        except OSError as error:
            raise StoreError(f"{path} cannot be read: {error.strerror}") from None
        except (ValueError, TypeError, KeyError, AttributeError):
            raise Damaged(
                f"{path / CONTENTS_FILE} is not as it was written; take another backup"
            ) from None

    @property
    def bookmark(self) -> int:
        """The newest record in it."""
        return int(self.contents.bookmark)

    @property
    def oldest(self) -> int:
        """The last record that its log does not hold any more."""
        return int(self.contents.oldest)

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.size_bytes for file in self.contents.files)

    def verify(self) -> Iterator[tuple[str, int, str]]:
        """Each file, its bytes, and what is wrong with it, or ""."""
        for file in self.contents.files:
            try:
                problem = self._problem(file)
            except OSError as error:
                problem = f"it cannot be read: {error.strerror}"
            yield str(self.path / file.name), file.size_bytes, problem

    def _problem(self, file: BackedUpFile) -> str:
        found, size = sha256(), 0
        with self._open(file) as source:
            while piece := source.read(SUMMED_BYTES):
                found.update(piece)
                size += len(piece)
        if size != file.size_bytes:
            return f"it has {size} of {file.size_bytes} bytes"
        if found.hexdigest() != file.sha256:
            return "the checksum does not match: bytes were changed"
        try:
            if file.name == MANIFEST_NAME:
                self.manifest()
            else:
                for _ in self._blocks(file):
                    pass
        except Damaged as error:
            return error.detail
        return ""

    def manifest(self) -> Manifest:
        """What the directory was for; raises Damaged, and StoreError for one of a later release."""
        path = self.path / MANIFEST_NAME
        try:
            return parse_manifest(path.read_bytes(), path)
        except ValueError as error:
            raise Damaged(f"{path} is damaged ({error})") from None

    def checkpoint(self, topic: str) -> Iterator[bytes]:
        """The blocks of a topic's checkpoint, none if there was none; raises Damaged, OSError."""
        for file in self.contents.files:
            if file.topic == topic:
                yield from self._blocks(file)

    def log(self) -> Iterator[bytes]:
        """The blocks of the log; raises Damaged, OSError."""
        for file in self.contents.files:
            if file.name == LOG_NAME:
                yield from self._blocks(file)

    def _open(self, file: BackedUpFile) -> BinaryIO:
        if Path(file.name).name != file.name:
            raise Damaged(f"{self.path / CONTENTS_FILE} names a file that is not beside it")
        return (self.path / file.name).open("rb")

    def _blocks(self, file: BackedUpFile) -> Iterator[bytes]:
        with self._open(file) as source:
            while head := source.read(HEADER_BYTES):
                try:
                    length = read_header(head).length
                except ValueError as error:
                    raise Damaged(f"{self.path / file.name}: {error}") from None
                if not HEADER_BYTES <= length <= file.size_bytes:
                    raise Damaged(f"{self.path / file.name}: a block has no such length")
                block = head + source.read(length - HEADER_BYTES)
                _check(block, str(self.path / file.name))
                yield block


def _check(block: bytes, where: str) -> None:
    try:
        unseal(block, read_header(block).kind)
    except (ValueError, zlib.error) as error:
        raise Damaged(f"{where}: {error}") from None


ACCOUNT_FRAME, BEAT_FRAME, WINDOWS_FRAME = b"a", b"t", b"w"
_BEAT = struct.Struct("=qq")


class Beat(NamedTuple):
    """The server has sent everything up to record `seq`, which ends a turn; what follows has no
    time before `time_us`."""

    seq: int
    time_us: int


def block_frame(block: bytes) -> bytes:
    """A block of the log."""
    return frame(BLOCK_FRAME, block)


def account_frame(entry: LogEntry) -> bytes:
    """An account, as an entry of its only record."""
    block, _ = seal(ACCOUNT, encode_entries([entry]), seq=entry.seq, count=1, ts_us=entry.ts_us)
    return frame(ACCOUNT_FRAME, block)


def beat_frame(beat: Beat) -> bytes:
    """A beat."""
    return frame(BEAT_FRAME, _BEAT.pack(*beat))


def windows_frame(found: OpenWindows) -> bytes:
    """Open windows."""
    return frame(WINDOWS_FRAME, encode_windows(found))


def windows_in(content: bytes) -> OpenWindows:
    """Open windows; raises Damaged."""
    try:
        return run_to_completion(decode_windows(content))
    except ValueError as error:
        raise Damaged(f"the primary sent damaged windows: {error}") from None


def entries_of(block: bytes) -> Sequence[LogEntry]:
    """The entries in a block of the log, which keep its bytes, as a follower logs them once more;
    raises Damaged."""
    try:
        unseal(block, GROUP)
    except ValueError as error:
        raise Damaged(f"the primary sent a damaged block of the log: {error}") from None
    return [*decode_entries(block, keeps=True)]


def account_of(block: bytes) -> LogEntry:
    """The account in a block; raises Damaged."""
    try:
        unseal(block, ACCOUNT)
    except ValueError as error:
        raise Damaged(f"the primary sent a damaged account: {error}") from None
    return accounts_in([block])[0]


def beat_of(content: bytes) -> Beat:
    """A beat; raises Damaged."""
    if len(content) != _BEAT.size:
        raise Damaged("the primary sent a damaged beat")
    return Beat(*_BEAT.unpack(content))
