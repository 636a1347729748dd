"""A node that follows a shared log: what it applies, once, and what it says of itself.

A node that leads: it goes on where it has followed, and gives way.
"""

import asyncio
import json
from dataclasses import replace
from types import SimpleNamespace

import aiohttp
import pytest

from sow.config import loads
from sow.core.action_definitions import ActionDeed, ActionDefinition, ActionTrigger
from sow.core.definitions import (
    CONSUMERS,
    ConflatedTopic,
    QueueSettings,
    Topic,
    View,
    with_system_topics,
)
from sow.engine.configurations import with_own
from sow.engine.following import FollowingEngine
from sow.errors import DiskFull, NotPrimary, StoreError
from sow.server.api.status import StatusHandler
from sow.server.boot.log_follower import HeardLog
from sow.store.protocols import LogEntry
from tests.server.boot.log_nodes import LEASE_US, WAIT_S, node_configuration, nodes_of
from tests.server.boot.servers import ORDERS, SLOW, configuration, publish, records
from tests.shared_log.files import FileLog

pytestmark = [pytest.mark.edge, pytest.mark.usefixtures("steady")]


def account(op, seq, ts_us, body=b""):
    bodies = [b'{"name":"desk","at":%s}' % body] if body else []
    return LogEntry(op, CONSUMERS.name, seq, ts_us, ["desk"], bodies, 0, True)


def held(engine):
    table = engine.topics[CONSUMERS.name].records.table
    slot = table.slots.get("desk")
    return b"" if slot is None else bytes(table.bodies[slot])


def test_accounts_are_those_of_the_newest_entry_however_often_the_log_is_read():
    engine = FollowingEngine(with_system_topics(configuration()), "http://a")
    log = [
        account("publish", 1, 10, b"1"),
        account("publish", 1, 11, b"2"),
        account("delete", 2, 12),
        account("publish", 2, 13, b"3"),
    ]
    for at, wanted in enumerate((b"1", b"2", b"", b"3")):
        engine.apply_account(log[at])
        assert engine.topics[CONSUMERS.name].updates == at + 1  # which those below look at
        assert held(engine) == (wanted and b'{"name":"desk","at":%s}' % wanted)
    written = len(engine.sequencer.open.entries)
    for entry in log:
        engine.apply_account(entry)
        assert held(engine) == b'{"name":"desk","at":3}'
    assert written == 4
    assert engine.sequencer.open.entries[written:] == log[3:]  # the newest, once more


def test_a_node_is_stale_after_a_lease_or_after_maxlag():
    silent = {"us": 0}
    driver = SimpleNamespace(
        address="http://a",
        node=SimpleNamespace(lease_us=1_000_000),
        silent_us=lambda: silent["us"],
        time_us=50_000_000,
        waiting=[],
    )
    heard = HeardLog(driver, lambda: 5_000_000, lambda: 0.0)
    assert (heard.primary, heard.lag_us(), heard.stale_s()) == ("http://a", 0, None)
    silent["us"] = 1_200_000
    assert heard.stale_s() == 2
    silent["us"] = 0
    heard.apply(48_500_000)
    assert heard.stale_s() is None  # nothing waits: it is only that nobody writes
    driver.waiting.append("a group")
    assert heard.stale_s() == 2
    short = HeardLog(driver, lambda: 500_000, lambda: 0.0)
    silent["us"] = 600_000
    driver.waiting.clear()
    assert short.stale_s() == 1


def test_a_process_that_reads_the_log_again_applies_nothing_twice(tmp_path):
    async def play():
        config, other = (node_configuration(name, tmp_path) for name in "ab")
        async with nodes_of(FileLog(tmp_path / "log"), config, other, other) as (a, b, again):
            await a.start()
            for number in range(5):
                await publish(a.server, number)
            await b.start()
            await b.until(lambda: b.follows and len(records(b.server)) == 5)
            await b.die()
            await publish(a.server, 5)
            await again.start()
            await again.until(lambda: again.follows and len(records(again.server)) == 6)
            seqs = [
                one.server.engine.topic("orders").records.table.seqs[:6].tolist()
                for one in (a, again)
            ]
            assert seqs[0] == seqs[1]
            with pytest.raises(NotPrimary) as refused:
                again.server.engine.publish("orders", [b'{"id":9}'], 0)
            assert refused.value.primary == "http://a"

    asyncio.run(play())


