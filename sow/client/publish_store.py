"""What a publisher has accepted and the server has not acknowledged, in memory or in a file.

Messages have no numbers here: they wait in order, and the first of them has the number `base`. So a
message that leaves the middle numbers those behind it again by itself. `base` is None until the
server has said what it knows of the name.

A file is appended to, a line for each event: its checksum and what happened. It survives the
program that writes it, killed at any moment: half a line at the end is cut off, and damage before
it is an error. It does not wait for the disk, so a machine that loses power may lose the end. When
most of the file is of the past it is written again beside the old one, which it then replaces.
"""

import fcntl
import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

import orjson

from sow.errors import ClientError, Damaged, shown

REWRITTEN_BYTES_MIN = 1024**2
"""A short file is left as it is."""
REWRITTEN_FACTOR = 4
"""A file is written again when it is so many times as long as what waits in it."""
Event = Mapping[str, Any]


@dataclass(slots=True)
class StoredFrame:
    """One frame that waits: a command on a topic with its bodies, and its other `fields`."""

    command: str
    topic: str
    bodies: list[bytes]
    fields: dict[str, Any] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """How many numbers it uses: one for each message, and one for a delete."""
        return 1 if self.command == "sow_delete" else len(self.bodies)

    @property
    def size_bytes(self) -> int:
        """About what it takes in a file."""
        return sum(map(len, self.bodies)) + 100

    def event(self) -> Event:
        """What a file says of it."""
        bodies = [body.decode("latin-1") for body in self.bodies]
        return {"add": [self.command, self.topic, bodies, self.fields]}


