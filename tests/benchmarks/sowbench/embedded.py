"""Libraries that keep the records in the process of whoever uses them, as adapters.

    python -m tests.benchmarks.sowbench.embedded MODULE FOLDER VIEW

is such a process. It makes the load by itself, so nothing is spent on handing it over, and says
over a Unix socket how many batches the library has taken, and what a question took. No network, no
other client: a library is quicker by that, and nobody else can ask it anything. What an update
takes, a question waits for, and the other way round: there is one lock.
"""

import contextlib
import importlib
import os
import signal
import sys
import threading
import time
from collections.abc import Generator, Sequence
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any, Protocol

from tests.benchmarks.processes import Child
from tests.benchmarks.sowbench.adapter import Cannot, Follower, How, Missing, Pace, Setup
from tests.benchmarks.sowbench.load import Load, Record
from tests.benchmarks.sowbench.questions import Answer

NO_FOLLOWERS = "a library: there is nobody else to send anything to"


class Library(Protocol):
    """What is asked of a library; its module has it as `Library`."""

    def put(self, topic: str, batch: Sequence[Record]) -> None:
        """Take a batch, as durably as it is set to."""
        ...

    def ask(self, question: Any) -> Sequence[Any]:
        """Rows: bodies of records, or dictionaries or tuples of a query of Nexmark. Raises
        Cannot."""
        ...

    def state(self) -> dict[int, bytes]:
        """All records."""
        ...


class Embedded:
    """Five of an adapter's methods, for a library in a process of its own."""

    VARIANTS: Sequence[str]
    name = promise = ""

    def __init__(self, variant: str) -> None:
        self.address = ""
        self.pid = 0
        self._process: Child | None = None

    def start(self, folder: Path, setup: Setup) -> None:
        """Start the process on the folder."""
        if setup.followed:
            raise Cannot(NO_FOLLOWERS)
        self._process = Child("-m", __name__, type(self).__module__, str(folder), setup.view)
        word, _, said = self._process.hear().partition(" ")
        if word != "ready":
            self.stop()
            raise (Cannot if word == "cannot" else Missing)(said)
        self.address, self.pid = said, self._process.pid

    def stop(self, kill: bool = False) -> None:
        """End it."""
        process, self._process = self._process, None
        if process is not None:
            if kill:
                os.kill(process.pid, signal.SIGKILL)
            process.end()

    def publish(self, load: Load, pace: Pace) -> Generator[int]:
        """Have the batches taken, one after the other."""
        with Client(self.address) as connection:
            connection.send(("publish", load))
            yield connection.recv()
            connection.send(pace)
            while (taken := connection.recv()) is not None:
                yield taken

    def follow(self, how: How) -> Follower:
        """Nobody can."""
        raise Cannot(NO_FOLLOWERS)

    def query(self, question: Any) -> Answer:
        """What it took in the process of the library."""
        found = self._asked("query", question)
        if isinstance(found, Cannot):
            raise found
        assert isinstance(found, Answer)
        return found

    def state(self) -> dict[int, bytes]:
        """All records."""
        found: dict[int, bytes] = self._asked("state")
        return found

    def _asked(self, *request: Any) -> Any:
        with Client(self.address) as connection:
            connection.send(request)
            return connection.recv()


class Host:
    """The child: a thread for each connection."""

    def __init__(self, library: Library, address: str) -> None:
        self._library = library
        self._lock = threading.Lock()
        self._listener = Listener(address, "AF_UNIX")

    def run(self) -> None:
        """Until the process is ended."""
        while True:
            connection = self._listener.accept()
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: Connection) -> None:
        # Who has asked may be gone before the end, as a publisher is that was told to stop.
        with connection, contextlib.suppress(ConnectionError):
            kind, *rest = connection.recv()
            if kind == "publish":
                self._publish(connection, *rest)
            elif kind == "query":
                connection.send(self._answer(*rest))
            else:
                with self._lock:
                    connection.send(self._library.state())

    def _publish(self, connection: Connection, load: Load) -> None:
        batches = load.batches()
        connection.send(0)
        pace = connection.recv()
        for number, batch in enumerate(batches):
            if left_s := pace.wait_s(number):
                time.sleep(left_s)
            with self._lock:
                self._library.put(load.topic, batch)
            connection.send(number + 1)
        connection.send(None)

    def _answer(self, question: Any) -> Any:
        start = time.perf_counter()
        try:
            with self._lock:
                rows = self._library.ask(question)
        except Cannot as cannot:
            return cannot
        return Answer((time.perf_counter() - start) * 1000, rows)


def main(module: str, folder: str, view: str = "") -> None:
    """The child."""
    try:
        library: Library = importlib.import_module(module).Library(Path(folder), view)
    except (Cannot, ImportError) as error:
        print("cannot" if isinstance(error, Cannot) else "missing", error, flush=True)
        return
    address = f"{folder}/socket.{time.monotonic_ns()}"
    host = Host(library, address)
    print("ready", address, flush=True)
    host.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