KINDS = """<SOWConfig><Name>kinds</Name><Log><Engine>nats</Engine><Node>a</Node>
<Servers>nats://a,nats://b,nats://c</Servers></Log><SOW>
<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>
<Topic><Name>quick</Name><MessageType>json</MessageType><Key>/id</Key>
  <Durability>transient</Durability></Topic>
<Topic><Name>passing</Name><MessageType>json</MessageType><Key>/id</Key>
  <Retain>false</Retain></Topic>
<Topic><Name>brief</Name><MessageType>json</MessageType><Key>/id</Key>
  <Expiration>1s</Expiration></Topic>
<Topic><Name>named</Name><MessageType>json</MessageType></Topic>
<Topic><Name>many</Name><Pattern>many-.*</Pattern><MessageType>json</MessageType>
  <Key>/id</Key></Topic>
<Topic><Name>steps</Name><MessageType>json</MessageType><Key>/id</Key>
  <Series><Retain>limit 3</Retain></Series></Topic>
<View><Name>sums</Name><MessageType>json</MessageType><UnderlyingTopic>quick</UnderlyingTopic>
  <Projection><Field>/desk AS /desk</Field><Field>SUM(/n) AS /n</Field></Projection>
  <Grouping><Field>/desk</Field></Grouping></View>
<ConflatedTopic><Name>slow</Name><UnderlyingTopic>quick</UnderlyingTopic>
  <MessageType>json</MessageType><Interval>200ms</Interval></ConflatedTopic>
</SOW></SOWConfig>"""
STORED = ("orders", "quick", "brief", "named", "many-1", "many-2", "steps", "sums", "slow")


def of_kinds(name, directory):
    found = loads(KINDS, "kinds.xml").configuration
    own = node_configuration(name, directory)
    return with_own(found, own)


def state_of(node):
    """The records of every topic that has some, by its name."""
    topics = node.server.engine.topics
    found = {}
    for name in STORED:
        if name in topics:
            table = topics[name].records.table
            found[name] = {key: bytes(table.bodies[at]) for key, at in table.slots.items()}
    return found


async def traffic(server, round_):
    """Some of everything that changes a topic."""
    engine, now_us = server.engine, server.runtime.now_us()
    for topic in ("orders", "quick", "passing", "brief", "many-1", "many-2", "steps"):
        bodies = [b'{"id":%d,"desk":%d,"n":%d}' % (at, at % 2, round_) for at in range(4)]
        engine.publish(topic, bodies, now_us)
    engine.publish("named", [b'{"n":%d}' % round_], now_us, key="one")
    engine.publish("quick", [b'{"id":1,"n":7}'], now_us, delta=True)
    await server.runtime.durable()


def test_every_kind_of_topic_is_the_same_on_every_node(tmp_path):
    async def play():
        configs = [of_kinds(name, tmp_path) for name in "abc"]
        async with nodes_of(FileLog(tmp_path / "log"), *configs) as (a, b, late):
            await a.start()
            await traffic(a.server, 1)
            await b.start()
            await traffic(a.server, 2)
            await late.start()
            await traffic(a.server, 3)
            await b.until(lambda: not state_of(a)["brief"])  # its records have expired
            for node in (b, late):
                await node.until(lambda node=node: node.server.engine.seq == a.server.engine.seq)
                await node.until(lambda node=node: state_of(node) == state_of(a))
            status = [await node.server._handlers[StatusHandler].own() for node in (a, b, late)]
            assert len({(one.bookmark, one.state_hash) for one in status}) == 1
            full = state_of(a)
            assert [name for name in STORED if full[name]] == [*STORED[:2], *STORED[3:]]
            assert len(full["many-1"]) == 4
            await a.die()
            await b.until(lambda: not b.follows and b.server.engine.seq > 0)
            assert state_of(b) == full  # also what is transient elsewhere

    asyncio.run(play())


