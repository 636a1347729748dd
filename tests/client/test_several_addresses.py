"""A client of several addresses goes on at another when its server is lost: lines are counted.

The second server has a copy of the first one's log, and takes over when that has stopped, as a
follower does. A `Door` is an address of its own for a server, which can be shut.
"""

import asyncio
import shutil
import socket
from contextlib import contextmanager

import orjson
import pytest

from sow.client import Client, Disconnected, Retry, Subscription, Unreachable
from sow.client.subscription import ELSEWHERE
from sow.errors import AnotherLog
from tests.client.test_socket import REFUSED, A, B, ended, sockets_of
from tests.client.test_subscription import at_once, end_sessions
from tests.edge.serving import Running, configuration

TOPICS = """
<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>
<ConflatedTopic><Name>orders-C</Name><UnderlyingTopic>orders</UnderlyingTopic>
<MessageType>json</MessageType><Interval>100ms</Interval></ConflatedTopic>
"""
CONFIG = configuration(TOPICS)
RETRY = Retry(give_up_s=1000, sleep=at_once, chance=lambda: 0.0)


class Door:
    """An address that leads to a server, or to none; its connections run on a server's loop."""

    def __init__(self, running: Running):
        self._running, self._target, self._open = running, None, set()
        listening = running.wait(asyncio.start_server(self._pass, "127.0.0.1", 0))
        self._listening = listening
        self.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"

    def lead_to(self, running: Running):
        self._target = running.address

    def shut(self):
        """Break every connection, and take no more."""
        self._target = None
        self._running.call(self._cut)

    def _cut(self):
        for writer in self._open:
            writer.transport.abort()

    def close(self):
        self.shut()
        self._running.call(self._listening.close)

    async def _pass(self, reader, writer):
        if self._target is None:
            writer.transport.abort()
            return
        there, back = await asyncio.open_connection(*self._target)
        self._open |= {writer, back}
        await asyncio.gather(self._pump(reader, back), self._pump(there, writer))
        self._open -= {writer, back}

    async def _pump(self, reader, writer):
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        writer.close()


class World:
    """Two addresses, and the server behind each: the second begins when the first has stopped."""

    def __init__(self, directory):
        self._directory = directory
        self.first = Running(CONFIG, directory / "a")
        self.second = None
        self.doors = [Door(self.first), Door(self.first)]
        self.doors[0].lead_to(self.first)
        self.urls = [door.url for door in self.doors]

    def move(self):
        """The first server stops, and one with a copy of its log answers at the other address."""
        self.doors[0].shut()
        self.first.stop()
        shutil.copytree(self._directory / "a", self._directory / "b")
        self.second = Running(CONFIG, self._directory / "b")
        self.doors[1].lead_to(self.second)

    def close(self):
        for door in self.doors:
            door.close()
        if self.second is None:
            self.first.close()
        else:
            self.first.end_loop()
            self.second.close()


@pytest.fixture
def world(tmp_path):
    (tmp_path / "a").mkdir()
    made = World(tmp_path)
    yield made
    made.close()


def using(world, work, **more):
    async def session():
        async with Client(world.urls, retry=RETRY, **more) as client:
            return await work(client)

    return asyncio.run(asyncio.wait_for(session(), 60))


async def ids(messages, count):
    """The ids of so many records, and the kinds of all lines."""
    found, kinds = [], []
    while len(found) < count:
        message = await anext(messages)
        kinds.append(message.c)
        if message.c in ("sow", "p"):
            found.append(message.document()["id"])
    return found, kinds


@pytest.mark.parametrize(
    ("follow", "more"),
    [
        ("subscribe", {}),
        ("subscribe", {"bookmark": "now"}),
        ("subscribe", {"bookmark": "0"}),
        ("sow_and_subscribe", {}),
        ("sow_and_subscribe", {"oof": True, "order_by": "/id DESC", "top_n": 3}),
    ],
)
@pytest.mark.parametrize("read_before", [0, 3])
def test_each_change_comes_once_over_a_move(world, follow, more, read_before):
    async def work(client):
        async with getattr(client, follow)("orders", **more) as messages:
            while follow == "sow_and_subscribe" and (await anext(messages)).c != "group_end":
                pass
            for number in range(read_before):
                await client.publish("orders", {"id": number})
            before, _ = await ids(messages, read_before)
            await client.publish("orders", [{"id": 10}, {"id": 11}])
            world.move()
            world.second.publish("orders", {"id": 12}, {"id": 13})
            after, kinds = await ids(messages, 4)
            return before + after, set(kinds), messages.resumed, messages.gaps, client.url

    found = using(world, work)
    assert found == (
        [*range(read_before), 10, 11, 12, 13], {"p"}, 1, 0, world.urls[1]
    )  # fmt: skip


