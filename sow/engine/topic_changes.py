"""Topic changes: topics are added, removed and changed while the engine runs.

A view or a conflated topic is filled in steps while it receives all changes; clients cannot query
it before it is full. A changed one serves until its replacement is complete, and its subscribers
get the difference. A removed one removes its records in steps where a subscriber needs to know of
each, and takes with it what is derived from it.

What to add, remove and change is decided, and checked to be possible, before
(`sow.engine.reconfiguration`; `sow.sessions.queries.aggregations`, for views made for a client).
The catalog holds the topics; this module has no state.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeGuard

from sow.core.cooperative import Task, run_to_completion
from sow.core.definitions import ConflatedTopic, Definition, Topic, View
from sow.core.humanize import counted
from sow.engine.engine import Engine
from sow.engine.live_topic import is_hidden
from sow.engine.running_topics import CopyTopic, LiveTopic, SourceTopic, ViewTopic
from sow.store.memory import Usage
from sow.topic.views import RowProducer
from sow.topic.views.view import MaterializedView

LEAVING_AT_ONCE = 25
"""Topics removed in one step, with their subscriptions: some twenty microseconds each."""

EMPTIED_AT_ONCE = 100
"""Records of a removed topic that leave in one step: ten microseconds each with their lines."""


class TopicChanges:
    """Adds, changes and removes topics of one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._catalog = engine.catalog

    # Adding topics.

    def add_copies(self, definition: ConflatedTopic) -> Task[None]:
        """Add a conflated topic, or one for each topic of a pattern, expected by the catalog; each
        is filled before clients can query it."""
        for topic in self._catalog.coming(definition):
            yield from self._engine.atomic.exclusive(None, self._fill(topic))
            self._catalog.enter_copy(topic)
            self._engine.attach_topic(topic)
            yield from self._introduce(topic)

    def add_view(self, definition: View) -> Task[None]:
        """Add a view, expected by the catalog, filled before clients can query it."""
        yield from self._have_newest(definition)
        topic = self._catalog.view_maker.make(definition)
        steps = topic.view.fill_beside(lambda: self._engine.seq)
        steps = self._engine.atomic.exclusive(None, steps)
        yield from self._filling(topic.view, definition, steps)
        self._catalog.enter_view(topic)
        self._engine.attach_topic(topic)
        if topic.view.is_dirty or topic.view.stopped:
            self._engine.views.wake(topic.view)
        yield from self._introduce(topic)

    def add_private(
        self, definition: View, usage: Usage, producer: RowProducer | None = None
    ) -> Task[ViewTopic]:
        """Add a hidden view that counts in `usage`, filled before it is returned: it stays
        subscribed to its underlying topic, or has the rows of `producer`, once."""
        topic, is_full = self._catalog.view_maker.make(definition, producer, usage), False
        filling = topic.view.fill(0)
        if producer is None:
            filling = topic.view.fill_beside(lambda: self._engine.seq)
            filling = self._filling(topic.view, definition, filling)
        try:
            yield from filling
            is_full = True
        finally:
            filling.close()
            if not is_full:
                topic.records.table.forget()
                self._engine.views.free(topic.view)
        self._catalog.enter_view(topic)
        self._engine.attach_topic(topic)
        if topic.view.is_dirty:
            self._engine.views.wake(topic.view)
        return topic

    def remove_private(self, topic: ViewTopic) -> None:
        """Remove a hidden view without subscribers; one that is gone already is skipped."""
        if self._catalog.topics.get(topic.name) is topic:
            # No subscriber needs its rows, so this is one step.
            run_to_completion(self._leave(topic, lambda _topic: None))
            self._catalog.forget(topic)

    def _remove_private_of(
        self, topic: LiveTopic, end_topic: Callable[[LiveTopic], None]
    ) -> Task[None]:
        """Remove the hidden views of a topic that is being removed."""
        for listener in topic.router.listeners:
            # One that is being filled is no topic yet.
            going = self._catalog.topics.get(listener.name) if _is_of_client(listener) else None
            if going is not None:
                yield from self._leave(going, end_topic)
                # Its last subscriber may have removed it already.
                if self._catalog.topics.get(going.name) is going:
                    self._catalog.forget(going)

    # Changing topics.

    def change_view(self, topic: ViewTopic, definition: View) -> Task[None]:
        """Build other rows of a view beside the current ones, which serve until then; subscribers
        get the difference."""
        yield from self._have_newest(definition)
        view = self._catalog.view_maker.materialized(definition, topic.records)
        yield from self._filling(view, definition, view.fill_groups())
        self._engine.views.forget(topic.view)
        self._engine.views.free(topic.view)
        self._catalog.replace(topic, view, definition)
        view.succeed(self._engine.seq, self._engine.now_us)
        self._engine.notify_work()

    def _have_newest(self, definition: View) -> Task[None]:
        """Make underlying views report their newest row if a new view needs it and they do not yet:
        the state for it is kept only where it is needed."""
        for topic in self._catalog.view_maker.require_newest(definition):
            yield from self.change_view(topic, topic.definition)

    def _filling(self, view: MaterializedView, definition: View, steps: Task[None]) -> Task[None]:
        """Run steps that fill a view while it receives all changes."""
        steps = self._begun(view, definition, steps)
        for name in definition.underlyings:
            steps = self._engine.atomic.exclusive(name, steps)
        is_full = False
        try:
            yield from steps
            is_full = True
        finally:
            if not is_full:
                self._catalog.unfollow_views(view, definition.underlyings)
                view.stop()
                self._engine.views.free(view)

    def _begun(self, view: MaterializedView, definition: View, steps: Task[None]) -> Task[None]:
        """The same, subscribed from the first step on: before, it would take changes for changes of
        rows that it has."""
        self._catalog.follow(view, definition.underlyings)
        yield from steps

    def _introduce(self, topic: LiveTopic) -> Task[None]:
        """Send the records that a new topic starts with to its subscribers by pattern, as an atomic
        change: it does not change until all is sent, and other requests for it wait."""
        topic.router.meet()
        if any(topic.router.feeds()) and len(topic.records.table):
            yield from self._engine.atomic.carry_out(lambda: topic, self._introducing)
        self._engine.notify_work()

    def _introducing(self, topic: LiveTopic) -> Task[None]:
        self._engine.atomic.hold_other_output(topic, self._engine.now_us)
        for batch in topic.introduced():
            yield from self._engine.followers.caught_up(topic.name)
            self._engine.route(topic, batch)
            self._engine.notify_work()
            yield

    # Queues; giving their messages out is for `sow.engine.queues`.

    def add_queue(self, definition: Topic) -> None:
        """Add the topic of a queue, expected by the catalog."""
        for topic in self._catalog.add(definition):
            self._engine.attach_topic(topic)

    def busy_queues(self, at_rest: Mapping[str, str]) -> Iterator[str]:
        """What cannot be done, by the names of queues, since these have messages. Of a queue that
        is followed the primary has found that it has none."""
        for name, what in at_rest.items():
            topic = self._catalog.topics[name]
            count = len(topic.records.table)
            if count and isinstance(topic, SourceTopic) and topic.queue is not None:
                held = counted(count, "message")
                yield f"{what} while it has {held} (let consumers acknowledge them)"

    def change_queues(self, removed: Iterable[Definition], changed: Iterable[Topic]) -> None:
        """Nothing is a message of queues that are being removed any more, and others go by what
        has changed of them; of what is removed and is no queue nothing is done."""
        for definition in removed:
            topic = self._catalog.topics.get(definition.name)
            if isinstance(topic, SourceTopic) and topic.queue is not None:
                topic.queue.stop()
        for definition in changed:
            topic = self._catalog.topics[definition.name]
            topic.redefine(definition)
            if isinstance(topic, SourceTopic) and topic.queue is not None:
                assert definition.queue is not None
                topic.queue.change(definition.queue)

    def retain(self, topic: LiveTopic, definition: Definition) -> Task[None]:
        """Retain other events of the records of a series."""
        assert isinstance(topic, SourceTopic)
        assert isinstance(definition, Topic)
        for _ in topic.retain(definition):
            self._engine.timers.note(topic)
            yield
        self._engine.timers.note(topic)

    def retime(self, topic: CopyTopic, definition: ConflatedTopic) -> None:
        """Change the interval or schedule of a conflated topic."""
        self._engine.part(topic)
        topic.retime(definition, self._engine.now_us)
        self._engine.timers.note(topic.copy)

    def refocus(self, topic: CopyTopic, definition: ConflatedTopic) -> Task[None]:
        """Change the filter of a conflated topic: its records enter or leave, some in each step;
        one that has stopped is rebuilt."""
        while topic.copy.is_clearing:
            self._engine.route_released(topic.copy, topic.copy.advance(self._engine.now_us))
            yield
        condition = None if definition.filter is None else self._engine.filter(definition.filter)
        self._engine.part(topic)
        router = self._catalog.topics[topic.underlying].router
        router.unfile(topic.copy)
        topic.refocus(definition, condition)
        router.file(topic.copy)
        for _ in topic.copy.judge_all(lambda: self._engine.now_us):
            self._engine.timers.note(topic.copy)
            yield

    def _fill(self, topic: CopyTopic) -> Task[None]:
        router = self._catalog.topics[topic.underlying].router
        router.follow(topic.copy)
        is_full = False
        try:
            yield from topic.fill(lambda: self._engine.seq)
            is_full = True
        finally:
            router.leave(topic.copy)
            if not is_full:
                topic.give_up()

    # Removing topics.

    def remove_copies(self, name: str, end_topic: Callable[[LiveTopic], None]) -> Task[None]:
        """Remove the view or conflated topic `name`, or all those of a pattern, some in each step.

        `end_topic` is called with each after its last lines.
        """
        self._catalog.unfollow(name)
        for at, topic in enumerate(self._catalog.members(name)):
            if at % LEAVING_AT_ONCE == LEAVING_AT_ONCE - 1:
                yield
            yield from self._leave(topic, end_topic)
            self._catalog.forget(topic)
        self._catalog.remove(name)

    def _leave(self, topic: LiveTopic, end_topic: Callable[[LiveTopic], None]) -> Task[None]:
        """Remove the records of a topic that is being removed, some in each step, where a
        subscriber needs each; the last step detaches it."""
        yield from self._remove_private_of(topic, end_topic)
        topic.router.meet()
        if isinstance(topic, ViewTopic):
            self._engine.views.forget(topic.view)
            self._catalog.end_view(topic)
            self._engine.views.free(topic.view)
        if any(feed.wants_old for feed in topic.router.feeds()):
            # Until the step that ends it finds it empty: a window may give records back meanwhile.
            while len(topic.records.table) or topic.records.late:
                yield from self._empty(topic, lambda some: self._discharge(topic, some))
                yield from self._engine.output.all_caught_up(topic.records)
        end_topic(topic)
        self._engine.detach_topic(topic)

    def _discharge(self, topic: LiveTopic, identities: Sequence[str]) -> None:
        batch = topic.discharge(identities, self._engine.seq, self._engine.now_us)
        if batch is not None:
            self._engine.route(topic, batch)

    def _empty(self, topic: LiveTopic, take_out: Callable[[Sequence[str]], object]) -> Task[None]:
        """Remove all records of a topic, some in each step, including those that arrive between two
        steps."""
        table = topic.records.table
        while len(table):
            for names in table.held_names(EMPTIED_AT_ONCE):
                take_out(names)
                if len(table):
                    yield
                    yield from self._engine.followers.caught_up(topic.name)

    def give_up(self, topic: SourceTopic, end_topic: Callable[[LiveTopic], None]) -> Task[None]:
        """Remove a topic of a pattern, some of its records in each step: they are deleted, and its
        copies are removed.

        To be closed before. `end_topic` ends the subscriptions of each.
        """
        yield from self._empty(
            topic, lambda some: self._engine.remove(topic, some, "delete", self._engine.now_us)
        )
        for name in self._catalog.with_copies(topic):
            going = self._catalog.topics[name]
            yield from self._leave(going, end_topic)
            self._catalog.forget(going)
        yield  # there may be many topics with few records each


def _is_of_client(listener: object) -> TypeGuard[MaterializedView]:
    """Whether it is a view made for a client's query."""
    return isinstance(listener, MaterializedView) and is_hidden(listener.name)
