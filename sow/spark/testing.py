"""A server for the tests of a pipeline: `serve(config)` runs one as long as it is needed.

The server is a process of its own, as in production, on a free port and with a data directory that
goes with it. It starts no pipelines: a test runs those that it is about. Needs neither Spark nor
Java.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from sow.errors import SowError

STOP_S_MAX = 20
"""A server that has not ended by then, with the little data of a test, is killed."""


@dataclass(frozen=True, slots=True)
class TestServer:
    """A running server at `url`, with its data in `directory`."""

    __test__ = False  # to pytest

    url: str
    directory: Path


@contextmanager
def serve(config: str | Path) -> Iterator[TestServer]:
    """Run a server of a configuration, which is XML text or the path of a file.

    Its data and, of a text, its files are in a temporary directory, which is removed at the end.
    Raises SowError with what the server writes if it does not start.
    """
    with TemporaryDirectory(prefix="sow-test-") as folder:
        file = Path(config) if not _is_xml(config) else Path(folder, "config.xml")
        if _is_xml(config):
            file.write_text(str(config), encoding="utf-8")
        directory, log = Path(folder, "data"), Path(folder, "log")
        command = [sys.executable, "-m", "sow", "serve", str(file.absolute()), "--json"]
        command += ["--no-pipelines", "--port", "0", "--data-dir", str(directory)]
        with log.open("wb") as written:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=written)
        try:
            assert process.stdout is not None
            ready = process.stdout.readline()
            if not ready:
                process.wait()
                raise SowError(f"the server of {file} does not start: {_text(log)}")
            yield TestServer(json.loads(ready)["url"], directory)
        finally:
            _end(process)


def _is_xml(config: str | Path) -> bool:
    return isinstance(config, str) and config.lstrip().startswith("<")


def _text(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace").strip()


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(STOP_S_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
