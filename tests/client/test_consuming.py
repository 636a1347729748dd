"""Consuming a queue: each message acknowledged, given back by leaving, over broken connections."""

import asyncio

import pytest

from sow.client import Client, Retry
from sow.client.errors import Unreachable
from sow.errors import ClientError, NotPrimary, UnknownTopic
from tests.client.test_subscription import at_once
from tests.edge.serving import configuration, served

TOPICS = """
<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>
<Queue><Name>jobs</Name><MessageType>json</MessageType><UnderlyingTopic>orders</UnderlyingTopic>
<MaxPerSubscriptionBacklog>10</MaxPerSubscriptionBacklog></Queue>
"""
pytestmark = pytest.mark.edge
running = served(configuration(TOPICS), checks=False)
RETRY = Retry(sleep=at_once, chance=lambda: 0.0)


@pytest.fixture
def run(running):
    def call(work):
        async def session():
            async with Client(running.url, name="test", retry=RETRY) as client:
                return await work(client)

        return asyncio.run(asyncio.wait_for(session(), 60))

    async def empty(client):
        async with client.consume("jobs", max_backlog=10) as messages:
            while (message := await messages.next(0.2)) is not None:
                await message.ack()

    call(empty)
    yield call
    assert running.errors == []


def waiting(server):
    return server.call(lambda: server.server.executor.queues.find("jobs").available)


async def cut(consumer):
    """Break the connection without a word, as a network does."""
    transport = consumer._socket._socket._response.connection.transport
    transport.abort()
    await asyncio.sleep(0)


def test_each_message_is_taken_and_acknowledged(run, running):
    async def work(client):
        await client.publish("orders", [{"id": 1}, {"id": 2}, {"id": 1, "n": 2}])
        found = []
        async with client.consume("jobs", max_backlog=2) as messages:
            async for message in messages:
                found.append((message.document(), message.deliveries, message.bookmark.isdigit()))
                assert message.body
                assert message.key
                assert await message.ack()
                assert not await message.ack()
                if len(found) == 3:
                    break
        return found

    assert [one[0] for one in run(work)] == [{"id": 1}, {"id": 2}, {"id": 1, "n": 2}]
    assert waiting(running) == 0


def test_leaving_gives_back_what_is_not_acknowledged_without_counting_it(run):
    async def work(client):
        await client.publish("orders", [{"id": 1}, {"id": 2}])
        async with client.consume("jobs", max_backlog=10) as messages:
            first = await messages.next()
            assert not messages._ready or len(messages._ready) == 1
        assert first is not None
        assert not await first.ack()
        async with client.consume("jobs", max_backlog=10) as messages:
            taken = [await anext(messages), await anext(messages)]
            assert await taken[0].cancel()
            again = await anext(messages)
            deliveries = [one.deliveries for one in (*taken, again)]
            for one in (taken[1], again):
                assert await one.ack()
        return deliveries

    assert run(work) == [1, 1, 1]


def test_a_broken_connection_is_opened_again_with_what_it_held(run):
    async def work(client):
        await client.publish("orders", [{"id": number} for number in range(6)])
        found = []
        async with client.consume("jobs", max_backlog=3) as messages:
            while len(found) < 6:
                message = await anext(messages)
                found.append((message.document()["id"], message.deliveries))
                await cut(messages)
                assert await message.ack()
        return found

    assert run(work) == [(number, 1) for number in range(6)]


def test_a_session_that_is_gone_begins_again_and_what_it_held_counts_no_more(run, running):
    async def work(client):
        await client.publish("orders", [{"id": 1}])
        async with client.consume("jobs") as messages:
            message = await anext(messages)
            running.call(end_sessions)
            again = await anext(messages)
            assert not await message.ack()
            assert await again.ack()
            return message.deliveries, again.deliveries

    def end_sessions():
        sessions = running.server.executor.sessions
        for session in [*sessions]:
            if running.server.executor.subscriptions.of(session):
                sessions.end(session, "by the test")
        running.server.runtime.wake()

    assert run(work) == (1, 2)


def test_a_server_that_is_away_or_does_not_lead_yet_is_waited_for(run):
    async def work(client):
        await client.publish("orders", [{"id": 1}])
        async with client.consume("jobs") as messages:
            connect = messages._sockets.connect
            away = [Unreachable("away"), NotPrimary("it follows", primary="")]

            async def later(*given):
                if away:
                    raise away.pop()
                return await connect(*given)

            messages._sockets.connect = later
            message = await anext(messages)
            await cut(messages)
            return await message.ack()

    assert run(work) is True


def test_there_may_be_nothing_for_a_while(run):
    async def work(client):
        async with client.consume("jobs") as messages:
            return await messages.next(0.01)

    assert run(work) is None


@pytest.mark.parametrize(
    ("queue", "backlog", "error"),
    [("nope", 1, UnknownTopic), ("jobs", 0, ClientError)],
)
def test_what_cannot_be_consumed_is_refused_at_once(run, queue, backlog, error):
    async def work(client):
        async with client.consume(queue, max_backlog=backlog):
            pass

    with pytest.raises(error):
        run(work)


def test_a_consumer_that_is_closed_gives_nothing_more(run):
    async def work(client):
        await client.publish("orders", {"id": 1})
        messages = client.consume("jobs")
        messages._ready.append(await messages.next())  # as if it had come just now
        await client.close()
        with pytest.raises(ClientError, match="is closed"):
            await messages.next()

    run(work)
