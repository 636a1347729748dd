"""The adapter of NATS JetStream, on a real cluster of three servers."""

import asyncio
import json
import secrets
from contextlib import suppress

import pytest
from nats.aio.client import Client
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as RequestTimeout

from sow.errors import LogUnanswered, UnsafeLog
from sow.shared_log.adapters import nats
from sow.shared_log.adapters.nats import PAGE_BLOCKS, NatsLog, NatsPlace
from tests.core.test_async_tasks import forgetting
from tests.core.test_async_tasks import played as in_virtual_time
from tests.ports import free_port
from tests.shared_log.adapters.harness import ANSWER_S, IN_A_FAULT_S, EngineHarness
from tests.shared_log.adapters.nats_cluster import NatsCluster
from tests.shared_log.conformance import WAIT_S, cases, check, read, read_once, unanswered

pytestmark = [pytest.mark.edge, pytest.mark.nats_server]


@pytest.fixture(scope="module")
def cluster():
    cluster = NatsCluster()
    yield cluster
    cluster.close()


class NatsHarness(EngineHarness):
    """A stream of its own in the cluster."""

    REPLICAS = 3

    def __init__(self, cluster):
        super().__init__(cluster)
        self.stream = f"sow-{secrets.token_hex(4)}"

    def _client(self, ports):
        return NatsLog(
            NatsPlace(
                servers=[f"nats://127.0.0.1:{port}" for port in ports],
                stream=self.stream,
                replicas=self.REPLICAS,
                monitors=self.cluster.monitor_urls,
                unsafe=self.REPLICAS < 3,
            )
        )


class OneReplica(NatsHarness):
    REPLICAS = 1


PAIRS = [(harness, case) for harness in (NatsHarness, OneReplica) for case in cases(harness)]


@pytest.mark.parametrize(("harness", "case"), PAIRS)
def test_it_conforms(cluster, harness, case):
    async def play():
        await check(case, harness(cluster))

    asyncio.run(play())


def played(cluster, work, harness=NatsHarness):
    """Run `work(harness)`, and end all clients."""

    async def play():
        one = harness(cluster)
        try:
            async with asyncio.timeout(WAIT_S):
                await work(one)
        finally:
            await one.close()

    asyncio.run(play())


@pytest.mark.parametrize(
    ("requires", "says"), [(False, "the server has no TLS: nothing was sent"), (True, "SSL")]
)
def test_an_address_with_tls_sends_nothing_in_plain_text(requires, says):
    async def play():
        said = []

        async def greet(reader, writer):
            writer.write(b'INFO {"tls_required":%s}\r\n' % (b"true" if requires else b"false"))
            said.append(await reader.read(64))
            writer.write(b"no TLS\r\n")
            writer.close()

        server = await asyncio.start_server(greet, "127.0.0.1", 0)
        address = f"tls://user:secret@127.0.0.1:{server.sockets[0].getsockname()[1]}"
        log = NatsLog(NatsPlace(servers=[address], unsafe=True), ANSWER_S)
        async with server:
            with pytest.raises(LogUnanswered, match=says):
                await log.last()
        await log.close()
        assert not any(b"secret" in one or b"CONNECT" in one for one in said)

    asyncio.run(asyncio.wait_for(play(), 60))


