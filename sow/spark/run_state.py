"""What a pipeline remembers from run to run: where it is, and that one driver at a time has it.

The state is a directory: Spark's checkpoint, and the name under which batches are written. It is
`pipelines/NAME` of the data directory, or what `Checkpoint` says. A path is held by a lock of the
file system, which ends with the process, on every machine that has the path mounted. A place with a
scheme knows no locks: there the holder writes down who it is and how long that is good for, and
renews it while it runs. A driver that was killed is gone when its time is over.

That a batch is not written twice does not hang on this: the server knows each one, and Spark
refuses a checkpoint that another query goes on with. It spares two drivers each other's failures.
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
from sow.store.secure_files import make_directory, open_file

LEASE_S = 60.0
"""How long a holder that says nothing is believed to be alive: many times as long as it takes to
say something, also while a batch keeps the machine busy."""
RENEWED_S = LEASE_S / 6


class Files(Protocol):
    """Small files of one directory, wherever that is."""

    def read(self, name: str) -> str | None:
        """The text of a file, or None if it is not there."""

    def write(self, name: str, text: str) -> None:
        """Replace a file."""


class RunState(Protocol):
    """The state of one pipeline, held by one run from `hold` to `release`."""

    @property
    def checkpoint(self) -> str:
        """Where Spark keeps its own part."""

    @property
    def files(self) -> Files:
        """The rest."""

    def hold(self) -> None:
        """Take it; raises ClientError naming who has it."""

    def keep(self) -> None:
        """Say that this run goes on, now and then; raises ClientError if another has taken it."""

    def release(self) -> None:
        """Let another run have it."""


def directory_of(pipeline: Pipeline, data_directory: Path) -> str:
    """Where a pipeline's state is."""
    default = os.path.join("pipelines", pipeline.name)
    return located(pipeline.checkpoint or default, str(data_directory))


class LocalFiles:
    """Files of a directory that is mounted here."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def read(self, name: str) -> str | None:
        """The text of a file, or None if it is not there."""
        try:
            return (self._directory / name).read_text()
        except FileNotFoundError:
            return None

    def write(self, name: str, text: str) -> None:
        """Replace a file."""
        unfinished = self._directory / f"{name}.new"
        unfinished.write_text(text)
        unfinished.replace(self._directory / name)


class LocalState:
    """A state at a path."""

    def __init__(self, name: str, directory: Path) -> None:
        self._name = name
        self._directory = directory
        self._lock: int | None = None
        self.checkpoint = str(directory / "checkpoint")
        self.files: Files = LocalFiles(directory)

    def hold(self) -> None:
        """Take it; raises ClientError naming the process that has it."""
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
        """Be a state for this, what it is told by a text: one that was made for anything else is
        of no use, and is begun anew. To be called by who holds it."""
        if self.files.read("purpose") == purpose:
            return
        if os.path.exists(self.checkpoint):
            shutil.rmtree(self.checkpoint)
        # Batches of another state are counted anew, so they need another writer's name.
        (self._directory / "writer").unlink(missing_ok=True)
        self.files.write("purpose", purpose)

    def keep(self) -> None:
        """Nothing has to be said: the lock ends with the process."""

    def release(self) -> None:
        """Let another run have it."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


class LeasedState:
    """A state at a place that knows no locks. `now_s` is the time of day, which drivers share as
    well as their clocks agree; `holder` names this one and no other."""

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
        """Take it; raises ClientError naming who has it."""
        now_s = self._now_s()
        held = self._held()
        if held is not None and held["holder"] != self._holder and held["until_s"] > now_s:
            raise ClientError(
                f"pipeline {self._name} is running already: {self._directory} is held by "
                f"{held['holder']}. If that was killed, it is free in "
                f"{held['until_s'] - now_s:.0f} s"
            )
        self._say(now_s)
        self._check()  # of two that came at once one has written last

    def keep(self) -> None:
        """Say that this run goes on; raises ClientError if another has taken it."""
        now_s = self._now_s()
        if self._renewed_s is not None and now_s - self._renewed_s >= RENEWED_S:
            self._check()
            self._say(now_s)

    def release(self) -> None:
        """Let another run have it."""
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

    def _say(self, now_s: float) -> None:
        said = {"holder": self._holder, "until_s": now_s + LEASE_S}
        self.files.write("holder", json.dumps(said))
        self._renewed_s = now_s

    def _held(self) -> dict[str, Any] | None:
        text = self.files.read("holder")
        try:
            found = json.loads(text or "")
            return {"holder": str(found["holder"]), "until_s": float(found["until_s"])}
        except (ValueError, KeyError, TypeError):
            return None  # nothing there, or half of it


class HadoopFiles:
    """Files of a directory that Spark's Java has access to, with its settings and keys."""

    def __init__(self, spark: Any, directory: str) -> None:
        self._jvm = spark._jvm
        self._directory = directory
        conf = spark._jsc.hadoopConfiguration()
        self._files = self._path("holder").getFileSystem(conf)

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self._directory.rstrip('/')}/{name}")

    def read(self, name: str) -> str | None:
        """The text of a file, or None if it is not there."""
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
