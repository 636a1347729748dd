"""Engines as processes of a test: they end with it, whatever happens to it.

A *guard* gets the number of each process that is started. When its input ends, because the test
has ended or was killed, it kills what is left, with all children, and removes the directory. `kill`
and `pause` are for a process with its children: those of PostgreSQL are sessions of their own.
"""

import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).parents[3]
GUARD = "from tests.shared_log.adapters.processes import guard; guard()"
WAIT_S = 180
"""Nothing takes so long, on a busy machine either."""


def tree(pid):
    """A process and all its children, parents first."""
    said = subprocess.run(["ps", "-axo", "pid=,ppid="], capture_output=True, text=True, check=True)
    parents = [tuple(map(int, line.split())) for line in said.stdout.splitlines()]
    found = [pid]
    for one in found:
        found += [child for child, parent in parents if parent == one]
    return found


def signal_all(pid, number):
    """A signal for a process and its children."""
    for one in tree(pid):
        with suppress(ProcessLookupError):
            os.kill(one, number)


def is_alive(pid):
    """Whether a process has not ended."""
    said = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, check=False)
    return said.stdout.strip()[:1] not in (b"", b"Z")


def guard():
    """Read process numbers, negative for one that has ended; kill those left at the end."""
    pids = set()
    for line in sys.stdin:
        pid = int(line)
        if pid > 0:
            pids.add(pid)
        else:
            pids.discard(-pid)
    for pid in pids:
        signal_all(pid, signal.SIGKILL)
    shutil.rmtree(sys.argv[1], ignore_errors=True)


def until(is_true, what):
    """Wait for something that another process does."""
    end = time.monotonic() + WAIT_S
    while not is_true():
        assert time.monotonic() < end, f"waited {WAIT_S} s in vain: {what}"
        time.sleep(0.02)


class Processes:
    """Processes of one engine in a directory of their own; as another user if root must not be."""

    def __init__(self, name, never_root=False):
        self.directory = Path(
            tempfile.mkdtemp(prefix=f"sow-{name}-", dir=os.environ.get("PYTEST_DEBUG_TEMPROOT"))
        )
        self._who = {}
        if never_root and os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            os.chown(self.directory, nobody.pw_uid, nobody.pw_gid)
            self._who = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        self._guard = subprocess.Popen(
            [sys.executable, "-c", GUARD, str(self.directory)],
            stdin=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            start_new_session=True,
        )
        self._running = {}

    def run(self, *command):
        """Run a command to its end."""
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=self.directory, check=False, **self._who
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self, name, *command):
        """Start a process; what it says is in a file of its name."""
        with (self.directory / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                start_new_session=True,
                **self._who,
            )
        self._running[name] = process
        self._tell(process.pid)

    def said(self, name):
        """What a process has said; all that there is to see why it does not start."""
        return (self.directory / f"{name}.log").read_text(errors="replace")

    def kill(self, name, number=signal.SIGKILL):
        """End a process, as if its machine had lost its power."""
        process = self._running.pop(name)
        pids = tree(process.pid)
        for pid in pids if number == signal.SIGKILL else [process.pid]:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        process.wait(WAIT_S)
        # A child that is dying holds what the next life needs, as PostgreSQL's shared memory.
        until(lambda: not any(map(is_alive, pids)), f"{name} and its children have ended")
        self._tell(-process.pid)

    def pause(self, name):
        """It does nothing from now on, and keeps its connections."""
        signal_all(self._running[name].pid, signal.SIGSTOP)

    def go_on(self, name):
        """It goes on where it was paused."""
        signal_all(self._running[name].pid, signal.SIGCONT)

    def is_running(self, name):
        """Whether it is there; also while it is paused."""
        process = self._running.get(name)
        return process is not None and process.poll() is None

    def close(self):
        """End all of them, and the guard."""
        for name in list(self._running):
            self.kill(name)
        self._guard.stdin.close()
        self._guard.wait(WAIT_S)

    def _tell(self, pid):
        self._guard.stdin.write(f"{pid}\n")
        self._guard.stdin.flush()
