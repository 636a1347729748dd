"""What `sow serve` reports to systemd, by itself and of a process."""

import asyncio
import os
import signal
import socket
import sys
import tempfile

import pytest

from sow.cli.supervision import STARTING_EVERY_S, Systemd, notify_of, sender
from tests import forks
from tests.server.stand_ins import stepped

pytestmark = pytest.mark.edge

CONFIG = "<SOWConfig><Name>test</Name></SOWConfig>"
WAIT_S_MAX = 240
"""A safety net."""


@pytest.fixture
def place():
    # A path of a socket may have 107 characters, fewer than a directory of pytest's.
    with tempfile.TemporaryDirectory() as directory:
        yield os.path.join(directory, "notify")


@pytest.fixture
def watching(place):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.bind(place)
        end.settimeout(WAIT_S_MAX)
        yield end


def heard(end):
    return end.recv(65536).decode().splitlines()


def test_a_server_says_that_it_starts_serves_lives_and_stops(tmp_path, watching, place):
    environment = {**os.environ, "NOTIFY_SOCKET": place, "WATCHDOG_USEC": "200000"}
    environment.pop("WATCHDOG_PID", None)
    (tmp_path / "x.xml").write_text(CONFIG)
    command = [sys.executable, "-m", "sow.cli", "serve", str(tmp_path / "x.xml")]
    command += ["--port", "0", "--data-dir", str(tmp_path / "d")]
    process = forks.started(command, env=environment, stdout=forks.PIPE, stderr=forks.PIPE)
    try:
        starting = heard(watching)
        assert starting[0].startswith("STATUS=replaying")
        assert starting[1].startswith("EXTEND_TIMEOUT_USEC=")
        while (ready := heard(watching))[0].startswith("STATUS=replaying"):
            pass  # it says so again while it takes long
        assert ready[0] == "READY=1"
        assert ready[1].startswith("STATUS=serving at http://127.0.0.1:")
        assert [heard(watching) for _ in range(3)] == 3 * [["WATCHDOG=1"]]
        process.send_signal(signal.SIGTERM)
        while (last := heard(watching)) == ["WATCHDOG=1"]:
            pass
        assert last == ["STOPPING=1", "STATUS=stopping"]
        process.communicate(timeout=WAIT_S_MAX)
        assert process.returncode == 0
    finally:
        process.kill()
        process.communicate()


@stepped
async def test_it_is_alive_twice_in_each_time_that_is_allowed():
    said = []
    notify = Systemd(said.append, 10_000_000)
    notify.ready("serving")
    await asyncio.sleep(20.5)
    notify.stopping()
    await asyncio.sleep(60)
    assert said == [
        b"READY=1\nSTATUS=serving",
        *(5 * [b"WATCHDOG=1"]),
        b"STOPPING=1\nSTATUS=stopping",
    ]


@stepped
async def test_a_long_start_asks_for_more_time_again_and_again():
    said, done = [], iter(range(100))
    notify = Systemd(said.append)
    notify.starting(lambda: f"replaying: x\n, {next(done)} of 100")
    await asyncio.sleep(2.5 * STARTING_EVERY_S)
    notify.ready("serving")
    await asyncio.sleep(60)
    assert [line.split(b"\n")[0] for line in said] == [
        b"STATUS=replaying: x , 0 of 100",
        b"STATUS=replaying: x , 1 of 100",
        b"STATUS=replaying: x , 2 of 100",
        b"READY=1",
    ]


@stepped
async def test_where_nobody_watches_nothing_is_done(monkeypatch):
    monkeypatch.setattr(asyncio.get_running_loop(), "call_later", None)
    notify = notify_of({"WATCHDOG_USEC": "1000"})
    notify.starting(lambda: "x")
    notify.ready("x")
    notify.stopping()


@pytest.mark.parametrize(
    ("more", "alive"),
    [
        ({"WATCHDOG_PID": "7"}, True),
        ({"WATCHDOG_PID": "8"}, False),
        ({"WATCHDOG_USEC": "soon"}, False),
        ({"WATCHDOG_USEC": ""}, False),
    ],
)
def test_the_watchdog_of_another_process_and_nonsense_are_none(watching, place, more, alive):
    async def run():
        notify_of({"NOTIFY_SOCKET": place, "WATCHDOG_USEC": "60000000", **more}, 7).ready("x")

    asyncio.run(run())
    assert heard(watching)[0] == "READY=1"
    watching.setblocking(False)
    if alive:
        assert heard(watching) == ["WATCHDOG=1"]
    else:
        with pytest.raises(BlockingIOError):
            watching.recv(1)


def test_a_watcher_that_has_gone_or_reads_nothing_costs_nothing(watching, place):
    for _ in range(10_000):
        sender(place)(b"WATCHDOG=1")
    sender(place + "-gone")(b"READY=1")
    sender("@sow-nobody-listens-there")(b"READY=1")
