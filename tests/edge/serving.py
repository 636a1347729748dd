"""A server on a real loopback socket, and clients of it, for tests written without asyncio.

The server and its aiohttp clients run on one event loop in a thread of their own; a test calls
plain methods that wait for the answer, at most `WAIT_S`. Nothing here sleeps to let something
happen: every wait is for a line, an event or an answer. What the server logs as an error is kept
in `Running.errors`, since an answer may look well while the log holds a traceback. Each answer has
a status and a media type that `/openapi.json` describes. SOW_LOOP=uvloop has all of it run on
uvloop (`make uvloop`).
"""

import asyncio
import json
import logging
import os
import socket
import threading
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

import aiohttp
import pytest
from yarl import URL

from sow.config import loads
from sow.server.boot.app import Server
from sow.server.loop.runtime import loop_factory
from tests.answers import Answer
from tests.edge.described import DESCRIBED
from tests.ports import free_port

WAIT_S = 60.0
"""A safety net for what never comes; on a busy machine one batch of Spark takes half as long."""


def configuration(topics, more=""):
    """A configuration of these `<SOW>` elements, listening on a free port."""
    loaded = loads(f"<SOWConfig><Name>test</Name>{more}<SOW>{topics}</SOW></SOWConfig>")
    assert loaded.configuration is not None, loaded.findings
    return replace(loaded.configuration, port=0)


def served(config, scope="module", checks=True, restarts=False):
    """A fixture: a server of this configuration; it `checks` that no error was logged. If it
    `restarts`, nobody else is given its port meanwhile."""

    @pytest.fixture(scope=scope)
    def running(tmp_path_factory):
        own = replace(config, port=free_port()) if restarts else config
        server = Running(own, tmp_path_factory.mktemp("data"))
        yield server
        server.close()
        assert not checks or server.errors == []

    return running


class ErrorLog(logging.Handler):
    """Keeps what is logged as an error, and every traceback."""

    def __init__(self):
        super().__init__(logging.DEBUG)
        self.found = []

    def emit(self, record):
        if record.levelno >= logging.ERROR or record.exc_info:
            self.found.append(logging.Formatter().format(record))


class Running:
    """A server from `start` to `stop`."""

    def __init__(self, config, directory: Path, **more):
        self.log = ErrorLog()
        self.loop = loop_factory(os.environ.get("SOW_LOOP", "asyncio"))()
        self.loop.set_exception_handler(self._keep)
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self._config, self._directory, self._more = config, directory, more
        self.start()

    def start(self):
        logging.getLogger().addHandler(self.log)
        self.server, self.url, self._http = self.wait(self._start())

    async def _start(self):
        server = Server(self._config, self._directory, **self._more)
        url = await server.start()
        http = aiohttp.ClientSession(
            headers={"Accept-Encoding": "identity"},
            auto_decompress=False,
            read_bufsize=2**20,
            connector=aiohttp.TCPConnector(limit=0),  # as many sockets as a test has
        )
        return server, url, http

    def _keep(self, _loop, context):
        self.log.found.append(f"{context['message']}: {context.get('exception')!r}")

    @property
    def errors(self):
        return self.log.found

    @property
    def address(self):
        url = URL(self.url)
        return url.host, url.port

    def wait(self, work, wait_s=WAIT_S):
        """What the coroutine `work` returns when run on the server's loop."""
        return asyncio.run_coroutine_threadsafe(asyncio.wait_for(work, wait_s), self.loop).result()

    def call(self, function, *arguments):
        """What a plain function returns when called on the server's loop."""

        async def work():
            return function(*arguments)

        return self.wait(work())

    def later(self, seconds):
        """Have the loop's clock go on by so much, and what is due by then happen; of asyncio's own
        loop alone."""
        time = self.loop.time
        self.loop.time = lambda: time() + seconds
        self.call(lambda: None)

    def stop(self):
        self.wait(self._stop())
        logging.getLogger().removeHandler(self.log)

    async def _stop(self):
        await self._http.close()
        await self.server.stop()

    def close(self):
        self.stop()
        self.end_loop()

    def end_loop(self):
        """End the thread of a server that has stopped, and what it has not ended yet."""
        asyncio.run_coroutine_threadsafe(_end_others(), self.loop).result(WAIT_S)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    # HTTP.

    def request(self, method, path, **more) -> Answer:
        return self.wait(self._request(method, path, **more))

    async def _request(self, method, path, **more):
        url = URL(self.url + path, encoded=True)
        async with self._http.request(method, url, allow_redirects=False, **more) as response:
            kind = response.headers.get("Content-Type", "")
            assert not (lack := DESCRIBED.lacks(method, path, response.status, kind)), lack
            return Answer(response.status, response.headers.copy(), await response.read())

    def get(self, path, accept=None) -> Answer:
        return self.request("GET", path, headers={"Accept": accept} if accept else {})

    def publish(self, topic, *documents, **parameters):
        return self.post(topic, json.dumps(documents).encode(), **parameters)

    def post(self, topic, body, kind="application/json", **parameters) -> Answer:
        path = records(topic, **parameters)
        return self.request("POST", path, data=body, headers={"Content-Type": kind})

    def records(self, topic, **parameters):
        answer = self.get(records(topic, **parameters))
        assert answer.status == 200, answer.body
        return answer.json

    def clear(self):
        """Delete the records of all topics that clients publish to."""
        for name in self.call(self._published):
            self.request("DELETE", records(name, filter="1=1"))

    def _published(self):
        topics = self.server.engine.catalog.listed()
        return [one.name for one in topics if one.kind == "topic" and len(one.records.table)]

    # Streams and sockets.

    @contextmanager
    def socket(self, **more):
        path = self.url + "/v1/ws"
        ws = self.wait(self._http.ws_connect(path, max_msg_size=0, **more))
        try:
            yield Socket(self, ws)
        finally:
            self.wait(ws.close())

    @contextmanager
    def events(self, topic, headers=None, **parameters):
        url = URL(self.url + stream(topic, **parameters), encoded=True)
        response = self.wait(self._http.get(url, headers=headers or {}))
        try:
            yield Events(self, response)
        finally:
            self.call(response.close)

    @contextmanager
    def connection(self, receive_bytes=None):
        """A bare TCP connection, for what no proper client sends.

        With few `receive_bytes` it is full as soon as it is not read.
        """
        with socket.socket() as raw:
            if receive_bytes:
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
            raw.settimeout(WAIT_S)
            raw.connect(self.address)
            yield raw

    def raw(self, data: bytes) -> bytes:
        """What comes back for these bytes and the end of the client's side after them."""
        with self.connection() as raw:
            raw.sendall(data)
            raw.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: raw.recv(65536), b""))

    def said(self, data: bytes) -> bytes:
        """What comes back for these bytes until the server ends the connection."""
        with self.connection() as raw:
            raw.sendall(data)
            return b"".join(iter(lambda: raw.recv(65536), b""))

    def drop(self, data: bytes):
        """Send these bytes and go away without reading."""
        with self.connection() as raw:
            raw.sendall(data)