SUMS = View("sums", "json", ("orders",), ("/desk", "COUNT(1) AS /count"), ("/desk",))


async def following(http, node):
    """A socket that follows the view at a node."""
    socket = await http.ws_connect(f"{node.server.address}/v1/ws", protocols=["sow.text"])
    await socket.send_json({"c": "subscribe", "cid": "1", "t": "sums"})
    assert (await socket.receive_json())["status"] == "success"
    return socket


async def note_lines(socket, found):
    async for frame in socket:
        lines = map(json.loads, frame.data.splitlines())
        found += [(one["bm"], one["d"]) for one in lines if one["c"] == "p"]


def test_a_view_is_released_where_the_primary_has_done_it_in_however_many_groups(tmp_path):
    async def play():
        configs = [node_configuration(name, tmp_path, ORDERS, SUMS) for name in "ab"]
        async with (
            nodes_of(FileLog(tmp_path / "log"), *configs) as all_of_them,
            aiohttp.ClientSession() as http,
        ):
            first, second = all_of_them
            for node in all_of_them:
                await node.start()
            await publish(first.server, 0)
            await second.until(lambda: second.server.engine.seq == 1)
            said = [], []
            sockets = [await following(http, node) for node in all_of_them]
            followed = zip(sockets, said, strict=True)
            tasks = [asyncio.create_task(note_lines(*one)) for one in followed]
            rows = [{"id": number, "desk": number % 2} for number in range(2_000)]
            url = f"{first.server.address}/v1/topics/orders/records"
            assert (await http.post(url, json=rows)).status == 200
            await publish(first.server, 1)
            await second.until(lambda: second.server.engine.seq == first.server.engine.seq)
            await second.until(lambda: said[0] and said[0] == said[1])
            for task in tasks:
                task.cancel()

    asyncio.run(play())


def test_rows_of_a_view_are_of_its_making_on_a_node_that_has_started_again(tmp_path):
    """What left a row, and when, is in no record, so a view that is made again does not know of
    which change its rows are. None may be older: who goes on from it would be sent that again."""

    async def play():
        config, other = (node_configuration(name, tmp_path, ORDERS, SUMS) for name in "ab")
        shared = FileLog(tmp_path / "log")
        async with (
            nodes_of(shared, config, other, other) as (a, b, again),
            aiohttp.ClientSession() as http,
        ):

            async def publish_at(id_, desk):
                body = b'{"id":%d,"desk":%d}' % (id_, desk)
                a.server.engine.publish("orders", [body], a.server.runtime.now_us())
                await a.server.runtime.durable()

            async def rows_of(node, bookmark):
                await node.until(lambda: node.server.engine.seq == bookmark)
                path = "/v1/topics/sums/records?meta=true&stale=ok"
                answer = await http.get(f"{node.server.address}{path}")
                assert answer.status == 200, await answer.text()
                found = await answer.json()
                return {(one["d"]["desk"], one["d"]["count"]): int(one["bm"]) for one in found}

            await a.start()
            await b.start()
            for place in ((1, 1), (2, 2), (1, 2), (3, 3)):  # desk 1 is left
                await publish_at(*place)
            newest = {(2, 2): 3, (3, 1): 4}
            assert [await rows_of(node, 4) for node in (a, b)] == [newest, newest]
            await b.die()
            await again.start()
            assert await rows_of(again, 4) == dict.fromkeys(newest, 4)
            await publish_at(4, 3)
            assert await rows_of(a, 5) == {(2, 2): 3, (3, 2): 5}
            assert await rows_of(again, 5) == {(2, 2): 4, (3, 2): 5}

    asyncio.run(play())


