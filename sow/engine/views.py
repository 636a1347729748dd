"""Views: how they are made, and when their changes and their memory are released.

A view is made of existing topics (`ViewMaker`), and receives no changes until the catalog
subscribes it. Which of its rows is the newest is kept only where a view above needs it; that is
tracked here, too.

Views take changes in as they come, and release nothing until the flush. Then each changed view is
released, after those that it is made of: so a view of a topic and of another view of the same topic
never shows one without the other, and a row changes at most once in a flush. A view with very much
to do works in steps between other work: it delays only the views made of it.

A flush ends a turn; a publish, a removal or a commit in slices is one turn. Other clients' changes
should be visible meanwhile, so the wait for a request is bounded (`sow.engine.output`). An atomic
commit is never shown in part: a view waits until it is complete.

A group is a dozen objects, and a view may have millions of them; a join also has an entry of each
record in its indexes. So the state of removed or stopped views is freed as a timer, interleaved
with other work (`ViewGc`). A view's rows are freed at once: they are a few large lists.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager
from functools import partial
from heapq import heapify, heappop, heappush
from typing import NamedTuple
from weakref import WeakSet

from sow.core.cooperative import RESTS, Task
from sow.core.definitions import Configuration, ConflatedTopic, Definition, Topic, View
from sow.core.join_tree import join_levels
from sow.engine.atomic_change import AtomicBatch
from sow.engine.live_topic import is_hidden
from sow.engine.output import RequestBoundaries
from sow.engine.queries import matching
from sow.engine.running_topics import LiveTopic, ViewTopic
from sow.engine.timers import Timers
from sow.expressions import Filter, Projection, compile_projection
from sow.messages import message_type
from sow.store.memory import Usage
from sow.streaming.router import PatternSubscriptions
from sow.topic.batch import Batch
from sow.topic.records import Records
from sow.topic.views import RowProducer, SingleSource, ViewGc
from sow.topic.views.accumulators import goes_by_newest
from sow.topic.views.groups import RowGroups
from sow.topic.views.joins import Joins
from sow.topic.views.view import MaterializedView


class ViewMaker:
    """Makes views of `topics`, looked up when needed; their state is counted in `usage`, that of a
    view for a client in its own.
    `configuration` returns the current one, `wake` is called with a view that has become dirty.
    `followers` are subscriptions to patterns of names."""

    def __init__(
        self,
        topics: Mapping[str, LiveTopic],
        configuration: Callable[[], Configuration],
        compile_filter: Callable[[str], Filter],
        usage: Usage,
        wake: Callable[[MaterializedView], None],
        followers: PatternSubscriptions,
    ) -> None:
        self._topics = topics
        self._configuration = configuration
        self._compile_filter = compile_filter
        self._usage = usage
        self._wake = wake
        self._followers = followers
        self._numbers = itertools.count()
        self._groups: WeakSet[RowGroups] = WeakSet()
        """Groups of views that exist, are being filled, or are being freed."""
        self._requested_newest: set[str] = set()
        """Topics whose newest record a view needs."""
        definitions = configuration().topics
        types = {one.name: one.message_type for one in definitions}
        for definition in reversed(definitions):
            self._require_newest(definition, types)

    def make(
        self, definition: View, producer: RowProducer | None = None, usage: Usage | None = None
    ) -> ViewTopic:
        """An empty view of existing topics, not subscribed to them yet; with `producer` a view of
        its rows, which is never subscribed. `usage` counts one that is made for a client."""
        projection, configuration = self.projection(definition), self._configuration()
        kinds = {options.name: options for options in configuration.message_types}
        kind = message_type(definition.message_type, kinds)
        records = Records(
            definition, kind, tuple(map(str, projection.keys)), definition.domain,
            usage or self._usage,
            instance=configuration.name, makes_keys=True,
        )  # fmt: skip
        view = self.materialized(definition, records, producer, usage)
        underlyings = definition.underlyings if producer is None else ()
        # Patterns never match hidden names.
        followers = PatternSubscriptions() if is_hidden(definition.name) else self._followers
        return ViewTopic(definition, view, underlyings, followers)

    def projection(self, definition: View) -> Projection:
        """What the rows of a view are made of; raises BadFilter."""
        types = self._types(definition)
        return compile_projection(definition.projection, definition.grouping, types)

    def _types(self, definition: View) -> dict[str, str]:
        """The message types of the topics that a view is made of."""
        topics = self._topics
        return {name: topics[name].definition.message_type for name in definition.underlyings}

    def materialized(
        self,
        definition: View,
        records: Records,
        producer: RowProducer | None = None,
        usage: Usage | None = None,
    ) -> MaterializedView:
        """What maintains `records` as the rows of a view, not subscribed yet."""
        projection = self.projection(definition)
        if producer is None:
            producer = self._producer(definition, projection)
        above, sources = self._made_of(definition.underlyings)
        for name in sources:
            below = self._topics[name]
            if isinstance(below, ViewTopic):
                below.view.beside.update(sources)
        rank = above, next(self._numbers)
        view = MaterializedView(
            records, producer, projection, rank, sources, self._wake,
            definition.name in self._requested_newest,
            usage or self._usage,
            None if usage else self._check_groups,
        )  # fmt: skip
        self._groups.add(view.groups)
        return view

    def _check_groups(self, groups: RowGroups) -> None:
        groups.check_count(self._configuration().limits.view_groups_max)

    def require_newest(self, definition: View) -> list[ViewTopic]:
        """Track whether a view needs the newest record of its underlying topics, transitively;
        returns the views that do not report it yet, underlying ones first."""
        return self._require_newest(definition, self._types(definition))

    def _require_newest(self, definition: Definition, types: Mapping[str, str]) -> list[ViewTopic]:
        found: list[ViewTopic] = []
        for name in _requested_newest(definition, types, definition.name in self._requested_newest):
            self._requested_newest.add(name)
            topic = self._topics.get(name)
            if topic is not None:
                found += self._require_newest(topic.definition, types)
            if isinstance(topic, ViewTopic) and not topic.view.reports_newest:
                found.append(topic)
        return found

    @property
    def kept_bytes(self) -> int:
        """About how many bytes the groups of all views take that count with the records."""
        return sum(one.kept_bytes for one in self._groups if one.usage is self._usage)

    def objects_max(self) -> int:
        """How many Python objects views may hold, their groups foremost; looks at all topics."""
        if not self._groups:
            return 0
        records = sum(len(topic.records.table) for topic in self._topics.values())
        return sum(groups.objects_max(records) for groups in self._groups)

    def _producer(self, definition: View, projection: Projection) -> RowProducer:
        """What produces the rows for the groups of a view."""
        if definition.joins:
            levels = join_levels(definition.joins)
            return Joins(
                [self._topics[level.topic].records for level in levels],
                levels,
                projection.inputs,
                definition.null_equivalency,
                lambda: self._configuration().limits.join_fan_out_max,
                self._usage,
            )
        condition = None if definition.filter is None else self._compile_filter(definition.filter)
        (name,) = definition.underlyings
        records, paths = self._topics[name].records, [source.path for source in projection.inputs]
        find = None if condition is None else partial(matching, records, condition)
        return SingleSource(records, paths, condition, find)

    def _made_of(self, names: Iterable[str]) -> tuple[int, frozenset[str]]:
        """The depth of views below, and the names of all topics below, transitively."""
        above, sources = 0, set(names)
        for name in names:
            topic = self._topics[name]
            if isinstance(topic, ViewTopic):
                above = max(above, topic.view.rank[0] + 1)
                sources |= topic.view.sources
        return above, frozenset(sources)


def _requested_newest(
    definition: Definition, types: Mapping[str, str], is_requested: bool
) -> tuple[str, ...]:
    """The topics whose newest record a definition needs; `is_requested`: its own newest record is
    needed."""
    if isinstance(definition, ConflatedTopic):
        return (definition.underlying,) if is_requested else ()
    if isinstance(definition, Topic):
        return ()
    if not is_requested:
        of_view = {name: types[name] for name in definition.underlyings}
        projection = compile_projection(definition.projection, definition.grouping, of_view)
        is_requested = goes_by_newest(projection)
    return definition.underlyings if is_requested else ()


ROWS_AT_ONCE = 500
"""Rows that one flush releases, two or three milliseconds of work; the rest is due as a timer,
between other work."""


SETTLED_TURNS_MAX = 1_000
"""Turns of some 2 ms in which a query lets a view release what was published before: only one that
more is published for all the time takes longer, and by then what came first is released."""

Held = dict[frozenset[str], bool]
"""Whether views that are made of these topics may not be released in this step."""
WithinTurn = Callable[[MaterializedView, int], bool]
"""Whether the turn of a view goes on that began with a record; 0: with none."""


class Since(NamedTuple):
    """A moment: its time, and the newest change by then; 0 where that is not known."""

    us: int
    seq: int
    turn: int
    """The newest change by then in any case; 0 where time has made it, and no change."""


class Views:
    """The views of one engine.

    `look_up` returns the topic of a name, `route` routes its changes, `notify` is called with work
    that no command or timer has caused, `stopped` with a sentence for each view that stops. A view
    waits for `requests`, the change of `atomic`, and until no view of its topics `is_behind`, which
    `catch_up` works at.
    """

    def __init__(
        self,
        look_up: Callable[[str], LiveTopic | None],
        route: Callable[[ViewTopic, Batch], None],
        timers: Timers,
        requests: RequestBoundaries,
        atomic: AtomicBatch,
        notify: Callable[[], None],
        stopped: Callable[[str], None],
        is_behind: Callable[[Iterable[str]], bool],
        catch_up: Callable[[], None],
    ) -> None:
        self._look_up = look_up
        self._route = route
        self._timers = timers
        self._requests = requests
        self._atomic = atomic
        self._notify = notify
        self._stopped = stopped
        self._is_behind = is_behind
        self._catch_up = catch_up
        self.gc = ViewGc()
        """State of removed and stopped views."""
        self._dirty: dict[MaterializedView, Since] = {}
        """Views that have something to release, and since when."""
        self.unreleased: Sized = self._dirty
        self._within_turn: WithinTurn | None = None
        self._released: MaterializedView | None = None
        """The view whose changes reach those above it."""
        self._woken: list[MaterializedView] | None = None
        self._releases: dict[MaterializedView, int] = {}
        """How often each was released since it was dirty."""
        self._is_left = False
        """The last step has left work that need not wait."""
        self._held_until_us: int | None = None
        """When to continue with views that wait for a request, if it does not end before."""
        self._awaited: dict[object, MaterializedView] = {}
        """Queries that wait for the end of requests, and the view that these hold back."""

    def _find(self, name: str) -> ViewTopic:
        topic = self._look_up(name)
        assert isinstance(topic, ViewTopic)
        return topic

    @property
    def is_dirty(self) -> bool:
        """A view has something to release, now or later."""
        return bool(self._dirty)

    @property
    def has_work(self) -> bool:
        """A view would be released now."""
        # Called at every flush, mostly without any view.
        known = Held()
        return bool(self._dirty) and not all(self._is_held(view, known) for view in self._dirty)

    def wake(self, view: MaterializedView) -> None:
        """`view` has something to release at the end of the turn."""
        if view not in self._dirty:
            below = self._released
            since = None if below is None else self._dirty.get(below)
            self._dirty[view] = since or self._now(view)
            if self._woken is not None:
                self._woken.append(view)

    def _now(self, view: MaterializedView) -> Since:
        """Since when a view has something to release that it has just processed."""
        sequencer = self._requests.sequencer
        seq = sequencer.seq
        is_behind = self._is_behind(view.sources)
        return Since(sequencer.now_us, 0 if is_behind else seq, 0 if view.goes_by_time else seq)

    def stay_within_turn(self, within: WithinTurn | None) -> None:
        """A view that has processed a change is not released while `within` says so of it: the next
        change that it takes in is of the same turn. None: of no view."""
        self._within_turn = within

    def turn_of(self, topic: str) -> int:
        """The record with which the turn began that a change of a topic is part of now: that of the
        views that show it; 0: none."""
        began = (
            since.turn
            for view, since in self._dirty.items()
            if since.turn and topic in view.beside and not is_hidden(view.name)
        )
        return min(began, default=0)

    def turn(self) -> int:
        """The record with which the oldest turn began that is not released yet; 0: none."""
        began = (one.turn for view, one in self._dirty.items() if not is_hidden(view.name))
        return min(filter(None, began), default=0)

    def forget(self, view: MaterializedView) -> None:
        """Drop `view`, with its unreleased changes."""
        self._dirty.pop(view, None)
        self._releases.pop(view, None)
        if view.rows.unreleased_us is not None:
            view.rows.hold_back(None)
            topic = self._look_up(view.name)
            for copy in [] if topic is None else topic.router.copies():
                self._timers.note(copy)

    def free(self, view: MaterializedView) -> None:
        """A view is removed or unsubscribed, or has stopped: free its state as a timer."""
        self.gc.add(view.kept())
        self._timers.note(self.gc)
        self._notify()

    def due_us(self) -> int | None:
        """When to continue: the time since which work is left, or the time at which a wait ends."""
        if not self._is_left:
            return self._held_until_us
        return min((since.us for since in self._dirty.values()), default=None)

    def release(self) -> None:
        """Advance, and leave the rest to the timer."""
        self.advance(0)
        self._timers.note(self)

    def advance(self, _now_us: int) -> None:
        """Release views that need not wait, up to `ROWS_AT_ONCE` rows; `due_us` reports whether
        there are more."""
        self._is_left, self._held_until_us, rows = False, None, 0
        for count in self.releasing():
            rows += 1 + count
            if rows >= ROWS_AT_ONCE:
                self._is_left = bool(self._dirty)
                break
        for view, since in self._dirty.items():
            view.rows.hold_back(since.us)
        held = [] if self._is_left else [self._waits_until_us(view) for view in self._dirty]
        self._held_until_us = min((one for one in held if one is not None), default=None)

    def releasing(self) -> Iterator[int]:
        """Release all views that need not wait, some rows in each step; yields how many.

        Of those that wait for no other one, next is the one released least often since it was
        dirty, then the one with the lowest rank."""
        waiting: list[MaterializedView] = []
        known, heap = Held(), [(self._releases.get(one, 0), one.rank, one) for one in self._dirty]
        heapify(heap)
        with self._noting() as woken:
            while heap:
                view = heappop(heap)[2]
                if view not in self._dirty or self._is_held(view, known):
                    continue
                if view.rank[0] and view.waits_for(*self._unreleased()):
                    waiting.append(view)
                    continue
                self._release(view)
                if view in self._dirty:
                    woken.append(view)
                if self._find(view.name).router.listeners:
                    known.clear()
                    woken += waiting
                    waiting.clear()
                for one in woken:
                    heappush(heap, (self._releases.get(one, 0), one.rank, one))
                woken.clear()
                yield view.looked_at

    @contextmanager
    def _noting(self) -> Iterator[list[MaterializedView]]:
        """Those that become dirty while others are released."""
        woken: list[MaterializedView] = []
        self._woken = woken
        try:
            yield woken
        finally:
            self._woken = None

    def _release(self, view: MaterializedView) -> None:
        topic = self._find(view.name)
        self._released = view
        try:
            for batch in view.release():
                self._route(topic, batch)
        finally:
            self._released = None
        self._releases[view] = self._releases.get(view, 0) + 1
        if not view.is_dirty:
            self.forget(view)
            if view.stopped:
                self.free(view)
                self._stopped(view.stopped)

    def _unreleased(self) -> tuple[set[str], set[str]]:
        """The names of all views that have something to release, and of those that are not of one
        moment."""
        dirty = {view.name for view in self._dirty}
        return dirty, {view.name for view in self._dirty if not view.is_of_one_moment}

    def _is_held(self, view: MaterializedView, known: Held) -> bool:
        """Whether a view may not be released now; `known` is what is known of others already."""
        held = known.get(view.sources)
        if held is None:
            held = known[view.sources] = self._atomic.shows_half(view.sources) or self._is_behind(
                view.sources
            )
        # Its followers may be late: they get what has changed meanwhile in one.
        return (
            held
            or (self._within_turn is not None and self._within_turn(view, self._dirty[view].turn))
            or self._waits_until_us(view) is not None
            or self._find(view.name).records.has_awaited
            or self._atomic.shows_half((view.name,))
        )

    def _waits_until_us(self, view: MaterializedView) -> int | None:
        """Until when a view waits for requests that overlap, at most; None: for none."""
        since = self._dirty.get(view)
        return self._requests.holds_until_us(view.sources, None if since is None else since.us)

    def settling(self, name: str) -> Task[None]:
        """The steps after which the view `name`, if it is one, shows all that may have been
        acknowledged when they began: a large change reaches the views of a topic later, many rows
        are released some at a time, and requests of others hold views back."""
        for view in self._made_of(name):
            yield from self._settling(view)

    def settling_above(self, name: str) -> Task[None]:
        """The same of all views that are made of the topic `name`, but for what others hold back:
        the steps before its records change for so long that queries of these views cannot wait."""
        for _ in range(SETTLED_TURNS_MAX):
            if not any(name in view.sources and self._lags(view) for view in self._dirty):
                return
            yield from self._release_some()

    def _release_some(self) -> Task[None]:
        self._catch_up()
        self.release()
        yield

    def _settling(self, view: MaterializedView) -> Task[None]:
        began_seq, turns = self._requests.sequencer.seq, 0
        while turns < SETTLED_TURNS_MAX and not self._has_released(view, began_seq):
            if self._lags(view):
                turns += 1
                yield from self._release_some()
            elif not self._owes(view) or not (yield from self._waited(view, began_seq)):
                return

    def _waited(self, view: MaterializedView, seq: int) -> Task[bool]:
        """Let those go on that hold a view back, unless it has released all changes up to `seq`
        meanwhile; returns whether they did."""
        if (yield from self._atomic.finish_shown({*view.sources, view.name})):
            return True
        ticket, goes_on = object(), False
        self._awaited[ticket] = view
        try:
            while self._waits_until_us(view) is not None and not self._has_released(view, seq):
                goes_on = not (yield RESTS)
                if not goes_on:
                    break
        finally:
            del self._awaited[ticket]
        return goes_on

    def reporting(self, name: str) -> Task[None]:
        """The steps after which no query waits any more that waits now for the end of requests that
        have changed the topic `name`: it would wait for one that changes the topic next as well."""
        tickets = [one for one, view in self._awaited.items() if name in view.sources]
        if tickets and not self._requests.has_changed():
            while not self._awaited.keys().isdisjoint(tickets) and not (yield RESTS):
                pass

    def _made_of(self, name: str) -> list[MaterializedView]:
        """All views that the view of a name is made of, lowest first, and itself."""
        topic = self._look_up(name)
        if not isinstance(topic, ViewTopic):
            return []
        topics = [topic, *map(self._look_up, topic.view.sources)]
        found = [one.view for one in topics if isinstance(one, ViewTopic)]
        return sorted(found, key=lambda view: view.rank)

    def _lags(self, view: MaterializedView) -> bool:
        """Whether a view has something to process, or to release that need not wait for the end of
        a change or a publish."""
        if self._is_behind(view.sources):
            return True
        waits = self._atomic.shows_half({*view.sources, view.name}) or (
            self._waits_until_us(view) is not None
        )
        return view in self._dirty and not waits

    def _has_released(self, view: MaterializedView, seq: int) -> bool:
        """Whether a view shows all changes up to this one."""
        since = self._dirty.get(view)
        return not self._is_behind(view.sources) and (since is None or since.seq > seq)

    def _owes(self, view: MaterializedView) -> bool:
        """Whether something that a view has to release may be acknowledged, or is of the request
        that asks: it is not only of others under way."""
        since, topics = self._dirty[view], map(self._look_up, view.sources)
        return self._requests.has_changed(view.sources) or any(
            topic is not None and topic.passed_seq >= since.seq for topic in topics
        )

    def check(self) -> None:
        """Assert the invariants of views between two steps."""
        for view in self._dirty:
            assert self._find(view.name).view is view, f"{view.name} is removed, and still dirty"
        assert self._releases.keys() <= self._dirty.keys()