def test_a_password_is_sent_as_it_is_meant():
    async def play():
        said = []

        async def greet(reader, writer):
            writer.write(b'INFO {"max_payload":1048576,"auth_required":true}\r\n')
            said.append(await reader.readline())
            writer.close()

        server = await asyncio.start_server(greet, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server:
            for user in ("u:p%40%3A%25", "to%40ken"):
                place = NatsPlace(servers=[f"nats://{user}@127.0.0.1:{port}"], unsafe=True)
                log = NatsLog(place, ANSWER_S)
                await unanswered(log.last())
                await log.close()
        first, second = (json.loads(one.removeprefix(b"CONNECT ")) for one in said)
        assert (first["user"], first["pass"], second["auth_token"]) == ("u", "p@:%", "to@ken")

    asyncio.run(asyncio.wait_for(play(), 60))


async def asked(client, subject, request=None):
    """What JetStream answers; while its servers elect a leader it answers nothing of use."""
    body = b"" if request is None else json.dumps(request).encode()
    while True:
        with suppress(NoRespondersError, RequestTimeout):
            answer = json.loads((await client.request(subject, body, timeout=20)).data)
            if answer.get("error", {}).get("code") != nats.UNAVAILABLE:
                return answer
        await asyncio.sleep(0.1)


async def refused(place, *words):
    log = NatsLog(place)
    try:
        with pytest.raises(UnsafeLog) as found:
            await log.append(b"never stored")
    finally:
        await log.close()
    for word in words:
        assert word in found.value.detail


def place(cluster, **more):
    return NatsPlace(**{"servers": cluster.servers, "monitors": cluster.monitor_urls, **more})


def test_a_reader_takes_the_end_of_a_page_for_no_fault(cluster):
    async def work(harness):
        log = await harness.connect()
        n = 2 * PAGE_BLOCKS + 1
        await asyncio.gather(*(log.append(b"%d" % number) for number in range(n)))
        assert len({stored.block for stored in await read(log, 0, n)}) == n

    played(cluster, work, OneReplica)


def test_a_server_that_does_not_wait_for_its_disk_is_refused_before_anything_is_made():
    cluster = NatsCluster(1, settings="max_mem: 64MB, max_file: 1GB")
    try:
        asyncio.run(refused(place(cluster), cluster.servers[0], "`sync_interval: always`"))
        assert cluster.monitored("n1", "jsz")["streams"] == 0

        async def stored_all_the_same():
            log = NatsLog(place(cluster, unsafe=True))
            assert await log.append(b"1") == 1
            await log.close()

        asyncio.run(stored_all_the_same())
    finally:
        cluster.close()


def test_what_cannot_be_read_is_refused(cluster):
    nobody = free_port()
    monitors = [*cluster.monitor_urls[:2], f"http://127.0.0.1:{nobody}"]
    words = (cluster.servers[2], monitors[2], "<Monitor>")
    asyncio.run(refused(place(cluster, stream="unread", monitors=monitors), *words))
    few = place(cluster, stream="unread", monitors=monitors[:2])
    asyncio.run(refused(few, "<Monitor> has 2 addresses for 3"))


def test_fewer_than_three_replicas_over_three_servers_are_refused(cluster):
    asyncio.run(refused(place(cluster, stream="few", replicas=1), "<Replicas> is 1 over 3"))


def test_a_stream_of_other_settings_is_refused(cluster):
    async def make():
        client = Client()
        await client.connect(cluster.servers[0])
        config = {"name": "old", "subjects": ["old.log"], "max_msgs": 5, "num_replicas": 1}
        assert "error" not in await asked(client, "$JS.API.STREAM.CREATE.old", config)
        await client.close()

    asyncio.run(make())
    asyncio.run(refused(place(cluster, stream="old"), "max_msgs 5", "1 of 3 replicas"))


async def until_refused(log):
    while True:
        await log.append(b"before it is seen")
        await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"num_replicas": 1}, "1 of 3 replicas"),
        ({"max_msgs": 5, "discard": "old"}, "max_msgs 5"),
        ({"subjects": ["STREAM.log", "STREAM.more"]}, "takes"),
        ({"sources": [{"name": "other"}]}, "and more"),
    ],
)
def test_settings_that_change_under_a_connection_are_refused_until_they_are_mended(
    cluster, monkeypatch, change, says
):
    monkeypatch.setattr(nats, "LOOK_S", 0.05)

    async def work(harness):
        log, client = await harness.connect(), Client()
        await log.append(b"1")
        await client.connect(cluster.servers[0])
        api = f"$JS.API.STREAM.%s.{harness.stream}"
        said = await asked(client, api % "INFO")
        text = json.dumps(change).replace("STREAM", harness.stream)
        for config in ({**said["config"], **json.loads(text)}, said["config"]):
            assert "error" not in await asked(client, api % "UPDATE", config)
            if config != said["config"]:
                with pytest.raises(UnsafeLog, match=says):
                    await until_refused(log)
                with pytest.raises(UnsafeLog, match=says):
                    await log.last()
        await client.close()
        await log.append(b"2")

    played(cluster, work)


def test_a_block_of_another_writer_is_read_whatever_its_headers_say(cluster):
    async def work(harness):
        log = await harness.connect()
        await log.append(b"1")
        client = Client()
        await client.connect(cluster.servers[0])
        for status in ("100", "404", "503"):
            subject, headers = f"{harness.stream}.log", {"Status": status}
            await client.request(subject, b"", timeout=20, headers=headers)
        await client.close()
        await log.append(b"2")
        found = await read(log, 0, 5)
        assert [one.block for one in found] == [b"1", b"", b"", b"", b"2"]

    played(cluster, work)


