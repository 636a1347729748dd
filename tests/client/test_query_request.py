"""A query that is sent when it is awaited: for records, or for a table of the topic's types."""

import asyncio
import json

import pytest

from sow.client import Answer
from sow.errors import BadFilter, ClientError
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
