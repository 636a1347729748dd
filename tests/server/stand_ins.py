"""Stand-ins for what the modules of the server meet: a loop whose time jumps, a socket, a world.

`SteppedLoop` has no wall time: whenever nothing is ready it goes to the next timer at once, so that
minutes of patience are a few steps and never a sleep; `SteadyLoop` has one without the stalls of a
busy machine. `Socket` is a transport that takes nothing until it is told to. `World` is an engine
with its executor, runtime and journal in memory. `Served` speaks HTTP for some routes of it, over
such sockets.
"""

import asyncio
import functools
import http.client
import io
import itertools
import selectors
import threading
import time
from types import SimpleNamespace

from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from sow.core.definitions import Configuration, Limits, Topic, with_system_topics
from sow.core.security_definitions import Authentication, Role, Security, User
from sow.engine.engine import Engine
from sow.server.http.authn_middleware import AUTHN, RequestAuthenticator
from sow.server.http.body_reading import REQUESTS, ReadBackpressure, Requests
from sow.server.http.connections import ConnectionLimiter
from sow.server.http.negotiation import Compression
from sow.server.http.preconditions import MOMENTS, Moments
from sow.server.http.responses import mark_kept, report
from sow.server.http.route import add_routes, routes_of
from sow.server.loop.group_commit import JournalThread
from sow.server.loop.runtime import ServerRuntime
from sow.server.loop.scheduler import LoopLatency
from sow.server.net.connection_supervisor import Connections, HttpProtocol
from sow.sessions.commands.executor import Executor
from tests.answers import Answer
from tests.store.in_memory import MemoryJournal
from tests.virtual_clock import VirtualClock

SECOND = 1_000_000
ORDERS = Topic("orders", "json", keys=("/id",))


class _Jumping(selectors.DefaultSelector):
    """Never waits for a time: it says how long it would have, and returns."""

    def __init__(self):
        super().__init__()
        self.waited_s = 0.0
        self.in_thread = 0
        self.loop = None

    def select(self, timeout=None):
        if timeout is None or timeout <= 0 or self.in_thread or self._is_writing():
            return super().select(timeout)
        found = super().select(0)
        if not found:
            self.waited_s += timeout
        return found

    def _is_writing(self):
        """A journal is being written, which is not over at any time of this loop."""
        threads = [one for one in threading.enumerate() if isinstance(one, JournalThread)]
        return any(one.is_busy for one in threads if one.loop is self.loop)


class SteppedLoop(asyncio.SelectorEventLoop):
    """An event loop that counts seconds from 0 and never waits for one."""

    def __init__(self):
        self._jumping = _Jumping()
        super().__init__(self._jumping)
        self._jumping.loop = self

    def time(self):
        return self._jumping.waited_s

    def run_in_executor(self, executor, work, *arguments):
        """Time stands still while a thread works, or its answer would come at any moment."""
        self._jumping.in_thread += 1
        future = super().run_in_executor(executor, work, *arguments)
        future.add_done_callback(self._work_done)
        return future

    def _work_done(self, _future):
        self._jumping.in_thread -= 1


STEP_S = 0.05
"""No step of the product takes longer by itself."""


class _Waiting(selectors.DefaultSelector):
    """Tells a loop how long it has waited."""

    loop = None

    def select(self, timeout=None):
        self.loop.pass_by(STEP_S)
        found = super().select(timeout)
        self.loop.pass_by(max(timeout or 0.0, STEP_S))
        return found


class SteadyLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock stands still while the machine holds it up: it passes by as much as
    is waited for, and by a step at most between two readings. So no lease runs out since a machine
    is busy."""

    def __init__(self):
        self._passed_s, self._read_s = 0.0, time.monotonic()
        waiting = _Waiting()
        waiting.loop = self
        super().__init__(waiting)

    def time(self):
        return self.pass_by(STEP_S)

    def pass_by(self, most_s):
        read_s = time.monotonic()
        self._passed_s += min(read_s - self._read_s, most_s)
        self._read_s = read_s
        return self._passed_s


def run(work):
    """What a coroutine returns on a loop of its own whose time jumps."""
    loop = SteppedLoop()
    try:
        return loop.run_until_complete(asyncio.wait_for(work, 1e9))
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def stepped(test):
    """Make a test of a coroutine function; fixtures are handed on."""

    @functools.wraps(test)
    def made(*arguments, **named):
        run(test(*arguments, **named))

    return made


async def turns(count=3):
    """Let the loop go round so often."""
    for _ in range(count):
        await asyncio.sleep(0)


class Socket(asyncio.Transport):
    """A transport that keeps what is written until `take` takes it."""

    def __init__(self, protocol=None):
        super().__init__({"peername": ("192.0.2.7", 40_000)})
        self.protocol = protocol
        self.written = b""
        self.waiting = 0
        self.reading = True
        self.closed = self.aborted = False
        self._high = 64 * 1024
        self._paused = False

    def get_protocol(self):
        return self.protocol

    def set_protocol(self, protocol):
        self.protocol = protocol

    def set_write_buffer_limits(self, high=None, low=None):
        self._high = high if high is not None else self._high

    def get_write_buffer_size(self):
        return self.waiting

    def write(self, data):
        self.written += bytes(data)
        self.waiting += len(data)
        if self.waiting > self._high and not self._paused:
            self._paused = True
            self.protocol.pause_writing()

    def take(self):
        """The client reads everything."""
        self.waiting = 0
        if self._paused:
            self._paused = False
            self.protocol.resume_writing()

    def pause_reading(self):
        self.reading = False

    def resume_reading(self):
        self.reading = True

    def is_closing(self):
        return self.closed

    def close(self):
        self.closed = True

    def abort(self):
        self.closed = self.aborted = True


class World:
    """An engine with one topic, and the runtime that gives it time and a disk, on this loop."""

    def __init__(self, *topics, journal=None, windows_us=None):
        self.clock = VirtualClock(1_000 * SECOND)
        self.journal = journal or MemoryJournal()
        configuration = with_system_topics(Configuration("test", topics or (ORDERS,)))
        self.engine = Engine(configuration, self.journal.has_room)
        numbers = itertools.count(1)
        self.executor = Executor(self.engine, self.journal, lambda: f"name-{next(numbers)}")
        self.runtime = ServerRuntime(
            self.engine, self.journal, self.clock, windows_us or {}, LoopLatency()
        )

    def publish(self, *bodies, topic="orders"):
        return self.engine.publish(topic, list(bodies), self.clock.now_us())


class Served:
    """Routes of a world behind aiohttp, asked by text over sockets that are none."""

    def __init__(self, world, *routes, limits=None, authn=None):
        self.world, limits = world, limits or Limits()
        self.requests = Requests(lambda: limits)
        self.app = web.Application(middlewares=[report, self.requests.hold])
        self.app[REQUESTS] = self.requests
        self.app[AUTHN] = authn or open_authn()
        self.app[MOMENTS] = Moments()
        world.executor.go_on_under(self.app[AUTHN].role_set)
        add_routes(self.app.router, routes)
        self.app.on_response_prepare.extend([mark_kept, Compression().pack])
        crowd = ConnectionLimiter(lambda: Configuration("test", ()), 1000)
        self.connections = Connections(
            self._speaking, crowd, ReadBackpressure(self.requests.budget), lambda: limits
        )
        self._runner = web.AppRunner(self.app, handler_cancellation=True)

    def _speaking(self):
        loop = asyncio.get_running_loop()
        return HttpProtocol(self._runner.server, loop=loop, access_log=None, auto_decompress=False)

    async def __aenter__(self):
        await self._runner.setup()
        return self

    async def __aexit__(self, *_error):
        await self._runner.cleanup()
        self.connections.close()
        await self.world.runtime.close()

    async def begin(self, method, path, body=b"", headers=(), rounds=20):
        """Send a request; returns the socket, on which the answer comes, after some rounds."""
        found = self.connections.supervise("192.0.2.7")
        socket = Socket(found)
        found.connection_made(socket)
        lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in dict(headers).items()]
        lines += [f"Content-Length: {len(body)}"] if body else []
        found.data_received("\r\n".join([*lines, "", ""]).encode() + body)
        await turns(rounds)
        return socket

    async def ask(self, method, path, body=b"", headers=()):
        """The answer to a request, read to its end."""
        socket = await self.begin(method, path, body, headers)
        while not socket.closed:
            socket.take()
            await asyncio.sleep(0.001)
        socket.protocol.connection_lost(None)
        return read_answer(socket.written, method)

    async def get(self, path, **headers):
        return await self.ask("GET", path, headers=headers)


def routes_to(*resources):
    """The routes of some resources, with their handlers."""
    return [
        route._replace(handler=functools.partial(route.handler, one))
        for one in resources
        for route in routes_of(type(one))
    ]


def read_answer(written, method="GET"):
    """The answer to a method that stands in what was written to a socket."""
    stand_in = SimpleNamespace(makefile=lambda _mode: io.BytesIO(written))
    read = http.client.HTTPResponse(stand_in, method=method)
    read.begin()
    return Answer(read.status, read.headers, read.read())


class Anybody:
    """An authenticator to whom a token is the name of its user."""

    async def identify(self, shown, address=""):
        return User(shown.token)

    async def identify_again(self, shown):
        return User(shown.token)


def asking(*allows):
    """Security by which everybody is asked who he is, and may do this."""
    return Security(
        authentication=Authentication(tokens_file="tokens"), roles=(Role("all", ("*",), allows),)
    )


def authenticator_of(
    security, make, own_token="", now_us=lambda: 0, certificate_trusted=lambda _context: True
):
    """A request authenticator; at time 0 and with trusted certificates unless given."""
    return RequestAuthenticator(security, make, own_token, now_us, certificate_trusted)


def open_authn():
    """An authenticator of a server without authentication."""
    return authenticator_of(Security(), NotImplemented)


def request_of(method="GET", path="/", headers=(), app=None, **more):
    """A request as aiohttp would hand it to a handler."""
    if app is None:
        app = web.Application()
        app[AUTHN] = open_authn()
        app[MOMENTS] = Moments()
    return make_mocked_request(method, path, headers=headers, app=app, **more)
