"""A node of a shared log: which server it is, and whom it joins."""

import asyncio
import errno
import json
import re
import subprocess
from dataclasses import replace

import aiohttp
import pytest

from sow.core.async_tasks import end_all
from sow.core.definitions import ConflatedTopic, SharedLogSettings, Topic
from sow.errors import (
    ConfigError,
    Damaged,
    DiskFull,
    LogUnanswered,
    SowError,
    StateDiffers,
    StoreError,
)
from sow.server.boot.app import Server
from sow.server.boot.log_member import LogMember, open_log
from sow.server.boot.log_move import move_in, move_out
from sow.server.loop import log_driver
from sow.server.loop.log_checkpoint import MARK_FILE
from sow.server.loop.log_driver import LogDriver
from sow.store import environment
from tests.ports import free_port
from tests.server.boot.log_nodes import WAIT_S, Node, node_configuration, nodes_of
from tests.server.boot.servers import ORDERS, publish, records
from tests.shared_log.files import FileLog

pytestmark = [pytest.mark.edge, pytest.mark.usefixtures("steady")]


def test_each_engine_has_its_client():
    nats = open_log(
        SharedLogSettings("nats", ("nats://a:1", "nats://b:1"), "mine", 2, ("http://a:2",))
    )
    assert (nats.place.servers, nats.place.stream) == (("nats://a:1", "nats://b:1"), "mine")
    assert (nats.place.replicas, nats.place.monitors, nats.answer_s) == (2, ("http://a:2",), 1.0)
    postgres = open_log(
        SharedLogSettings("postgres", dsn="postgres://here/log", lease_us=3_000_000, unsafe=True)
    )
    assert (postgres.place.dsn, postgres.place.unsafe) == ("postgres://here/log", True)
    assert postgres.answer_s == 3.0
    kafka = open_log(SharedLogSettings("kafka", ("kafka://a:9092", "b:9092"), topic="mine"))
    assert (kafka.place.servers, kafka.place.topic) == (["a:9092", "b:9092"], "mine")
    s3 = open_log(SharedLogSettings("s3", url="s3://bucket/name?region=here", unsafe=True))
    assert (s3.place.url, s3.place.unsafe) == ("s3://bucket/name?region=here", True)


def test_what_a_node_waits_for_is_what_it_does(tmp_path):
    class Silent:
        def __init__(self):
            self.fails = asyncio.Event()

        async def last(self):
            await self.fails.wait()
            raise LogUnanswered("nobody is there")

        async def close(self):
            pass

    async def play():
        shared = Silent()
        member = LogMember(node_configuration("a", tmp_path), lambda _settings: shared)
        assert member.waits_for == "this node's data directory is read"
        joining = asyncio.create_task(member.joined())
        async with asyncio.timeout(WAIT_S):
            while member.waits_for != "the engine of the shared log has not answered yet":
                await asyncio.sleep(0.01)
            shared.fails.set()
            while not member.waits_for.startswith("the engine of the shared log does not answer;"):
                await asyncio.sleep(0.01)
        assert await end_all((joining,))
        await member.leave()

    asyncio.run(play())


def test_the_first_node_leads_and_another_goes_on_when_it_is_gone(tmp_path):
    async def play():
        configs = [node_configuration(name, tmp_path) for name in "ab"]
        async with nodes_of(FileLog(tmp_path / "log"), *configs) as (first, second):
            await first.start()
            await first.until(lambda: not first.follows)
            await publish(first.server, 1)
            await second.start()
            await second.until(lambda: second.follows and records(second.server) == ["1"])
            log_id = first.server.runtime.journal.log_id
            assert second.server.runtime.journal.log_id == log_id
            await first.die()
            await second.until(lambda: not second.follows)
            assert records(second.server) == ["1"]
            failover = (await get(second, "/v1/log/status"))[2]["failover"]
            assert (failover["before"], failover["after"]) == ("a", "b")
            assert failover["why"].startswith("a was not heard for ")
            figures = (await get(second, "/metrics"))[2]
            assert "sow_log_leads 1.0" in figures
            assert "sow_log_term 2.0" in figures
            await publish(second.server, 2)
            await first.start()
            await first.until(lambda: first.follows and records(first.server) == ["1", "2"])
            assert first.server.engine.primary == "http://b"
            assert first.server.runtime.journal.log_id == log_id
            # One that is stopped in order says so.
            await second.end()
            second.server = None
            await first.until(lambda: not first.follows)
            failover = (await get(first, "/v1/log/status"))[2]["failover"]
            assert failover["why"] == "b stepped down"

    asyncio.run(play())


