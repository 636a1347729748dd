"""Whether a socket takes more: what its transport says, for whoever writes to it.

asyncio tells a protocol when the buffer of its transport is full (`pause_writing`) and when it has
been emptied again (`resume_writing`). That is kept here, beside whoever waits to write on. Nothing
is written here, and nothing is known of what is written.
"""

from collections.abc import Callable

Resumed = Callable[[], None]


class TransportWritable:
    """The writing side of one connection."""

    __slots__ = ("_waiting", "paused")

    def __init__(self) -> None:
        self.paused = False
        """The buffer is full: what is written now would only make it longer."""
        self._waiting: dict[Resumed, None] = {}

    def pause(self) -> None:
        """The socket takes no more."""
        self.paused = True

    def resume(self) -> None:
        """It takes more again: all who wait are called, in the order in which they came."""
        self.paused = False
        waiting, self._waiting = self._waiting, {}
        for resumed in waiting:
            resumed()

    def wait(self, resumed: Resumed) -> None:
        """Call `resumed` once, when the socket takes more again; never, if it goes before."""
        self._waiting.setdefault(resumed)

    def forget(self, resumed: Resumed) -> None:
        """`resumed` is not to be called any more."""
        self._waiting.pop(resumed, None)
