"""`sow serve --edges`: chained servers on one port, that end with the server and not without it."""

import os
import signal
import socket
import time
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from sow.cli import main
from sow.cli.supervision import Edges
from sow.config import loads
from sow.errors import StoreError
from sow.server.boot.routes import without_records
from tests import forks
from tests.cli.commands.test_serve import command_in, publish, started
from tests.edge.serving import configuration

pytestmark = pytest.mark.edge

WAIT_S = 60


def children(process):
    """The processes beside a server."""
    # Its main thread has started them.
    found = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    return sorted(map(int, found.split()))


def awaited(holds):
    """Return once something holds, which another process brings about."""
    end_s = time.monotonic() + WAIT_S
    while not (found := holds()):
        assert time.monotonic() < end_s
        os.sched_yield()
    return found


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # it goes in any moment
        return False


def test_one_that_is_killed_is_started_again_and_all_end_with_the_server(tmp_path):
    command = [*command_in(tmp_path), "--edges", "2"]
    with started(command, forks.real) as (process, line):
        publish(line, {"id": 1})
        before = children(process)
        assert len(before) == 2
        os.kill(before[0], signal.SIGKILL)
        after = awaited(lambda: len(children(process)) == 2 and children(process) != before)
        assert after
        others = children(process)
        process.kill()
        awaited(lambda: not any(map(is_alive, others)))


def test_a_stop_stops_them_too(tmp_path):
    command = [*command_in(tmp_path), "--edges", "1"]
    with started(command, forks.real) as (process, line):
        publish(line, {"id": 1})
        (other,) = children(process)
        process.terminate()
        assert process.wait(WAIT_S) == 0
        assert not is_alive(other)


def test_without_any_a_server_is_what_it_is():
    given = configuration("")
    none = Edges(0, given, [])
    assert none.inside(given) is given
    assert none.url("http://here") == "http://here"
    assert none.beside("http://here") == {}


def test_a_port_that_somebody_has_is_refused():
    first = Edges(1, configuration(""), ["config.xml"])
    try:
        inside = first.inside(configuration("", "<Limits><Connections>7</Connections></Limits>"))
        assert (inside.port, inside.limits.connections_max) == (0, 7)
        assert "--until-input-ends" in first.beside("http://here")["chained server 1"].words
        with socket.create_server(("127.0.0.1", 0)) as taken:
            there = replace(configuration(""), port=taken.getsockname()[1])
            with pytest.raises(StoreError, match="cannot listen"):
                Edges(1, there, [])
    finally:
        first.close()


@pytest.mark.parametrize("part", ["<Filter>/x = 1</Filter>", "<Select>/x</Select>"])
def test_roles_that_nobody_would_apply_to_records_are_refused(tmp_path, part):
    allow = f"<Allow><Topic>orders</Topic><Read/>{part}</Allow>"
    role = f"<Role><Name>desk</Name><Member>*</Member>{allow}</Role>"
    tokens = "<Authentication><Tokens><File>tokens</File></Tokens></Authentication>"
    security = tokens + role
    (tmp_path / "tokens").write_text("")
    text = f"<SOWConfig><Name>test</Name><Security>{security}</Security></SOWConfig>"
    (tmp_path / "config.xml").write_text(text)
    words = ["serve", str(tmp_path / "config.xml"), "--upstream", "http://127.0.0.1:1"]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 1
    assert "the role desk has a Filter, Select or Check for orders" in result.stderr
    # Where the upstream server has the same file, it applies them.
    configuration = loads(text).configuration
    assert without_records(configuration, applies=True).security == configuration.security
