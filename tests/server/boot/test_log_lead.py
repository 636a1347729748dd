"""A node that leads: it goes on where it has followed, and gives way."""

import asyncio
from dataclasses import replace

import aiohttp
import pytest

from sow.core.action_definitions import ActionDeed, ActionDefinition, ActionTrigger
from sow.core.definitions import ConflatedTopic, QueueSettings, Topic
from sow.errors import DiskFull, NotPrimary, StoreError
from tests.server.boot.log_nodes import LEASE_US, WAIT_S, node_configuration, nodes_of
from tests.server.boot.servers import ORDERS, SLOW, publish, records
from tests.shared_log.files import FileLog

pytestmark = [pytest.mark.edge, pytest.mark.usefixtures("steady")]

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
