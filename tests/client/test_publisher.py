"""The pipelined publisher against a real server, and the batch that can be repeated."""

import asyncio
import random
from dataclasses import replace

import msgspec
import orjson
import polars
import pytest

from sow.client import Client, Disconnected, Retry, Unreachable
from sow.client.errors import TAKEN_ELSEWHERE
from sow.client.http import Http
from sow.client.publisher import Publisher, RepeatableBatch
from sow.client.socket import read_lines
from sow.errors import (
    AnotherLog,
    BadMessage,
    ClientError,
    NotPrimary,
    SowError,
    TooLarge,
    UnknownTopic,
)
from tests.client.test_idempotent import RETRY, Connection, Server, numbers
from tests.edge.serving import Running, configuration
from tests.ports import free_port


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


TOPIC = "<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>"
MORE = "<Topic><Name>more</Name><MessageType>json</MessageType><Key>/id</Key></Topic>"
PACKED = "<Topic><Name>packed</Name><MessageType>msgpack</MessageType><Key>/id</Key></Topic>"
FRAME = polars.DataFrame({"id": list(range(3000)), "px": [1.5] * 3000})
ROWS = FRAME.to_dicts()


def logged(server):
    return len(server.get("/v1/log?topics=orders&limit=100000").body.splitlines())


def test_the_same_batch_again_changes_nothing(using, server):
    async def work(client):
        found = []
        for frame, epoch in ((FRAME, 1), (FRAME, 1), ({"id": 1, "px": 2.0}, 2)):
            found.append(await client.publish_once("orders", frame, writer="a/b", epoch=epoch))
        with pytest.raises(ClientError, match="epoch"):
            await client.publish_once("orders", FRAME, writer="a/b", epoch=1)
        with pytest.raises(ClientError, match=r"^publish_once needs a name .*; this is empty$"):
            await client.publish_once("orders", FRAME, writer="", epoch=3)
        return found

    before = logged(server)
    first, again, second = using(work)
    assert first == again
    assert int(second) > int(first)
    assert logged(server) - before == 3001
    assert server.records("orders", filter="/id = 1") == [{"id": 1, "px": 2.0}]


def test_deltas_are_merged_and_nothing_is_a_batch_too(using, server):
    async def work(client):
        await client.publish("orders", {"id": 1, "px": 1})
        await client.publish_once("orders", [], writer="empty", epoch=1)
        await client.publish_once("orders", {"id": 1, "q": 5}, writer="d", epoch=1, delta=True)

    using(work)
    assert server.records("orders") == [{"id": 1, "px": 1, "q": 5}]


def test_messages_of_bytes_are_published_as_they_are(tmp_path):
    server = Running(configuration(PACKED), tmp_path)

    async def work():
        async with Client(server.url) as client:
            await client.publish("packed", msgspec.msgpack.encode({"id": 1}))
            bodies = [msgspec.msgpack.encode({"id": at, "raw": b"\xff"}) for at in (2, 3)]
            await client.publish_once("packed", bodies, writer="w", epoch=1)
            return [record["id"] for record in (await client.query("packed")).records]

    try:
        assert asyncio.run(asyncio.wait_for(work(), 60)) == [1, 2, 3]
    finally:
        server.close()


def test_a_batch_has_more_than_a_part_may_have(tmp_path, monkeypatch):
    monkeypatch.setattr("sow.client.publisher.CHUNK_BYTES", 20_000)
    limits = "<Limits><BatchSize>50KB</BatchSize></Limits>"
    server = Running(configuration(TOPIC, limits), tmp_path)

    async def work():
        async with Client(server.url) as client:
            first = await client.publish_once("orders", FRAME, writer="w", epoch=1)
            with pytest.raises(TooLarge, match=r"Limits/BatchSize.*has to be held"):
                await client.publish_once("orders", FRAME, writer="d", epoch=1, delta=True)
            monkeypatch.setattr("sow.client.publisher.CHUNK_BYTES", 10**6)
            assert await client.publish_once("orders", FRAME, writer="w", epoch=1) == first

    try:
        asyncio.run(asyncio.wait_for(work(), 60))
        assert server.records("orders", order_by="/id") == ROWS
    finally:
        server.close()


