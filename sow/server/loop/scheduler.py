"""A fair scheduler, and the latency of the loop: slices of a millisecond or two, what each takes.

    work ──> one slice in each iteration of the loop, shared by everything that is ready
             work with more to do goes to the end of the queue

The queue is a circle of clients, each with its work in order: a hundred queries of one client have
together the turns that the only one of another has. Work of nobody has turns of its own.

So sockets are read and written between two slices, and a request delays others by a slice, not by
its total cost. Where nobody else is ready, a request takes the slice of this iteration as it
arrives (`renew`). Work that waits for others is looked at again in a while (`rest`). Work is a
client's commands (`sow.server.net.command_pump`) or the steps of one request (`FairScheduler.run`,
`sow.core.cooperative`).

Code that runs on the loop reports the duration of each step to the `LoopLatency`, under a name that
operators know. The first step over `LONG_S` is logged at once, later ones in one line a minute.
Besides the scheduler there are two sources: request handlers, measured from one await to the next,
and Python's cycle collector, which runs in the middle of other work and would otherwise be charged
to it.
"""

import asyncio
import gc
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Generator, Hashable
from contextvars import ContextVar
from typing import Any, Generic, Protocol

from aiohttp import web
from aiohttp.typedefs import Handler

from sow.core.containers import Histogram
from sow.core.cooperative import Result, Task

LONG_S = 0.05
"""A step that users notice, and longer than any step should be."""

LOGGED_EVERY_S = 60.0
"""Seconds between two log lines: a busy machine makes hundreds of steps long."""


