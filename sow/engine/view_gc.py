"""View garbage collection: frees the state of removed or stopped views, some at a time.

A group is a dozen objects, and a view may have millions of them; a join also has an entry of each
record in its indexes. Freeing them in one step takes a second or more. So they wait here and are
freed as a timer, interleaved with other work. A view's rows are freed at once: they are a few large
lists.
"""

from collections import deque
from collections.abc import Iterable

from sow.topic.views.row_deltas import Forgettable

KEPT_AT_ONCE = 1_000
"""Groups, or entries of indexes, that one step frees: a millisecond or two."""


class ViewGc:
    """State of views of one engine that is no longer needed."""

    def __init__(self) -> None:
        self._waiting: deque[Forgettable] = deque()

    def add(self, kept: Iterable[Forgettable]) -> None:
        """Free these; their view takes in nothing and releases nothing any more."""
        self._waiting.extend(filter(len, kept))

    def due_us(self) -> int | None:
        """At once, while anything is left to free."""
        return 0 if self._waiting else None

    def advance(self, _now_us: int) -> None:
        """Free some."""
        if self._waiting:
            self._waiting[0].forget_some(KEPT_AT_ONCE)
            if not len(self._waiting[0]):
                self._waiting.popleft()