def test_one_bad_message_leaves_nothing(using, server, monkeypatch):
    monkeypatch.setattr("sow.client.publisher.CHUNK_BYTES", 20_000)
    bad = [{"id": at} for at in range(2345)] + [{"no": "key"}]

    async def work(client):
        with pytest.raises(BadMessage) as caught:
            await client.publish_once("orders", bad, writer="bad", epoch=1)
        with pytest.raises(UnknownTopic):
            await client.publish_once("nope", {"id": 1}, writer="bad", epoch=1)
        return caught.value.index

    assert using(work) == 2345
    assert server.records("orders") == []


@pytest.mark.parametrize("dies_at", ["the second piece", "the commit", "the answer"])
def test_a_server_that_dies_and_comes_again_with_another_configuration(
    tmp_path, monkeypatch, dies_at
):
    monkeypatch.setattr("sow.client.publisher.CHUNK_BYTES", 20_000)
    port = free_port()
    running = [Running(replace(configuration(TOPIC), port=port), tmp_path)]
    asking, requested = Http.json, []

    async def json(http, method, path, *arguments, **more):
        requested.append("the commit" if path.endswith("/commit") else "a piece")
        dies = (
            requested == ["a piece"] * 2
            if dies_at == "the second piece"
            else requested[-1] == "the commit" and requested.count("the commit") == 1
        )
        if not dies:
            return await asking(http, method, path, *arguments, **more)
        if dies_at == "the answer":
            await asking(http, method, path, *arguments, **more)
        await asyncio.to_thread(running[-1].close)
        raise Disconnected("broken")

    async def come_again(_seconds):
        if len(running) == 1:
            config = configuration(TOPIC + MORE)
            running.append(await asyncio.to_thread(Running, replace(config, port=port), tmp_path))

    async def publish():
        retry = Retry(sleep=come_again)
        async with Client(running[0].url, retry=retry) as client:
            return await client.publish_once("orders", FRAME, writer="w", epoch=1)

    monkeypatch.setattr(Http, "json", json)
    try:
        assert int(asyncio.run(publish())) > 0
        assert running[-1].records("orders", order_by="/id") == ROWS
        assert logged(running[-1]) == 3000, "nothing twice"
    finally:
        running[-1].close()


def test_a_server_that_stays_away_is_given_up():
    class Away:
        async def json(self, *_arguments, **_more):
            error = SowError("nobody there")
            error.status = 503
            raise error

    async def work():
        async def no_sleep(_seconds):
            pass

        retry = Retry(give_up_s=1, sleep=no_sleep)
        batch = RepeatableBatch(Away, retry, "orders", "w", 1, delta=False)
        with pytest.raises(SowError, match="nobody there"):
            await batch.commit()

    asyncio.run(work())


class AppliedMeanwhile:
    """Requests of a server that applies an earlier try while this one is staged."""

    def __init__(self, reason):
        self.reason = reason

    async def json(self, _method, path, *_requested, **_more):
        if path.endswith("/commit"):
            return {"bookmark": "7"}
        error = ClientError("the batch was dropped meanwhile; send it again")
        error.reason = self.reason
        raise error


@pytest.mark.parametrize("reason", ["not staged", "not entitled"])
def test_a_batch_that_an_earlier_try_applied_meanwhile_is_done(reason):
    async def work():
        requests = AppliedMeanwhile(reason)
        batch = RepeatableBatch(lambda: requests, Retry(), "orders", "w", 1, delta=False)
        await batch.add([b"{}"])
        return await batch.commit()

    if reason == "not staged":
        assert asyncio.run(work()) == "7"
    else:
        with pytest.raises(ClientError, match="dropped"):
            asyncio.run(work())


class Answering:
    """A socket that answers each frame: as a follower that names a primary, or as the primary."""

    url = "http://a"
    log_id, sequence = "aa", 0

    def __init__(self, primary=None):
        self.primary, self.frames, self.closed = primary, [], False
        self.answers = asyncio.Queue()
        self.numbers = iter(range(1, 1000))

    def next_cid(self):
        return str(next(self.numbers))

    async def send(self, frame):
        head = orjson.loads(frame.split(b"\n", 1)[0])
        self.frames.append((head.get("seq"), frame.split(b"\n")[1:]))
        ack = {"c": "ack", "cid": head["cid"], "a": "persisted", "status": "success", "bm": "5"}
        if self.primary:
            ack |= {"status": "failure", "reason": "not primary", "primary": self.primary}
        self.answers.put_nowait(orjson.dumps(ack))

    async def receive(self):
        return read_lines(await self.answers.get())

    async def close(self):
        self.closed = True


