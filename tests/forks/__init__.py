"""Python processes of tests, begun as forks of one that has read SOW's modules already.

To read them takes a server two thirds of a second of processor time, ten times what it does until
it listens, and a run of all tests starts well over a hundred processes. One process, the origin
(`origin.py`), reads them once, for all cores. Who wants a process hands it what is to be standard
input, output and error, and is told the number of a fork, and how it ended. A fork has files, a
folder, an environment and signals of its own and can be killed; the others do not notice. `started`
and `run` are used as `Popen` and `run` of `subprocess` are, and `programs` is a folder with a `sow`
for shells.

What a start of Python itself does is not seen in a fork: what is imported, what an installation
lacks, how long it takes. Tests of that begin real processes; so does everybody who counts lines
(`make coverage`), which is begun with a process.
"""

import atexit
import functools
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.forks import asking
from tests.forks.asking import Requested

ROOT = Path(__file__).parents[2]
ORIGIN = "SOW_TESTS_ORIGIN"
"""The variable that says, for all processes of a run, which tree the origin has read, and where it
listens."""
PIPE = subprocess.PIPE
END_S_MAX = 30


def started(command, *, on_terminal=False, **how):
    """A process of `[sys.executable, ...]`, used as one of `subprocess.Popen`.

    `on_terminal` gives it a session, whose terminal is its standard input.
    """
    begin = Fork if _is_forked() else real
    return begin(command, on_terminal=on_terminal, **how)


def real(command, *, on_terminal=False, **how):
    """The same of any program, and no fork."""
    if on_terminal:
        how |= {"start_new_session": True, "preexec_fn": asking.take_terminal}
    return subprocess.Popen(command, **how)


def run(
    command,
    *,
    input=None,  # noqa: A002 (as subprocess has it)
    capture_output=False,
    timeout=None,
    check=False,
    **how,
):
    """What came of a process, as `subprocess.run` says it."""
    if capture_output:
        how |= {"stdout": PIPE, "stderr": PIPE}
    if input is not None:
        how["stdin"] = PIPE
    with started(command, **how) as process:
        try:
            said = process.communicate(input, timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(command, process.returncode, *said)
    if check:
        done.check_returncode()
    return done


def programs():
    """A folder with a program `sow`, for the path of a shell."""
    return Path(prepared()).parent if _is_forked() else Path(sys.executable).parent


def prepare():
    """Begin the origin, for this process and those that it will begin."""
    if _is_forked():
        prepared()


def _is_forked():
    coverage = sys.modules.get("coverage")
    is_counted = coverage is not None and coverage.Coverage.current() is not None
    return sys.platform == "linux" and not is_counted


@functools.cache
def prepared():
    """The address of the origin, which is begun now if this run has none yet."""
    place, _, address = os.environ.get(ORIGIN, "").rpartition(" ")
    if place == str(ROOT):
        return address
    folder = TemporaryDirectory(prefix="sow-")
    address = f"{folder.name}/origin"
    os.environ[ORIGIN] = f"{ROOT} {address}"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen()
        command = [sys.executable, "-m", "tests.forks.origin", str(listening.fileno())]
        origin = subprocess.Popen(
            command, cwd=ROOT, stdin=PIPE, pass_fds=[listening.fileno()], start_new_session=True
        )
    program = Path(folder.name, "sow")
    sow = Path(sys.executable).with_name("sow")
    words = shlex.join([sys.executable, "-IS", asking.__file__, address, str(sow)])
    program.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    program.chmod(0o755)
    atexit.register(_end, origin, folder)
    return address


def _end(origin, folder):
    """End the origin and wait for it, so that its time is part of what the run has taken."""
    del os.environ[ORIGIN]
    origin.stdin.close()
    origin.wait(END_S_MAX)
    folder.cleanup()


class Fork:
    """A process that the origin has forked, with what tests use of `subprocess.Popen`."""

    def __init__(
        self,
        command,
        *,
        stdin=None,
        stdout=None,
        stderr=None,
        cwd=None,
        env=None,
        text=False,
        bufsize=-1,
        start_new_session=False,
        on_terminal=False,
    ):
        self.args, self.returncode = command, None
        # As a pipe of `Popen` is: by line only if it is of text.
        self._opened = {"encoding": "utf-8"} if text else {}
        self._opened["buffering"] = bufsize if text or bufsize != 1 else -1
        with ExitStack() as given:
            ends = [self._end(given, *end) for end in enumerate((stdin, stdout, stderr))]
            descriptors, (self.stdin, self.stdout, self.stderr) = zip(*ends, strict=True)
            self._requested = Requested(
                prepared(),
                descriptors,
                command=[os.fspath(word) for word in command],
                folder=os.fspath(cwd or Path.cwd()),
                environment=dict(os.environ if env is None else env),
                in_session=start_new_session or on_terminal,
                on_terminal=on_terminal,
            )
        self.pid = self._requested.pid

    def _end(self, given, number, what):
        """What the process has for this descriptor, and the other end, if it is a pipe's."""
        if what is None:
            return number, None
        if what != PIPE:
            return (what if isinstance(what, int) else what.fileno()), None
        reading, writing = os.pipe()
        theirs, ours, mode = (writing, reading, "r") if number else (reading, writing, "w")
        given.callback(os.close, theirs)
        binary = "" if "encoding" in self._opened else "b"
        return theirs, open(ours, mode + binary, **self._opened)

    def wait(self, timeout=None):
        """How it has ended: its exit code, or the number of its signal below zero."""
        if self.returncode is None:
            if not self._requested.has_ended(timeout):
                raise subprocess.TimeoutExpired(self.args, timeout)
            self.returncode = self._requested.code()
        return self.returncode

    def poll(self):
        """How it has ended; None while it runs."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def send_signal(self, number):
        """Send it a signal, unless it has ended and its number may be another's."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self):
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self):
        """End it."""
        self.send_signal(signal.SIGKILL)

    def communicate(self, input=None, timeout=None):  # noqa: A002 (as subprocess has it)
        """Write to it what it is to read, and wait until it ends; returns what it wrote."""
        said = {}

        def read(name, pipe):
            with pipe:
                said[name] = pipe.read()

        pipes = {"stdout": self.stdout, "stderr": self.stderr}
        readers = [
            threading.Thread(target=read, args=named, daemon=True)
            for named in pipes.items()
            if named[1] is not None and not named[1].closed
        ]
        for reader in readers:
            reader.start()
        if self.stdin is not None and not self.stdin.closed:
            with suppress(BrokenPipeError), self.stdin:
                if input is not None:
                    self.stdin.write(input)
        for reader in readers:
            reader.join(timeout)
        self.wait(timeout)
        return said.get("stdout"), said.get("stderr")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for pipe in (self.stdin, self.stdout, self.stderr):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        self.wait()