class PublishStore:
    """What waits, in order, of the publisher `client`; in the file `path`, if it is given.

    Raises ClientError for a file that another process has open, or that is another publisher's, and
    Damaged for one that is not as it was written.
    """

    def __init__(self, client: str, path: str | os.PathLike[str] | None = None) -> None:
        self.client = client
        self.log_id = ""
        """The name of the log that its numbers belong to."""
        self.base: int | None = None
        """The number of the first message that waits."""
        self.waiting: deque[StoredFrame] = deque()
        self.size_bytes = 0
        self._path = None if path is None else Path(path)
        self._file = -1
        self._written_bytes = 0
        self._rewritten_at = REWRITTEN_BYTES_MIN
        if self._path is not None:
            self._open(self._path)

    @property
    def count(self) -> int:
        """How many numbers the messages use that wait."""
        return sum(entry.count for entry in self.waiting)

    # Events.

    def add(self, *frames: StoredFrame) -> None:
        """Frames wait; a file has all of them when this returns, and none if it raises OSError."""
        self._note(*(frame.event() for frame in frames))

    def applied(self, count: int) -> None:
        """The first so many messages are durable on the server."""
        if count:
            self._note({"applied": count})

    def drop(self, place: int, index: int | None) -> None:
        """A frame, by its place, or one message of it is refused, and waits no more."""
        self._note({"drop": [place, index]})

    def number(self, log_id: str, base: int) -> None:
        """The first message that waits has the number `base` in a log."""
        if (log_id, base) != (self.log_id, self.base):
            self._note({"number": [log_id, base]})

    def _note(self, *events: Event) -> None:
        if self._file >= 0:
            self._append(b"".join(map(_line, events)))
        for event in events:
            self._happen(event)
        if self._written_bytes > max(self._rewritten_at, REWRITTEN_FACTOR * self.size_bytes):
            self._rewrite()

    def _happen(self, event: Event) -> None:
        ((kind, value),) = event.items()
        EVENTS[kind](self, value)

    def _on_client(self, value: str) -> None:
        if value != self.client:
            raise ClientError(
                f"the store {self._path} is that of the publisher {shown(value)}, not of "
                f"{shown(self.client)}; give each publisher a file of its own"
            )

    def _on_add(self, value: list[Any]) -> None:
        command, topic, bodies, fields = value
        entry = StoredFrame(command, topic, [body.encode("latin-1") for body in bodies], fields)
        self.waiting.append(entry)
        self.size_bytes += entry.size_bytes

    def _on_applied(self, count: int) -> None:
        if self.base is not None:
            self.base += count
        while count:
            entry = self.waiting[0]
            self.size_bytes -= entry.size_bytes
            if entry.count <= count:
                count -= entry.count
                self.waiting.popleft()
            else:
                self.waiting[0] = rest = StoredFrame(
                    entry.command, entry.topic, entry.bodies[count:], entry.fields
                )
                self.size_bytes += rest.size_bytes
                count = 0

    def _on_drop(self, value: list[Any]) -> None:
        place, index = value
        entry = self.waiting[place]
        self.size_bytes -= entry.size_bytes
        if index is None or len(entry.bodies) == 1:
            del self.waiting[place]
            return
        bodies = entry.bodies[:index] + entry.bodies[index + 1 :]
        self.waiting[place] = rest = StoredFrame(entry.command, entry.topic, bodies, entry.fields)
        self.size_bytes += rest.size_bytes

    def _on_number(self, value: list[Any]) -> None:
        self.log_id, self.base = value

    # The file.

    def _open(self, path: Path) -> None:
        self._file = _locked(path, os.O_RDWR | os.O_CREAT)
        try:
            data = path.read_bytes()
            end = 0
            for event, read in _events(path, data):
                self._happen(event)
                end = read
            first = _line({"client": self.client})
            if not end and not first.startswith(data):
                raise Damaged(
                    f"{path} is no store of the publisher {shown(self.client)}, and is left as it "
                    "is; give the store a file of its own"
                )
            if end < len(data):
                os.ftruncate(self._file, end)
            os.lseek(self._file, end, os.SEEK_SET)
            self._written_bytes = end
            if not end:
                self._append(first)
        except BaseException:
            self.close()
            raise

    def _append(self, line: bytes) -> None:
        left = memoryview(line)
        try:
            while left:
                left = left[os.write(self._file, left) :]
        except OSError:
            # No half of a line is left in front of the next one.
            os.ftruncate(self._file, self._written_bytes)
            os.lseek(self._file, self._written_bytes, os.SEEK_SET)
            raise
        self._written_bytes += len(line)

    def _rewrite(self) -> None:
        """Write what holds now into a file of its own, which takes the place of this one. If that
        fails, this one goes on: all of it is there, and it is tried again when it is twice as
        long."""
        if self._path is None or self._file < 0:
            return
        new = self._path.with_name(self._path.name + ".new")
        before, written_bytes = self._file, self._written_bytes
        try:
            self._file, self._written_bytes = _locked(new, os.O_RDWR | os.O_CREAT | os.O_TRUNC), 0
            self._append(b"".join(map(_line, self._all())))
            os.fsync(self._file)
            new.replace(self._path)
            self._rewritten_at = REWRITTEN_BYTES_MIN
        except OSError:
            failed, self._file, self._written_bytes = self._file, before, written_bytes
            self._rewritten_at = 2 * written_bytes
            if failed != before:
                os.close(failed)
                new.unlink(missing_ok=True)
        else:
            os.close(before)

    def _all(self) -> Iterable[Event]:
        yield {"client": self.client}
        if self.base is not None:
            yield {"number": [self.log_id, self.base]}
        for entry in self.waiting:
            yield entry.event()

    def close(self) -> None:
        """Close the file, if there is one; what waits in it stays."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


EVENTS: Mapping[str, Callable[[PublishStore, Any], None]] = {
    "client": PublishStore._on_client,
    "add": PublishStore._on_add,
    "applied": PublishStore._on_applied,
    "drop": PublishStore._on_drop,
    "number": PublishStore._on_number,
}


def _locked(path: Path, flags: int) -> int:
    """A file that no other process has open as a store."""
    file = os.open(path, flags, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # One that was opened while its owner replaced it is not the one that is there.
        is_there = os.path.samestat(os.fstat(file), path.stat())
    except OSError:
        is_there = False
    if not is_there:
        os.close(file)
        raise ClientError(
            f"the store {path} is in use; close the other publisher, or give this one another file"
        )
    return file


def _line(event: Event) -> bytes:
    text = orjson.dumps(event)
    return b"%08x %b\n" % (crc32(text), text)


def _events(path: Path, data: bytes) -> Iterable[tuple[Event, int]]:
    """The events of a file, each with the place where its line ends; half a line at the end is
    none."""
    start = 0
    while (end := data.find(b"\n", start)) >= 0:
        text = data[start + 9 : end]
        if data[start : start + 9] != b"%08x " % crc32(text):
            raise Damaged(
                f"the store {path} is damaged at byte {start}: what waits behind that place is "
                "not known; keep the file, and begin with another one"
            )
        start = end + 1
        yield orjson.loads(text), start