def test_a_silent_line_is_noticed_and_mended(cluster):
    async def work(harness):
        log = await harness.connect()
        first = await log.append(b"1")
        log.answer_s = IN_A_FAULT_S
        reading = asyncio.create_task(read_once(log, first, 1, []))
        with suppress(LogUnanswered):  # on a busy machine
            await log.last()
        await harness.cut(log)
        await unanswered(asyncio.gather(*(log.append(b"late %d" % n) for n in range(8))))
        await unanswered(reading)
        await harness.healed(log)
        last = await log.append(b"behind")
        found = await read(log, 0, last)
        assert [found[0].block, found[-1].block] == [b"1", b"behind"]

    played(cluster, work)


@pytest.mark.slow
def test_nothing_that_was_answered_is_lost_with_the_leader(cluster):
    async def work(harness):
        log, stored = await harness.connect(), {}
        log.answer_s = 2.0
        killed = None
        while len(stored) < 30:
            if len(stored) == 10 and not killed:
                killed = cluster.leader(harness.stream)
                cluster.kill(killed)
            block = secrets.token_bytes(8)
            try:
                stored[await log.append(block)] = block
            except LogUnanswered:
                await asyncio.sleep(0.1)  # the servers elect a leader, for some seconds
        log.answer_s = ANSWER_S
        last = await log.append(b"end")
        found = dict(await read(log, 0, last))
        assert {position: found[position] for position in stored} == stored

    try:
        played(cluster, work)
    finally:
        cluster.restart()


@pytest.mark.slow
def test_a_server_that_is_down_is_checked_once_it_is_back(cluster):
    async def work(harness):
        log = await harness.connect()
        await log.append(b"1")
        assert log._guard._unread
        cluster.start("n3")
        while log._guard._unread:
            await asyncio.sleep(0.1)
        await log.append(b"2")

    cluster.kill("n3")
    try:
        played(cluster, work)
    finally:
        cluster.restart()


class Deaf:
    """A connection to a server that serves nothing, though it answers."""

    is_open = is_cut_off = True

    def __init__(self):
        self.is_closed = False

    async def ask(self, *_request):
        raise OSError("nobody serves the stream at the moment")

    async def close(self, _wait_s):
        self.is_closed = True


def test_a_server_that_is_cut_off_from_the_others_is_left(cluster):
    async def work(harness):
        log, deaf = await harness.connect(), Deaf()
        log._connection = deaf
        await unanswered(log.append(b"1"))
        assert await log.append(b"2") == 1
        assert deaf.is_closed
        assert not log._connection.is_cut_off

    played(cluster, work)


class Scripted:
    """A connection that is answered as it is told."""

    def __init__(self, *answers):
        self.answers = list(answers)

    async def ask(self, subject, body):
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


NOT_THERE = {"error": {"code": 404, "err_code": nats.NOT_FOUND}}
OFFLINE = {"error": {"code": 400, "err_code": nats.NO_PEERS, "description": "peer offline"}}
NO_LEADER = {"error": {"code": 503, "err_code": 10008, "description": "unavailable"}}
MADE = {"config": {}}


def made(*answers, answer_s=ANSWER_S):
    log = NatsLog(NatsPlace(servers=["nats://127.0.0.1"], unsafe=True), answer_s)
    return asyncio.run(log._stream_made(Scripted(*answers)))


def test_servers_that_do_not_know_of_each_other_yet_are_asked_again(monkeypatch):
    monkeypatch.setattr(nats, "NOT_YET_S", 0)
    assert made(NOT_THERE, OFFLINE, OFFLINE, NO_LEADER, MADE) == MADE


@pytest.mark.parametrize("answer", [OFFLINE, NO_LEADER])
def test_servers_that_never_know_of_each_other_are_named_before_the_time_is_up(answer):
    why = answer["error"]["description"]
    with pytest.raises(ValueError, match=why):
        made(answer, answer_s=nats.STREAM_ANSWER_S)


def test_what_is_refused_for_good_is_not_asked_again(monkeypatch):
    monkeypatch.setattr(nats, "NOT_YET_S", 60)
    with pytest.raises(ValueError, match="no such account"):
        made({"error": {"code": 400, "err_code": 1, "description": "no such account"}})


@pytest.mark.parametrize("times", [0, 1, 2])
def test_a_look_at_settings_that_forgets_that_it_was_cancelled_ends_with_its_client(times):
    async def work():
        log = NatsLog(NatsPlace(servers=["nats://127.0.0.1"], unsafe=True))
        log._watching = asyncio.create_task(forgetting(times))
        log._guard._later = asyncio.create_task(forgetting(times))
        await asyncio.sleep(0)
        await log.close()
        return log._watching.done() and log._guard._later.done()

    assert in_virtual_time(work)[0]
