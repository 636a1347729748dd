"""What a server has started ends with it, though it was killed."""

import os
import signal
import subprocess
import sys

import pytest

WAIT_S = 20
CHILD = """
import os, signal, subprocess, sys
from sow.cli.parent_death import end_with_input
{before}
waiting = end_with_input({patience_s})
open({fifo!r}, "w").write(str(os.getpid()))
waiting.join()
signal.pause()
"""
STUBBORN = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
held = open({held!r}, "w")
subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], pass_fds=[held.fileno()])
"""
SERVER = """
import asyncio, importlib.util, sys
from sow.cli.supervision import Beside, supervised
importlib.util.find_spec = lambda _name: object()
async def run():
    async with supervised({{"one": Beside([sys.executable, "-c", {child!r}])}}, print):
        await asyncio.Event().wait()
asyncio.run(run())
"""


@pytest.fixture
def fifo(tmp_path):
    os.mkfifo(tmp_path / "pid")
    return str(tmp_path / "pid")


def python(text, **more):
    return subprocess.Popen([sys.executable, "-c", text], **more)


def test_it_is_requested_to_stop_when_its_input_ends(fifo):
    child = CHILD.format(before="", patience_s=WAIT_S, fifo=fifo)
    process = python(child, stdin=subprocess.PIPE)
    with open(fifo) as began:
        assert int(began.read()) == process.pid
    process.stdin.write(b"nobody says anything")
    process.stdin.close()
    assert process.wait(WAIT_S) == -signal.SIGTERM


def test_with_a_server_that_is_killed_it_goes_and_what_it_has_started_too(fifo, tmp_path):
    """A process that ignores a stop request still ends with the pipe that it has inherited."""
    held = str(tmp_path / "held")
    os.mkfifo(held)
    child = CHILD.format(before=STUBBORN.format(held=held), patience_s=0, fifo=fifo)
    server = python(SERVER.format(child=child))
    with open(held) as ends, open(fifo) as began:
        assert began.read()
        server.kill()
        server.wait(WAIT_S)
        assert ends.read() == ""
