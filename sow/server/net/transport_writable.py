"""Whether a socket accepts more: asyncio's flow control, for several writers.

asyncio notifies a protocol when its transport's buffer is full (`pause_writing`) and when it has
drained (`resume_writing`). That is kept here, with the writers that wait for it.
"""

from collections.abc import Callable

Resumed = Callable[[], None]


class TransportWritable:
    """The writing side of one connection."""

    __slots__ = ("_waiting", "paused")

    def __init__(self) -> None:
        self.paused = False
        """The buffer is full: more would only make it longer."""
        self._waiting: dict[Resumed, None] = {}

    def pause(self) -> None:
        """The buffer is full."""
        self.paused = True

    def resume(self) -> None:
        """The buffer has drained: all waiting callbacks are called, in order."""
        self.paused = False
        waiting, self._waiting = self._waiting, {}
        for resumed in waiting:
            resumed()

    def wait(self, resumed: Resumed) -> None:
        """Call `resumed` once, when the buffer has drained; never, if the socket is closed
        before."""
        self._waiting.setdefault(resumed)

    def forget(self, resumed: Resumed) -> None:
        """Cancel `wait(resumed)`."""
        self._waiting.pop(resumed, None)
