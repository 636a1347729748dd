"""Views: the end of a turn, at which what has changed in them is told.

Views take changes in as they come, and say nothing until the turn ends. Then each that has changed
is released, those first that others are made of: so a view of a topic and of another view of the
same topic never shows one without the other, and a row changes at most once in a turn. A view that
has very much to do takes its turns with the others: it delays nobody but those that are made of it.

A turn ends when the engine is flushed; a publish, a removal or a commit that is carried out in
slices is one turn. Others go on meanwhile and should be seen, so a request is not waited for
without end (`sow.engine.request_boundaries`). Of a commit nobody is to see half: it is waited for
to its end.
"""

from collections.abc import Callable, Collection, Iterator, Set

from sow.engine.running_topics import ViewTopic
from sow.topic.batch import Batch
from sow.topic.views.view import MaterializedView

ROWS_AT_ONCE = 500
"""Rows that are looked at when a turn ends, two or three milliseconds of work; the rest falls due,
in turn with what others want."""


class Views:
    """The views of one engine.

    `find` gives the topic of a view, `route` tells of its changes. `holds_until_us` says until when
    a request is to be waited for that has changed one of some topics, None if there is none,
    `is_whole` whether nothing is there that nobody is to see half of. `now_us` gives the time.
    `forget` is called with a view that has stopped, when its rows have gone.
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
        """How often these were released meanwhile."""
        self._stop_listeners: list[Callable[[str], None]] = []
        self._is_left = False
        """The last step has left something that need not wait."""
        self._held_until_us: int | None = None
        """When it is to go on with what waited for a request then, should that stand still."""

    @property
    def is_dirty(self) -> bool:
        """A view has something to release, now or later."""
        return bool(self._dirty)

    @property
    def has_work(self) -> bool:
        """A view would be released now."""
        # Asked whenever something is flushed, mostly where no view is.
        return bool(self._dirty) and not all(map(self._is_held, self._dirty))

    def wake(self, view: MaterializedView) -> None:
        """`view` has something to release at the end of the turn."""
        self._dirty.setdefault(view, self._now_us())

    def on_stopped(self, listener: Callable[[str], None]) -> None:
        """Have `listener` told of each view that has stopped, in a sentence."""
        self._stop_listeners.append(listener)

    def forget(self, view: MaterializedView) -> None:
        """`view` goes, with what it has not told."""
        self._dirty.pop(view, None)
        self._releases.pop(view, None)

    def due_us(self) -> int | None:
        """When what the last step left is to go on: since it was there, or from when on it waits no
        longer."""
        return min(self._dirty.values(), default=None) if self._is_left else self._held_until_us

    def release(self) -> None:
        """The turn has ended: release views that need not wait, some rows of them; `due_us` says
        whether there are more."""
        self._is_left, self._held_until_us, rows = False, None, 0
        for count in self.releasing():
            rows += 1 + count
            if rows >= ROWS_AT_ONCE:
                self._is_left = bool(self._dirty)
                return
        held = [self._holds_until_us(view.sources) for view in self._dirty]
        self._held_until_us = min((one for one in held if one is not None), default=None)

    def releasing(self) -> Iterator[int]:
        """Release all views that need not wait, some rows in each step; how many each time."""
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
        """The view to release next: of those that wait for no other one, who has been released
        least often since it was dirty, or else who stands first."""
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
        """Assert what is always true of views between two steps."""
        for view in self._dirty:
            assert self._find(view.name).view is view, f"{view.name} has gone, and waits to be told"
        assert self._releases.keys() <= self._dirty.keys()
