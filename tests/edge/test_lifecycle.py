"""Start, stop, a second server, a full disk, damage: with real processes and a real disk."""

import asyncio
import json
import resource
import shutil
import signal
import sys
import time
from functools import partial
from pathlib import Path

import aiohttp
import pytest

from sow.core.clock import SECOND_US, SystemClock, wall_us
from sow.errors import DiskFull
from tests import forks
from tests.edge.serving import WAIT_S, Running, configuration, records

ROOT = Path(__file__).parents[2]
TOPICS = """<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>
<ConflatedTopic><Name>orders-C</Name><MessageType>json</MessageType>
<UnderlyingTopic>orders</UnderlyingTopic><Interval>100ms</Interval></ConflatedTopic>"""


class Process:
    """`sow serve` of the shipped configuration on a free port; a `real` one is in a hurry."""

    def __init__(self, data, limit_bytes=None, begin=forks.started):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, resource.RLIM_INFINITY))
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

        begin = partial(forks.real, preexec_fn=limit) if limit_bytes else begin
        command = [
            sys.executable,
            "-m",
            "sow.cli",
            "serve",
            str(ROOT / "config.xml"),
            "--no-pipelines",
            "--port",
        ]
        self._process = begin(
            [*command, "0", "--data-dir", str(data)],
            stdout=forks.PIPE,
            stderr=forks.PIPE,
            text=True,
        )
        self.line = self._process.stdout.readline()
        self.url = self.line.split()[3] if self.line else ""
        self.pid = self._process.pid

    def signal(self, number):
        self._process.send_signal(number)

    def end(self):
        """Exit status and what was said on standard error."""
        errors = self._process.communicate(timeout=WAIT_S)[1]
        assert "Traceback" not in errors, errors
        return self._process.returncode, errors

    def stop(self):
        self.signal(signal.SIGTERM)
        return self.end()


async def publish_for_ever(url, acknowledged):
    async with aiohttp.ClientSession() as http, http.ws_connect(url + "/v1/ws") as ws:
        number = 0
        while not ws.closed:
            number += 1
            head = {"c": "publish", "t": "orders", "n": 50, "cid": str(number), "a": "persisted"}
            bodies = [json.dumps({"order_id": f"{number}-{i}"}) for i in range(50)]
            await ws.send_str("\n".join([json.dumps(head), *bodies]))
            message = await ws.receive()
            if message.type is not aiohttp.WSMsgType.BINARY:
                return
            if json.loads(message.data.splitlines()[0])["c"] == "ack":
                acknowledged.append(number)


async def terminate_under_load(process):
    acknowledged = []
    load = asyncio.ensure_future(publish_for_ever(process.url, acknowledged))
    while len(acknowledged) < 20:
        await asyncio.sleep(0.01)
    process.signal(signal.SIGTERM)
    await asyncio.wait_for(load, WAIT_S)
    return acknowledged


async def query(url, topic, **parameters):
    address = f"{url}{records(topic, **parameters)}"
    async with aiohttp.ClientSession() as http, http.get(address) as response:
        return await response.json()


async def publish(url, topic, *documents):
    address = f"{url}{records(topic)}"
    async with (
        aiohttp.ClientSession() as http,
        http.post(address, json=list(documents)) as response,
    ):
        return response.status, await response.json()


def test_sigterm_under_load_ends_in_time_and_keeps_what_was_acknowledged(tmp_path):
    process = Process(tmp_path, begin=forks.real)
    acknowledged = asyncio.run(terminate_under_load(process))
    status, _ = process.end()
    assert status == 0, "1 is a server that gave up stopping after five seconds of its own"
    again = Process(tmp_path)
    found = {order["order_id"] for order in asyncio.run(query(again.url, "orders"))}
    assert {f"{number}-{i}" for number in acknowledged for i in range(50)} <= found
    assert again.stop()[0] == 0


