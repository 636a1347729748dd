"""Forgetting: what views kept that have gone or stopped, which is forgotten some at a time.

A group is a dozen objects, and a view may have millions of them; a join has an entry of each record
in its indexes besides. To free them all takes a second or more. Nobody asks for them any more, so
they wait here and go as they fall due, in turn with what others want. A view's rows go at once:
they are few large lists.
"""

from collections import deque
from collections.abc import Iterable

from sow.topic.views.row_deltas import Forgettable

KEPT_AT_ONCE = 1_000
"""Groups, or entries of indexes, that are forgotten in one step: a millisecond or two."""


class ViewGc:
    """What nobody needs any more, of all views of one engine."""

    def __init__(self) -> None:
        self._waiting: deque[Forgettable] = deque()

    def add(self, kept: Iterable[Forgettable]) -> None:
        """These are needed no more; their view takes in nothing, and releases nothing."""
        self._waiting.extend(filter(len, kept))

    def due_us(self) -> int | None:
        """At once, until all have gone."""
        return 0 if self._waiting else None

    def go_on(self) -> None:
        """Forget some."""
        if self._waiting:
            self._waiting[0].forget_some(KEPT_AT_ONCE)
            if not len(self._waiting[0]):
                self._waiting.popleft()
