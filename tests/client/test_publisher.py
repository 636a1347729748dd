"""The pipelined publisher against a real server."""

import pytest

from sow.client import Disconnected
from sow.errors import BadMessage


def bodies(count, start=0):
    return [b'{"id":%d}' % number for number in range(start, start + count)]


def test_frames_are_pipelined_and_all_are_counted(using, server):
    async def work(client):
        async with await client.publisher("orders", window=4) as publisher:
            for start in range(0, 5000, 100):
                await publisher.send(bodies(100, start))
                assert publisher.sent - publisher.published <= 400
        return publisher

    publisher = using(work)
    assert (publisher.sent, publisher.published) == (5000, 5000)
    assert len(server.records("orders")) == 5000


def test_a_bad_message_is_named_among_all_that_were_sent(using, server):
    async def work(client):
        publisher = await client.publisher("orders")
        await publisher.send(bodies(10))
        await publisher.send([*bodies(3), b"nonsense"])
        with pytest.raises(BadMessage) as bad:
            await publisher.drain()
        with pytest.raises(BadMessage):
            await publisher.send(bodies(1))
        await publisher.close()
        return bad.value.index, publisher.published

    assert using(work) == (13, 10)
    assert len(server.records("orders")) == 10


def test_a_line_break_in_a_body_is_refused_before_it_is_sent(using, server):
    async def work(client):
        async with await client.publisher("orders") as publisher:
            with pytest.raises(BadMessage) as bad:
                await publisher.send([b'{"id":1}', b'{"id":\n2}'])
            return bad.value.index

    assert using(work) == 1
    assert server.records("orders") == []


def test_a_server_that_goes_away_ends_the_publisher(using, running):
    async def work(client):
        publisher = await client.publisher("orders")
        (session,) = await client.http.json("GET", "/v1/sessions")
        await client.http.json("DELETE", f"/v1/sessions/{session['id']}")
        try:
            while True:
                await publisher.send(bodies(1))
                await publisher.drain()
        finally:
            await publisher.close()

    with pytest.raises(Disconnected):
        using(work)
