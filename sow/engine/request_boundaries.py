"""Request boundaries: windows and views report complete requests.

A request or a frame may take many steps, and other clients are served between them. A subscription
to single changes gets each at once; a live window or a view reports the result of a request when
the request ends, so that it never shows half of one. So their output is held back while a request
is open that has changed one of their topics, but no longer than `HELD_US_MAX`. A request that
changes nothing holds nothing back.
"""

from collections.abc import Callable, Collection, Iterable

from sow.core.cooperative import Result, Task
from sow.streaming.windows.window_channel import WindowChannel

HELD_US_MAX = 1_000_000
"""A request that takes longer is reported in parts: a publish of a million records must not delay
what other clients publish to the same topic."""


class OpenRequest:
    """A request that began at `began_us`, and the names of the topics that it has changed."""

    __slots__ = ("began_us", "topics")

    def __init__(self, began_us: int) -> None:
        self.began_us = began_us
        self.topics: set[str] = set()


class RequestBoundaries:
    """The open requests of one engine. `now_us` returns the newest time; `release` is called with
    the channels that are no longer held back."""

    def __init__(
        self, now_us: Callable[[], int], release: Callable[[Iterable[WindowChannel]], None]
    ) -> None:
        self._now_us = now_us
        self._release = release
        self.current: OpenRequest | None = None
        """The request whose step is running."""
        self._open: dict[OpenRequest, None] = {}
        """Unfinished requests that have changed something."""
        self._held: dict[WindowChannel, None] = {}
        self._until_us: int | None = None
        """When the first of the held channels has been held for `HELD_US_MAX`."""

    def together(self, steps: Task[Result]) -> Task[Result]:
        """Run steps that are one request, or a part of the request that is running."""
        if self.current is not None:
            return (yield from steps)
        request = OpenRequest(self._now_us())
        try:
            while True:
                self.current = request
                try:
                    next(steps)
                except StopIteration as over:
                    result: Result = over.value
                    return result
                finally:
                    self.current = None
                if request.topics:
                    self._open[request] = None
                yield
        finally:
            steps.close()
            self._end(request)

    def _end(self, request: OpenRequest) -> None:
        if request in self._open:
            del self._open[request]
            self.advance(self._now_us())

    def due_us(self) -> int | None:
        """When the first of the held channels has been held for `HELD_US_MAX`."""
        return self._until_us

    def advance(self, _now_us: int) -> None:
        """Release all held channels; one that another request holds is held again when it has
        output."""
        held, self._held, self._until_us = self._held, {}, None
        if held:
            self._release(held)

    def holds_until_us(self, names: Collection[str]) -> int | None:
        """Until when output of these topics has to wait, unless the request ends before; None: it
        need not wait."""
        began_us = [one.began_us for one in self._open if not one.topics.isdisjoint(names)]
        until_us = max(began_us, default=0) + HELD_US_MAX
        return until_us if began_us and until_us > self._now_us() else None

    def holds(self, channel: WindowChannel) -> bool:
        """Whether a window has to wait for the end of a request; if so, it is released then."""
        until_us = self.holds_until_us((channel.lines.topic.name,))
        if until_us is None:
            return False
        self._held[channel] = None
        self._until_us = until_us if self._until_us is None else min(until_us, self._until_us)
        return True

    def check(self) -> None:
        """Assert what is always true between two steps."""
        assert self.current is None, "a step of a request goes on"
        assert all(request.topics for request in self._open)
        assert self._open or not self._held, "a window waits for no request"
        assert bool(self._held) == (self._until_us is not None), "a window waits for ever"
