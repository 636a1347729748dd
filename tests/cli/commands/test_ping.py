"""`sow ping`: the way there and back, and to the disk."""

import json

from sow.cli.commands.ping import UNWRITTEN
from tests.cli.terminal import Terminal


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
    found = json.loads(sow.ok("ping", "--topic", "orders", "--count", "4", "--json"))
    assert [found[what]["count"] for what in ("round_trip", "durable", "delivered")] == [4, 4, 4]
    for times in found.values():
        assert 0 < times["min_ms"] <= times["median_ms"] <= times["p99_ms"]
    assert server.records("orders") == [{"id": 1}]
    written = [line["d"].get("ping") for line in logged(server) if line["op"] == "publish"][-8:]
    assert written == [0, 1, 2, 3] * 2, "each of them was durable by itself"


def newest(server):
    return server.get("/v1/log/extent").json["to"]


def logged(server):
    text = server.get("/v1/log?topics=orders&from=0").body.decode()
    return [json.loads(line) for line in text.splitlines()]


def test_a_topic_that_cannot_be_written_to_is_refused_with_another_to_name(sow):
    result = sow("ping", "--topic", "orders-C")
    assert result.exit_code == 1
    assert result.stderr.startswith("sow: 'orders-C' is of kind conflated, which takes no messages")
    assert result.stdout == ""


def test_what_a_person_sees_on_a_terminal(server):
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
