"""A chained server and its upstream, with a relay between them that loses what it should."""

import asyncio
import time

from sow.server.api.nodes import Upstream
from sow.server.chained import link, upstream
from tests.edge.serving import WAIT_S, Running, configuration
from tests.ports import free_port

ORDERS = """
<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>
<Topic><Name>passing</Name><MessageType>json</MessageType><Key>/id</Key>
  <Durability>transient</Durability></Topic>
<ConflatedTopic><Name>orders-C</Name><MessageType>json</MessageType>
  <UnderlyingTopic>orders</UnderlyingTopic><Interval>100ms</Interval></ConflatedTopic>
"""


SOON_S = 0.1
"""How long an upstream server that is lost may take to answer; one that is there has all the time
that a busy machine needs."""


def hurry(monkeypatch):
    """Notice at once what is closed, and do not take a machine that stands still for a loss."""
    monkeypatch.setattr(upstream, "LOOK_EVERY_S", 0.05)
    for module in (upstream, link):
        monkeypatch.setattr(module, "ANSWER_S_MAX", WAIT_S)


def until(holds):
    """Wait until something holds, which another loop brings about."""
    end = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


class Relay:
    """Passes bytes to a server and back, on its loop: until it is `cut`, or says nothing more."""

    def __init__(self, running):
        self._running = running
        self._open = set()
        self._loses = ""
        """How far it is with being lost."""
        self._passing, self._others = asyncio.Event(), asyncio.Event()
        self._passing.set()
        self._others.set()
        self.held = 0
        """Pieces that waited since nothing but looks is passed on."""
        self.port = free_port()
        self._server = running.wait(self._listen(self.port))
        self.url = f"http://127.0.0.1:{self.port}"

    async def _listen(self, port):
        return await asyncio.start_server(self._accept, "127.0.0.1", port)

    async def _accept(self, reader, writer):
        try:
            there = await asyncio.open_connection(*self._running.address)
        except OSError:
            writer.transport.abort()
            return
        if not self._server.is_serving():
            # It was cut in this moment.
            for one in (writer, there[1]):
                one.transport.abort()
            return
        looks = asyncio.Event()
        ways = [self._ask(reader, there[1], looks), self._answer(there[0], writer, looks)]
        tasks = [asyncio.ensure_future(way) for way in ways]
        self._open.update((writer, there[1]))
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        for one in (writer, there[1]):
            one.transport.abort()
            self._open.discard(one)

    async def _ask(self, reader, writer, looks):
        while data := await reader.read(65536):
            (looks.set if data.startswith(b"GET /readyz ") else looks.clear)()
            if looks.is_set() and self._loses == "from the next look on":
                self._passing.clear()
            if not looks.is_set():
                self.held += not self._others.is_set()
                await self._others.wait()
            await self._passing.wait()
            writer.write(data)

    async def _answer(self, reader, writer, looks):
        while data := await reader.read(65536):
            await self._passing.wait()
            if looks.is_set() and self._loses == "after an answer":
                upstream.ANSWER_S_MAX, self._loses = SOON_S, "from the next look on"
            writer.write(data)

    def be_silent(self, silent=True):
        """Pass nothing on, and close nothing."""
        upstream.ANSWER_S_MAX, self._loses = WAIT_S, ""
        self._running.call(self._passing.clear if silent else self._passing.set)
        self._running.call(self._others.set)

    def hold(self):
        """Pass nothing on but looks, so that nothing of it is noticed."""
        self._running.call(self._others.clear)

    def be_lost(self):
        """Be silent, and have it noticed soon: only a look that is not answered has little time."""
        self._loses = "after an answer"
        until(lambda: not self._passing.is_set())

    def cut(self):
        """Close all connections, and accept none."""
        self._running.wait(self._cut())

    async def _cut(self):
        self._server.close()
        self.drop()

    def drop(self):
        """Close all connections; new ones are accepted."""
        for one in [*self._open]:
            one.transport.abort()

    def mend(self):
        """Accept connections again."""
        self._server = self._running.wait(self._listen(self.port))

    def close(self):
        self.cut()


class Pair:
    """An upstream server and a chained one, through a relay."""

    def __init__(self, directory, topics=ORDERS, more="", **of_chained):
        self._directory, self._config = directory, configuration(topics, more)
        self.upstream = Running(self._config, directory / "upstream")
        self.relay = Relay(self.upstream)
        self.chained = Running(
            configuration("", more),
            directory / "chained",
            upstream=Upstream(self.relay.url, ""),
            **of_chained,
        )

    def close(self):
        self.chained.close()
        self.relay.close()
        self.upstream.close()

    def followed(self):
        """How many subscriptions there are upstream."""
        return sum(one["subscriptions"] for one in self.upstream.get("/v1/sessions").json)


def logged_on(socket, **more):
    """Log a client on; its session's name."""
    return socket.ask({"c": "logon", "client": "me", **more})[-1]


def known(lines, held=None):
    """The records that a client holds after these lines: deltas merged, what has left removed."""
    held = {} if held is None else held
    for line in lines:
        if line["c"] in ("sow", "p"):
            delta = line.get("delta")
            assert not delta or line["k"] in held, "a delta of what the client does not have"
            held[line["k"]] = {**held[line["k"]], **line["d"]} if delta else line["d"]
        elif line["c"] == "oof":
            del held[line["k"]]
    return held


ALL = {"c": "sow_and_subscribe", "t": "orders", "a": "processed,completed"}
DELTAS = {**ALL, "c": "sow_and_delta_subscribe", "opts": "oof", "filter": "/x > 0"}
LOST, BACK = ({"c": "notice", "reason": f"upstream {what}"} for what in ("lost", "back"))


def begin(socket, command, cid="1"):
    """All lines up to the last ack of a subscription."""
    socket.send({"cid": cid, **command})
    return socket.until(c="ack", a="completed", cid=cid)


def lines_up_to(socket, number):
    """The lines up to the record of a number."""
    lines = [socket.line()]
    while lines[-1].get("d", {}).get("id") != number:
        lines.append(socket.line())
    return lines


def numbers(lines):
    """The records of these lines that were published."""
    return [line["d"]["id"] for line in lines if line["c"] == "p"]