@pytest.mark.parametrize("steps", range(6))
def test_a_connection_that_opens_while_the_server_stops_is_not_served_by_what_is_left(
    tmp_path, steps
):
    server = Running(configuration(TOPICS), tmp_path)
    listener = server.server._http._listener

    async def stop_after_its_acceptance():
        listener._accept(listener._sockets[0])
        for _ in range(steps):
            await asyncio.sleep(0)
        await server.server.stop()

    server.call(listener._shut)
    with server.connection() as raw:
        server.wait(stop_after_its_acceptance())
        try:
            raw.sendall(b"GET /v1/topics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert raw.recv(1) == b""
        except ConnectionError:
            pass
    server.wait(server._http.close())
    server.start()
    server.close()


@pytest.fixture(scope="module")
def twenty_orders(tmp_path_factory):
    """The data of a server that has stored twenty orders, for tests to copy."""
    data = tmp_path_factory.mktemp("twenty")
    process = Process(data)
    for number in range(20):
        asyncio.run(publish(process.url, "orders", {"order_id": str(number), "pad": "x" * 3000}))
    process.stop()
    return data


@pytest.mark.parametrize("how", ["truncated", "flipped", "zeroed"])
def test_a_damaged_journal_is_reported_and_never_served(twenty_orders, tmp_path, how):
    shutil.copytree(twenty_orders, tmp_path, dirs_exist_ok=True)
    file = tmp_path / "journal" / "data.mdb"
    content = bytearray(file.read_bytes())
    damage(content, how)
    file.write_bytes(content)
    again = Process(tmp_path)
    if again.url:
        # The bytes were none that count: then everything is there as it was.
        found = asyncio.run(query(again.url, "orders"))
        assert [order["order_id"] for order in found] == [str(n) for n in range(20)]
        again.stop()
        return
    status, errors = again.end()
    assert status == 1
    assert "journal" in errors
    assert "sow.store.repair" in errors


def damage(content, how):
    middle = content.rindex(b"x" * 100)
    if how == "truncated":
        del content[len(content) // 2 :]
    elif how == "flipped":
        content[middle] ^= 0x40
    else:
        content[middle - 50 : middle] = bytes(50)


def test_a_disk_that_refuses_to_write_answers_507_and_keeps_serving(tmp_path):
    """The file may not grow: the journal's own write fails, after the message was taken."""
    process = Process(tmp_path, limit_bytes=1_500_000)
    kept, refused = [], None
    for number in range(40):
        document = {"order_id": str(number), "pad": "x" * 60_000}
        status, answer = asyncio.run(publish(process.url, "orders", document))
        if status != 200:
            refused = status, answer["reason"]
            break
        kept.append(str(number))
    assert refused == (507, "disk full")
    found = asyncio.run(query(process.url, "orders"))
    assert {order["order_id"] for order in found} >= set(kept)
    status, answer = asyncio.run(publish(process.url, "orders", {"order_id": "later"}))
    assert (status, answer["reason"]) == (507, "disk full")
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    asyncio.run(until_published(process.url, {"order_id": "later"}))
    assert process.stop()[0] == 0
    again = Process(tmp_path)
    found = {order["order_id"] for order in asyncio.run(query(again.url, "orders"))}
    assert found >= {*kept, "later"}
    again.stop()


async def until_published(url, document):
    async with asyncio.timeout(WAIT_S):
        while (await publish(url, "orders", document))[0] != 200:
            await asyncio.sleep(0.05)


@pytest.fixture
def server(tmp_path):
    running = Running(configuration(TOPICS), tmp_path)
    yield running
    running.close()


def fill_the_disk(server, full):
    journal = server.server.runtime.journal
    server.call(setattr, journal, "has_room", lambda _size_bytes=0: not full)
    server.call(setattr, journal, "takes", lambda size_bytes: not full or size_bytes < 100_000)


def test_without_room_publishes_are_refused_at_the_door_and_reads_go_on(server):
    server.publish("orders", {"id": 1})
    fill_the_disk(server, True)
    assert server.publish("orders", {"id": 2}).status == 507
    with server.socket() as ws:
        (ack,) = ws.ask({"c": "publish", "t": "orders", "d": {"id": 3}})
        assert (ack["status"], ack["reason"]) == ("failure", "disk full")
    assert server.records("orders") == [{"id": 1}]
    ready = server.get("/readyz")
    assert (ready.status, ready.body) == (503, b"disk full\n")
    assert b"sow_store_failing 1.0" in server.get("/metrics").body
    fill_the_disk(server, False)
    assert server.get("/readyz").status == 200
    assert server.publish("orders", {"id": 2}).status == 200


def test_on_a_full_disk_records_can_be_deleted_and_consumers_go_on(server):
    server.publish("orders", {"id": 1}, {"id": 2}, {"id": 3})
    fill_the_disk(server, True)
    assert server.request("DELETE", records("orders", filter="/id = 1")).json == {"deleted": 1}
    position = {"data": b'{"bookmark":"1"}'}
    assert server.request("PUT", "/v1/log/consumers/reader", **position).status == 200
    with server.socket() as ws:
        # A delete in the same frame leaves a publish no more room than there is.
        ws.send(
            {"c": "sow_delete", "t": "orders", "k": "0", "cid": "a"},
            {"c": "sow_delete", "t": "orders", "filter": "/id = 2", "cid": "b"},
            {"c": "publish", "t": "orders", "d": {"id": 4}, "cid": "c"},
        )
        acks = ws.until(cid="c")
    assert [ack["status"] for ack in acks] == ["success", "success", "failure"]
    assert server.records("orders") == [{"id": 3}]


class SmallDisk:
    """A file system of 32 MB that holds one directory."""

    f_frsize = 1
    f_blocks = 32 * 1000**2

    def __init__(self, directory):
        self._directory = directory
        self.least = self.f_blocks

    @property
    def f_bavail(self):
        files = [path for path in self._directory.rglob("*") if path.is_file()]
        # What is gone by the time it is asked takes no room.
        taken = sum(path.stat().st_blocks * 512 for path in files if path.exists())
        self.least = min(self.least, self.f_blocks - taken)
        return max(0, self.f_blocks - taken)


def test_deleting_alone_makes_room_on_a_disk_that_is_full(server, tmp_path):
    disk, number = SmallDisk(tmp_path), 0
    server.call(setattr, server.server.runtime.journal._env, "_statvfs", lambda _path: disk)
    for _ in range(2):
        status = 200
        while status == 200:
            documents = [{"id": n, "d": "x" * 1000} for n in range(number, number + 1000)]
            status, number = server.publish("orders", *documents).status, number + 1000
        assert status == 507
        assert disk.least > 500_000, "messages have taken what is kept for deletes"
        deleted = server.request("DELETE", records("orders", filter="1=1"))
        assert (deleted.status, server.records("orders")) == (200, [])
        recovered_by(server)
    assert disk.least > 0


def recovered_by(server):
    """Wait until the log has given way, which is looked after once a second."""
    until = time.monotonic() + 30
    while server.get("/readyz").status != 200:
        assert time.monotonic() < until, "what was deleted has made no room"
        time.sleep(0.05)


def test_a_clock_that_is_set_back_or_forward_is_sent_of_and_stops_nothing(tmp_path, caplog):
    off_us = [3600 * SECOND_US]

    def start():
        clock = SystemClock(lambda: wall_us() + off_us[0])
        return Running(configuration(TOPICS), tmp_path, clock=clock)

    running = start()
    running.publish("orders", {"id": 1})
    running.close()
    off_us[0] = 0
    running = start()
    try:
        running.publish("orders", {"id": 2})
        while len(running.records("orders-C")) < 2:
            pass
        answer = running.get("/readyz")
        assert answer.status == 200
        assert b"time is ahead of the machine's by 3" in answer.body
        off_us[0] = 7200 * SECOND_US
        while running.get("/readyz").body != b"ok\n":
            pass
        while "was set forward" not in caplog.text:
            running.publish("orders", {"id": 3})
        assert "the machine's clock was set back" in caplog.text
    finally:
        running.close()


def test_sessions_waiting_for_a_write_that_fails_are_sent_why(server):
    journal = server.server.runtime.journal
    append = journal.append
    # The account of the start is stored: refused, it would have the publish refused at once.
    server.wait(server.server.runtime.durable())
    server.call(setattr, journal, "append", refuse)
    with server.socket() as waiting, server.socket() as reading:
        waiting.send({"c": "publish", "t": "orders", "d": {"id": 1}, "cid": "1"})
        assert waiting.rest()[-1] == {"c": "close", "reason": "disk full"}
        assert server.get("/readyz").status == 503
        reading.ask({"c": "sow", "t": "orders"})
        server.call(setattr, journal, "append", append)
        while server.get("/readyz").status != 200:
            pass
        assert server.publish("orders", {"id": 2}).status == 200
    assert server.records("orders") == [{"id": 1}, {"id": 2}]
    assert [error for error in server.errors if "refused" not in error] == []
    server.errors.clear()


def refuse(_entries):
    raise DiskFull("refused for the test")


DESKS = """<Topic><Name>desks</Name><MessageType>json</MessageType><Key>/id</Key>
<Pattern>^/desk/[0-9]$</Pattern></Topic>"""


def test_a_reload_that_would_lose_records_is_refused_until_it_may(tmp_path):
    fewer = configuration(DESKS, "<Limits><PatternTopics>1</PatternTopics></Limits>")
    running = Running(configuration(DESKS), tmp_path, reread=lambda: fewer)
    for name in ("/desk/1", "/desk/2"):
        running.publish(name, {"id": 1})
    refused = running.request("POST", "/v1/config/reload")
    assert refused.status == 400
    assert "topic /desk/2 would lose its 1 records" in refused.json["detail"]
    assert running.records("/desk/2") == [{"id": 1}]
    done = running.request("POST", "/v1/config/reload?allow_loss=true")
    assert done.json["changes"] == ["topic /desk/2 given up, with 1 records", "limits changed"]
    (found,) = tmp_path.glob("removed/*/%2Fdesk%2F2.ndjson")
    assert json.loads(found.read_bytes()) == {"id": 1}
    running._config = fewer
    running.stop()
    running.start()
    assert running.records("/desk/1") == [{"id": 1}]
    running.close()
