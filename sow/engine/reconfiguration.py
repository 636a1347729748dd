"""Changing the configuration of a running engine.

Two configurations are compared definition by definition. What can be changed while records and
subscribers stay where they are becomes a *step*; anything else is refused, all of it by name,
before the first step is taken: a bad edit changes nothing.

What takes long is made beside what there is and takes its place when it is complete: an index, a
conflated topic, which nobody can ask before it is full. Settings count from the first step on, and
so do the names that new topics will have, so that what was found possible stays so.

    conflated topics    added, removed; another interval, schedule or filter
    views               added, removed; other rows, of other topics or by another filter
    any topic           other indexes, another back-pressure policy, another MaxRecords
    topics              other Preprocessing and Enrichment, for what comes
    Sessions, Limits    for sessions that begin from now on; views that have too many groups stop
    Security            for requests that come from now on
    ServerLog           for lines that are written from now on
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

from sow.core.cooperative import Task
from sow.core.definitions import (
    BackPressure,
    Configuration,
    ConflatedTopic,
    Definition,
    Topic,
    View,
)
from sow.core.paths import Path
from sow.engine.engine import Engine
from sow.engine.recovery.name_changes import check_definition, without_place
from sow.engine.running_topics import CopyTopic, LiveTopic, SourceTopic, ViewTopic
from sow.engine.topic_changes import TopicChanges
from sow.errors import ConfigError
from sow.expressions import compile_projection

INDEX_FIELDS = frozenset({"hash_indexes", "indexes"})
BACK_PRESSURE_FIELDS = frozenset(field.name for field in dataclasses.fields(BackPressure))
PACE_FIELDS = frozenset({"interval_us", "schedule"})
FILTER_FIELDS = frozenset({"filter"})
ROOM_FIELDS = frozenset({"records_max"})
MADE_FIELDS = frozenset({"preprocessing", "enrichment"})
ROW_FIELDS = frozenset(
    {"underlyings", "joins", "null_equivalency", "projection", "filter", "conflation"}
)
CHANGEABLE = INDEX_FIELDS | BACK_PRESSURE_FIELDS | ROOM_FIELDS
CHANGEABLE_IN_SOURCES = CHANGEABLE | MADE_FIELDS
CHANGEABLE_IN_COPIES = CHANGEABLE | PACE_FIELDS | FILTER_FIELDS
CHANGEABLE_IN_VIEWS = CHANGEABLE | ROW_FIELDS
CLOSED_AT_ONCE = 1_000
"""Topics that go which are closed in one step: less than a microsecond each."""
REFUSALS_MAX = 5
"""So many topics that would lose records are named."""
UNCHANGING = ("name", "message_types", "host", "port", "data_directory", "journal")


GiveUp = Callable[[dict[LiveTopic, str]], Task[None]]
"""Takes the records of topics that go, with the reasons, some in each step."""


@dataclass(frozen=True, slots=True)
class ReconfigurationStep:
    """One change: what is said of it when it is done, and what does it, at once or step by step."""

    texts: list[str]
    apply: Callable[[], Task[None] | None]


class Reconfiguration:
    """The way from an engine's configuration to another one.

    `end_topic` ends the subscriptions of a topic that is going. `give_up` takes topics whose
    records would have no place, with the reasons; None: such a configuration is refused.
    """

    def __init__(
        self,
        engine: Engine,
        new: Configuration,
        end_topic: Callable[[LiveTopic], None],
        give_up: GiveUp | None = None,
    ) -> None:
        self._give_up = give_up
        self._leaving: dict[LiveTopic, str] = {}
        self._engine = engine
        self._changes = TopicChanges(engine)
        self._new = new
        self._end_topic = end_topic
        self._refused: list[str] = []
        self._added: list[ConflatedTopic | View] = []

    def apply(self, now_us: int) -> Task[list[str]]:
        """Take every step, or none: raises ConfigError with all that cannot be changed.

        What has been begun is to be carried to its end. Returns what was changed.
        """
        engine, new = self._engine, self._new
        engine.reach(now_us)
        steps = yield from self._settled()
        engine.adopt(
            replace(
                engine.configuration,
                sessions=new.sessions, limits=new.limits, security=new.security,
            )
        )  # fmt: skip
        for definition in self._added:
            engine.catalog.expect(definition)
        for step in steps:
            taken = step.apply()
            if taken is not None:
                yield from taken
        engine.adopt(new)
        return [text for step in steps for text in step.texts]

    def _settled(self) -> Task[list[ReconfigurationStep]]:
        """The steps to be taken, all of them possible in the step in which they come.

        Before that the records of what goes are given up. It is closed as long as that takes, so
        that nothing comes which is not; what is not to go then is open again.
        """
        closed: dict[LiveTopic, str] = {}
        try:
            while True:
                yield from self._finish_changes()
                steps = self._checked()
                coming = {topic: why for topic, why in self._leaving.items() if topic not in closed}
                if not coming:
                    break
                held: dict[LiveTopic, str] = {}
                for at, (topic, why) in enumerate(coming.items(), 1):
                    topic.close()
                    closed[topic] = why
                    if topic.records.table.slots:
                        held[topic] = why
                    if at % CLOSED_AT_ONCE == 0:
                        yield
                if held and self._give_up is not None:
                    yield from self._give_up(held)
                elif len(coming) < CLOSED_AT_ONCE:
                    break  # all in the step in which the changes were found possible
        except BaseException:
            for topic in closed:
                topic.close(False)
            raise
        for topic in closed.keys() - self._leaving.keys():
            topic.close(False)
        return steps

    def _finish_changes(self) -> Task[None]:
        """Finish what clients have begun to write to topics that go."""
        engine = self._engine
        while busy := self._find_leaving():
            for name in busy:
                yield from engine.undivided.finish_before(name)
                yield from engine.publications.finish_all(name)

    def _checked(self) -> list[ReconfigurationStep]:
        """The steps to be taken; raises ConfigError with all that cannot be changed."""
        self._refused, self._added = [], []
        steps = list(self._steps())
        if self._refused:
            raise ConfigError(
                "; ".join(self._refused) + ": nothing was changed; restart the server for it"
            )
        return steps

    def _find_leaving(self) -> list[str]:
        """Find out which topics go; returns those of which somebody's write is to be finished."""
        engine = self._engine
        self._leaving = without_place(engine.catalog, self._new)
        changing = engine.publications.names_under_way()
        if engine.undivided.topic is not None:
            changing.add(engine.undivided.topic.name)
        return [name for name in changing if engine.topics.get(name) in self._leaving]

    def _steps(self) -> Iterator[ReconfigurationStep]:
        old, new = self._engine.configuration, self._new
        for name in UNCHANGING:
            if getattr(old, name) != getattr(new, name):
                self._refused.append(f"{name} cannot be changed while the server runs")
        yield from self._leave()
        before = {definition.name: definition for definition in old.topics}
        after = {definition.name: definition for definition in new.topics}
        # What is removed goes in reverse, so that nothing is left without what it copies.
        for definition in reversed(old.topics):
            if definition.name not in after:
                yield from self._removal(definition)
        for definition in new.topics:
            if definition.name in before:
                yield from self._change(before[definition.name], definition)
            else:
                yield from self._addition(definition)
        for name in ("sessions", "limits", "security", "server_log"):
            if getattr(old, name) != getattr(new, name):
                apply = self._reconsider_views if name == "limits" else lambda: None
                yield ReconfigurationStep([f"{name.replace('_', ' ')} changed"], apply)

    def _reconsider_views(self) -> None:
        """Views that have more groups than they may have now stop, whether they change or not."""
        for topic in self._engine.topics.values():
            if isinstance(topic, ViewTopic):
                topic.view.reconsider()
        self._engine.tell_of_work()

    def _leave(self) -> Iterator[ReconfigurationStep]:
        losing = (topic for topic in self._leaving if topic.records.table.slots)
        for topic in islice(losing, REFUSALS_MAX if self._give_up is None else 0):
            self._refused.append(
                f"topic {topic.name} would lose its {len(topic.records.table):,} records "
                f"({self._leaving[topic]}; with --allow-loss or allow_loss=true they move to "
                "removed/TIME)"
            )
        if self._leaving:
            said: list[str] = []
            going = self._leaving
            yield ReconfigurationStep(said, lambda: self._give_up_all(going, said))

    def _give_up_all(self, going: Iterable[LiveTopic], said: list[str]) -> Task[None]:
        """Let topics of patterns go, and say so of each."""
        for topic in going:
            assert isinstance(topic, SourceTopic)
            count = len(topic.records.table)
            said.append(f"topic {topic.name} given up, with {count:,} records")
            yield from self._changes.give_up(topic, self._end_topic)

    def _removal(self, definition: Definition) -> Iterator[ReconfigurationStep]:
        if isinstance(definition, Topic):
            self._refused.append(f"topic {definition.name} cannot be removed")
            return
        yield ReconfigurationStep(
            [f"{_what(definition)} {definition.name} removed"],
            lambda: self._remove(definition.name),
        )

    def _remove(self, name: str) -> Task[None]:
        """A view or a conflated topic less, or all those of a pattern."""
        engine = self._engine
        yield from engine.undivided.let_all_by()
        yield from self._changes.remove_copies(name, self._end_topic)

    def _addition(self, definition: Definition) -> Iterator[ReconfigurationStep]:
        if isinstance(definition, Topic):
            self._refused.append(f"topic {definition.name} cannot be added")
            return
        if definition.engine == "spark":
            self._refused.append(
                f"{_what(definition)} {definition.name}, run by Spark, cannot be added"
            )
            return
        if not self._refused:
            check_definition(self._engine.catalog, definition, leaving=self._leaving)
        self._added.append(definition)
        yield ReconfigurationStep(
            [f"{_what(definition)} {definition.name} added"], lambda: self._add(definition)
        )

    def _add(self, definition: ConflatedTopic | View) -> Task[None]:
        if isinstance(definition, View):
            return self._changes.add_view(definition)
        return self._changes.add_copies(definition)

    def _change(self, old: Definition, new: Definition) -> Iterator[ReconfigurationStep]:
        fields = {
            field.name
            for field in dataclasses.fields(new)
            if field.name != "line"
            and (type(old) is not type(new) or getattr(old, field.name) != getattr(new, field.name))
        }
        allowed = CHANGEABLE_IN_SOURCES if isinstance(new, Topic) else CHANGEABLE
        if isinstance(new, ConflatedTopic) and new.engine == "embedded":
            allowed = CHANGEABLE_IN_COPIES
        if isinstance(new, View):
            allowed = CHANGEABLE_IN_VIEWS
        for name in sorted(fields - allowed):
            self._refused.append(f"{name} of topic {new.name} cannot be changed")
        if isinstance(new, View) and isinstance(old, View):
            self._check_keys(old, new)
        is_again = not isinstance(new, Topic) and any(one.stopped for one in self._topics(new))
        if is_again:
            # Other rows or another filter make it again, though they may be the same.
            fields |= {"joins" if isinstance(new, View) else "filter"}
        if fields & (BACK_PRESSURE_FIELDS | FILTER_FIELDS) and not self._refused:
            check_definition(self._engine.catalog, new, is_new=False)
        for part, what, apply in (
            (INDEX_FIELDS, "indexes", self._reindex),
            (BACK_PRESSURE_FIELDS, "back-pressure", self._refold),
            (PACE_FIELDS, "interval", self._retime),
            (
                (ROW_FIELDS, "rows", self._regroup)
                if isinstance(new, View)
                else (FILTER_FIELDS, "filter", self._refocus)
            ),
            (ROOM_FIELDS, "MaxRecords", self._resize),
            (MADE_FIELDS, "fields", self._remake),
        ):
            if fields & part:
                yield ReconfigurationStep(
                    [f"{what} of {new.name} {'made again' if is_again else 'changed'}"],
                    lambda apply=apply: self._each(new, apply),  # type: ignore[misc]
                )

    def _check_keys(self, old: View, new: View) -> None:
        """Rows are found by the fields that hold what they are grouped by."""
        before = _keys(old, self._engine.configuration)
        if before != _keys(new, self._new):
            self._refused.append(
                f"where view {new.name} projects what it groups by "
                f"({', '.join(map(str, before)) or 'not all of it'}) cannot be changed"
            )

    def _each(
        self,
        definition: Definition,
        apply: Callable[[LiveTopic, Definition], Task[None] | None],
    ) -> Task[None]:
        """Change a topic, or every topic of a pattern."""
        pattern = self._engine.catalog.patterns.get(definition.name)
        if pattern is not None:
            pattern.redefine(definition)
        for topic in self._topics(definition):
            steps = apply(topic, definition)
            if steps is not None:
                yield from steps
            yield

    def _topics(self, definition: Definition) -> list[LiveTopic]:
        """The topic of a definition, or all those of a pattern."""
        catalog = self._engine.catalog
        pattern = catalog.patterns.get(definition.name)
        if pattern is None:
            return [catalog.topics[definition.name]]
        return list(pattern.members.values())

    @staticmethod
    def _reindex(topic: LiveTopic, definition: Definition) -> Task[None]:
        return topic.reindex(definition)

    @staticmethod
    def _resize(topic: LiveTopic, definition: Definition) -> None:
        topic.redefine(definition)

    @staticmethod
    def _remake(topic: LiveTopic, definition: Definition) -> None:
        assert isinstance(topic, SourceTopic)
        assert isinstance(definition, Topic)
        topic.remake(definition)

    def _refold(self, topic: LiveTopic, definition: Definition) -> None:
        if isinstance(topic, CopyTopic):
            self._changes.part(topic)
        topic.refold(definition)

    def _retime(self, topic: LiveTopic, definition: Definition) -> None:
        assert isinstance(topic, CopyTopic)
        assert isinstance(definition, ConflatedTopic)
        self._changes.retime(topic, definition)

    def _regroup(self, topic: LiveTopic, definition: Definition) -> Task[None]:
        assert isinstance(topic, ViewTopic)
        assert isinstance(definition, View)
        return self._changes.change_view(topic, definition)

    def _refocus(self, topic: LiveTopic, definition: Definition) -> Task[None]:
        assert isinstance(topic, CopyTopic)
        assert isinstance(definition, ConflatedTopic)
        return self._changes.refocus(topic, definition)


def _what(definition: ConflatedTopic | View) -> str:
    return "view" if isinstance(definition, View) else "conflated topic"


def _keys(view: View, configuration: Configuration) -> tuple[Path, ...]:
    types = {topic.name: topic.message_type for topic in configuration.topics}
    topics = {name: types[name] for name in view.underlyings}
    return compile_projection(view.projection, view.grouping, topics).keys
