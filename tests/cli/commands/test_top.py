"""`sow top`: what a server is doing, as a page, as lines and for programs."""

import asyncio
import io
import json
import os
import pty
import sys
import termios
from dataclasses import replace

import pytest
from rich.console import Console

from sow.cli.commands.top import KEYS, TopScreen, keys, pause_s
from sow.cli.measuring import Look, Memory, activity
from tests import forks
from tests.cli.conftest import TOPICS
from tests.cli.terminal import Terminal
from tests.cli.test_rates import copy, node, session, topic
from tests.edge.serving import Running, configuration
from tests.ports import free_port

SLOW = {
    "id": "7", "client": "grid", "user": "anna", "address": "192.0.2.7",
    "connected_ms": 90_000, "subscriptions": 2, "queue_bytes": 2048,
    "conflated": True, "conflated_messages": 1234, "dropped_messages": 0,
}  # fmt: skip
NOW = [topic("orders", 300), copy("orders-C", 300, 20), *(topic(f"t{n:02}", 0) for n in range(30))]


def page(columns=100, lines=24, sessions=(), sort="in", steps_s=None, topics=NOW):
    console = Console(file=io.StringIO(), width=columns, height=lines, force_terminal=True,
                      color_system=None)  # fmt: skip
    screen = TopScreen("http://127.0.0.1:8080", sort, console=console)
    console.print(screen.page(activity(Look(0, [], (), None), Look(1, topics, sessions, steps_s))))
    return console.file.getvalue().splitlines()


def test_a_page_is_not_longer_than_the_terminal_and_says_what_is_left_out():
    shown = page(lines=24)
    assert len(shown) <= 24
    assert "300/s" in shown[1]
    assert shown[-1].startswith(f"{32 - (24 - 5)} more; by in; sort: ")
    assert len(page(lines=3)) <= 7, "and in a tiny one a topic is left"


def test_a_slow_session_is_named_below_the_topics():
    slow = session(2500, 9000, **SLOW)
    shown = page(sessions=[slow], lines=24)
    assert len(shown) <= 24
    assert next(line for line in shown if line.startswith("grid")).split()[1:4] == [
        "2.5", "s", "9,000",
    ]  # fmt: skip


def test_memory_is_shown_with_who_holds_most_and_marked_when_it_is_nearly_full():
    memory = Memory(95.0, 100.0, 3.0, 100.0)
    holding = [session(0, 0, id="1", client=None), session(0, 0, **SLOW, client_bytes=20)]
    found = activity(Look(0, [], (), None), Look(1, [], holding, {}, memory))
    screen = TopScreen("http://127.0.0.1:8080", "in")
    heading = screen._heading(found)
    assert "memory: queues 95% (grid 20%) groups 3%" in heading.plain
    assert any("bold red" in str(span.style) for span in heading.spans)
    assert found.document()["memory"] == {
        "queues": 95, "queues_max": 100, "groups": 3, "groups_max": 100,
        "largest": {"id": "7", "client": "grid", "client_bytes": 20},
    }  # fmt: skip
    assert "memory" not in page()[1], "an older server does not tell"


def test_the_longest_step_is_named_where_it_is_known():
    assert "longest step 250 ms (a query)" in page(columns=120, steps_s={"a query": 0.25})[1]
    assert "longest" not in page()[1]


def shown_of(status, lines=24):
    console = Console(file=io.StringIO(), width=100, height=lines, force_terminal=True,
                      color_system=None)  # fmt: skip
    screen = TopScreen("http://127.0.0.1:8080", "in", console=console)
    look = Look(1, NOW, (), None, status=status)
    console.print(screen.page(activity(look, look)))
    return console.file.getvalue().splitlines()


def test_the_server_is_named_with_its_environment_and_the_other_nodes():
    nodes = [node("http://p", "primary"), node("http://e", "chained", "http://p")]
    shown = shown_of({"name": "desk", "environment": "production", "colour": "red", "nodes": nodes})
    assert shown[0].split() == ["sow", "top", "http://127.0.0.1:8080", "desk", "production"]
    assert len(shown) <= 24
    at = next(at for at, line in enumerate(shown) if line.startswith("node"))
    assert shown[at + 1].startswith("http://p")
    assert shown[at + 2].startswith("  http://e")
    alone = shown_of({"name": "desk", "environment": None, "colour": None, "nodes": nodes[:1]})
    assert not any(line.startswith("node") for line in alone)


@pytest.mark.parametrize("columns", [20, 33, 40, 60, 200])
def test_a_page_is_no_wider_than_the_terminal(columns):
    shown = page(columns=columns, sessions=[session(2500, 9, **SLOW)])
    assert max(map(len, shown)) <= columns
    assert any("300" in line for line in shown[3:]), "the rate is there in the narrowest"


def test_a_key_sorts_and_q_ends():
    screen = TopScreen("http://x", "in", console=Console(file=io.StringIO(), width=80))
    now = activity(Look(0, [], (), None), Look(1, [topic("b", 9), topic("a", 1)], (), None))
    screen.show(now)
    for key in KEYS:
        screen.press(key)
    screen.press("?")
    assert not screen.ended.is_set()
    screen.press("q")
    assert screen.ended.is_set()


def test_piped_it_is_a_line_a_tick(sow, server, orders):
    orders({"id": 1})
    head, *lines = sow.ok("top", "--count", "2", "--interval", "0.1", "--sort", "name").splitlines()
    assert head.split()[:5] == ["time", "in/s", "lag", "queue", "sessions"]
    assert len(lines) == 2
    assert "blobs 0/s in 0/s out 1.0x" in lines[0]


