"""A server process that is there to be killed."""

import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
GROWTH_BYTES = 40_000


class Victim:
    """A server on `data`, from its first line to SIGKILL."""

    def __init__(self, data, port=0):
        command = [sys.executable, "-m", "tests.crash.runner", data, GROWTH_BYTES, port]
        self.process = subprocess.Popen(
            [str(part) for part in command],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.url = self.process.stdout.readline().strip()
        assert self.url, self.process.communicate()[1]

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        errors = self.process.communicate()[1]
        assert "Traceback" not in errors, errors