@pytest.mark.parametrize("seq", [None, 7])
def test_what_a_follower_refuses_goes_to_the_primary_in_order(seq):
    follower, primary = Answering("http://p"), Answering()
    noted = []

    async def move(refusal, url):
        assert (refusal.primary, url) == ("http://p", "http://a")
        return primary

    async def work():
        publisher = Publisher(follower, "orders", 4, seq, move, noted.append)
        for number in range(20):
            await publisher.send([b"%d" % number])
            if number % 3 == 0:
                await asyncio.sleep(0)
        await publisher.drain()
        await publisher.close()
        return publisher.sent, publisher.published

    assert asyncio.run(work()) == (20, 20)
    assert primary.frames == [
        (seq and seq + number, [b"%d" % number]) for number in range(20)
    ]  # fmt: skip
    assert follower.closed
    assert noted == ["5"] * 20


def numbered(server, retry=RETRY):
    """A publisher of numbers over connections of a server that loses and refuses."""

    async def move(_error, _url):
        return await server.connect("nightly")

    return Publisher(Connection(server), "orders", 4, server.highest + 1, move, retry=retry)


async def stored(server, messages=60):
    publisher = numbered(server)
    for number in range(0, messages, 3):
        await publisher.send([b'{"n":%d}' % n for n in range(number, number + 3)])
    await publisher.drain()
    await publisher.close()
    return publisher


def test_numbered_messages_go_on_over_broken_connections_and_are_stored_once():
    async def work(seed):
        chance = random.Random(seed)
        server = Server(lambda: chance.random() < 0.2)
        publisher = await stored(server)
        assert numbers(server) == list(range(60))
        assert (publisher.sent, publisher.published, publisher.duplicates) == (60, 60, 0)
        return server.logons

    assert sum(asyncio.run(work(seed)) for seed in range(20)) > 40


@pytest.mark.parametrize("reason", sorted(TAKEN_ELSEWHERE))
def test_numbered_messages_wait_for_a_server_that_takes_them(reason):
    async def work():
        server = Server()
        server.refuses, server.away = reason, 1
        refusing = server.connect

        async def connect(name):
            server.refuses = "" if server.logons == 2 else reason
            return await refusing(name)

        server.connect = connect
        await stored(server, 6)
        return numbers(server), server.logons

    assert asyncio.run(work()) == ([*range(6)], 3)


@pytest.mark.parametrize("what", ["replaced", "away", "log", "gap"])
def test_numbered_messages_end_with_what_does_not_pass(what):
    async def work():
        server = Server()
        publisher = numbered(server)
        lost = Disconnected("gone", reason="replaced" if what == "replaced" else None)
        server.away = 1000 if what == "away" else 0
        server.log_id = "bb" if what == "log" else "aa"
        if what == "gap":
            publisher.seq = 9
        else:
            publisher._socket.lose(lost)
            await asyncio.sleep(0)
        with pytest.raises(SowError) as found:
            async with publisher:
                await publisher.send([b'{"n":1}'])
        return type(found.value), found.value.reason, server.log

    kinds = {"replaced": Disconnected, "away": Unreachable, "log": AnotherLog, "gap": ClientError}
    reasons = {"away": "unreachable", "log": "another log", "gap": "sequence gap"}
    expected = (kinds[what], reasons.get(what, what), [])
    assert asyncio.run(asyncio.wait_for(work(), 60)) == expected


def test_followers_that_name_each_other_are_left_to_the_caller():
    async def move(_refusal, _url):
        return Answering("http://a")

    async def work():
        publisher = Publisher(Answering("http://b"), "orders", move=move)
        await publisher.send([b"1"])
        with pytest.raises(NotPrimary):
            await publisher.drain()
        await publisher.close()

    asyncio.run(asyncio.wait_for(work(), 60))