def test_a_primary_that_is_passed_over_while_it_stops_ends_without_an_error(tmp_path, monkeypatch):
    async def play():
        async with nodes_of(FileLog(tmp_path / "log"), node_configuration("a", tmp_path)) as (one,):
            await one.start()
            driver = one.member._driver
            # Handed over, and never read back.
            monkeypatch.setattr(driver, "submit", lambda *_: True)
            waiting = asyncio.create_task(publish(one.server, 1))
            stopping = asyncio.create_task(one.server.stop())
            async with asyncio.timeout(WAIT_S):
                while len(one.server.runtime._waiters) < 2:  # the publisher, and who stops it
                    await asyncio.sleep(0)
            driver._end_submitter(driver.lost_lead())
            await stopping
            one.server = None
            with pytest.raises(StoreError):
                await waiting

    asyncio.run(play())


def test_a_primary_that_was_passed_over_keeps_nothing_that_is_not_in_the_log(tmp_path):
    async def play():
        configs = [node_configuration(name, tmp_path) for name in "ab"]
        shared = FileLog(tmp_path / "log")
        async with nodes_of(shared, *configs) as (first, second):
            await first.start()
            await publish(first.server, 1)
            await second.start()
            await second.until(lambda: second.follows and records(second.server) == ["1"])
            append = first.member._shared.append

            async def never(_block):
                await asyncio.Event().wait()

            first.member._shared.append = never
            lost = asyncio.create_task(publish(first.server, 2))
            await second.until(lambda: not second.follows)
            await publish(second.server, 3)
            first.member._shared.append = append
            with pytest.raises(Exception, match=r"not known|another node leads"):
                await lost
            await first.until(lambda: first.follows and records(first.server) == ["1", "3"])

    asyncio.run(play())


class Held:
    """A log that stores nothing while it is held."""

    def __init__(self, node):
        self._client, self._is_back = node.member._shared, asyncio.Event()
        self._append, self._client.append = self._client.append, self._waits

    async def _waits(self, block):
        await self._is_back.wait()
        return await self._append(block)

    def go_on(self):
        self._is_back.set()


async def get(node, path):
    """The status of an answer, its headers, and what it says."""
    async with aiohttp.ClientSession(node.server.address) as http, http.get(path) as answer:
        text = await answer.text()
        return answer.status, answer.headers, json.loads(text) if text[:1] in ("[", "{") else text


RECORDS = "/v1/topics/orders/records"
IS_STALE = {"c": "ack", "a": "processed", "status": "failure", "reason": "stale"}


def test_without_a_quorum_reads_are_refused_unless_they_take_stale_answers(tmp_path):
    async def play():
        shared = FileLog(tmp_path / "log")
        async with nodes_of(shared, node_configuration("a", tmp_path)) as (node,):
            await node.start()
            await publish(node.server, 1)
            assert (await get(node, RECORDS))[0] == 200
            held = Held(node)
            lost = asyncio.create_task(publish(node.server, 2))
            await node.until(lambda: node.server.runtime.refusal is not None)
            status, headers, said = await get(node, RECORDS)
            assert (status, said["reason"], headers["Retry-After"]) == (503, "stale", "1")
            status, headers, said = await get(node, f"{RECORDS}?stale=ok")
            assert (status, int(headers["SOW-Stale"]) >= 2, said[0]) == (200, True, {"id": 1})
            assert (await get(node, f"{RECORDS}?stale=yes"))[0] == 400
            for path in ("/v1/status", "/v1/log/status", "/v1/sessions", "/metrics"):
                assert (await get(node, path))[0] == 200, path
            assert (await get(node, "/v1/log/status"))[2]["stale"]
            status, _, said = await get(node, "/readyz")
            assert (status, said.startswith("no quorum")) == (503, True)
            with pytest.raises(Exception, match="not known"):
                await lost
            held.go_on()
            await node.until(lambda: node.server.runtime.refusal is None)
            status, headers, said = await get(node, RECORDS)
            assert (status, "SOW-Stale" in headers, len(said)) == (200, False, 2)

    asyncio.run(play())


