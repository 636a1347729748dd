"""Topics that come, go and change while the engine runs.

A view or a conflated topic is filled beside what there is, some records in each step, while it
hears of all that changes; nobody can ask it before it is full. One that is changed serves until
what takes its place is complete, and who follows it is told the difference. One that goes lets its
records go some in each step, where somebody wants to know of each, and takes with it what was made
of it.

What is to come, to go and to change is found out, and found possible, before
(`sow.engine.reconfiguration`; `sow.sessions.queries.aggregations`, for views that are made for a
client). What a topic is, and what it is made of, belongs to the catalog; nothing is kept here.
"""

from collections.abc import Callable, Sequence
from typing import TypeGuard

from sow.core.cooperative import Task, run_to_completion
from sow.core.definitions import ConflatedTopic, View
from sow.engine.engine import Engine
from sow.engine.hidden_topics import is_hidden
from sow.engine.running_topics import CopyTopic, LiveTopic, SourceTopic, ViewTopic
from sow.topic.views.groups import RowGroups
from sow.topic.views.row_deltas import RowProducer
from sow.topic.views.view import MaterializedView

LEAVING_AT_ONCE = 25
"""Topics that go in one step, with what follows them: some twenty microseconds each."""

EMPTIED_AT_ONCE = 100
"""Records that leave a topic that is going in one step: ten microseconds each with their lines."""


