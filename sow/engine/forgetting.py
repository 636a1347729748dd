"""Forgetting: the groups of views that have gone, which are forgotten some at a time.

A group is a dozen objects, and a view may have millions of them: to free them all takes a second or
more. Nobody asks for them any more, so they wait here and go as they fall due, in turn with what
others want. What a view was made of, and its rows, go at once: they are few large lists.
"""

from collections import deque

from sow.topic.views.groups import RowGroups

GROUPS_AT_ONCE = 1_000
"""Groups that are forgotten in one step: a millisecond or two."""


class Forgetting:
    """Groups that nobody needs any more, of all views of one engine."""

    def __init__(self) -> None:
        self._waiting: deque[RowGroups] = deque()

    def add(self, groups: RowGroups) -> None:
        """These are needed no more; their view takes in nothing, and releases nothing."""
        if len(groups):
            self._waiting.append(groups)

    def due_us(self) -> int | None:
        """At once, until all have gone."""
        return 0 if self._waiting else None

    def go_on(self) -> None:
        """Forget some."""
        if self._waiting:
            self._waiting[0].discard(GROUPS_AT_ONCE)
            if not len(self._waiting[0]):
                self._waiting.popleft()
