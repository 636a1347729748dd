"""A server process that is there to be killed."""

import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
GROWTH_BYTES = 40_000


class Victim:
    """A server on `data`, from its first line to SIGKILL."""

    def __init__(self, data, port=0, configuration="as it was"):
        self.process = start(data, port, configuration)
        self.url = self.process.stdout.readline().strip()
        assert self.url, self.process.communicate()[1]

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        errors = self.process.communicate()[1]
        assert "Traceback" not in errors, errors


def start(data, port, configuration):
    """A process that serves the topics of the crash tests."""
    command = [sys.executable, "-m", "tests.crash.runner", data, GROWTH_BYTES, port, configuration]
    return subprocess.Popen(
        [str(part) for part in command],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def refusal(data, configuration):
    """What a server says that does not start."""
    process = start(data, 0, configuration)
    said, errors = process.communicate(timeout=30)
    assert (process.returncode, said) == (1, ""), errors
    assert "Traceback" not in errors
    return errors
