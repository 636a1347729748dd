"""A query that is sent when it is awaited: for records, or for a table of the topic's types."""

import asyncio
import json
from datetime import timedelta

import orjson
import pytest

from conflated_topics.user_texts import interval_us
from sow.client import Answer
from sow.client.requests import parameters, subscription
from sow.errors import BadFilter, ClientError
from sow.protocol.wire import read_frame
from tests.edge.arrow import ARROW, table
from tests.edge.serving import records


def theirs(server, **parameters):
    return table(server.get(records("orders", **parameters), ARROW))


def test_awaited_it_is_the_records_as_often_as_one_likes(using):
    async def work(client):
        requested = client.query("orders", filter="/id > 0")
        first = await requested
        await client.publish("orders", {"id": 1})
        return first, await requested, await asyncio.create_task(client.query("orders"))

    first, second, third = using(work)
    assert isinstance(first, Answer)
    assert [one.records for one in (first, second, third)] == [[], [{"id": 1}], [{"id": 1}]]


def test_a_table_has_the_types_of_the_server_whichever_records_are_requested_for(server, using):
    server.publish("orders", {"id": 1, "d": "2025-01-02", "n": 2**64 - 1, "x": 0.5}, {"id": 2})

    async def work(client):
        whole = await client.query("orders").to_arrow()
        some = await client.query("orders", filter="/id = 2", select=["/n"]).to_arrow()
        return whole, some

    whole, some = using(work)
    assert whole.equals(theirs(server))
    assert some.equals(theirs(server, filter="/id = 2", select="/n"))
    assert whole.column("n").to_pylist() == [str(2**64 - 1), None]


def test_frames_are_made_of_the_table(server, using):
    server.publish("orders", {"id": 1, "px": 1.5})
    frame = using(lambda client: client.query("orders", select="/px").to_pandas())
    assert frame.to_dict("list") == {"px": [1.5]}

    frame = using(lambda client: client.query("orders", select="/px").to_polars())
    assert frame.to_dicts() == [{"px": 1.5}]


def test_what_is_refused_is_raised_when_it_is_awaited(using):
    async def work(client):
        requested = client.query("orders", filter="/id >")
        for wait in (requested.to_arrow, requested.answer, requested.to_pandas):
            with pytest.raises(BadFilter):
                await wait()
        with pytest.raises(ClientError, match="select"):
            await client.query("blobs", select="/x").to_arrow()

    using(work)


def test_one_that_nobody_awaits_asks_nothing_and_warns_nobody(using, recwarn):
    async def work(client):
        client.query("nope").close()
        client.query("nope")
        task = asyncio.create_task(client.query("orders"))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    using(work)
    assert not [warning for warning in recwarn if "never awaited" in str(warning.message)]


def test_a_json_text_is_what_the_server_sends(server, using):
    server.publish("orders", {"id": "a", "v": [1]}, {"id": 2})
    found = using(lambda client: client.query("orders").to_arrow())
    assert found.column("id").to_pylist() == [json.dumps("a"), "2"]


def test_lists_become_comma_text_and_everything_else_stays():
    requested = {"keys": ["1", "2"], "select": ("/a", "/b"), "top_n": 5, "filter": None}
    assert parameters(requested) == {"keys": "1,2", "select": "/a,/b", "top_n": 5, "filter": None}
    assert parameters({"select": "/a,/b"}) == {"select": "/a,/b"}
    assert requested["keys"] == ["1", "2"], "what was given is not changed"


@pytest.mark.parametrize(
    ("delta", "snapshot", "command"),
    [
        (False, False, "subscribe"),
        (True, False, "delta_subscribe"),
        (False, True, "sow_and_subscribe"),
        (True, True, "sow_and_delta_subscribe"),
    ],
)
def test_a_delta_and_a_snapshot_are_in_the_commands_name(delta, snapshot, command):
    assert subscription("orders", {"delta": delta}, snapshot) == (command, {"t": "orders"})


def test_flags_and_a_pace_are_options_and_the_bookmark_has_its_short_name():
    focus = {
        "filter": "/a = 1",
        "oof": True,
        "no_empties": False,
        "timestamp": True,
        "conflation": timedelta(milliseconds=1500),
        "conflation_key": ["/a", "/b"],
        "select": ["/a"],
        "bookmark": "7",
    }
    assert subscription("orders", focus, False) == (
        "subscribe",
        {
            "t": "orders",
            "filter": "/a = 1",
            "select": "/a",
            "bm": "7",
            "opts": "oof,timestamp,conflation=1500000us,conflation_key=[/a,/b]",
        },
    )


def test_a_server_reads_what_the_client_writes():
    name, fields = subscription(
        "orders",
        {"oof": True, "delta": True, "conflation": "1s", "conflation_key": ["/a"], "top_n": 3},
        True,
    )
    (command,) = read_frame(orjson.dumps({"c": name, **fields}))
    assert (command.name, command.topic) == (name, "orders")
    options = command.options
    assert (options.oof, options.top_n, options.conflation) == (True, 3, 1_000_000)
    assert options.conflation_key == ("/a",)


@pytest.mark.parametrize(
    "interval", [timedelta(microseconds=15_001), timedelta(milliseconds=250), timedelta(days=3)]
)
def test_an_interval_is_sent_to_the_microsecond(interval):
    _, header = subscription("orders", {"conflation": interval}, True)
    sent = header["opts"].removeprefix("conflation=")
    assert interval_us(sent) == interval // timedelta(microseconds=1)
