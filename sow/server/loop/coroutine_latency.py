"""Measures how long a coroutine blocks the loop between two of its awaits.

A request handler runs from one await to the next without interruption. `MeasuredCoroutine` is
awaited in its place and reports each step to the `LoopLatency`, under the name of the route.
WebSocket commands are measured where they are executed (`sow.server.loop.scheduler`).
"""

import time
from collections.abc import Awaitable, Generator
from typing import Any, Generic, TypeVar

from aiohttp import web
from aiohttp.typedefs import Handler

from sow.server.loop.loop_latency import LoopLatency

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