BRIEF = Topic("orders", "json", ("/id",), expires=True)
WORK = Topic("tasks", "json", conflation_policy="off", queue=QueueSettings("orders"))


def test_a_node_that_begins_to_lead_goes_on_with_its_server_and_so_do_the_others(tmp_path):
    async def play():
        configs = [node_configuration(name, tmp_path, BRIEF, SLOW) for name in "abc"]
        async with nodes_of(FileLog(tmp_path / "log"), *configs) as all_of_them:
            first, *others = all_of_them
            for node in all_of_them:
                await node.start()
            await publish(first.server, 1)
            first.server.engine.publish(
                "orders", [b'{"id":7}'], first.server.runtime.now_us(), expires_s=4
            )
            await first.server.runtime.durable()
            for node in others:
                await node.until(lambda node=node: node.server.engine.seq >= 2)
            servers = [node.server for node in others]
            number = servers[0].engine.configurations.all()
            async with aiohttp.ClientSession() as http:
                sockets = [
                    await http.ws_connect(f"{one.address}/v1/ws", protocols=["sow.text"])
                    for one in servers
                ]
                for socket in sockets:
                    await socket.send_json({"c": "subscribe", "cid": "1", "t": "orders"})
                    assert (await socket.receive_json())["status"] == "success"
                await first.die()
                await asyncio.gather(
                    *(node.until(lambda: any(not one.follows for one in others)) for node in others)
                )
                (leads,) = (node for node in others if not node.follows)
                await publish(leads.server, 3)
                for socket in sockets:
                    assert (await asyncio.wait_for(socket.receive_json(), WAIT_S))["d"] == {"id": 3}
            leads, follows = sorted(others, key=lambda node: node.follows)
            await publish(leads.server, 2)
            # What has to expire does so by the primary, and on all nodes.
            for node in others:
                await node.until(lambda node=node: records(node.server) == ["1", "2", "3"])
                assert not node.is_over.is_set()
            assert [node.server for node in others] == servers
            assert leads.server.engine.configurations.all() == number
            leads.server.engine.check()
            hashes = [(await node.status()).state_hash for node in (leads, follows)]
            assert hashes[0] == hashes[1]
            assert [(await node.status()).role for node in (leads, follows)] == [
                "primary",
                "follower",
            ]

    asyncio.run(play())


def test_who_steps_down_refuses_writes_and_follows(tmp_path):
    async def play():
        configs = [node_configuration(name, tmp_path) for name in "ab"]
        async with nodes_of(FileLog(tmp_path / "log"), *configs) as (first, second):
            await first.start()
            await publish(first.server, 1)
            await second.start()
            await second.until(lambda: records(second.server) == ["1"])
            server = first.server
            assert first.member._driver.step_down()
            await asyncio.wait_for(first.is_over.wait(), WAIT_S)
            with pytest.raises(NotPrimary) as refused:
                await publish(server, 2)
            assert refused.value.primary == "http://b"
            await second.until(lambda: not second.follows)
            await publish(second.server, 3)
            await first.until(lambda: first.follows and records(first.server) == ["1", "3"])
            assert not first.member._driver.step_down()

    asyncio.run(play())


def test_a_disk_that_is_full_has_another_node_lead(tmp_path, monkeypatch):
    async def play():
        configs = [node_configuration(name, tmp_path) for name in "ab"]
        async with nodes_of(FileLog(tmp_path / "log"), *configs) as (first, second):
            await first.start()
            await publish(first.server, 1)
            await second.start()
            await second.until(lambda: records(second.server) == ["1"])
            monkeypatch.setattr(first.server.runtime.journal, "has_room", lambda _bytes: False)
            await second.until(lambda: not second.follows)
            await publish(second.server, 2)
            # Where nobody has room, it does not go round.
            monkeypatch.setattr(second.server.runtime.journal, "has_room", lambda _bytes: False)
            second.member._driver.note_room(False)
            await asyncio.sleep(1)
            assert not second.follows

    asyncio.run(play())


