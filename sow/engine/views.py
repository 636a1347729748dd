"""Views: release of their changes at the end of a flush.

Views take changes in as they come, and release nothing until the flush. Then each changed view is
released, after those that it is made of: so a view of a topic and of another view of the same topic
never shows one without the other, and a row changes at most once in a flush. A view with very much
to do works in steps between other work: it delays only the views made of it.

A flush ends a turn; a publish, a removal or a commit in slices is one turn. Other clients' changes
should be visible meanwhile, so the wait for a request is bounded (`sow.engine.request_boundaries`).
An atomic commit is never shown in part: a view waits until it is complete.
"""

from collections.abc import Callable, Collection, Iterator, Set

from sow.engine.running_topics import ViewTopic
from sow.topic.batch import Batch
from sow.topic.views.view import MaterializedView

ROWS_AT_ONCE = 500
"""Rows that one flush releases, two or three milliseconds of work; the rest is due as a timer,
between other work."""


class Views:
    """The views of one engine.

    `find` returns the topic of a view, `route` routes its changes. `holds_until_us` returns until
    when to wait for a request that has changed one of some topics, None if there is none,
    `is_whole` whether no atomic change is under way there. `now_us` returns the time. `forget` is
    called with a view that has stopped, when its rows are gone.
    """

    def __init__(
        self,
        find: Callable[[str], ViewTopic],
        route: Callable[[ViewTopic, Batch], None],
        holds_until_us: Callable[[Collection[str]], int | None],
        is_whole: Callable[[Collection[str]], bool],
        now_us: Callable[[], int],
        forget: Callable[[MaterializedView], None],
    ) -> None:
        self._find = find
        self._route = route
        self._holds_until_us = holds_until_us
        self._is_whole = is_whole
        self._now_us = now_us
        self._forget = forget
        self._dirty: dict[MaterializedView, int] = {}
        """Views that have something to release, and since when."""
        self._releases: dict[MaterializedView, int] = {}
        """How often each was released since it was dirty."""
        self._stop_listeners: list[Callable[[str], None]] = []
        self._is_left = False
        """The last step has left work that need not wait."""
        self._held_until_us: int | None = None
        """When to continue with views that wait for a request, if it does not end before."""

    @property
    def is_dirty(self) -> bool:
        """A view has something to release, now or later."""
        return bool(self._dirty)

    @property
    def has_work(self) -> bool:
        """A view would be released now."""
        # Called at every flush, mostly without any view.
        return bool(self._dirty) and not all(map(self._is_held, self._dirty))

    def wake(self, view: MaterializedView) -> None:
        """`view` has something to release at the end of the turn."""
        self._dirty.setdefault(view, self._now_us())

    def on_stopped(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with a sentence for each view that stops."""
        self._stop_listeners.append(listener)

    def forget(self, view: MaterializedView) -> None:
        """Drop `view`, with its unreleased changes."""
        self._dirty.pop(view, None)
        self._releases.pop(view, None)

    def due_us(self) -> int | None:
        """When to continue: the time since which work is left, or the time at which a wait ends."""
        return min(self._dirty.values(), default=None) if self._is_left else self._held_until_us

    def advance(self, _now_us: int) -> None:
        """Release views that need not wait, up to `ROWS_AT_ONCE` rows; `due_us` reports whether
        there are more."""
        self._is_left, self._held_until_us, rows = False, None, 0
        for count in self.releasing():
            rows += 1 + count
            if rows >= ROWS_AT_ONCE:
                self._is_left = bool(self._dirty)
                return
        held = [self._holds_until_us(view.sources) for view in self._dirty]
        self._held_until_us = min((one for one in held if one is not None), default=None)

    def releasing(self) -> Iterator[int]:
        """Release all views that need not wait, some rows in each step; yields how many."""
        held: set[MaterializedView] = set()
        while (view := self._next(held)) is not None:
            if self._is_held(view):
                held.add(view)
                continue
            topic = self._find(view.name)
            for batch in view.release():
                self._route(topic, batch)
            self._releases[view] = self._releases.get(view, 0) + 1
            if not view.is_dirty:
                self.forget(view)
                if view.stopped:
                    self._forget(view)
                    for listener in self._stop_listeners:
                        listener(view.stopped)
            yield view.looked_at

    def _next(self, held: Set[MaterializedView]) -> MaterializedView | None:
        """The view to release next: of those that wait for no other one, the one released least
        often since it was dirty, then the one with the lowest rank."""
        dirty = {view.name for view in self._dirty}
        between = {view.name for view in self._dirty if not view.is_of_one_moment}
        return min(
            (v for v in self._dirty if v not in held and not v.waits_for(dirty, between)),
            key=lambda one: (self._releases.get(one, 0), one.rank),
            default=None,
        )

    def _is_held(self, view: MaterializedView) -> bool:
        if not self._is_whole({*view.sources, view.name}):
            return True
        return self._holds_until_us(view.sources) is not None

    def check(self) -> None:
        """Assert the invariants of views between two steps."""
        for view in self._dirty:
            assert self._find(view.name).view is view, f"{view.name} is removed, and still dirty"
        assert self._releases.keys() <= self._dirty.keys()