class LoopLatency:
    """The longest step of each name; `warn` gets a line about steps over `LONG_S`. `now_s` is a
    monotonic time."""

    def __init__(
        self,
        warn: Callable[[str], None] = lambda _line: None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._warn = warn
        self._now_s = now_s
        self._reported_s: float | None = None
        """When the last line was written."""
        self._unreported = 0
        """Long steps since then."""
        self._longest = ("", 0.0)
        """The longest of these."""
        self.longest_s: dict[str, float] = {}
        """The longest step by name; there are some dozens of names."""
        self.long: Counter[str] = Counter()
        """How many steps of each name took over `LONG_S`."""
        self.times = Histogram()
        """Durations of all steps."""

    def note(self, name: str, took_s: float) -> None:
        """A step of `name` has blocked the loop for `took_s` seconds."""
        self.times.note(took_s)
        if name not in self.longest_s or took_s > self.longest_s[name]:
            self.longest_s[name] = took_s
        if took_s > LONG_S:
            self._note_long(name, took_s)

    def _note_long(self, name: str, took_s: float) -> None:
        self.long[name] += 1
        self._unreported += 1
        self._longest = max(self._longest, (name, took_s), key=lambda one: one[1])
        self.look()

    def look(self) -> None:
        """Write the log line that is due, if any."""
        now_s = self._now_s()
        if not self._unreported or (
            self._reported_s is not None and now_s < self._reported_s + LOGGED_EVERY_S
        ):
            return
        name, took_s = self._longest
        if self._unreported == 1:
            self._warn(f"{name} kept everybody waiting for {took_s * 1000:.0f} ms")
        else:
            self._warn(
                f"{self._unreported} steps kept everybody waiting for over {LONG_S * 1000:.0f} ms "
                f"each; the longest, {name}, for {took_s * 1000:.0f} ms"
            )
        self._reported_s, self._unreported, self._longest = now_s, 0, ("", 0.0)


UNKNOWN = "a request of no address"


class MeasuredCoroutine(Generic[Result]):
    """Awaits `work` and reports the duration of each of its steps to `watch`."""

    def __init__(self, watch: LoopLatency, name: str, work: Awaitable[Result]) -> None:
        self._watch = watch
        self._name = name
        self._steps = work.__await__()

    def __await__(self) -> Generator[Any, Any, Result]:
        sent: Any = None
        raised: BaseException | None = None
        try:
            while True:
                began_s = time.perf_counter()
                try:
                    awaited = (
                        self._steps.send(sent) if raised is None else self._steps.throw(raised)
                    )
                except StopIteration as over:
                    result: Result = over.value
                    return result
                finally:
                    self._watch.note(self._name, time.perf_counter() - began_s)
                try:
                    sent, raised = (yield awaited), None
                except BaseException as error:  # for the coroutine to handle
                    raised = error
        finally:
            # The traceback refers to this frame: together they would be a reference cycle that
            # keeps the request alive.
            raised = None


class MeasuredRequests:
    """Middleware that measures all requests except the WebSocket at `websocket_path`."""

    def __init__(self, watch: LoopLatency, websocket_path: str) -> None:
        self._watch = watch
        self._websocket_path = websocket_path

    @web.middleware
    async def measure(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Handle a request, measured step by step."""
        name = name_of(request)
        if name.endswith(self._websocket_path):
            return await handler(request)
        return await MeasuredCoroutine(self._watch, name, handler(request))


def name_of(request: web.Request) -> str:
    """The name of a request in metrics: one per route, however many topics there are."""
    route = request.match_info.route
    return UNKNOWN if route.resource is None else f"{route.method} {route.resource.canonical}"


COLLECTIONS = ("garbage, youngest", "garbage, young", "garbage, old")
"""Names of runs by generation; two generations are Python's own, the last is that of
`sow.server.loop.background_work`."""
NOTED_S = 0.001
"""Shorter runs are not reported: most look at young objects only."""


class GcLatency:
    """Reports each run of the collector to `watch`, until it is closed."""

    def __init__(self, watch: LoopLatency) -> None:
        self._watch = watch
        self._loop = asyncio.get_running_loop()
        self._began_s = 0.0
        gc.callbacks.append(self._on_collection)

    def _on_collection(self, phase: str, info: dict[str, Any]) -> None:
        now_s = time.perf_counter()
        if phase == "start":
            self._began_s = now_s
        elif now_s - self._began_s > NOTED_S:
            # This may run inside any code and in any thread: not the place to write to a log.
            took_s = now_s - self._began_s
            self._loop.call_soon_threadsafe(
                self._watch.note, COLLECTIONS[info["generation"]], took_s
            )

    def close(self) -> None:
        """Stop reporting."""
        gc.callbacks.remove(self._on_collection)


SLICE_S = 0.002
"""Upper bound of one slice of all work, up to the end of its last step: long enough that the
overhead of a loop iteration (some 50 us) does not count and hundreds of messages share their cost,
short enough that nobody notices."""
REST_S = 0.002
"""Until work that waits for others is looked at again: a slice of theirs."""


CLIENT: ContextVar[Hashable] = ContextVar("client", default=None)
"""The client (`sow.core.quota.client_of`) whose request the running task answers, if any."""


class Work(Protocol):
    """Work that is done in slices."""

    @property
    def name(self) -> str:
        """Its name in metrics."""
        ...

    def go_on(self, until_s: float) -> bool:
        """Work until `until_s` (loop time), one step at least; returns whether there is more."""
        ...


class FairScheduler:
    """Schedules work on the running loop; `on_slice` is called after each slice."""

    def __init__(self, watch: LoopLatency, on_slice: Callable[[], None]) -> None:
        self._watch = watch
        self._on_slice = on_slice
        self._loop = asyncio.get_running_loop()
        self._queue: OrderedDict[object, dict[Work, None]] = OrderedDict()
        """The work of each client that is ready, in order."""
        self._clients: dict[Work, object] = {}
        """Whose each is that is ready."""
        self._client: object = None
        """Whose turn it is."""
        self._resting: dict[Work, asyncio.TimerHandle] = {}
        self._next: asyncio.Handle | None = None
        self._is_fresh = False

    def renew(self) -> None:
        """Another iteration of the loop has begun, and nothing of its slice is taken yet."""
        self._is_fresh = True

    def add(self, work: Work, client: object = None) -> None:
        """`work` is ready, of a client or of nobody; where it is queued already it keeps its
        place."""
        self._put(work, client)
        if self._next is None:
            self._next = self._loop.call_soon(self._run_slice)

    def _put(self, work: Work, client: object) -> None:
        if work not in self._clients:
            client = client or work
            self._clients[work] = client
            self._queue.setdefault(client, {})[work] = None

    def rest(self, work: Work) -> None:
        """`work` that is going on can do so only after others have: it is ready in a while."""
        self._resting[work] = self._loop.call_later(REST_S, self._end_rest, work, self._client)

    def _end_rest(self, work: Work, client: object) -> None:
        del self._resting[work]
        self.add(work, client)

    def remove(self, work: Work) -> None:
        """`work` is not ready any more, if it was."""
        if work in self._clients:
            client = self._clients.pop(work)
            works = self._queue[client]
            del works[work]
            if not works:
                del self._queue[client]
        if work in self._resting:
            self._resting.pop(work).cancel()

    async def run(self, name: str, steps: Task[Result]) -> Result:
        """Run the steps of a task in slices; returns and raises what they do.

        The task is closed if the caller is cancelled.
        """
        work = _Request(name, steps, self)
        try:
            if self._is_fresh and self._next is None:
                # Nobody else is ready: the first slice is taken here, and not an iteration later.
                self._put(work, CLIENT.get())
                self._run_slice()
            else:
                self.add(work, CLIENT.get())
            return await work.result
        finally:
            self.remove(work)
            steps.close()

    def _run_slice(self) -> None:
        self._next, self._is_fresh = None, False
        began = self._loop.time()
        until = began + SLICE_S
        try:
            # Each once: work with more to do is queued again, for the next iteration.
            for _ in range(len(self._clients)):
                client, works = self._queue.popitem(last=False)
                self._client = client
                for work in works:  # noqa: B007  # the first, without two calls each time
                    break
                del works[work], self._clients[work]
                if works:
                    self._queue[client] = works
                if work.go_on(until) and work not in self._resting:
                    self._put(work, client)
                ended = self._loop.time()
                self._watch.note(work.name, ended - began)
                if ended >= until:
                    break
                began = ended
        finally:
            # Failed work has left the queue, and the loop logs the error; the rest continues.
            if self._queue and self._next is None:
                self._next = self._loop.call_soon(self._run_slice)
            self._on_slice()

    def close(self) -> None:
        """Drop what is queued."""
        self._queue.clear()
        self._clients.clear()
        for timer in self._resting.values():
            timer.cancel()
        self._resting.clear()
        if self._next is not None:
            self._next.cancel()
            self._next = None


class _Request(Generic[Result]):
    """The steps of one request, and the future of its result."""

    def __init__(self, name: str, steps: Task[Result], turns: FairScheduler) -> None:
        self.name = name
        self._steps = steps
        self._turns = turns
        self.result: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

    def go_on(self, until_s: float) -> bool:
        """Take steps until `until_s`; returns whether there are more."""
        loop = self.result.get_loop()
        try:
            while True:
                if next(self._steps):
                    self._turns.rest(self)
                    return True
                if loop.time() >= until_s:
                    return True
        except StopIteration as over:
            if not self.result.done():
                self.result.set_result(over.value)
        except Exception as error:
            if not self.result.done():
                self.result.set_exception(error)
        return False
