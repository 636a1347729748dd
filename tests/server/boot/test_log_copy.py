"""A node that has not what the log begins with copies what the primary has, and reads on.

Nodes of a shared log compare what they have; which of them is wrong.
"""

import asyncio
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from aiohttp import ClientSession

from sow.core.definitions import ConflatedTopic
from sow.errors import ConfigError, LogUnanswered, StoreError
from sow.server.api.nodes import ServerNode
from sow.server.boot import log_copy
from sow.server.boot.followed_directory import COMING
from sow.server.boot.log_copy import (
    READY,
    NodeReports,
    begins_at,
    corrupt,
    finish_copy,
    is_outvoted,
    leader_of,
)
from sow.server.loop import log_checkpoint
from sow.server.loop.log_checkpoint import read_checkpoint
from sow.shared_log.entry import ChainState, EntryKind, Lead, LogEnvelope
from sow.store.manifest import COPY_FILE, MANIFEST_FILE
from tests.ports import free_port
from tests.server.boot.log_nodes import node_configuration, nodes_of
from tests.server.boot.servers import ORDERS, publish, records
from tests.server.stand_ins import World, stepped
from tests.shared_log.files import FileLog


@pytest.fixture
def often(monkeypatch):
    """A place is kept often enough for a test."""
    monkeypatch.setattr(log_checkpoint, "KEPT_S", 0.02)
    monkeypatch.setattr(log_copy, "RETRY_S", 0.05)


def directory(node):
    return Path(node.config.data_directory)


def kept(node):
    return node.member._keeper.kept


async def trimmed(shared, node):
    """The log is trimmed up to what a node keeps, once that is all that it has."""
    newest = node.server.engine.seq
    await node.until(lambda: kept(node) is not None and kept(node).bookmark == newest)
    await shared.trim(kept(node).position)


@pytest.mark.edge
@pytest.mark.usefixtures("steady", "often")
def test_a_new_node_of_a_trimmed_log_copies_what_the_primary_has_and_reads_on(tmp_path):
    async def play():
        configs = [node_configuration(name, tmp_path, port=free_port()) for name in "ab"]
        shared = FileLog(tmp_path / "log")
        async with nodes_of(shared, *configs) as (first, second):
            await first.start()
            for number in range(5):
                await publish(first.server, number)
            await trimmed(shared, first)
            await publish(first.server, 5)
            await second.start()
            await second.until(lambda: second.follows and len(records(second.server)) == 6)
            seqs = [
                one.server.engine.topic("orders").records.table.seqs[:6].tolist()
                for one in (first, second)
            ]
            assert sorted(seqs[0]) == sorted(seqs[1])
            assert second.server.runtime.journal.log_id == first.server.runtime.journal.log_id
            assert not [one for one in (READY, COMING) if (directory(second) / one).exists()]
            # It can lead, from the checkpoint that it was given.
            await first.die()
            await second.until(lambda: not second.follows)
            await publish(second.server, 6)
            assert len(records(second.server)) == 7

    asyncio.run(play())


@pytest.mark.edge
@pytest.mark.usefixtures("steady", "often")
def test_a_node_that_is_late_is_given_a_copy_in_place_of_what_it_had(tmp_path):
    async def play():
        configs = [node_configuration(name, tmp_path, port=free_port()) for name in "ab"]
        shared = FileLog(tmp_path / "log")
        async with nodes_of(shared, *configs) as (first, second):
            await first.start()
            await publish(first.server, 0)
            await second.start()
            await second.until(lambda: second.follows and records(second.server) == ["0"])
            await second.end()
            second.server = None
            (directory(second) / "removed").mkdir()
            (directory(second) / "removed" / "mine").write_text("kept")
            await publish(first.server, 1)
            await trimmed(shared, first)
            await second.start()
            await second.until(lambda: second.follows and len(records(second.server)) == 2)
            assert (directory(second) / "removed" / "mine").read_text() == "kept"

    asyncio.run(play())


