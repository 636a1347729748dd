"""Measured: how long a coroutine keeps the loop between two of its awaits.

A handler of requests runs from one await to the next, and nobody else meanwhile.
`MeasuredCoroutine` is awaited in its place and tells the step watch of each such step, by the name
of the address that was asked for. What a WebSocket sends is measured where it is carried out
(`sow.server.loop.scheduler`).
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
    """A coroutine, of which `watch` is told how long each step took."""

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
                except BaseException as error:  # the coroutine's to deal with, whatever it is
                    raised = error
        finally:
            # Its traceback has this frame: they would be a circle, with all that a request has.
            raised = None


class MeasuredRequests:
    """Measures all requests but those for the WebSocket at `websocket_path`."""

    def __init__(self, watch: LoopLatency, websocket_path: str) -> None:
        self._watch = watch
        self._websocket_path = websocket_path

    @web.middleware
    async def measure(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer a request, step by step."""
        name = name_of(request)
        if name.endswith(self._websocket_path):
            return await handler(request)
        return await MeasuredCoroutine(self._watch, name, handler(request))


def name_of(request: web.Request) -> str:
    """What an operator calls a request: one name for each route, however many topics."""
    route = request.match_info.route
    return UNKNOWN if route.resource is None else f"{route.method} {route.resource.canonical}"
