"""Turns: everybody's work on the loop, a slice of a millisecond or two at a time.

    works ──> one slice in each round of the loop, shared by all who have something to do
              who is not done when his part is over goes to the end of the line

So sockets are read and written between two slices, and what one client asks for delays another by
a slice, not by what it costs. Work is a client's commands (`sow.server.net.command_pump`) or the
steps of one request (`Turns.take`, `sow.core.cooperative`). How long each part took is told to the
`LoopLatency`.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, Protocol

from sow.core.cooperative import Result, Task
from sow.server.loop.loop_latency import LoopLatency

SLICE_S = 0.002
"""How long all work together may keep the loop, but for the end of a last step: long enough that
what a round of the loop costs by itself (some 50 us) does not count, short enough that nobody
notices, and that hundreds of messages still share their cost."""


class Work(Protocol):
    """Something that wants its turn."""

    @property
    def name(self) -> str:
        """What an operator calls it."""
        ...

    def go_on(self, until_s: float) -> bool:
        """Work until `until_s` by the loop's time, one step at least; whether there is more."""
        ...


class FairScheduler:
    """Gives work its turns on the running loop; `woken` is called after each slice."""

    def __init__(self, watch: LoopLatency, woken: Callable[[], None] = lambda: None) -> None:
        self._watch = watch
        self._woken = woken
        self._loop = asyncio.get_running_loop()
        self._line: deque[Work] = deque()
        self._next: asyncio.Handle | None = None

    def add(self, work: Work) -> None:
        """`work` has something to do; it is not in line already."""
        self._line.append(work)
        self._schedule()

    def remove(self, work: Work) -> None:
        """`work` has nothing to do any more; it may have had nothing."""
        if work in self._line:
            self._line.remove(work)

    async def take(self, name: str, steps: Task[Result]) -> Result:
        """Have the steps taken, turn by turn; returns and raises what they do.

        Where the caller is cancelled they are closed: nobody waits for them any more.
        """
        work = _Request(name, steps)
        self.add(work)
        try:
            return await work.result
        finally:
            self.remove(work)
            steps.close()

    def _schedule(self) -> None:
        if self._next is None:
            self._next = self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._next = None
        began = self._loop.time()
        until = began + SLICE_S
        try:
            # Each once: who has more is in line again, for the next round.
            for _ in range(len(self._line)):
                work = self._line.popleft()
                if work.go_on(until):
                    self._line.append(work)
                ended = self._loop.time()
                self._watch.note(work.name, ended - began)
                if ended >= until:
                    break
                began = ended
        finally:
            # Work that fails has left the line, and the loop says so; the others go on.
            if self._line:
                self._schedule()
            self._woken()

    def close(self) -> None:
        """Give up what is in line."""
        self._line.clear()
        if self._next is not None:
            self._next.cancel()
            self._next = None


class _Request(Generic[Result]):
    """The steps of one request, and who waits for their result."""

    def __init__(self, name: str, steps: Task[Result]) -> None:
        self.name = name
        self._steps = steps
        self.result: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

    def go_on(self, until_s: float) -> bool:
        """Take steps until `until_s`; whether there are more."""
        loop = self.result.get_loop()
        try:
            while True:
                next(self._steps)
                if loop.time() >= until_s:
                    return True
        except StopIteration as over:
            if not self.result.done():
                self.result.set_result(over.value)
        except Exception as error:
            if not self.result.done():
                self.result.set_exception(error)
        return False
