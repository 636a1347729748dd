"""The publisher whose messages are stored once, against a server that loses and refuses."""

import asyncio
import contextlib
import json
import random

import pytest

from sow.client import Client, SequenceLost
from sow.client.errors import TAKEN_ELSEWHERE, ClosedByServer, Disconnected, Unreachable
from sow.client.idempotent import IdempotentPublisher
from sow.client.publish_store import PublishStore
from sow.client.socket import Retry, read_lines
from sow.errors import AnotherLog, BadMessage, ClientError, DiskFull, StoreError
from tests.edge.serving import Running, configuration

TOPIC = "<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>"


class Server:
    """Numbers as a server keeps them: `log` is what was applied, `highest` of one name. Each call
    of `chance` says whether a frame, or its answer, is lost with the connection."""

    def __init__(self, chance=lambda: False):
        self.log, self.highest, self.log_id = [], 0, "aa"
        self.chance = chance
        self.away = 0
        self.refuses = ""
        self.logons = 0
        self.socket = None

    async def connect(self, _name):
        if self.away:
            self.away -= 1
            raise Unreachable("no server answers")
        self.logons += 1
        self.socket = Connection(self)
        return self.socket

    def apply(self, head, bodies):
        count = 1 if head["c"] == "sow_delete" else len(bodies)
        skipped = max(0, min(count, self.highest + 1 - head["seq"]))
        if self.refuses:
            return {"status": "failure", "reason": self.refuses}
        if head["seq"] > self.highest + 1:
            gap = {"reason": "sequence gap", "expected": self.highest + 1}
            return {"status": "failure", **gap}
        for index, body in enumerate(bodies):
            if b"bad" in body:
                return {"status": "failure", "reason": "bad message", "index": index}
        self.highest = max(self.highest, head["seq"] + count - 1)
        self.log += [head["c"]] if not bodies else map(json.loads, bodies[skipped:])
        return {"status": "success"}


class Connection:
    """A socket of the server."""

    url = "http://a"

    def __init__(self, server):
        self.server, self.numbers = server, 0
        self.sequence, self.log_id = server.highest, server.log_id
        self.answers = asyncio.Queue()
        self.lost = None

    def next_cid(self):
        self.numbers += 1
        return str(self.numbers)

    async def send(self, frame):
        head, *bodies = frame.rstrip(b"\n").split(b"\n")
        head = json.loads(head)
        if self.lost or self.server.chance():
            return self.lose()
        ack = self.server.apply(head, bodies)
        if self.server.chance():
            return self.lose()
        line = {"c": "ack", "a": "persisted", "cid": head["cid"], **ack}
        return self.answers.put_nowait(json.dumps(line))

    def lose(self, error=None):
        self.lost = error or Disconnected("gone")
        self.answers.put_nowait(None)

    async def receive(self):
        answer = await self.answers.get()
        if answer is None:
            raise self.lost
        return read_lines(answer)

    async def close(self):
        pass


async def no_time(_seconds):
    await asyncio.sleep(0)


RETRY = Retry(give_up_s=3, sleep=no_time, chance=lambda: 0.0)


def publisher_of(server, store=None, adopt=False):
    store = store if isinstance(store, PublishStore) else PublishStore("feed", store)
    return IdempotentPublisher(server.connect, RETRY, store, adopt)


def run(work):
    return asyncio.run(asyncio.wait_for(work, 60))


def numbers(server):
    return [one["n"] for one in server.log]


def test_what_is_published_is_stored_once_whatever_is_lost():
    async def work(seed):
        chance = random.Random(seed)
        server = Server(lambda: chance.random() < 0.2)
        async with publisher_of(server) as publisher:
            for start in range(0, 60, 3):
                await publisher.publish("orders", [{"n": n} for n in range(start, start + 3)])
                if chance.random() < 0.5:
                    await asyncio.sleep(0)
        assert numbers(server) == list(range(60))
        return server.logons

    assert sum(run(work(seed)) for seed in range(20)) > 40


@pytest.mark.parametrize("reason", sorted(TAKEN_ELSEWHERE))
def test_a_server_that_does_not_reach_the_primary_is_left_without_an_error(reason):
    async def work():
        server = Server()
        refusing, server.refuses = server.connect, reason

        async def connect(name):
            if server.logons:
                server.refuses = ""  # the second logon is at the primary
            return await refusing(name)

        server.connect = connect
        async with publisher_of(server) as publisher:
            for n in range(5):
                await publisher.publish("orders", {"n": n})
        return numbers(server), server.logons

    assert run(work()) == ([*range(5)], 2)


def test_a_program_that_is_killed_finds_its_messages_again(tmp_path):
    async def life(server, first):
        publisher = publisher_of(server, tmp_path / "store")
        for n in range(first, first + 5):
            await publisher.publish("orders", {"n": n})
        for _ in range(first % 7):
            await asyncio.sleep(0)
        publisher._task.cancel()
        publisher._store.close()  # what the end of a process does

    async def last(server):
        async with publisher_of(server, tmp_path / "store") as publisher:
            await publisher.drain()
            assert publisher.waiting == 0

    chance = random.Random(7)
    server = Server(lambda: chance.random() < 0.1)
    for first in range(0, 50, 5):
        run(life(server, first))
    run(last(server))
    assert numbers(server) == list(range(50))