@pytest.mark.parametrize("bookmark", ["0", "newest"])
def test_where_nothing_has_come_yet_it_goes_on_where_it_was_to_begin(world, bookmark):
    async def work(client):
        newest = await client.publish("orders", {"id": 1})
        await client.delete("orders", filter="1=1")
        given = newest if bookmark == "newest" else bookmark
        async with client.subscribe("orders", bookmark=given, filter="/id > 1") as messages:
            await messages.open()
            world.move()
            world.second.publish("orders", {"id": 2})
            return await ids(messages, 1), messages.resumed, messages.gaps

    assert using(world, work) == (([2], ["p"]), 1, 0)


def test_what_leaves_meanwhile_is_out_of_focus_once(world):
    async def work(client):
        await client.publish("orders", [{"id": 1}, {"id": 2}])
        async with client.sow_and_subscribe("orders", oof=True) as messages:
            await ids(messages, 2)
            await anext(messages)
            world.move()
            world.second.request("DELETE", "/v1/topics/orders/records?filter=/id=1")
            left = await anext(messages)
            world.second.publish("orders", {"id": 3})
            return left.c, left.reason, left.document(), await ids(messages, 1)

    assert using(world, work) == ("oof", "deleted", {"id": 1}, ([3], ["p"]))


@pytest.mark.parametrize("follow", ["subscribe", "sow_and_subscribe"])
def test_what_has_left_before_is_out_of_focus_once(world, follow):
    """Lines of records that leave have no bookmark, and the log is read again from before them."""

    async def work(client):
        async with getattr(client, follow)("orders", oof=True) as messages:
            await client.publish("orders", [{"id": 1}, {"id": 2}])
            await ids(messages, 2)
            await client.delete("orders", filter="/id < 3")
            while (await anext(messages)).document() != {"id": 2}:
                pass
            world.move()
            world.second.publish("orders", {"id": 1}, {"id": 3})
            world.second.request("DELETE", "/v1/topics/orders/records?filter=/id=1")
            lines = [await anext(messages) for _ in range(3)]
            return [(line.c, line.document()["id"]) for line in lines]

    assert using(world, work) == [("p", 1), ("p", 3), ("oof", 1)]


def test_what_the_log_does_not_have_begins_with_a_new_snapshot(world):
    async def work(client):
        await client.publish("orders", {"id": 1})
        async with client.sow_and_subscribe("orders-C") as messages, client.live("orders") as live:
            await ids(messages, 1)
            world.move()
            world.second.publish("orders", {"id": 2})
            found, kinds = await ids(messages, 2)
            while {record["id"] for record in live.values()} != {1, 2}:
                await live.change()
            kinds = [
                kind for kind in kinds if kind != "group_end"
            ]  # of a snapshot that had the first
            return sorted(set(found)), kinds[:2], messages.gaps, live.subscription.gaps

    found, kinds, *gaps = using(world, work)
    assert (found[0], kinds[-1], gaps) == (1, "group_begin", [1, 1])


def test_a_numbered_publisher_stores_each_message_once(world, tmp_path):
    async def work(client):
        async with client.idempotent_publisher("feed", tmp_path / "store") as publisher:
            for number in range(20):
                await publisher.publish("orders", {"id": number})
            await asyncio.sleep(0)
            world.move()
            for number in range(20, 40):
                await publisher.publish("orders", {"id": number})
        return publisher.waiting

    assert using(world, work) == 0
    rows = world.second.get("/v1/log?topics=orders&limit=1000").body.splitlines()
    assert len(rows) == 40
    assert len(world.second.records("orders")) == 40


def test_queries_and_publishes_go_on_at_once(world):
    async def work(client):
        await client.publish("orders", {"id": 1})
        world.move()
        while client._publishers["orders"].is_open:
            await asyncio.sleep(0)
        await client.publish("orders", {"id": 2})
        return (await client.query("orders", order_by="/id")).records

    assert using(world, work) == [{"id": 1}, {"id": 2}]


def test_a_session_is_taken_up_where_it_is(world):
    """Two addresses of one server: nothing moves, and the session goes on."""

    async def work(client):
        async with client.sow_and_subscribe("orders") as messages:
            await anext(messages)
            await anext(messages)
            world.doors[1].lead_to(world.first)
            world.doors[0].shut()
            await client.publish("orders", {"id": 1})
            found = await ids(messages, 1)
            world.doors[1].shut()
            end_sessions(world.first)
            world.doors[0].lead_to(world.first)
            world.first.publish("orders", {"id": 2})
            return found, await ids(messages, 1), messages.resumed, messages.gaps

    assert using(world, work) == (([1], ["p"]), ([2], ["p"]), 2, 0)


