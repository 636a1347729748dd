"""`sow bench`: measures, leaves nothing behind, and writes only to a given topic."""

import json

from click.testing import CliRunner

from sow.cli import main
from sow.cli.commands.bench import BenchResult
from sow.cli.measuring import Percentiles
from tests.cli.terminal import Terminal


def test_a_server_is_measured_in_a_topic_that_was_named(sow, server, orders):
    orders({"id": 1})
    found = json.loads(sow.ok("bench", "--topic", "orders", "--seconds", "0.3", "--json"))
    assert [one["what"] for one in found] == [
        "publish, durable, 100 in a frame", "query by key", "publish until delivered",
    ]  # fmt: skip
    assert all(one["per_s"] > 0 and one["median_ms"] <= one["p99_ms"] for one in found)
    assert server.records("orders") == [{"id": 1}]


def test_a_server_that_was_named_without_a_topic_is_left_alone(sow, server, orders):
    orders({"id": 1})
    result = sow("bench", "--seconds", "0.3")
    assert result.exit_code == 2
    assert f"records would be written to {server.url}; name a topic" in result.stderr
    result = CliRunner().invoke(main, ["bench"], env={"SOW_URL": server.url})
    assert result.exit_code == 2
    assert server.records("orders") == [{"id": 1}]


def test_records_of_an_earlier_run_are_named_with_how_to_remove_them(sow, orders):
    orders({"id": "sow-bench-3"})
    result = sow("bench", "--topic", "orders", "--seconds", "0.3")
    assert result.exit_code == 1
    assert "sow delete orders --filter \"/id LIKE '^sow-bench-'\"" in result.stderr


def test_this_machine_is_measured_by_a_server_of_its_own(tmp_path):
    with Terminal("bench", "--seconds", "0.3", cwd=tmp_path, columns=60) as terminal:
        code, text = terminal.end()
    assert code == 0, text
    # Its server's log is there, too.
    assert any(line.split()[:3] == ["what", "per", "second"] for line in text.splitlines())
    assert "query by key" in text
    assert list(tmp_path.iterdir()) == []


def test_for_people_and_for_programs():
    found = BenchResult("query by key", 1234.56, Percentiles(7, 0.001, 0.002, 0.003))
    assert found.row() == {
        "what": "query by key", "per second": "1,235", "median": "2 ms", "p99": "3 ms",
        "times": "7",
    }  # fmt: skip
    assert found.document()["per_s"] == 1234.6


def test_ctrl_c_ends_it_and_leaves_nothing(tmp_path):
    with Terminal("bench", cwd=tmp_path) as terminal:
        terminal.wait_for("started at http")
        terminal.type("\x03")
        code, text = terminal.end()
    assert (code, "sow:" in text, "Traceback" in text) == (130, False, False)
    assert list(tmp_path.iterdir()) == []