def test_a_refused_message_is_raised_once_and_those_behind_it_are_stored():
    async def work():
        server = Server()
        publisher = publisher_of(server)
        await publisher.publish("orders", [{"n": 1}, {"n": "bad"}, {"n": 2}])
        await publisher.publish("orders", {"n": 3})
        with pytest.raises(BadMessage) as refused:
            await publisher.drain()
        assert refused.value.index == 1
        await publisher.drain()
        assert numbers(server) == [1, 2, 3]
        await publisher.publish("orders", {"n": "bad"})
        while publisher.waiting:
            await asyncio.sleep(0)
        with pytest.raises(BadMessage):
            await publisher.publish("orders", {"n": 4})
        await publisher.publish("orders", {"n": 5})
        await publisher.drain()
        assert (numbers(server), server.highest) == ([1, 2, 3, 5], 4)
        await publisher.close()

    run(work())


def test_a_store_that_cannot_be_written_is_raised_and_what_waits_is_stored_once(tmp_path):
    async def work():
        server, store = Server(), PublishStore("feed", tmp_path / "store")
        publisher, applied = publisher_of(server, store), store.applied
        await publisher.publish("orders", {"n": 1})

        def full(_count):
            raise OSError(28, "no room")

        store.applied = full
        for _ in range(2):
            with pytest.raises(StoreError, match="the store of 'feed' cannot be written"):
                await publisher.drain()
        store.applied = applied
        await publisher.drain()
        assert (numbers(server), publisher.waiting) == ([1], 0)
        await publisher.close()

    run(work())


def test_deletes_and_deltas_are_numbered_too():
    async def work():
        server = Server()
        async with publisher_of(server) as publisher:
            await publisher.publish("orders", {"n": 1})
            await publisher.delete("orders", filter="/n=1")
            await publisher.delta_publish("orders", {"n": 2})
            await publisher.delete("orders", [{"n": 3}, {"n": 4}])
            for wrong in ({}, {"filter": "1=1", "keys": ["1"]}):
                with pytest.raises(ClientError, match="exactly one"):
                    await publisher.delete("orders", **wrong)
        assert (server.highest, server.log[1]) == (4, "sow_delete")
        assert publisher.waiting == 0

    run(work())


def test_a_name_that_has_gone_back_is_an_error_with_both_numbers_and_drops_nothing():
    async def work():
        server = Server()
        publisher = publisher_of(server)
        await publisher.publish("orders", [{"n": 1}, {"n": 2}])
        await publisher.drain()
        server.highest = 0
        server.socket.lose()
        await publisher.publish("orders", {"n": 3})
        for _ in range(2):
            with pytest.raises(SequenceLost) as lost:
                await publisher.drain()
            assert (lost.value.held, lost.value.highest) == (3, 0)
        with pytest.raises(SequenceLost):
            await publisher.publish("orders", {"n": 9})
        assert publisher.waiting == 1
        publisher.restart()
        await publisher.drain()
        assert (numbers(server), server.highest) == ([1, 2, 3], 1)
        await publisher.close()

    run(work())


def test_a_store_of_another_log_is_refused_unless_it_is_adopted(tmp_path):
    async def life(server, n, **more):
        publisher = publisher_of(server, tmp_path / "store", **more)
        await publisher.publish("orders", {"n": n})
        try:
            await publisher.drain()
        finally:
            await publisher.close()

    run(life(Server(), 1))
    other = Server()
    other.log_id, other.highest = "bb", 1
    with pytest.raises(AnotherLog):
        run(life(other, 2))
    run(life(other, 3, adopt=True))
    assert numbers(other) == [2, 3]


def test_another_publisher_of_the_name_ends_this_one_until_it_starts_again():
    async def work():
        server = Server()
        publisher = publisher_of(server)
        await publisher.publish("orders", {"n": 1})
        await publisher.drain()
        server.socket.lose(ClosedByServer("closed", reason="replaced"))
        await publisher.publish("orders", {"n": 2})
        with pytest.raises(ClientError, match="one name is for one publisher"):
            await publisher.drain()
        await publisher.restart()
        await publisher.drain()
        assert numbers(server) == [1, 2]
        await publisher.close()
        with pytest.raises(ClientError, match="closed"):
            await publisher.drain()

    run(work())


def test_a_server_that_is_away_or_has_no_room_keeps_nobody_from_publishing():
    async def work():
        server = Server()
        server.away = 10**6
        publisher = publisher_of(server)
        await publisher.publish("orders", {"n": 1})
        with pytest.raises(Unreachable):
            await publisher.drain()
        server.away, server.refuses = 0, "disk full"
        with pytest.raises(DiskFull):
            await publisher.drain()
        server.refuses = ""
        while publisher.waiting:
            with contextlib.suppress(DiskFull):  # of an attempt that was under way
                await publisher.drain()
        assert numbers(server) == [1]
        await publisher.close()

    run(work())


def test_a_body_with_a_line_break_is_refused_before_it_is_stored():
    async def work():
        publisher = publisher_of(Server())
        with pytest.raises(BadMessage) as bad:
            await publisher.publish("orders", [b"{}", b'{"n":\n1}'])
        assert (bad.value.index, publisher.waiting) == (1, 0)
        await publisher.close()

    run(work())


def test_a_real_server_that_starts_again_has_each_message_once(tmp_path):
    server = Running(configuration(TOPIC), tmp_path / "data")
    try:
        retry = Retry(first_s=0.01, longest_s=0.05)

        async def life(ids):
            async with (
                Client(server.url, retry=retry) as client,
                client.idempotent_publisher("feed", tmp_path / "store") as publisher,
            ):
                for one in ids:
                    await publisher.publish("orders", {"id": one})

        run(life(range(10)))
        server.stop()
        server.start()
        run(life(range(10, 20)))
        log = server.get("/v1/log?from=0").rows
        assert [row["d"]["id"] for row in log] == list(range(20))
        assert server.errors == []
    finally:
        server.close()