class TopicChanges:
    """What may become of the topics of one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._catalog = engine.catalog

    # Topics that come.

    def add_copies(self, definition: ConflatedTopic) -> Task[None]:
        """A conflated topic more, or one for each topic of a pattern, expected by the catalog;
        each is filled before anybody can ask it."""
        for topic in self._catalog.coming(definition):
            yield from self._engine.undivided.apart(None, self._fill(topic))
            self._catalog.enter_copy(topic)
            self._engine.look_after_topic(topic)
            yield from self._introduce(topic)

    def add_view(self, definition: View) -> Task[None]:
        """A view more, expected by the catalog, filled before anybody can ask it."""
        yield from self._have_newest(definition)
        topic = self._catalog.view_maker.make(definition)
        steps = topic.view.fill_beside(lambda: self._engine.seq)
        steps = self._engine.undivided.apart(None, steps)
        yield from self._filling(topic.view, definition, steps)
        self._catalog.enter_view(topic)
        self._engine.look_after_topic(topic)
        if topic.view.is_dirty or topic.view.stopped:
            self._engine.views.wake(topic.view)
        yield from self._introduce(topic)

    def add_private(
        self,
        definition: View,
        check: Callable[[RowGroups], None],
        producer: RowProducer | None = None,
    ) -> Task[ViewTopic]:
        """A view whose name is private, filled before it is returned: it goes on hearing of its
        underlying topic; or holds what `producer` gives of it, once. `check` raises what speaks
        against so many groups."""
        topic, is_full = self._catalog.view_maker.make(definition, producer), False
        filling = topic.view.fill(0)
        if producer is None:
            filling = topic.view.fill_beside(lambda: self._engine.seq)
            filling = self._filling(topic.view, definition, filling)
        try:
            for _ in filling:
                check(topic.view.groups)
                yield
            is_full = True
        finally:
            filling.close()
            if not is_full:
                topic.records.table.forget()
                self._engine.forget_kept(topic.view)
        self._catalog.enter_view(topic)
        self._engine.look_after_topic(topic)
        if topic.view.is_dirty:
            self._engine.views.wake(topic.view)
        return topic

    def remove_private(self, topic: ViewTopic) -> None:
        """A view less that nobody follows any more; one that has gone already is passed over."""
        if self._catalog.topics.get(topic.name) is topic:
            # Nobody wants to know of each of its rows, so that this is one step.
            run_to_completion(self._leave(topic, lambda _topic: None))
            self._catalog.forget(topic)

    def _remove_private_of(
        self, topic: LiveTopic, end_topic: Callable[[LiveTopic], None]
    ) -> Task[None]:
        """The private views of a topic that is going go with it."""
        for listener in topic.router.listeners:
            # One that is being filled is no topic yet.
            going = self._catalog.topics.get(listener.name) if _is_of_client(listener) else None
            if going is not None:
                yield from self._leave(going, end_topic)
                # The last who followed it has let go of it; others wait to be answered of it.
                if self._catalog.topics.get(going.name) is going:
                    self._catalog.forget(going)

    # Topics that change.

    def change_view(self, topic: ViewTopic, definition: View) -> Task[None]:
        """Make the rows of a view otherwise, beside those that there are, which serve until then;
        who follows it is told what differs."""
        yield from self._have_newest(definition)
        view = self._catalog.view_maker.materialized(definition, topic.records)
        yield from self._filling(view, definition, view.fill_groups())
        self._engine.views.forget(topic.view)
        self._engine.forget_kept(topic.view)
        self._catalog.replace(topic, view, definition)
        view.succeed(self._engine.seq, self._engine.now_us)
        self._engine.tell_of_work()

    def _have_newest(self, definition: View) -> Task[None]:
        """Have views say which of their rows is the newest if a view that is to be made asks it,
        and they do not yet: what that takes is kept for who needs it alone."""
        for topic in self._catalog.view_maker.ask_newest(definition):
            yield from self.change_view(topic, topic.definition)

    def _filling(self, view: MaterializedView, definition: View, steps: Task[None]) -> Task[None]:
        """Take steps in which a view is filled; it hears of all that changes meanwhile."""
        steps = self._begun(view, definition, steps)
        for name in definition.underlyings:
            steps = self._engine.undivided.apart(name, steps)
        is_full = False
        try:
            yield from steps
            is_full = True
        finally:
            if not is_full:
                self._catalog.unfollow_views(view, definition.underlyings)
                view.stop()
                self._engine.forget_kept(view)

    def _begun(self, view: MaterializedView, definition: View, steps: Task[None]) -> Task[None]:
        """The same, the view hearing from the first one on: before, it would take what changes for
        changes of what it has."""
        self._catalog.follow(view, definition.underlyings)
        yield from steps

    def _introduce(self, topic: LiveTopic) -> Task[None]:
        """Tell who has followed a topic by a pattern from its beginning what it begins with, while
        no other change is undivided: it does not change until all has been told, and whoever asks
        for it waits."""
        topic.router.meet()
        if any(topic.router.feeds()) and len(topic.records.table):
            yield from self._engine.undivided.carry_out(lambda: topic, self._introducing)
        self._engine.tell_of_work()

    def _introducing(self, topic: LiveTopic) -> Task[None]:
        self._engine.undivided.speak_exclusively(topic)
        for batch in topic.introduced():
            self._engine.route(topic, batch)
            self._engine.tell_of_work()
            yield

    def part(self, topic: CopyTopic) -> None:
        """Let a conflated topic have its copy to itself, to go on otherwise than those alike."""
        if topic.is_shared:
            before = topic.copy
            topic.part()
            self._catalog.topics[topic.underlying].router.file(topic.copy)
            self._engine.look_after_parted(topic, before)

    def retime(self, topic: CopyTopic, definition: ConflatedTopic) -> None:
        """Go on with another interval or schedule of a conflated topic."""
        self.part(topic)
        topic.retime(definition, self._engine.now_us)
        self._engine.timers.note(topic.copy)

    def refocus(self, topic: CopyTopic, definition: ConflatedTopic) -> Task[None]:
        """Go on with another filter of a conflated topic, by which its records enter or leave, some
        in each step; one that has stopped is made again."""
        while topic.copy.is_clearing:
            self._engine.release_copy(topic.copy, self._engine.now_us)
            yield
        condition = None if definition.filter is None else self._engine.filter(definition.filter)
        self.part(topic)
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

    # Topics that go.

    def remove_copies(self, name: str, end_topic: Callable[[LiveTopic], None]) -> Task[None]:
        """The view or conflated topic `name` less, or all those of a pattern, some in each step.

        `end_topic` is called with each when its last lines have been said.
        """
        self._catalog.unfollow(name)
        for at, topic in enumerate(self._catalog.members(name)):
            if at % LEAVING_AT_ONCE == LEAVING_AT_ONCE - 1:
                yield
            yield from self._leave(topic, end_topic)
            self._catalog.forget(topic)
        self._catalog.remove(name)

    def _leave(self, topic: LiveTopic, end_topic: Callable[[LiveTopic], None]) -> Task[None]:
        """Let the records go of a topic that is going, some in each step, where somebody wants to
        know of each; in the last do nothing more for it."""
        yield from self._remove_private_of(topic, end_topic)
        topic.router.meet()
        if isinstance(topic, ViewTopic):
            self._engine.views.forget(topic.view)
            self._catalog.end_view(topic)
            self._engine.forget_kept(topic.view)
        if any(feed.wants_old for feed in topic.router.feeds()):
            yield from self._empty(topic, lambda some: self._discharge(topic, some))
        end_topic(topic)
        self._engine.forsake(topic)

    def _discharge(self, topic: LiveTopic, identities: Sequence[str]) -> None:
        batch = topic.discharge(identities, self._engine.seq, self._engine.now_us)
        if batch is not None:
            self._engine.route(topic, batch)

    @staticmethod
    def _empty(topic: LiveTopic, take_out: Callable[[Sequence[str]], object]) -> Task[None]:
        """Have all records of a topic taken out, some in each step: after the last none is there,
        whatever has come between two of them."""
        table = topic.records.table
        while len(table):
            for names in table.held_names(EMPTIED_AT_ONCE):
                take_out(names)
                if len(table):
                    yield

    def give_up(self, topic: SourceTopic, end_topic: Callable[[LiveTopic], None]) -> Task[None]:
        """A topic of a pattern less, some of its records in each step: they are deleted, and its
        copies go with it.

        To be closed before. `end_topic` ends the subscriptions of each.
        """
        yield from self._empty(
            topic, lambda some: self._engine.remove(topic, some, "delete", self._engine.now_us)
        )
        for name in self._catalog.with_copies(topic):
            going = self._catalog.topics[name]
            yield from self._leave(going, end_topic)
            self._catalog.forget(going)
        yield  # many topics may go, of few records each


def _is_of_client(listener: object) -> TypeGuard[MaterializedView]:
    """Whether it is a view that was made for a client's question."""
    return isinstance(listener, MaterializedView) and is_hidden(listener.name)
