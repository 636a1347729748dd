"""Calls of web hooks over real sockets, whatever the other side sends; and actions of a whole
server, from its start to its stop."""

import asyncio
import threading
import tracemalloc
from dataclasses import replace

import pytest

from sow.core.definitions import AUDIT
from sow.server.net import action_runner
from sow.server.net.action_runner import LOOKUPS_MAX, HookResolver, posted
from sow.sessions.commands.actions import WebhookCall
from tests.cases import all_cases
from tests.config.conftest import ORDERS
from tests.edge.serving import Running, configuration

pytestmark = pytest.mark.edge

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Hook:
    """A web hook that sends these bytes, and then `more` again and again for as long as anybody
    reads."""

    def __init__(self, answer, more=b""):
        self.answer, self.more = answer, more
        self.requests = []

    async def __aenter__(self):
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_error):
        self.server.close()
        await self.server.wait_closed()

    async def serve(self, reader, writer):
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            size = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
            self.requests.append((head, await reader.readexactly(size)))
            writer.write(self.answer)
            while self.more:
                writer.write(self.more)
                await writer.drain()
            if not self.answer:
                await reader.read()  # says nothing until the other side leaves
        except ConnectionError:
            pass
        finally:
            writer.close()

    def call(self, body=b'{"id":1}', timeout_us=60_000_000):
        return posted(WebhookCall(f"http://127.0.0.1:{self.port}/a", body, timeout_us, "17-0"))


def answered(*hook, **call):
    async def work():
        async with Hook(*hook) as one:
            return await one.call(**call), one.requests

    return asyncio.run(asyncio.wait_for(work(), 60))


def test_a_call_is_a_post_of_the_message_with_the_name_of_its_run():
    why, [(head, body)] = answered(OK)
    assert why == ""
    assert head.startswith(b"POST /a HTTP/1.1\r\n")
    assert b"Idempotency-Key: 17-0\r\n" in head
    assert b"Content-Type: application/json\r\n" in head
    assert body == b'{"id":1}'
    _, [(head, _)] = answered(OK, body=b"up")
    assert b"Content-Type: text/plain; charset=utf-8\r\n" in head


@all_cases(
    ("answer", "said"),
    [
        (b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n", "answers 500"),
        (
            b"HTTP/1.1 302 Go\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
            "answers 302",
        ),
        (b"nonsense\r\n\r\n", "cannot be called"),
        (b"HTTP/1.1 200 OK\r\nA: " + b"a" * 100_000 + b"\r\n\r\n", "cannot be called"),
    ],
)
def test_what_is_no_success_is_said_and_a_redirect_is_not_followed(answer, said):
    why, requests = answered(answer)
    assert said in why
    assert len(requests) == 1


@all_cases(
    ("answer", "more"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", b"x" * 65_536),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"1000\r\n" + b"x" * 4096 + b"\r\n",
        ),
        (b"HTTP/1.1 200 OK\r\n", b"A: b\r\n" * 1000),
    ],
)
def test_an_endless_answer_costs_bounded_memory(answer, more):
    tracemalloc.start()
    try:
        answered(answer, more)
        assert tracemalloc.get_traced_memory()[1] < 8 * 1024**2
    finally:
        tracemalloc.stop()


def test_one_that_says_nothing_is_left_after_its_timeout():
    why, _ = answered(b"", timeout_us=50_000)
    assert why == "the web hook has not answered in 0.05 s"


def test_one_that_is_not_there_is_said():
    call = WebhookCall("http://127.0.0.1:1/", b"", 60_000_000, "1-0")
    assert "cannot be called" in asyncio.run(posted(call))


ACTIONS = """<Actions><WebhookHosts>127.0.0.1</WebhookHosts>
<Action><On><Module>amps-action-on-startup</Module><Options><Name>hello</Name></Options></On>
<Do><Module>amps-action-do-publish-message</Module><Options><Topic>others</Topic>
<Data>{"id": "up"}</Data></Options></Do></Action>
<Action><On><Module>amps-action-on-shutdown</Module></On>
<Do><Module>amps-action-do-publish-message</Module><Options><Topic>others</Topic>
<Data>{"id": "down"}</Data></Options></Do></Action>
<Action><On><Module>amps-action-on-publish-message</Module><Options><Name>call</Name>
<Topic>orders</Topic></Options></On>
<Do><Module>webhook</Module><Options><Url>http://127.0.0.1:PORT/</Url></Options></Do></Action>
</Actions>"""


def serving(directory, port):
    topics = ORDERS + ORDERS.replace("orders", "others")
    return Running(configuration(topics, ACTIONS.replace("PORT", str(port))), directory)


def runs(server):
    return [
        (one["action"], one["outcome"])
        for one in server.records(AUDIT.name)
        if one["deed"] == "action"
    ]


def test_a_name_server_that_does_not_answer_holds_up_nothing_else(monkeypatch):
    answer = threading.Event()

    def getaddrinfo(*_asked, **_more):
        assert answer.wait(60)
        raise OSError("no such host")

    async def work():
        resolver = HookResolver()
        waits = [asyncio.create_task(resolver.resolve("a.example")) for _ in range(LOOKUPS_MAX)]
        await asyncio.sleep(0)  # each has begun
        assert resolver.running == LOOKUPS_MAX
        with pytest.raises(OSError, match="being looked up already"):
            await resolver.resolve("a.example")
        assert await asyncio.to_thread(lambda: 7) == 7
        waits[0].cancel()
        answer.set()
        found = await asyncio.gather(*waits, return_exceptions=True)
        while resolver.running:
            await asyncio.sleep(0)
        return [str(one) for one in found]

    monkeypatch.setattr(action_runner.socket, "getaddrinfo", getaddrinfo)
    found = asyncio.run(asyncio.wait_for(work(), 60))
    assert found == ["", *["no such host"] * (LOOKUPS_MAX - 1)]


def test_a_server_runs_its_actions_from_its_start_to_its_stop(tmp_path):
    async def begin(hook):
        return await hook.__aenter__()

    server = serving(tmp_path, 9)
    hook = server.wait(begin(Hook(OK)))
    try:
        assert server.records("others") == [{"id": "up"}]
        config = replace(server.server.configuration)
        call = config.actions[2]
        deed = replace(call.deeds[0], url=f"http://127.0.0.1:{hook.port}/")
        changed = replace(config, actions=(*config.actions[:2], replace(call, deeds=(deed,))))
        server.call(server.server.executor.reconfigure, changed, server.server.runtime.now_us())
        server.publish("orders", {"id": 1})

        async def called():
            while len(hook.requests) < 1 or server.server.executor.actions.runs.waiting:
                await asyncio.sleep(0.005)

        server.wait(called())
        assert hook.requests[0][1] == b'{"id": 1}'
        assert runs(server) == [("hello", "done"), ("call", "done")]
        server.wait(hook.__aexit__())
        server.stop()
        server.start()
        assert server.records("others") == [{"id": "up"}, {"id": "down"}]
        assert runs(server) == [
            ("hello", "done"),
            ("call", "done"),
            ("action 2", "done"),
            ("hello", "done"),
        ]
    finally:
        server.close()