def test_commands_over_a_websocket_are_answered_without_a_quorum(tmp_path):
    """Answers do not wait for what was handed over, which may take as long as there is none."""

    async def play():
        shared = FileLog(tmp_path / "log")
        async with nodes_of(shared, node_configuration("a", tmp_path)) as (node,):
            await node.start()
            await publish(node.server, 1)
            held = Held(node)
            lost = asyncio.create_task(publish(node.server, 2))
            await node.until(lambda: node.server.runtime.refusal is not None)
            async with (
                aiohttp.ClientSession(node.server.address) as http,
                http.ws_connect("/v1/ws") as ws,
            ):

                async def ask(count, **fields):
                    await ws.send_json(fields)
                    lines = []
                    while len(lines) < count:
                        frame = await ws.receive(timeout=WAIT_S)
                        lines += [json.loads(one) for one in frame.data.splitlines()]
                    return lines

                (named,) = await ask(1, c="logon", cid="0", client="me")
                assert named["status"] == "success"
                for command in ("sow", "subscribe", "sow_and_subscribe"):
                    (said,) = await ask(1, c=command, cid="1", t="orders")
                    assert {name: said[name] for name in IS_STALE} == IS_STALE
                found = await ask(5, c="sow_and_subscribe", cid="2", t="orders", stale="ok")
                assert [one["stale"] >= 2 for one in found if one["c"] == "ack"] == [True]
                rows = [one["d"] for one in found if one["c"] == "sow"]
                assert rows[0] == {"id": 1}
                (said,) = await ask(1, c="publish", cid="3", t="orders", d={"id": 3})
                assert (said["status"], said["reason"]) == ("failure", "no quorum")
                (said,) = await ask(1, c="sow", cid="4", t="orders", stale="maybe")
                assert "write ok" in said["detail"]
                (said,) = await ask(1, c="flush", cid="5", stale="ok")
                assert "leave stale out" in said["detail"]
                held.go_on()
                await node.until(lambda: node.server.runtime.refusal is None)
                await publish(node.server, 4)
                assert (await ask(1, c="heartbeat"))[0]["d"] == {"id": 4}
            with pytest.raises(Exception, match="not known"):
                await lost

    asyncio.run(play())


def test_a_bookmark_that_is_newer_than_a_node_has_waits(tmp_path):
    async def play():
        shared = FileLog(tmp_path / "log")
        async with nodes_of(shared, node_configuration("a", tmp_path)) as (node,):
            await node.start()
            late = asyncio.create_task(get(node, f"{RECORDS}?as_of=1&wait=60"))
            await asyncio.sleep(0)
            await publish(node.server, 1)
            assert (await late)[0] == 200
            status, _, said = await get(node, f"{RECORDS}?as_of=7&wait=0.1")
            assert (status, said["reason"]) == (504, "not yet")
            async with (
                aiohttp.ClientSession(node.server.address) as http,
                http.ws_connect("/v1/ws") as ws,
            ):
                await ws.send_json(
                    {"c": "subscribe", "cid": "1", "t": "orders", "bm": "7", "wait": 0.1}
                )
                assert json.loads((await ws.receive(timeout=WAIT_S)).data)["reason"] == "not yet"

    asyncio.run(play())


def test_a_node_with_another_configuration_does_not_join(tmp_path):
    async def play():
        other = node_configuration("b", tmp_path, ORDERS, Topic("more", "json", ("/id",)))
        shared = FileLog(tmp_path / "log")
        async with nodes_of(shared, node_configuration("a", tmp_path), other) as (first, second):
            await first.start()
            with pytest.raises(ConfigError, match=r"topic more, which is only here:"):
                await second.start()

    asyncio.run(play())


FAST = ConflatedTopic("fast", "json", "orders", interval_us=100_000)