def test_for_programs_it_is_an_object_a_tick(sow, server, orders):
    orders({"id": 1})
    out = sow.ok("top", "--count", "2", "--interval", "0.1", "--json")
    first, second = map(json.loads, out.splitlines())
    assert first.keys() == second.keys() == {
        "in_per_s", "sessions", "longest_step", "memory", "topics", "status",
    }  # fmt: skip
    assert first["memory"]["queues_max"] == 1024**3
    assert {one["name"] for one in first["topics"]} >= {"orders", "orders-C", "desks"}
    assert first["longest_step"]["ms"] > 0


def test_what_a_person_sees_and_types(server, orders):
    orders({"id": 1})
    words = ("top", "--interval", "0.1", "--url", server.url)
    with Terminal(*words, columns=60, lines=20) as terminal:
        assert "sow top  http://" in terminal.wait_for("by in; sort")
        terminal.type("n")
        terminal.wait_for("by name; sort")
        terminal.type("q")
        code, text = terminal.end()
    assert code == 0
    assert "orders-C" in text, "what was seen last stays there"


def test_without_colour_there_is_none(server):
    words = ("top", "--interval", "0.1", "--count", "1", "--url", server.url)
    with Terminal(*words, NO_COLOR="1") as terminal:
        code, text = terminal.end()
    assert (code, "orders-C" in text, terminal.has_colour) == (0, True, False)


def test_a_server_that_is_not_there_is_a_sentence_and_no_page():
    with Terminal("top", "--url", "http://127.0.0.1:1") as terminal:
        code, text = terminal.end()
    assert code == 1
    assert "sow: no server answers at http://127.0.0.1:1" in text


def test_the_longer_an_answer_takes_the_longer_is_waited():
    assert pause_s(0.01, 1.0) == pytest.approx(0.99)
    assert pause_s(2.0, 1.0) == pytest.approx(18.0), "a tenth of the time"


def test_a_server_that_goes_away_is_waited_for_while_somebody_looks(tmp_path):
    running = Running(configuration(TOPICS), tmp_path)
    words = ("top", "--interval", "0.1", "--url", running.url)
    try:
        with Terminal(*words, columns=60) as terminal:
            terminal.wait_for("by in; sort")
            running.close()
            shown = terminal.wait_for("away; waiting for it: ")
            assert "orders-C" in shown, "what was seen last stays"
            terminal.type("n")
            terminal.wait_for("by name; sort")
            terminal.type("\x03")
            code, _ = terminal.end()
    finally:
        if running.loop.is_running():
            running.close()
    assert code == 130


def test_a_terminal_of_another_size_is_filled_anew(server):
    with Terminal("top", "--interval", "0.1", "--url", server.url, columns=100) as terminal:
        terminal.wait_for("q ends")
        terminal.resize(40, 12)
        shown = terminal.wait_for(r"(?m)^\d+ more; by in; ")
        assert max(map(len, shown.splitlines())) <= 40
        terminal.type("q")
        assert terminal.end()[0] == 0


def test_a_server_that_comes_back_is_shown_again(tmp_path):
    config = replace(configuration(TOPICS), port=free_port())
    first = Running(config, tmp_path)
    url = first.url
    again = None
    try:
        with Terminal("top", "--interval", "0.1", "--url", url) as terminal:
            terminal.wait_for("by in; sort")
            first.close()
            terminal.wait_for("away; waiting for it: ")
            again = Running(config, tmp_path)
            terminal.wait_for(r"(?m)^in \d+/s  sessions")
            terminal.type("q")
            assert terminal.end()[0] == 0
    finally:
        (again or first).close()


def test_piped_a_server_that_goes_away_is_a_failure(tmp_path):
    running = Running(configuration(TOPICS), tmp_path)
    words = [sys.executable, "-m", "sow", "top", "--interval", "0.1", "--json", "--url"]
    with forks.started([*words, running.url], stdout=forks.PIPE, stderr=forks.PIPE) as process:
        assert json.loads(process.stdout.readline())["in_per_s"] >= 0
        running.close()
        said = json.loads(process.communicate()[1])
    assert (process.returncode, said["error"] in ("unreachable", "disconnected")) == (1, True)


def test_a_hundred_thousand_topics_of_a_pattern_are_one_line_of_the_answer(server):
    for number in range(30):
        server.publish(f"/desk/{number}", {"id": 1})
    listed = json.loads(server.get("/v1/topics?members=false").body)
    (pattern,) = [one for one in listed if one["kind"] == "pattern"]
    assert (pattern["topics"] >= 30, pattern["updates"] >= 30) == (True, True)
    assert not any("of_pattern" in one for one in listed)


def test_a_key_is_heard_at_once_and_the_terminal_is_given_back(monkeypatch):
    master, slave = pty.openpty()
    heard = []

    async def press():
        came = asyncio.Event()

        def note(key):
            heard.append(key)
            came.set()

        with keys(note):
            os.write(master, b"r")
            await came.wait()

    before = termios.tcgetattr(slave)
    with os.fdopen(slave) as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        asyncio.run(press())
        assert termios.tcgetattr(slave) == before
    os.close(master)
    assert heard == ["r"]


def test_where_there_is_no_terminal_nothing_is_read(monkeypatch):
    reading, writing = os.pipe()

    async def press():
        with keys(lambda _key: None):
            pass

    with os.fdopen(reading) as pipe:
        monkeypatch.setattr(sys, "stdin", pipe)
        os.write(writing, b"left alone\n")
        asyncio.run(press())
        os.close(writing)
        assert pipe.read() == "left alone\n"
