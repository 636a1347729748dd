"""The state of a pipeline between runs: its progress, and a lock for one driver at a time.

The state is a directory: Spark's checkpoint, and the name under which batches are written. It is
`pipelines/NAME` of the data directory, or the `Checkpoint` of the pipeline. A path is protected by
a file lock, which ends with the process, on every machine that has the path mounted. A place with a
scheme has no locks: there the holder writes a lease with its name and end, and renews it while it
runs. The lease of a killed driver expires.

Correctness does not depend on this: the server recognizes each batch, and Spark refuses a
checkpoint that another query continues. It only saves two drivers each other's failures.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from sow.core.pipelines import Pipeline, located
from sow.errors import ClientError
from sow.store.files import make_directory, open_file

LEASE_S = 60.0
"""Duration of a lease: many times as long as renewing it takes, also while a batch keeps the
machine busy."""
RENEWED_S = LEASE_S / 6


class Files(Protocol):
    """Small files of one directory, on any storage."""

    def read(self, name: str) -> str | None:
        """The text of a file, or None if it does not exist."""

    def write(self, name: str, text: str) -> None:
        """Replace a file."""

    def remove(self) -> None:
        """Remove the directory."""


def directory_of(pipeline: Pipeline, data_directory: Path) -> str:
    """The state of a pipeline, at a path or a place with a scheme."""
    default = os.path.join("pipelines", pipeline.name)
    return located(pipeline.checkpoint or default, str(data_directory))


class LocalFiles:
    """Files of a directory that is mounted here."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def read(self, name: str) -> str | None:
        """The text of a file, or None if it does not exist."""
        try:
            return (self._directory / name).read_text()
        except FileNotFoundError:
            return None

    def write(self, name: str, text: str) -> None:
        """Replace a file."""
        unfinished = self._directory / f"{name}.new"
        unfinished.write_text(text)
        unfinished.replace(self._directory / name)

    def remove(self) -> None:
        """Remove the directory."""
        shutil.rmtree(self._directory, ignore_errors=True)


class LocalState:
    """A state at a path, whose lock ends with the process."""

    def __init__(self, name: str, directory: Path) -> None:
        self._name = name
        self._directory = directory
        self._lock: int | None = None
        self.checkpoint = str(directory / "checkpoint")
        self.files: Files = LocalFiles(directory)

    def hold(self) -> None:
        """Acquire the state; raises ClientError that names the holding process."""
        make_directory(self._directory)
        lock = open_file(self._directory / "lock")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(lock, 200, 0).decode("utf-8", "replace").strip() or "unknown"
            os.close(lock)
            raise ClientError(
                f"pipeline {self._name} is running already, as process {holder}"
            ) from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()} of {os.uname().nodename}\n".encode(), 0)
        self._lock = lock

    def make_for(self, purpose: str) -> None:
        """Bind the state to `purpose`: a state that was made for another one is useless and is
        reset. The caller holds the state."""
        if self.files.read("purpose") == purpose:
            return
        if os.path.exists(self.checkpoint):
            shutil.rmtree(self.checkpoint)
        # Batch numbers start again after a reset, so they need another writer's name.
        (self._directory / "writer").unlink(missing_ok=True)
        self.files.write("purpose", purpose)

    def keep(self) -> None:
        """Nothing to renew: the lock ends with the process."""

    def release(self) -> None:
        """Release the state for other runs."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


class LeasedState:
    """A state at a place without locks. `now_s` is the time of day, which drivers share as well as
    their clocks agree; `holder` is a unique name of this driver."""

    def __init__(
        self, name: str, directory: str, files: Files, now_s: Callable[[], float], holder: str
    ) -> None:
        self._name = name
        self._directory = directory
        self._now_s = now_s
        self._holder = holder
        self._renewed_s: float | None = None
        self.checkpoint = f"{directory.rstrip('/')}/checkpoint"
        self.files = files

    def hold(self) -> None:
        """Acquire the state; raises ClientError that names the holder."""
        now_s = self._now_s()
        held = self._held()
        if held is not None and held["holder"] != self._holder and held["until_s"] > now_s:
            raise ClientError(
                f"pipeline {self._name} is running already: {self._directory} is held by "
                f"{held['holder']}. If that was killed, the lease expires in "
                f"{held['until_s'] - now_s:.0f} s"
            )
        self._renew(now_s)
        self._check()  # of two concurrent writers the last one wins

    def keep(self) -> None:
        """Renew the lease; raises ClientError if another run has taken the state."""
        now_s = self._now_s()
        if self._renewed_s is not None and now_s - self._renewed_s >= RENEWED_S:
            self._check()
            self._renew(now_s)

    def release(self) -> None:
        """Release the state for other runs."""
        if self._renewed_s is None:
            return
        held = self._held()
        if held is not None and held["holder"] == self._holder:
            self.files.write("holder", json.dumps({"holder": self._holder, "until_s": 0}))
        self._renewed_s = None

    def _check(self) -> None:
        held = self._held()
        if held is None or held["holder"] != self._holder:
            other = "nobody" if held is None else held["holder"]
            self._renewed_s = None
            raise ClientError(
                f"pipeline {self._name} has lost {self._directory}: it is held by {other} now"
            )

    def _renew(self, now_s: float) -> None:
        lease = {"holder": self._holder, "until_s": now_s + LEASE_S}
        self.files.write("holder", json.dumps(lease))
        self._renewed_s = now_s

    def _held(self) -> dict[str, Any] | None:
        text = self.files.read("holder")
        try:
            found = json.loads(text or "")
            return {"holder": str(found["holder"]), "until_s": float(found["until_s"])}
        except (ValueError, KeyError, TypeError):
            return None  # missing or incomplete


RunState = LocalState | LeasedState
"""The state of one pipeline, held by one run from `hold` to `release`."""


class HadoopFiles:
    """Files of a directory that Spark's Java can access, with its settings and keys."""

    def __init__(self, spark: Any, directory: str) -> None:
        self._jvm = spark._jvm
        self._directory = directory
        conf = spark._jsc.hadoopConfiguration()
        self._files = self._path("holder").getFileSystem(conf)

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self._directory.rstrip('/')}/{name}")

    def read(self, name: str) -> str | None:
        """The text of a file, or None if it does not exist."""
        if not self._files.exists(self._path(name)):
            return None
        stream = self._files.open(self._path(name))
        try:
            text: str = self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
        finally:
            stream.close()
        return text

    def write(self, name: str, text: str) -> None:
        """Replace a file."""
        stream = self._files.create(self._path(name), True)
        stream.write(bytearray(text.encode()))
        stream.close()

    def remove(self) -> None:
        """Remove the directory."""
        self._files.delete(self._jvm.org.apache.hadoop.fs.Path(self._directory), True)