def test_a_reload_takes_effect_on_every_node_at_its_place_in_the_log(tmp_path):
    async def play():
        configs = [node_configuration(name, tmp_path) for name in "abc"]
        async with nodes_of(FileLog(tmp_path / "log"), *configs) as (first, second, third):
            await first.start()
            await publish(first.server, 1)
            await second.start()
            await second.until(lambda: second.follows and records(second.server) == ["1"])
            first.config = replace(first.config, topics=(ORDERS, FAST), colour="red")
            assert len(await first.server.reload()) == 2
            assert first.server.engine.seq == 2  # it has a place of its own
            await publish(first.server, 2)
            await second.until(lambda: records(second.server) == ["1", "2"])
            assert "fast" in second.server.engine.topics
            assert second.server.configuration.colour == "red"
            for node in (first, second):
                since = node.server.engine.configurations.all()[-1]
                assert (since.seq, since.is_start) == (2, False)
            shown = [await get(node, "/v1/log?from=1&min_bookmark=3") for node in (first, second)]
            assert [(status, said["seq"]) for status, _, said in shown] == 2 * [(200, 3)]
            with pytest.raises(ConfigError, match=r"in <.*>, conflated topic fast, which is only"):
                await third.start()
            await first.die()
            await second.until(lambda: not second.follows)  # under what the log has
            assert "fast" in second.server.engine.topics
            first.config = replace(configs[0], topics=(ORDERS, FAST), colour="red")
            first.member = type(first.member)(first.config, first.member._opened)
            await first.start()
            await first.until(lambda: first.follows and records(first.server) == ["1", "2"])
            with pytest.raises(ConfigError, match="reload that one"):
                await first.server.reload()

    asyncio.run(play())


def test_a_second_node_of_one_name_does_not_join(tmp_path):
    async def play():
        twin = node_configuration("a", tmp_path / "other")
        shared = FileLog(tmp_path / "log")
        async with nodes_of(shared, node_configuration("a", tmp_path), twin) as (first, second):
            await first.start()
            with pytest.raises(ConfigError, match="leads the shared log as node a, at http://a"):
                await second.start()
            await publish(first.server, 1)
            # Where the first is gone, it is an earlier life of the same node.
            await first.die()
            await second.start()
            await second.until(lambda: not second.follows and records(second.server) == ["1"])

    asyncio.run(play())


def test_a_second_node_of_one_name_stops_where_another_node_leads(tmp_path):
    async def play():
        leader, config = (node_configuration(name, tmp_path, port=free_port()) for name in "ab")
        twin = node_configuration("b", tmp_path / "other", port=free_port())
        shared = FileLog(tmp_path / "log")
        async with nodes_of(shared, leader, config, twin) as (first, second, third):
            await first.start()
            await first.until(lambda: not first.follows)
            await second.start()
            await second.until(lambda: len(second.member.reports.known) == 2)
            await third.start()
            address = second.server.address
            with pytest.raises(ConfigError, match=f"is node b of the shared log, at {address}"):
                await third.until(lambda: False)
            third.server = None
            assert not second.is_over.is_set()
            # One that has ended is listed for a while, and does not count.
            await second.die()
            third.member = type(third.member)(third.config, third.member._opened)
            await third.start()
            await third.until(lambda: third.member.reports._is_alone)

    asyncio.run(play())


def test_records_of_another_log_are_not_taken_for_those_of_this_one(tmp_path):
    async def play(path):
        config = node_configuration("a", tmp_path)
        async with nodes_of(FileLog(path), config) as (node,):
            await node.start()
            await publish(node.server, 1)

    asyncio.run(play(tmp_path / "one"))
    with pytest.raises(StoreError, match="the shared log is"):
        asyncio.run(play(tmp_path / "two"))


def test_a_node_that_has_not_what_the_others_have_stops_for_good(tmp_path, caplog, monkeypatch):
    async def play():
        configs = [node_configuration(name, tmp_path) for name in "ab"]
        shared = FileLog(tmp_path / "log")
        async with nodes_of(shared, *configs) as (first, second):
            second.member._corrupts = True
            await first.start()
            await publish(first.server, 1)
            # Where nodes are called is not where they listen in these tests.
            called = property(lambda _driver: first.server.address)
            monkeypatch.setattr(LogDriver, "address", called)
            await second.start()
            with pytest.raises(StateDiffers, match="at bookmark 1 node b has the state hash"):
                await second.until(lambda: False)
            assert "it stops" in caplog.text
            await publish(first.server, 2)
            # It remembers that, whatever it is started as.
            await second.member.close()
            other = FileLog(tmp_path / "another log")
            local = replace(second.config, shared_log=SharedLogSettings())
            for start in (
                Node(second.config, shared).start,
                Node(second.config, other).start,
                Server(local, tmp_path / "b").start,
                lambda: move_in(second.config, lambda _settings: None),
                lambda: move_out(second.config, lambda _settings: None),
            ):
                with pytest.raises(StateDiffers, match="has not the records that the other nodes"):
                    await start()
            other.close()
            said = re.search(r"run (mv \S+ \S+) and start", caplog.text)
            subprocess.run(said[1].split(), check=True, timeout=20)
            second.member = LogMember(second.config, second.member._opened)
            await second.start()
            await second.until(lambda: second.follows and records(second.server) == ["1", "2"])
            assert (tmp_path / "b.differs" / MARK_FILE).read_text().startswith("at bookmark 1 node")

    asyncio.run(play())


