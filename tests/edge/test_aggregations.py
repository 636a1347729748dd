"""Rows of groups of records over every door: HTTP, WebSocket, events, the command line, clients."""

import asyncio
import json

import pytest
from click.testing import CliRunner

from sow.cli.main import main
from sow.client import Client
from sow.client.sync import Client as BlockingClient
from tests.edge.arrow import ARROW, table
from tests.edge.serving import WAIT_S, records

ORDERS = [
    {"id": 1, "symbol": "A", "price": 10},
    {"id": 2, "symbol": "B", "price": 30},
    {"id": 3, "symbol": "A", "price": 20.5},
]
REQUESTED = {"projection": "/symbol, SUM(/price) AS /sum, COUNT(1) AS /n", "grouping": "/symbol"}
ROWS = [{"symbol": "A", "sum": 30.5, "n": 2}, {"symbol": "B", "sum": 30, "n": 1}]


@pytest.fixture
def orders(server):
    assert server.publish("orders", *ORDERS).status == 200
    return server


def test_rows_come_in_each_form(orders):
    answer = orders.get(records("orders", **REQUESTED))
    assert (answer.json, answer.headers["SOW-Matches"]) == (ROWS, "2")
    assert orders.records("orders", **REQUESTED, order_by="/sum", top_n=1) == ROWS[1:]
    assert orders.records("orders", **REQUESTED, filter="/price > 15")[0]["n"] == 1
    assert orders.get(records("orders", **REQUESTED, format="csv")).body.splitlines()[0] == (
        b"symbol,sum,n"
    )
    found = table(orders.get(records("orders", **REQUESTED), ARROW))
    assert found.to_pylist() == ROWS
    assert orders.records("orders", **REQUESTED, meta="true")[0]["d"] == ROWS[0]
    # What columns such rows had is nobody's account.
    assert orders.records("/sow/columns") == []


def test_a_stream_reports_rows_and_what_becomes_of_them(orders):
    with orders.events("orders", **REQUESTED, oof="true") as events:
        snapshot = [event.line["d"] for event in events.until("group_end") if event.name == "sow"]
        orders.publish("orders", {"id": 1, "symbol": "B", "price": 10})
        update = events.until("p")[-1].line
    assert snapshot == ROWS
    assert update["d"] in ({"symbol": "A", "sum": 20.5, "n": 1}, {"symbol": "B", "sum": 40, "n": 2})
    assert orders.get("/v1/topics/orders/stream?snapshot=false&grouping=/a").status == 400


def test_the_command_line_asks_and_watches(orders):
    given = [f"--{name}={text}" for name, text in REQUESTED.items()]
    shared = ["--url", orders.url, "--json"]
    requested = CliRunner().invoke(main, ["query", "orders", *given, *shared])
    assert json.loads(requested.stdout) == ROWS
    watched = CliRunner().invoke(main, ["watch", "orders", *given, "--count=2", *shared])
    assert [json.loads(line)["d"] for line in watched.stdout.splitlines()] == ROWS
    wrong = CliRunner().invoke(
        main, ["query", "orders", "--grouping=/a", "--projection=SUM(/a", *shared]
    )
    assert wrong.exit_code == 1
    late = CliRunner().invoke(main, ["watch", "orders", *given, "--bookmark=0", *shared])
    assert late.exit_code == 2


def test_clients_ask_and_follow(orders):
    lists = {"projection": ["/symbol", "SUM(/price) AS /sum", "COUNT(1) AS /n"]}

    async def work():
        async with Client(orders.url) as client:
            requested = await client.query("orders", **lists, grouping=["/symbol"])
            found = await client.query("orders", **REQUESTED).to_arrow()
            async with client.live("orders", **lists, grouping=["/symbol"]) as live:
                await client.publish("orders", {"id": 4, "symbol": "C", "price": 1})
                change = await live.change(5)
            return requested.records, found.to_pylist(), change.new

    requested, found, new = asyncio.run(asyncio.wait_for(work(), WAIT_S))
    assert requested == found == ROWS
    assert new == {"symbol": "C", "sum": 1, "n": 1}
    with BlockingClient(orders.url) as client:
        assert client.query("orders", **REQUESTED).records[:2] == ROWS