async def _end_others():
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for one in others:
        one.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def records(topic, **parameters):
    return _path(topic, "records", parameters)


def stream(topic, **parameters):
    return _path(topic, "stream", parameters)


def _path(topic, last, parameters):
    query = "&".join(f"{name}={quote(str(value), safe='')}" for name, value in parameters.items())
    return f"/v1/topics/{quote(topic, safe='')}/{last}" + (f"?{query}" if query else "")


class Socket:
    """A WebSocket client. `seen` are all lines that came, parsed, in order."""

    def __init__(self, running: Running, ws):
        self._running, self._ws = running, ws
        self._unread = deque()
        self.seen = []

    def send(self, *lines, binary=False):
        """One frame: dictionaries become JSON lines, texts and bytes go as they are."""
        parts = [json.dumps(line) if isinstance(line, dict) else line for line in lines]
        data = b"\n".join(part.encode() if isinstance(part, str) else part for part in parts)
        self.send_frame(data, binary)

    def send_frame(self, data: bytes, binary=False):
        send = self._ws.send_bytes(data) if binary else self._ws.send_str(data.decode())
        self._running.wait(send)

    def line(self):
        """The next line; raises EOFError when the server has closed."""
        while not self._unread:
            message = self._running.wait(self._ws.receive())
            if message.type not in (aiohttp.WSMsgType.BINARY, aiohttp.WSMsgType.TEXT):
                raise EOFError(f"{message.type.name} {self._ws.close_code}")
            self._unread.extend(json.loads(line) for line in message.data.splitlines())
        self.seen.append(self._unread.popleft())
        return self.seen[-1]

    def until(self, **fields):
        """All lines up to the first one with these fields, which is the last of the list."""
        lines = [self.line()]
        while any(lines[-1].get(name) != value for name, value in fields.items()):
            lines.append(self.line())
        return lines

    def ask(self, command, *bodies, cid="1"):
        """Send one command; the lines up to its first ack."""
        self.send({"cid": cid, **command}, *bodies)
        return self.until(c="ack", cid=cid)

    def settled(self):
        """Every line up to the answer to a flush: nothing more was under way."""
        return self.ask({"c": "flush"}, cid="settled")[:-1]

    def rest(self):
        """All lines up to the end of the connection."""
        lines = []
        try:
            while True:
                lines.append(self.line())
        except EOFError:
            return lines


@dataclass
class Event:
    """One server-sent event."""

    name: str
    id: str
    line: dict


class Events:
    """A reader of server-sent events."""

    def __init__(self, running: Running, response):
        self._running, self._response = running, response
        self.status, self.headers = response.status, response.headers

    def event(self) -> Event:
        fields = {"id": "", "event": ""}
        for text in self._running.wait(self._lines()):
            name, _, value = text.partition(": ")
            assert name in ("event", "id", "data"), text
            fields[name] = value
        return Event(fields["event"], fields["id"], json.loads(fields["data"]))

    async def _lines(self):
        """The lines of an event, up to the empty one that ends it."""
        lines = []
        while line := (await self._response.content.readline()).decode():
            if line == "\n":
                return lines
            lines.append(line.rstrip("\n"))
        raise EOFError

    def until(self, name):
        """All events up to the first one of this name."""
        events = [self.event()]
        while events[-1].name != name:
            events.append(self.event())
        return events

    def body(self):
        return self._running.wait(self._response.read())