def test_without_a_quorum_writes_are_refused_and_taken_again(tmp_path):
    async def play():
        shared = FileLog(tmp_path / "log")
        async with nodes_of(shared, node_configuration("a", tmp_path)) as (node,):
            await node.start()
            await publish(node.server, 1)
            client, is_back = node.member._shared, asyncio.Event()
            append = client.append

            async def waits(block):
                await is_back.wait()
                return await append(block)

            client.append = waits
            with pytest.raises(Exception, match="not known") as unknown:
                await publish(node.server, 2)
            assert unknown.value.reason == "outcome unknown"
            with pytest.raises(StoreError) as refused:
                await publish(node.server, 3)
            assert refused.value.reason == "no quorum" == node.server.runtime.refusal
            is_back.set()
            await node.until(lambda: node.server.runtime.refusal is None)
            await publish(node.server, 4)
            assert records(node.server) == ["1", "2", "4"]

    asyncio.run(play())


def test_a_node_whose_disk_refuses_does_not_begin_to_lead(tmp_path, monkeypatch):
    async def play():
        configs = [node_configuration(name, tmp_path) for name in "ab"]
        async with nodes_of(FileLog(tmp_path / "log"), *configs) as (first, second):
            await first.start()
            await publish(first.server, 1)
            await second.start()
            await second.until(lambda: records(second.server) == ["1"])

            def refuses(_entries):
                raise DiskFull("no room")

            monkeypatch.setattr(second.server.runtime.journal, "append", refuses)
            await publish(first.server, 2)
            await second.until(lambda: second.server.runtime.failure is not None)
            await asyncio.sleep(1)
            await first.die()
            await asyncio.sleep(3 * LEASE_US / 1e6)
            assert not second.member._driver.is_primary
            monkeypatch.undo()
            await second.until(lambda: second.server.runtime.failure is None)

    asyncio.run(play())


async def leased(http, node, count=10):
    """The messages that a node leases: their ids, deliveries and leases; or its refusal."""
    url = f"{node.server.address}/v1/topics/tasks/lease?n={count}"
    async with http.post(url) as answer:
        said = await answer.json()
        if answer.status != 200:
            return said["reason"]
        return [(one["d"]["id"], one["deliveries"], one["lease"]) for one in said]


def test_a_queue_goes_on_with_its_messages_and_leases_where_another_node_leads(tmp_path):
    async def play():
        configs = [node_configuration(name, tmp_path, ORDERS, WORK) for name in "ab"]
        async with nodes_of(FileLog(tmp_path / "log"), *configs) as (first, second):
            await first.start()
            await second.start()
            async with aiohttp.ClientSession() as http:
                for number in range(3):
                    await publish(first.server, number)
                ((_, _, lease),) = await leased(http, first, 1)
                ((_, _, done),) = await leased(http, first, 1)
                url = f"{first.server.address}/v1/topics/tasks/lease/{done}"
                assert (await http.delete(url)).status == 204
                assert await leased(http, second) == "not primary"
                socket = await http.ws_connect(
                    f"{second.server.address}/v1/ws", protocols=["sow.text"]
                )
                await socket.send_json({"c": "subscribe", "cid": "1", "t": "tasks"})
                said = await socket.receive_json()
                assert (said["reason"], said["primary"]) == ("not primary", "http://a")
                held = first.server.engine.seq
                await second.until(lambda: second.server.engine.seq == held)
                await first.die()
                await second.until(lambda: not second.follows)
                await publish(second.server, 3)
                found = await leased(http, second)
                assert [one[:2] for one in found] == [(2, 1), (3, 1)]
                for one in (lease, found[0][2]):
                    url = f"{second.server.address}/v1/topics/tasks/lease/{one}"
                    assert (await http.delete(url)).status == 204
                second.server.executor.queues.queues.check()

    asyncio.run(play())


