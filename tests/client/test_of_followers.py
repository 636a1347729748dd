"""Clients of real followers: what these refuse goes to the primary, and one that dies is left."""

import asyncio

import pytest

from sow.client import Client, Retry
from tests.client.test_several_addresses import ids
from tests.client.test_subscription import at_once
from tests.edge.serving import Running
from tests.edge.test_followers import CONFIG, Following

RETRY = Retry(give_up_s=1000, sleep=at_once, chance=lambda: 0.0)


@pytest.fixture
def nodes(tmp_path):
    """A primary and two followers."""
    primary = Running(CONFIG, tmp_path / "primary")
    made = [primary, *(Following(primary, tmp_path / name) for name in ("one", "two"))]
    yield made
    for node in reversed(made):
        node.close()


def run(work):
    return asyncio.run(asyncio.wait_for(work, 60))


def test_writes_at_a_follower_go_to_its_primary_and_reads_stay(nodes):
    primary, one, _ = nodes

    async def work():
        async with Client(one.url, read_your_writes=True) as client:
            await client.publish("orders", [{"id": 1}, {"id": 2}])
            await client.publish("fleeting", {"id": 7})
            async with client.idempotent_publisher("feed") as publisher:
                await publisher.publish("orders", {"id": 3})
            await client.publish_once("orders", {"id": 4}, writer="w", epoch=1)
            await client.delete("orders", filter="/id = 1")
            found = (await client.query("orders", order_by="/id")).records
            fleeting = (await client.query("fleeting")).records
            return [record["id"] for record in found], fleeting, client.url

    assert run(work()) == ([2, 3, 4], [{"id": 7}], one.url)
    assert len(primary.records("orders")) == 3


def test_a_topic_that_is_not_logged_is_followed_at_the_primary(nodes):
    async def work():
        async with Client(nodes[1].url) as client, client.sow_and_subscribe("fleeting") as messages:
            await client.publish("fleeting", {"id": 1})
            return await ids(messages, 1)

    assert run(work())[0] == [1]


@pytest.mark.parametrize("follow", ["subscribe", "sow_and_subscribe"])
def test_each_change_comes_once_when_a_follower_dies(nodes, follow):
    primary, one, two = nodes

    async def work():
        client = Client([one.url, two.url], retry=RETRY)
        async with client, getattr(client, follow)("orders") as messages:
            while follow != "subscribe" and (await anext(messages)).c != "group_end":
                pass
            await client.publish("orders", [{"id": n} for n in range(50)])
            before, _ = await ids(messages, 20)
            one.stop()
            primary.publish("orders", *({"id": n} for n in range(50, 100)))
            after, kinds = await ids(messages, 80)
            one.start()
            return before + after, set(kinds), messages.gaps, client.url

    assert run(work()) == ([*range(100)], {"p"}, 0, two.url)
