"""`sow ping` and `sow bench` measure, leave nothing behind, and write only to a given topic."""

import json

from click.testing import CliRunner

from sow.cli import main
from sow.cli.commands.bench import UNWRITTEN, BenchResult
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


def test_without_a_topic_nothing_is_written_and_that_is_said(sow, server, orders):
    orders({"id": 1})
    before = newest(server)
    result = sow("ping", "--count", "3")
    assert (result.exit_code, result.stderr) == (0, f"sow: {UNWRITTEN}\n")
    head, line = result.stdout.splitlines()
    assert head.split() == ["what", "median", "p99", "min", "times"]
    assert (line.split()[:2], line.split()[-1]) == (["round", "trip"], "3")
    assert newest(server) == before


def test_with_a_topic_a_record_is_made_durable_delivered_and_taken_away(sow, server, orders):
    orders({"id": 1})
    since = newest(server)
    found = json.loads(sow.ok("ping", "--topic", "orders", "--count", "4", "--json"))
    assert [found[what]["count"] for what in ("round_trip", "durable", "delivered")] == [4, 4, 4]
    for times in found.values():
        assert 0 < times["min_ms"] <= times["median_ms"] <= times["p99_ms"]
    assert server.records("orders") == [{"id": 1}]
    written = [line["d"].get("ping") for line in logged(server, since) if line["op"] == "publish"]
    assert written == [0, 1, 2, 3] * 2, "each of them was durable by itself"


def newest(server):
    return server.get("/v1/log/extent").json["to"]


def logged(server, since):
    text = server.get(f"/v1/log?topics=orders&from={since}").body.decode()
    return [json.loads(line) for line in text.splitlines()]


def test_a_topic_that_cannot_be_written_to_is_refused_with_another_to_name(sow):
    result = sow("ping", "--topic", "orders-C")
    assert result.exit_code == 1
    assert result.stderr.startswith("sow: 'orders-C' is of kind conflated, which takes no messages")
    assert result.stdout == ""


def test_what_a_person_sees_of_a_ping_on_a_terminal(server):
    words = ("ping", "--topic", "orders", "--count", "2", "--url", server.url)
    with Terminal(*words, columns=40) as terminal:
        code, text = terminal.end()
    assert code == 0
    assert [line.split()[0] for line in text.splitlines()] == [
        "what",
        "round",
        "durable",
        "delivered",
    ]
