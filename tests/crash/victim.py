"""A server process that is there to be killed.

Each is forked from one that has imported everything and done nothing else: a server is killed
dozens of times, and reading the modules again would take longer than all its life.
"""

import multiprocessing
import os
import sys
import tempfile
from pathlib import Path

from tests.crash import runner

GROWTH_BYTES = 40_000
START_S_MAX = 120

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload([runner.__name__])


class Victim:
    """A server on `data`, from its first line to SIGKILL."""

    def __init__(self, data, port=0, configuration="as it was"):
        self._process, self.url, self._errors = start(data, port, configuration)
        assert self.url, self._errors.read_text()

    def kill(self):
        self._process.kill()
        self._process.join()
        errors = self._errors.read_text()
        assert "Traceback" not in errors, errors


def start(data, port, configuration):
    """A process that serves the topics of the crash tests, what it says and where its errors go."""
    errors = Path(tempfile.mkstemp(dir=Path(data).parent, suffix=".errors")[1])
    says, hears = FORKS.Pipe(duplex=False)
    process = FORKS.Process(
        target=_run,
        args=(hears, str(errors), str(data), GROWTH_BYTES, port, configuration),
        daemon=True,  # it does not outlive a test that fails
    )
    process.start()
    hears.close()
    try:
        url = says.recv() if says.poll(START_S_MAX) else ""
    except EOFError:
        url = ""
    says.close()
    return process, url, errors


def _run(hears, errors, *arguments):
    os.dup2(os.open(errors, os.O_WRONLY), sys.stderr.fileno())
    runner.run(*arguments, say=hears.send)


def refusal(data, configuration):
    """What a server says that does not start."""
    process, url, errors = start(data, 0, configuration)
    process.join(START_S_MAX)
    said = errors.read_text()
    assert (process.exitcode, url) == (1, ""), said
    assert "Traceback" not in said
    return said
