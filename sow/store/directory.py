"""The data directory: its lock, and the paths in it.

One server at a time: a `lock` file is held while the directory is open, and names the process.
Names in the configuration are relative to it and stay inside it.
"""

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sow.core.definitions import JournalSettings, Topic
from sow.errors import StoreError
from sow.store import close_to_others, is_open_to_others, make_directory, open_file
from sow.store.checkpoint import LmdbCheckpoint
from sow.store.journal import LmdbJournal
from sow.store.manifest import file_name, fingerprint

LOCK_FILE = "lock"

log = logging.getLogger("sow")


class DataDirectory:
    """The directory at `path`, made if it is not there, held until `close`.

    Raises StoreError when another process holds it or it cannot be made.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._close_to_others()
            self._lock = open_file(path / LOCK_FILE)
        except OSError as error:
            raise StoreError(
                f"the data directory {path} cannot be used: {error.strerror}; "
                "choose another with --data-dir"
            ) from error
        self._take()

    def _close_to_others(self) -> None:
        """Make the directory, or close the one that is there to other users if it is ours: if it
        holds data, or nothing at all. In any other there may be things that others need."""
        path = self.path
        if not path.is_dir() or not any(path.iterdir()):
            make_directory(path)
        elif is_open_to_others(path) and (path / LOCK_FILE).exists():
            close_to_others(path)
            log.warning("the data directory %s was open to other users; it is no longer", path)
        elif is_open_to_others(path):
            log.warning(
                "other users can look into the data directory %s; as it holds more than data, it "
                "is left as it is: choose a directory of the server's own, or chmod 700 this one",
                path,
            )

    def _take(self) -> None:
        _take_lock(self._lock, fcntl.LOCK_EX, self.path, "choose another directory with --data-dir")
        with suppress(OSError):  # on a full disk it does not name its process
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)

    def resolve(self, name: str) -> Path:
        """The path of the file `name` in this directory; it may be a link."""
        path = self.path / name
        inside = os.path.normpath(path)
        assert Path(inside).is_relative_to(os.path.normpath(self.path)), f"{name} leads out"
        return path

    def checkpoint(self, topic: Topic, since_seq: int = 0) -> LmdbCheckpoint:
        """The checkpoint of a persistent topic; open all of them before the journal.

        One that is not there is made, for a topic that began after record `since_seq`.
        """
        path = self.resolve(file_name(topic))
        with _reported(path):
            return LmdbCheckpoint(
                path,
                topic=topic.name,
                fingerprint=fingerprint(topic),
                since_seq=since_seq,
                data_directory=self.path,
            )

    def journal(
        self,
        settings: JournalSettings,
        *,
        at_least_seq: int = 0,
        must_exist: bool = False,
        log_id: str = "",
        begins_after: int = 0,
    ) -> LmdbJournal:
        """The journal; `at_least_seq` is the newest record that anything else knows of, `log_id`
        the log's name if it is known, and nothing was before it `begins_after`."""
        path = self.resolve(settings.directory)
        with _reported(path):
            return LmdbJournal(
                path,
                retention_bytes=settings.retention_bytes,
                retention_age_us=settings.retention_age_us,
                at_least_seq=at_least_seq,
                must_exist=must_exist,
                data_directory=self.path,
                log_id=log_id,
                begins_after=begins_after,
            )

    def close(self) -> None:
        """Release the lock for another process. Close the journal and checkpoints first."""
        if self._lock >= 0:
            os.close(self._lock)
        self._lock = -1


@contextmanager
def kept_from_servers(path: Path) -> Iterator[None]:
    """Let no server take the data directory at `path` meanwhile, and write nothing there; raises
    StoreError if one holds it. One that was restored and never opened has no lock."""
    try:
        descriptor = os.open(path / LOCK_FILE, os.O_RDONLY)
    except FileNotFoundError:
        yield
        return
    _take_lock(descriptor, fcntl.LOCK_SH, path, "take a backup (sow backup) and name that")
    try:
        yield
    finally:
        os.close(descriptor)


def _take_lock(descriptor: int, kind: int, path: Path, instead: str) -> None:
    """Lock a file, or close it and raise StoreError."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(descriptor)
        raise StoreError(
            f"the data directory {path} is in use by process {holder}; stop it, or {instead}"
        ) from error


@contextmanager
def _reported(path: Path) -> Iterator[None]:
    """Turn an OSError into a StoreError that names the file."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"{path} cannot be used: {error.strerror}") from error
