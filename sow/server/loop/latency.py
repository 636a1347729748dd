"""Latency of the loop: how long each step blocks it, by name.

Code that runs on the loop reports the duration of each step under a name that operators know. The
first step over `LONG_S` is logged at once, later ones in one line a minute. Here are two of the
sources: request handlers, measured from one await to the next, and Python's cycle collector, which
runs in the middle of other work and would otherwise be charged to it. WebSocket commands are
measured where they are executed (`sow.server.loop.scheduler`).
"""

import asyncio
import gc
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Generic, TypeVar

from aiohttp import web
from aiohttp.typedefs import Handler

from sow.core.containers import Histogram

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


Result = TypeVar("Result")

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