def test_every_node_lists_all_of_them(tmp_path, monkeypatch):
    async def play():
        configs = [node_configuration(name, tmp_path) for name in "ab"]
        async with nodes_of(FileLog(tmp_path / "log"), *configs) as (first, second):
            await first.start()
            await publish(first.server, 1)
            called = property(lambda _driver: first.server.address)
            monkeypatch.setattr(LogDriver, "address", called)
            await second.start()
            await second.until(lambda: second.follows and len(second.member.reports.known) == 2)
            shown = [(await get(node, "/v1/status"))[2] for node in (first, second)]
            listed = [
                {one["url"]: (one["role"], one["bookmark"]) for one in said["nodes"]}
                for said in shown
            ]
            assert listed[0] == {"http://a": ("primary", "1"), "http://b": ("follower", "1")}
            assert listed[1] == listed[0]
            assert [said["role"] for said in shown] == ["primary", "follower"]
            assert shown[0]["state_hash"] == shown[1]["state_hash"]
            assert shown[0]["lag_ms"] == 0

    asyncio.run(play())


def test_a_node_that_has_missed_very_much_joins_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(log_driver, "WAITING_BYTES_MAX", 2_000)

    async def play():
        more = Topic("more", "json", ("/id",))
        configs = [node_configuration(name, tmp_path) for name in "ab"]
        configs.append(node_configuration("c", tmp_path, ORDERS, more))
        async with nodes_of(FileLog(tmp_path / "log"), *configs) as (first, second, third):
            await first.start()
            for number in range(60):
                await publish(first.server, number)
            await second.start()
            assert second.member._driver.is_full
            await second.until(lambda: len(records(second.server)) == 60)
            await second.until(lambda: second.member._has_joined)
            # With another configuration it begins, too, and ends as soon as that is known.
            await third.start()
            with pytest.raises(ConfigError, match="topic more, which is only here"):
                await third.until(lambda: False)

    asyncio.run(play())


def test_a_reload_that_is_stored_late_counts_in_the_next_role_too(tmp_path):
    async def play():
        config, other = node_configuration("a", tmp_path), node_configuration("b", tmp_path)
        other = replace(other, topics=(ORDERS, FAST))
        async with nodes_of(FileLog(tmp_path / "log"), config, other) as (first, second):
            await first.start()
            held = Held(first)
            first.config = replace(first.config, topics=(ORDERS, FAST))
            with pytest.raises(SowError, match="not known"):
                await first.server.reload()
            held.go_on()
            await first.until(lambda: first.server.runtime.refusal is None)
            await second.start()
            await second.until(lambda: second.follows)
            assert first.member._driver.step_down()
            await second.until(lambda: not second.follows)
            await first.until(lambda: first.follows)
            assert "fast" in first.server.engine.topics

    asyncio.run(play())


SHORT_US = 400_000
"""A lease where nodes are started one after the other."""


def test_an_old_file_takes_no_reload_back(tmp_path):
    async def play():
        configs = [node_configuration(name, tmp_path, lease_us=SHORT_US) for name in "ab"]
        newer = replace(configs[0], topics=(ORDERS, FAST))
        async with nodes_of(FileLog(tmp_path / "log"), *configs, newer) as (first, old, new):
            await first.start()
            await old.start()
            await old.until(lambda: old.follows)
            first.config = newer
            await first.server.reload()
            await old.until(lambda: "fast" in old.server.engine.topics)
            await first.die()
            await old.die()
            for config in (configs[1], node_configuration("c", tmp_path, lease_us=SHORT_US)):
                old.config, old.member = config, type(old.member)(config, old.member._opened)
                with pytest.raises(ConfigError, match="conflated topic fast, which is only there"):
                    await old.start()
            await old.member.close()
            await new.start()
            await new.until(lambda: not new.follows)
            assert "fast" in new.server.engine.topics

    asyncio.run(play())


