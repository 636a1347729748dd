"""Open requests: those that have changed topics and are not done, and who waits for their end.

A request or a frame may take many steps, between which others are served. Whoever follows single
changes is told of each as it comes; a live window and a view say what has become of their topics
when all has come that belongs together, so that they never show half a request. So they are held
back while a request is open that has changed one of these, but for no longer than `HELD_US_MAX`.
Who changes nothing holds nobody back.
"""

from collections.abc import Callable, Collection, Iterable

from sow.core.cooperative import Result, Task
from sow.streaming.windows.window_channel import WindowChannel

HELD_US_MAX = 1_000_000
"""A request that takes longer is told of in parts: whoever publishes a million records must not
keep what others publish from those who look at the same topic."""


class OpenRequest:
    """A request that began at `began_us`, and the names of the topics that it has changed."""

    __slots__ = ("began_us", "topics")

    def __init__(self, began_us: int) -> None:
        self.began_us = began_us
        self.topics: set[str] = set()


class RequestBoundaries:
    """The open requests of one engine. `now_us` gives the newest time; `let_go` is called with the
    strands that nobody holds back any more."""

    def __init__(
        self, now_us: Callable[[], int], let_go: Callable[[Iterable[WindowChannel]], None]
    ) -> None:
        self._now_us = now_us
        self._let_go = let_go
        self.current: OpenRequest | None = None
        """That of which a step is being taken."""
        self._open: dict[OpenRequest, None] = {}
        """Those that have changed something, and go on."""
        self._held: dict[WindowChannel, None] = {}
        self._until_us: int | None = None
        """When one of those who are held may have been held for long enough."""

    def together(self, steps: Task[Result]) -> Task[Result]:
        """Take steps that are one request, or a part of the one that is being carried out."""
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
            self.let_go()

    def due_us(self) -> int | None:
        """When somebody may have been held back for long enough."""
        return self._until_us

    def let_go(self) -> None:
        """Hold nobody back; whom another request holds is held again when he is to be told."""
        held, self._held, self._until_us = self._held, {}, None
        if held:
            self._let_go(held)

    def holds_until_us(self, names: Collection[str]) -> int | None:
        """Until when whoever looks at these topics has to wait, if no request ends before; None:
        they need not."""
        began_us = [one.began_us for one in self._open if not one.topics.isdisjoint(names)]
        until_us = max(began_us, default=0) + HELD_US_MAX
        return until_us if began_us and until_us > self._now_us() else None

    def holds(self, channel: WindowChannel) -> bool:
        """Whether a window has to wait for the end of a request; if so it is let go then."""
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
        assert self._open or not self._held, "a window waits for nobody"
        assert bool(self._held) == (self._until_us is not None), "a window waits for ever"
