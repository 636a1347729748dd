"""Records to try a server out with: refused where they would be in the way, and taken away."""

import pytest

from sow.cli.probe_records import ProbeRecords
from sow.client import Client
from sow.errors import ClientError


def with_client(server, work):
    async def run():
        async with Client(server.url) as client:
            return await work(client)

    return server.wait(run())


def begin(server, topic):
    return with_client(server, lambda client: ProbeRecords.begin(client, topic, "sow-test"))


@pytest.mark.parametrize(
    ("topic", "said"),
    [
        ("orders-C", "is of kind conflated, which takes no messages; name a json topic"),
        ("notes", "are of type string; name a json topic"),
        ("nowhere", "no topic 'nowhere'"),
    ],
)
def test_a_topic_that_cannot_have_them_is_refused(server, topic, said):
    with pytest.raises(Exception, match=said):
        begin(server, topic)


def test_records_that_look_like_them_are_left_alone(server, orders):
    orders({"id": "sow-test-7"})
    with pytest.raises(ClientError, match="holds 1 record of an earlier run") as raised:
        begin(server, "orders")
    assert "sow delete orders --filter \"/id LIKE '^sow-test-'\"" in str(raised.value)
    assert server.records("orders") == [{"id": "sow-test-7"}]


def test_they_are_taken_away_and_nothing_else_is(server, orders):
    orders({"id": 1}, {"id": "sow-test"})

    async def work(client):
        scratch = await ProbeRecords.begin(client, "orders", "sow-test")
        async with await client.publisher("orders") as publisher:
            await publisher.send([scratch.document(number, px=5) for number in range(1500)])
            await publisher.drain()
            there = (await client.query("orders", top_n=0)).matches
            await scratch.take_away(publisher)
        return there

    assert with_client(server, work) == 1502
    assert server.records("orders") == [{"id": 1}, {"id": "sow-test"}]


def test_a_key_may_be_nested(server):
    async def work(client):
        made = await ProbeRecords.begin(client, "pairs", "w")
        return made.document(3, px=1)

    assert with_client(server, work) == {"px": 1, "a": "w-3", "b": {"c": "w-3"}}