def test_a_server_with_another_log_is_passed_over(world, tmp_path):
    other = Running(CONFIG, tmp_path / "other")

    async def work(client):
        await client.publish("orders", {"id": 1})
        async with client.subscribe("orders") as messages:
            world.doors[0].shut()
            world.doors[1].lead_to(other)
            client.retry = messages._retry = Retry(give_up_s=1, sleep=at_once, chance=lambda: 0.0)
            with pytest.raises(Disconnected):
                await anext(messages)
            with pytest.raises(Unreachable, match=r"none of 2 addresses can .* has the log"):
                await client.publish("orders", {"id": 2})

    using(world, work)
    assert other.records("orders") == []
    other.close()


def test_two_servers_of_different_logs_are_said_to_be(world, tmp_path):
    other = Running(CONFIG, tmp_path / "other")
    world.doors[1].lead_to(other)

    async def work(client):
        await client.publish("orders", {"id": 1})
        client._addresses.use(world.urls[1])
        world.doors[0].lead_to(other)
        with pytest.raises(AnotherLog, match="list servers of one log only"):
            await client.subscribe("orders").open()

    using(world, work)
    other.close()


ACK = {"c": "ack", "a": "processed", "status": "success"}
BEGINNING = [
    {**ACK, "cid": "2", "s": "q1"},
    {"c": "group_begin", "s": "q1"},
    {"c": "group_end", "s": "q1", "bm": "5"},
    {**ACK, "cid": "2", "a": "completed"},
]
"""The answer to the query of no records, by which a subscription learns where it begins."""


def logon(session, **more):
    return {**ACK, "cid": "1", "session": session, "log": "5f0c9a1e22d47b03", **more}


def followed(answers, count, topic="orders"):
    """The records that a subscription yields in a played network, and what was sent where."""
    network, sockets = sockets_of(answers, A, B)

    async def work():
        subscription = Subscription(sockets, "subscribe", {"t": topic}, RETRY)
        found = [(await subscription.next()).document()["id"] for _ in range(count)]
        return found, subscription.resumed, subscription.gaps

    found = asyncio.run(asyncio.wait_for(work(), 60))
    sent = {url: [orjson.loads(one) for one in raw.sent] for url, raw in network.sockets.items()}
    return found, network.requested, sent


def update(number):
    return {"c": "p", "s": "f", "d": {"id": number}, "bm": str(number)}


@pytest.mark.parametrize(
    ("end", "tried"),
    [
        (ended(1001), [A, A, B]),
        *(({"c": "close", "reason": reason}, [A, B]) for reason in sorted(ELSEWHERE)),
    ],
)
def test_a_server_that_ends_or_loses_its_own_is_left(end, tried):
    first = iter([(logon("s"), BEGINNING, {**ACK, "cid": "3", "s": "f"}, update(7), end), REFUSED])

    class Answers(dict):
        def __getitem__(self, url):
            return next(first) if url == A else super().__getitem__(url)

    there = (
        logon("t", resumed=False, reason="unknown session"),
        [{**ACK, "cid": "2", "s": "f"}, update(8), update(9)],
    )
    found, requested, sent = followed(Answers({B: there}), 3)
    assert found == ([7, 8, 9], 1, 0)
    assert requested == tried
    assert sent[B][0]["session"] == "s"
    assert (sent[B][1]["c"], sent[B][1]["bm"]) == ("subscribe", "5f0c9a1e22d47b03-7")


def test_a_topic_that_a_follower_does_not_have_is_followed_at_the_primary():
    refused = {**ACK, "cid": "3", "status": "failure", "reason": "not primary", "primary": B}
    answers = {
        A: (logon("s"), BEGINNING, refused),
        B: (logon("t"), BEGINNING, [{**ACK, "cid": "3", "s": "f"}, update(1)]),
    }
    found, requested, _ = followed(answers, 1, "passing")
    assert (found, requested) == (([1], 0, 0), [A, B])


@contextmanager
def refusing():
    """An address where nobody answers."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


def test_the_first_that_answers_is_used_and_an_error_names_all(server):
    async def work(urls):
        async with Client(urls, retry=RETRY) as client:
            await client.publish("orders", {"id": 1})
            return client.url, (await client.query("orders")).records

    with refusing() as away, refusing() as gone:
        assert asyncio.run(work([away, server.url])) == (server.url, [{"id": 1}])
        with pytest.raises(Unreachable) as caught:
            asyncio.run(work(f"{away},{gone}"))
    assert away in caught.value.detail
    assert gone in caught.value.detail