@pytest.mark.edge
@pytest.mark.usefixtures("steady", "often")
def test_a_node_that_has_missed_a_reload_goes_on_under_what_its_copy_has(tmp_path):
    fast = ConflatedTopic("fast", "json", "orders", interval_us=100_000)

    async def play():
        configs = [node_configuration(name, tmp_path, port=free_port()) for name in "ab"]
        shared = FileLog(tmp_path / "log")
        async with nodes_of(shared, *configs) as (first, second):
            await first.start()
            await publish(first.server, 0)
            await second.start()
            await second.until(lambda: second.follows and records(second.server) == ["0"])
            await second.end()
            second.server = None
            first.config = replace(first.config, topics=(ORDERS, fast))
            await first.server.reload()
            await publish(first.server, 1)
            await trimmed(shared, first)
            await second.start()
            await second.until(lambda: second.follows and len(records(second.server)) == 2)
            assert "fast" in second.server.engine.topics
            hashes = [(await node.status()).state_hash for node in (first, second)]
            assert hashes[0] == hashes[1]
            await first.die()
            await second.until(lambda: not second.follows)
            await publish(second.server, 2)

    asyncio.run(play())


@pytest.mark.edge
@pytest.mark.usefixtures("steady", "often")
def test_a_copy_has_the_places_of_consumers_for_when_it_leads(tmp_path):
    async def play():
        configs = [node_configuration(name, tmp_path, port=free_port()) for name in "ab"]
        shared = FileLog(tmp_path / "log")
        async with nodes_of(shared, *configs) as (first, second), ClientSession() as http:
            await first.start()
            await publish(first.server, 0)
            put = {"bookmark": "1"}
            url = f"{first.server.address}/v1/log/consumers/desk"
            assert (await http.put(url, json=put)).status in (200, 204)
            await trimmed(shared, first)
            await second.start()
            await second.until(lambda: second.follows and records(second.server) == ["0"])
            await first.die()
            await second.until(lambda: not second.follows)
            answer = await http.get(f"{second.server.address}/v1/log/consumers")
            assert [one["name"] for one in await answer.json()] == ["desk"]

    asyncio.run(play())


@pytest.mark.edge
@pytest.mark.usefixtures("steady", "often")
def test_a_node_that_starts_again_reads_the_log_behind_its_place(tmp_path):
    async def play():
        config = node_configuration("a", tmp_path)
        shared = FileLog(tmp_path / "log")
        async with nodes_of(shared, config, config) as (first, again):
            await first.start()
            await publish(first.server, 1)
            await trimmed(shared, first)
            await first.die()
            await again.start()
            await again.until(lambda: not again.follows)
            assert records(again.server) == ["1"]
            await publish(again.server, 2)
            assert again.member._driver._begins.position > 1

    asyncio.run(play())


@pytest.mark.edge
@pytest.mark.usefixtures("steady", "often")
def test_a_place_of_another_log_is_refused_and_never_led_from(tmp_path):
    async def play(path):
        config = node_configuration("a", tmp_path)
        shared = FileLog(path)
        async with nodes_of(shared, config) as (node,):
            if path.name == "two":
                for number in range(20):
                    await shared.append(b"%d" % number)
            await node.start()
            await publish(node.server, 1)
            await node.until(lambda: kept(node) is not None)

    asyncio.run(play(tmp_path / "one"))
    with pytest.raises(StoreError, match="another entry at position") as refused:
        asyncio.run(play(tmp_path / "two"))
    assert refused.value.reason == "another log"


@pytest.mark.edge
@pytest.mark.usefixtures("steady", "often")
def test_a_place_counts_only_for_the_directory_that_it_was_written_for(tmp_path):
    async def play():
        async with nodes_of(FileLog(tmp_path / "log"), node_configuration("a", tmp_path)) as (
            node,
        ):
            await node.start()
            await publish(node.server, 1)
            await node.until(lambda: kept(node) is not None and kept(node).bookmark)

    asyncio.run(play())
    path = tmp_path / "a"
    place = read_checkpoint(path)
    assert begins_at(path) == place.state
    (path / "log-checkpoint.json").write_bytes(b"{}")
    assert begins_at(path) == ChainState()
    ahead = msgspec.structs.replace(place, bookmark=place.bookmark + 1)
    log_checkpoint.write_checkpoint(path, ahead)
    assert begins_at(path) == ChainState()
    log_checkpoint.write_checkpoint(path, place)
    shutil.rmtree(path / "journal")
    for name in (MANIFEST_FILE, COPY_FILE):
        (path / name).unlink()
    assert begins_at(path) == ChainState()