def test_a_server_that_cannot_begin_another_role_is_tried_again_unless_it_is_damaged(
    tmp_path, monkeypatch
):
    async def play():
        configs = [node_configuration(name, tmp_path) for name in "ab"]
        async with nodes_of(FileLog(tmp_path / "log"), *configs) as (first, second):
            full = DiskFull("no room")
            assert not await first.member.tries_again(full)
            await first.start()
            assert not await first.member.tries_again(full)  # who starts it sees why
            await publish(first.server, 1)
            await second.start()
            await second.until(lambda: second.follows)
            assert first.member._driver.step_down()
            await first.is_over.wait()
            await first.server.stop()
            first.server = None
            await first.member.joined()
            server, _ = first.member.server(first._make, 0)

            def refuses(_path):
                raise OSError(errno.ENOSPC, "no room")

            with monkeypatch.context() as patch:
                patch.setattr(environment, "_allot", refuses)
                with pytest.raises(StoreError) as failed:
                    await server.start()
            assert await first.member.tries_again(failed.value)
            assert not await first.member.tries_again(StoreError("of a later release"))
            assert not await first.member.tries_again(Damaged("it is broken"))
            await first.start()
            await second.until(lambda: not second.follows)
            await publish(second.server, 2)
            await first.until(lambda: first.follows and records(first.server) == ["1", "2"])

    asyncio.run(play())


def test_no_log_begins_without_the_records_that_a_directory_has(tmp_path):
    async def play():
        config = node_configuration("a", tmp_path)
        shared = FileLog(tmp_path / "log")
        alone = Server(replace(config, shared_log=SharedLogSettings()), tmp_path / "a")
        await alone.start()
        await publish(alone, 1)
        await alone.stop()
        async with nodes_of(shared, config) as (node,):
            with pytest.raises(StoreError, match="run sow log move"):
                await node.start()
            assert not shared.newest

    asyncio.run(play())


def test_a_server_of_its_own_does_not_write_where_a_node_has(tmp_path):
    async def play():
        config = node_configuration("a", tmp_path)
        async with nodes_of(FileLog(tmp_path / "log"), config) as (node,):
            await node.start()
            await publish(node.server, 1)
            await node.until(lambda: node.member._keeper.kept is not None)
        alone = Server(replace(config, shared_log=SharedLogSettings()), tmp_path / "a")
        with pytest.raises(StoreError, match="run sow log move --out") as refused:
            await alone.start()
        assert str(tmp_path / "a" / "log-checkpoint.json") in refused.value.detail

    asyncio.run(play())


MORE = Topic("more", "json", ("/id",))


async def served(node):
    """A node, until it ends by itself: it may apply what the log has before it is refused."""
    await node.start()
    await node.until(lambda: False)


def test_no_start_leaves_records_out_unless_the_log_has(tmp_path):
    """A file without a topic that has records is refused, as it is of a server alone; what one node
    has given up is given up on every node, whichever starts first."""

    async def play():
        both = {
            name: node_configuration(name, tmp_path, ORDERS, MORE, lease_us=SHORT_US)
            for name in "ab"
        }
        less = {name: node_configuration(name, tmp_path, lease_us=SHORT_US) for name in "ab"}
        shared = FileLog(tmp_path / "log")
        configs = [*both.values(), less["a"], less["b"], less["a"]]
        async with nodes_of(shared, *configs) as (a, b, refused, left, again):
            await a.start()
            engine = a.server.engine
            engine.publish("more", [b'{"id":1}'], a.server.runtime.now_us())
            await publish(a.server, 1)
            await b.start()
            await b.until(lambda: b.follows and records(b.server) == ["1"])
            await b.die()
            await a.die()
            for _ in range(2):  # also once it has led under this file
                with pytest.raises(StoreError, match=r"more .1 record") as found:
                    await served(refused)
                assert found.value.reason == "records would be lost"
                await refused.member.close()
            refused.allow_loss = True
            await refused.start()
            await refused.until(lambda: not refused.follows)
            await publish(refused.server, 2)
            await refused.die()
            await left.start()  # which was away, and leads
            await left.until(lambda: records(left.server) == ["1", "2"] and not left.follows)
            await again.start()
            await again.until(lambda: again.follows and records(again.server) == ["1", "2"])
            await left.die()
            await again.until(lambda: not again.follows)

    asyncio.run(play())
