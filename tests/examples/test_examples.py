"""Each program in examples/ runs as its page says, and shows or stores what it says.

That of Spark is in tests/spark, where there is a session; the page in tests/browser.
"""

import json
import re
import runpy
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from sow.config import require
from tests import forks
from tests.cli.terminal import Terminal
from tests.edge.serving import Running

pytestmark = pytest.mark.edge

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
WAIT_S = 60
BUSES = 12
ROWS_OF_FILE = 12


@pytest.fixture
def server(tmp_path):
    """A server with the configuration of the examples."""
    configuration = replace(require(str(EXAMPLES / "config.xml")), port=0)
    running = Running(configuration, tmp_path / "data")
    yield running
    running.close()
    assert running.errors == []


def command(name, server, *words):
    return [sys.executable, str(EXAMPLES / name), "--url", server.url, *words]


def run(name, server, *words):
    """What a program printed; it ended well."""
    done = forks.run(command(name, server, *words), capture_output=True, text=True, timeout=WAIT_S)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_blotter_shows_what_is_open_and_who_has_left(server):
    orders = [json.loads(line) for line in (EXAMPLES / "orders.ndjson").read_text().splitlines()]
    server.publish("orders", orders[0])
    with Terminal(program=command("desk_blotter.py", server)) as blotter:
        blotter.wait_for("open orders: 1")
        server.publish("orders", *orders[1:4])
        for shown in ("o-1 is not open any more", "open orders: 2", r"10\.2 "):
            blotter.wait_for(shown)
        server.publish("orders", *orders[4:])
        blotter.wait_for(r"10\.22[\s\S]*CEDE")
        blotter.process.send_signal(signal.SIGINT)
        assert blotter.end()[0] == 0


def test_the_map_draws_all_buses_and_is_sent_less_than_they_report(server):
    shown = run("vehicle_map.py", server, "--frames", "2")
    last = shown.rpartition("\x1b[2J")[2]
    assert len(set(re.findall(r"[a-l]", last.partition("+\n12 ")[0]))) > BUSES // 2
    assert f"{BUSES} vehicles" in last
    assert {one["vehicle"] for one in server.records("vehicles")} == {
        f"bus-{number}" for number in range(BUSES)
    }


def test_the_map_shows_vehicles_of_others(server):
    at = {"latitude": 1.5, "longitude": 2}
    server.publish("vehicles", {"vehicle": "x", **at})
    shown = run("vehicle_map.py", server, "--frames", "1", "--watch-only")
    assert "1 vehicles, 1 positions received" in shown
    assert server.records("vehicles") == [{"vehicle": "x", **at}]


def test_the_feed_goes_on_where_it_stopped(server, tmp_path):
    whole = (EXAMPLES / "quotes.csv").read_text().splitlines(keepends=True)
    beginning = tmp_path / "quotes.csv"
    beginning.write_text("".join(whole[:6]))
    words = ("--rate", "1000")
    said = run("csv_feed.py", server, str(beginning), *words)
    assert said == "0 rows were there, 5 were published\n"
    said = run("csv_feed.py", server, str(EXAMPLES / "quotes.csv"), *words)
    assert said == f"5 rows were there, {ROWS_OF_FILE - 5} were published\n"
    again = run("csv_feed.py", server, str(EXAMPLES / "quotes.csv"), *words)
    assert again == f"{ROWS_OF_FILE} rows were there, 0 were published\n"
    found = {one["symbol"]: one for one in server.records("quotes")}
    assert found["ACME"] == {"symbol": "ACME", "bid": 10.26, "ask": 10.28, "row": 10}
    assert len(server.get("/v1/log").body.splitlines()) == ROWS_OF_FILE, "each row once"


def test_the_feed_takes_symbols_for_symbols():
    value = runpy.run_path(str(EXAMPLES / "csv_feed.py"))["value"]
    texts = ("10.5", "-2", "ACME", "NAN", "INF", "-inf", "")
    assert [value(text) for text in texts] == [10.5, -2.0, *texts[2:]]


def test_the_audit_says_of_each_fill_what_was_shown_and_says_it_again(server):
    said = run("day_audit.py", server)
    fills = {one["fill"]: one for one in server.records("fills")}
    lines = said.splitlines()
    assert len(lines) == len(fills) + 1
    for line, (name, fill) in zip(lines, fills.items(), strict=False):
        assert line.startswith(f"{name}: {fill['symbol']} at {fill['price']}, the screen showed ")
        assert re.search(
            r"showed (nothing yet|[\d.]+ of bookmark [\d.]+), and \d+ newer updates", line
        )
    assert any("of bookmark" in line for line in lines), "three seconds have windows that end"
    assert any("and 0 newer" not in line for line in lines[:-1])
    assert run("day_audit.py", server) == said


def test_each_program_is_on_the_page_and_says_what_it_takes():
    page = (EXAMPLES / "README.md").read_text()
    programs = sorted(path.name for path in EXAMPLES.iterdir() if path.suffix in (".py", ".html"))
    assert len(programs) == 6
    for name in programs:
        assert f"({name})" in page
    for name in (one for one in programs if one.endswith(".py")):
        done = forks.run(
            [sys.executable, str(EXAMPLES / name), "--help"],
            capture_output=True, text=True, timeout=WAIT_S,
        )  # fmt: skip
        assert (done.returncode, "--url" in done.stdout) == (0, True)