@pytest.mark.edge
@pytest.mark.usefixtures("steady", "often")
def test_a_copy_that_was_interrupted_is_put_in_place_at_the_next_start(tmp_path):
    ready = tmp_path / READY
    (ready / "journal").mkdir(parents=True)
    (ready / "journal" / "data.mdb").write_bytes(b"log")
    (ready / "lock").touch()
    (ready / "orders.sow").write_bytes(b"records")
    (tmp_path / "manifest.json").write_bytes(b"was moved before")
    finish_copy(tmp_path)
    assert not ready.exists()
    assert (tmp_path / "journal" / "data.mdb").read_bytes() == b"log"
    assert (tmp_path / "orders.sow").read_bytes() == b"records"
    assert not (tmp_path / "lock").exists()
    finish_copy(tmp_path)


@pytest.mark.edge
@pytest.mark.usefixtures("steady", "often")
def test_who_leads_is_read_at_the_end_of_the_log_whatever_else_stands_there(tmp_path):
    async def play():
        shared = FileLog(tmp_path / "log")
        lead = Lead("a", "http://a", 1_000_000, log="0123")
        await shared.append(b"before")
        asking = asyncio.create_task(leader_of(shared, 5))
        await asyncio.sleep(0)
        for kind, content in (
            (EntryKind.BEAT, b""),
            (EntryKind.RECORDS, lead.encode()),
            (EntryKind.BEAT, lead.encode()),
        ):
            await shared.append(LogEnvelope(kind, 1, 1, bytes(16), bytes(16), content).encode()[0])
        assert await asking == lead
        with pytest.raises(LogUnanswered, match="no node leads"):
            await leader_of(shared, 0.01)
        shared.close()

    asyncio.run(play())


@pytest.mark.edge
@pytest.mark.usefixtures("steady", "often")
def test_records_of_another_log_are_not_replaced_by_a_copy(tmp_path):
    async def play():
        config, other = (node_configuration(name, tmp_path, port=free_port()) for name in "ab")
        async with nodes_of(FileLog(tmp_path / "other"), other) as (second,):
            await second.start()
            await publish(second.server, 7)
        shared = FileLog(tmp_path / "log")
        async with nodes_of(shared, config) as (first,):
            await first.start()
            await publish(first.server, 1)
            await trimmed(shared, first)
            with pytest.raises(StoreError, match="has records of log") as refused:
                await log_copy.copy_of_primary(shared, tmp_path / "b", 1_000_000, ClientSession)
            assert refused.value.reason == "another log"

    asyncio.run(play())


def node(url, state, role="follower", bookmark="7"):
    return ServerNode(url, role, bookmark, state)


@pytest.mark.parametrize(
    ("own", "others", "outvoted"),
    [
        (node("b", "1"), [], False),
        (node("b", "1"), [node("a", "1", "primary")], False),
        (node("b", "1"), [node("a", "2", "primary")], True),
        (node("a", "2", "primary"), [node("b", "1")], False),
        (node("a", "2", "primary"), [node("b", "1"), node("c", "1")], True),
        (node("b", "1"), [node("a", "2", "primary"), node("c", "1")], False),
        (node("c", "2"), [node("a", "1", "primary"), node("b", "1")], True),
        (node("b", "1"), [node("a", "2", "primary", "8"), node("c", None)], False),
        (node("b", "1"), [node("b", "2"), node("a", "1", "primary")], False),
        (node("b", None), [node("a", "2", "primary")], False),
    ],
)
def test_the_minority_is_wrong_and_of_as_many_who_is_not_with_the_primary(own, others, outvoted):
    assert is_outvoted(own, others) is outvoted


@stepped
@pytest.mark.parametrize(("role", "stops"), [("follower", True), ("chained", False)])
async def test_another_process_of_its_name_ends_a_node_and_its_own_edges_do_not(
    monkeypatch, role, stops
):
    async def name_at(_calls, _url):
        return "c"  # an edge answers what the node above it does

    monkeypatch.setattr(log_copy, "name_at", name_at)
    driver = SimpleNamespace(lead=Lead("c", "http://c", 1), failures=[])
    driver.fail = driver.failures.append
    reports = NodeReports(driver, None, None, False)
    await reports._check_name(None, [node("http://first", "1", role), node("http://c", "1")])
    assert [type(one) for one in driver.failures] == [ConfigError] * stops


@stepped
async def test_a_record_can_be_changed_for_tests():
    world = World()
    assert not corrupt(world.engine)
    world.publish(b'{"id":1}')
    with world.engine.noting() as noted:
        assert corrupt(world.engine)
        assert [topic.name for topic in noted] == ["orders"]