def test_a_queue_that_a_reload_adds_goes_on_where_another_node_leads(tmp_path):
    async def play():
        configs = [node_configuration(name, tmp_path, ORDERS) for name in "ab"]
        async with nodes_of(FileLog(tmp_path / "log"), *configs) as (first, second):
            await first.start()
            await second.start()
            await publish(first.server, 1)
            first.config = replace(first.config, topics=(ORDERS, WORK))
            assert await first.server.reload() == ["queue tasks added"]
            await publish(first.server, 2)
            held = first.server.engine.seq
            await second.until(lambda: second.server.engine.seq == held)
            await first.die()
            await second.until(lambda: not second.follows)
            second.config = replace(second.config, topics=(ORDERS, WORK))
            async with aiohttp.ClientSession() as http:
                ((number, _, lease),) = await leased(http, second)
                assert number == 2
                url = f"{second.server.address}/v1/topics/tasks/lease/{lease}"
                assert (await http.delete(url)).status == 204
            second.config = configs[1]
            assert await second.server.reload() == ["queue tasks removed"]

    asyncio.run(play())


DONE = Topic("done", "json", ("/id",))
JOBS = Topic("jobs", "json", conflation_policy="off", queue=QueueSettings("orders"))
NOBODY = ActionDeed("webhook", url="http://127.0.0.1:1/", retries=20)
ACTIONS = (
    ActionDefinition(
        ActionTrigger("publish-message", "call", topic="orders"),
        (ActionDeed("publish-message", topic="done"), NOBODY),
    ),
    ActionDefinition(
        ActionTrigger("startup", "up"),
        (ActionDeed("publish-message", topic="done", data='{"id":"up"}'),),
    ),
)


def waiting(server):
    """The runs of a server that wait, with how far they are, and the messages of its queue."""
    runs, queues = server.executor.actions.runs.waiting, server.executor.queues.queues.by_name
    held = [(run.action, run.data, run.deed) for line in runs.values() for run in line]
    return held, [len(one.queue.messages) for one in queues.values()]


def test_actions_and_queues_go_on_at_the_node_that_leads_and_nowhere_else(tmp_path):
    async def play():
        configs = [
            replace(node_configuration(name, tmp_path, BRIEF, DONE, JOBS), actions=ACTIONS)
            for name in "ab"
        ]
        async with nodes_of(FileLog(tmp_path / "log"), *configs) as (first, second):
            await first.start()
            await second.start()
            await publish(first.server, 1)
            expected = [("call", b'{"id":1}', 1)], [1]
            await first.until(lambda: waiting(first.server) == expected)
            await second.until(
                lambda: (
                    [*second.server.engine.topics["done"].records.table.slots] == ["up", "1"]
                    and len(second.server.engine.topics["/sow/actions"].records.table.slots) == 1
                )
            )
            assert waiting(second.server) == ([], [])
            await first.die()
            await second.until(lambda: not second.follows)
            await second.until(lambda: waiting(second.server) == expected)
            second.server.executor.actions.check()

    asyncio.run(play())


def test_a_beat_has_no_later_time_than_what_waits_for_a_commit(tmp_path):
    gathered = Topic("orders", "json", ("/id",), flush_interval_us=LEASE_US)
    fast = ConflatedTopic("fast", "json", "orders", interval_us=100_000)

    async def play():
        configs = [node_configuration(name, tmp_path, gathered, fast) for name in "ab"]
        async with nodes_of(FileLog(tmp_path / "log"), *configs) as all_of_them:
            first, second = all_of_them
            for node in all_of_them:
                await node.start()
            await publish(first.server, 1)  # beats come meanwhile
            await second.until(lambda: second.server.engine.seq == 1)
            await second.until(
                lambda: "1" in second.server.engine.topics["fast"].records.table.slots
            )
            stamps = [
                node.server.engine.topics[name].records.table.ts_us[:1].tolist()
                for name in ("orders", "fast")
                for node in all_of_them
            ]
            assert (stamps[0], stamps[2]) == (stamps[1], stamps[3])

    asyncio.run(play())
