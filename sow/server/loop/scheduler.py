"""A fair scheduler: round-robin slices of a millisecond or two on the event loop.

    work ──> one slice in each iteration of the loop, shared by everything that is ready
             work with more to do goes to the end of the queue

The queue is a circle of clients, each with its work in order: a hundred queries of one client have
together the turns that the only one of another has. Work of nobody has turns of its own.

So sockets are read and written between two slices, and a request delays others by a slice, not by
its total cost. Where nobody else is ready, a request takes the slice of this iteration as it
arrives (`renew`). Work that waits for others is looked at again in a while (`rest`). Work is a
client's commands (`sow.server.net.command_pump`) or the steps of one request (`FairScheduler.run`,
`sow.core.cooperative`). The duration of each part is reported to the `LoopLatency`.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextvars import ContextVar
from typing import Generic, Protocol

from sow.core.cooperative import Result, Task
from sow.server.loop.latency import LoopLatency

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
