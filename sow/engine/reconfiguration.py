"""Changing the configuration of a running engine.

Two configurations are compared definition by definition. A change that keeps records and
subscriptions becomes a *step*; anything else is refused, all of it by name, before the first step:
a bad edit changes nothing.

What takes long is built beside the current state and replaces it when it is complete: an index, a
conflated topic, which clients cannot query before it is full. Settings count from the first step
on, and the names of new topics are reserved then, so that the steps stay possible.

No configuration lists the names of topics made by a pattern. A new one may use such a name for a
conflated topic, or allow a pattern fewer topics than there are: `without_place` finds these topics.

    conflated topics    added, removed; another interval, schedule or filter
    views               added, removed; other rows, of other topics or by another filter
    any topic           other indexes, another back-pressure policy, another MaxRecords
    topics              other Preprocessing and Enrichment, for new messages; Retain of a Series;
                        another History
    queues              added; removed, and given out in another way, while they have no messages;
                        other leases and backlogs
    Sessions, Limits    for new sessions; views that have too many groups stop
    Security            for new requests
    ServerLog           for new lines
    Environment         at once
    Actions             at once; runs that wait go on
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Set
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from operator import attrgetter

from sow.config.elements.table import ROOT
from sow.core.cooperative import Task
from sow.core.definitions import (
    Configuration,
    ConflatedTopic,
    Definition,
    Topic,
    View,
)
from sow.core.paths import Path
from sow.engine.catalog import Catalog
from sow.engine.configurations import (
    AT_REST_FIELDS,
    BACK_PRESSURE_FIELDS,
    EVENT_FIELDS,
    FILTER_FIELDS,
    INDEX_FIELDS,
    MADE_FIELDS,
    PACE_FIELDS,
    QUEUE_FIELDS,
    READ_WHEN_NEEDED,
    ROW_FIELDS,
    changeable,
    changed_fields,
    elements_of,
    filling,
    kind_of,
)  # fmt: skip
from sow.engine.engine import Engine
from sow.engine.patterns import PatternTopic, copied_from
from sow.engine.queries import FilterCache
from sow.engine.running_topics import CopyTopic, LiveTopic, SourceTopic, ViewTopic
from sow.engine.topic_changes import TopicChanges
from sow.errors import ConfigError, SowError
from sow.expressions import compile_projection
from sow.messages import message_type
from sow.topic.queue_policy import make_merger

COMPARED_AT_ONCE = 500
"""Definitions compared in one step: two microseconds each."""
DIFFERENT_IS_WORTH = 100
"""What a different one counts: its filter is compiled."""
CLOSED_AT_ONCE = 1_000
"""Topics to be removed that one step closes: less than a microsecond each."""
REFUSALS_MAX = 5
"""How many topics that would lose records an error names."""
SETTINGS = (
    "environment", "colour", "sessions", "limits", "security", "server_log", "actions",
    "webhook_hosts",
)  # fmt: skip
UNCHANGING = ("name", "message_types", "host", "port", "data_directory", "journal")

GiveUp = Callable[[dict[LiveTopic, str]], Task[None]]
"""Archives the records of topics that are being removed, with the reasons, in steps."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A definition that is new (`fields` is None) or has other `fields`. `is_again`: it has stopped
    and is rebuilt, though nothing else may be different; `wrong`: why it cannot run at all."""

    definition: Definition
    fields: Set[str] | None
    is_again: bool = False
    wrong: SowError | None = None


@dataclass(frozen=True, slots=True)
class ReconfigurationStep:
    """One change: its report when it is done, and the function that does it, at once or in
    steps. One that counts from a moment `is_last`: the log says of a reload when it has ended."""

    texts: list[str]
    apply: Callable[[], Task[None] | None]
    is_last: bool = False


class Reconfiguration:
    """Changes an engine's configuration to another one.

    `end_topic` ends the subscriptions of a topic that is being removed. `give_up` archives topics
    whose records would be orphaned, with the reasons; None: such a configuration is refused.
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
        self._removed: list[Definition] = []
        """In reverse, so that nothing loses its underlying topic."""
        self._differences: list[Difference] = []
        self._at_rest: dict[str, str] = {}
        """What is only changed of queues without messages, by the queues' names."""
        self._queues: list[Topic] = []
        """Queues with other settings."""
        self._refused: list[str] = []
        """What cannot be changed, whatever the engine does meanwhile."""

    def apply(self, now_us: int) -> Task[list[str]]:
        """Run every step, or none: raises ConfigError with all that cannot be changed.

        Once started it has to be finished. Returns what was changed.
        """
        engine, new = self._engine, self._new
        engine.sequencer.moment(now_us)
        yield from self._compare()
        steps = yield from self._settled()
        # In the step that has found them without messages, before some come again.
        self._changes.change_queues(self._removed, self._queues)
        engine.adopt(
            replace(
                engine.configuration,
                sessions=new.sessions, limits=new.limits, security=new.security,
            )
        )  # fmt: skip
        for definition in self._added():
            engine.catalog.expect(definition)
        for step in sorted(steps, key=attrgetter("is_last")):
            yield
            taken = step.apply()
            if taken is not None:
                yield from taken
        for definition in self._added():
            if isinstance(definition, Topic):
                # In the step from which on the log has it: its messages come behind that.
                self._changes.add_queue(definition)
        engine.adopt(new)
        engine.configurations.note(is_start=False)
        return [text for step in steps for text in step.texts]

    def _settled(self) -> Task[list[ReconfigurationStep]]:
        """The steps to run, all of them possible at the moment of return.

        Before that the records of removed topics are archived. These topics are closed meanwhile,
        so that no record is missed; those that stay after all are opened again.
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
                    break  # all in the step that found the changes possible
        except BaseException:
            for topic in closed:
                topic.close(False)
            raise
        for topic in closed.keys() - self._leaving.keys():
            topic.close(False)
        return steps

    def _finish_changes(self) -> Task[None]:
        """Finish writes to topics that are being removed."""
        engine = self._engine
        while busy := self._find_leaving():
            for name in busy:
                yield from engine.atomic.finish_before(name)
                yield from engine.publications.finish_all(name)

    def _checked(self) -> list[ReconfigurationStep]:
        """The steps to run; raises ConfigError with all that cannot be changed."""
        refused = [*self._refused, *self._losses(), *self._changes.busy_queues(self._at_rest)]
        if refused:
            raise ConfigError(
                "; ".join(refused) + ": nothing was changed; restart the server for it"
            )
        for one in self._differences:
            if one.wrong is not None:
                raise one.wrong
        for definition in self._added():
            check_names(self._engine.catalog, definition, self._leaving)
        return list(self._steps())

    def _find_leaving(self) -> list[str]:
        """Find the topics to remove; returns those with writes to finish."""
        engine = self._engine
        self._leaving = without_place(engine.catalog, self._new)
        changing = engine.publications.names_under_way()
        if engine.atomic.topic is not None:
            changing.add(engine.atomic.topic.name)
        return [name for name in changing if engine.topics.get(name) in self._leaving]

    # Comparing.

    def _compare(self) -> Task[None]:
        """Find what is different, and what of it cannot be changed, some in each step: the engine's
        configuration stays as it is meanwhile."""
        old, new = self._engine.configuration, self._new
        changed = [name for name in UNCHANGING if getattr(old, name) != getattr(new, name)]
        for element in dict.fromkeys(map(ROOT.filling, changed)):
            self._refused.append(f"{element} cannot be changed while the server runs")
        before = {definition.name: definition for definition in old.topics}
        after = {definition.name for definition in new.topics}
        self._removed = [one for one in reversed(old.topics) if one.name not in after]
        for one in self._removed:
            if isinstance(one, Topic) and one.queue is not None:
                self._at_rest[one.name] = f"queue {one.name} cannot be removed"
            elif isinstance(one, Topic):
                self._refused.append(f"topic {one.name} cannot be removed")
        count = 0
        for definition in new.topics:
            had, count = before.get(definition.name), count + 1
            is_again = had is not None and self._has_stopped(definition)
            if had != definition or is_again:
                self._differences.append(self._difference(had, definition, is_again))
                count += DIFFERENT_IS_WORTH
            elif old.limits != new.limits and (wrong := self._wrong(definition)) is not None:
                # The next start would refuse it as well.
                self._differences.append(Difference(definition, frozenset(), wrong=wrong))
                count += DIFFERENT_IS_WORTH
            if count >= COMPARED_AT_ONCE:
                count = 0
                yield

    def _has_stopped(self, definition: Definition) -> bool:
        return not isinstance(definition, Topic) and any(
            topic.stopped for topic in self._topics(definition)
        )

    def _difference(self, old: Definition | None, new: Definition, is_again: bool) -> Difference:
        if old is None:
            self._refuse_addition(new)
            return Difference(new, None, wrong=self._wrong(new))
        if kind_of(old) != kind_of(new):
            self._refused.append(f"{kind_of(old)} {new.name} cannot become a {kind_of(new)}")
            return Difference(new, set())
        if type(old) is not type(new):
            self._refused.append(f"Engine of {kind_of(new)} {new.name} cannot be changed")
            return Difference(new, set())
        fields = changed_fields(old, new)
        if fields & AT_REST_FIELDS and isinstance(new, Topic):
            named = ", ".join(filling(new, fields & AT_REST_FIELDS))
            self._at_rest[new.name] = f"{named} of queue {new.name} cannot be changed"
        if fields & QUEUE_FIELDS and isinstance(new, Topic):
            self._queues.append(new)
        for element in elements_of(old, new, fields - changeable(old, new)):
            self._refused.append(f"{element} of {kind_of(new)} {new.name} cannot be changed")
        if isinstance(new, View) and isinstance(old, View):
            self._check_keys(old, new)
        if is_again:
            # Replacing its rows or filter rebuilds it, though they may be the same.
            fields |= {"joins" if isinstance(new, View) else "filter"}
        is_checked = fields & (BACK_PRESSURE_FIELDS | FILTER_FIELDS)
        return Difference(new, fields, is_again, self._wrong(new) if is_checked else None)

    def _refuse_addition(self, new: Definition) -> None:
        """Of topics, which are only added by a start."""
        if isinstance(new, Topic):
            if new.queue is None:
                self._refused.append(f"topic {new.name} cannot be added")
        elif new.engine == "spark":
            self._refused.append(f"{kind_of(new)} {new.name}, run by Spark, cannot be added")

    def _wrong(self, definition: Definition) -> SowError | None:
        """Why a definition cannot run beside the others, whatever their names."""
        filters = self._engine.filters.under(self._new.limits)
        try:
            check_definition(self._engine.catalog, definition, filters)
        except SowError as error:
            error.detail = f"{kind_of(definition)} {definition.name}: {error.detail}"
            return error
        return None

    def _added(self) -> Iterator[Definition]:
        return (one.definition for one in self._differences if one.fields is None)

    # Steps.

    def _steps(self) -> Iterator[ReconfigurationStep]:
        old, new = self._engine.configuration, self._new
        if self._leaving:
            texts: list[str] = []
            leaving = self._leaving
            yield ReconfigurationStep(texts, lambda: self._give_up_all(leaving, texts))
        for definition in self._removed:
            text = f"{kind_of(definition)} {definition.name} removed"
            yield ReconfigurationStep([text], partial(self._remove, definition.name))
        for one in self._differences:
            if one.fields is None:
                text = f"{kind_of(one.definition)} {one.definition.name} added"
                yield ReconfigurationStep([text], partial(self._add, one.definition))
            else:
                yield from self._change(one.definition, one.fields, one.is_again)
        for name in SETTINGS:
            if getattr(old, name) != getattr(new, name):
                apply = self._reconsider_views if name == "limits" else lambda: None
                yield ReconfigurationStep([f"{name.replace('_', ' ')} changed"], apply)

    def _reconsider_views(self) -> None:
        """Stop views that have more groups than the new limit, whether they change or not."""
        for topic in self._engine.topics.values():
            if isinstance(topic, ViewTopic):
                topic.view.reconsider()
        self._engine.notify_work()

    def _losses(self) -> Iterator[str]:
        losing = (topic for topic in self._leaving if topic.records.table.slots)
        for topic in islice(losing, REFUSALS_MAX if self._give_up is None else 0):
            yield (
                f"topic {topic.name} would lose its {len(topic.records.table):,} records "
                f"({self._leaving[topic]}; with --allow-loss or allow_loss=true they move to "
                "removed/TIME)"
            )

    def _give_up_all(self, leaving: Iterable[LiveTopic], texts: list[str]) -> Task[None]:
        """Remove topics of patterns, and report each."""
        for topic in leaving:
            assert isinstance(topic, SourceTopic)
            count = len(topic.records.table)
            texts.append(f"topic {topic.name} given up, with {count:,} records")
            yield from self._changes.give_up(topic, self._end_topic)

    def _remove(self, name: str) -> Task[None]:
        """Remove a view or a conflated topic, or all those of a pattern."""
        engine = self._engine
        yield from engine.atomic.finish_any()
        yield from self._changes.remove_copies(name, self._end_topic)

    def _add(self, definition: Definition) -> Task[None] | None:
        if isinstance(definition, Topic):
            return None  # a queue, at the end
        if isinstance(definition, View):
            return self._changes.add_view(definition)
        return self._changes.add_copies(definition)

    def _change(
        self, new: Definition, fields: Set[str], is_again: bool
    ) -> Iterator[ReconfigurationStep]:
        for part, what, apply in (
            (INDEX_FIELDS, "indexes", lambda topic, definition: topic.reindex(definition)),
            (BACK_PRESSURE_FIELDS, "back-pressure", self._refold),
            (PACE_FIELDS, "interval", self._retime),
            (
                (ROW_FIELDS, "rows", self._regroup)
                if isinstance(new, View)
                else (FILTER_FIELDS, "filter", self._refocus)
            ),
            (MADE_FIELDS, "fields", self._remake),
            (READ_WHEN_NEEDED, "", lambda topic, definition: topic.redefine(definition)),
            (QUEUE_FIELDS, "", lambda _topic, _definition: None),
            (EVENT_FIELDS, "Retain", self._changes.retain),
        ):
            if fields & part:
                named = what or ", ".join(filling(new, fields & part))
                yield ReconfigurationStep(
                    [f"{named} of {new.name} {'made again' if is_again else 'changed'}"],
                    partial(self._each, new, apply),
                    is_last=part is PACE_FIELDS,
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
        self, definition: Definition, apply: Callable[[LiveTopic, Definition], Task[None] | None]
    ) -> Task[None]:
        """Change a topic, or every topic of a pattern."""
        pattern = self._engine.catalog.patterns.get(definition.name)
        if pattern is not None:
            pattern.redefine(definition)
        for topic in self._topics(definition):
            yield
            steps = apply(topic, definition)
            if steps is not None:
                yield from steps

    def _topics(self, definition: Definition) -> list[LiveTopic]:
        """The topic of a definition, or all those of a pattern."""
        catalog = self._engine.catalog
        pattern = catalog.patterns.get(definition.name)
        if pattern is None:
            return [catalog.topics[definition.name]]
        return list(pattern.members.values())

    @staticmethod
    def _remake(topic: LiveTopic, definition: Definition) -> None:
        assert isinstance(topic, SourceTopic)
        assert isinstance(definition, Topic)
        topic.remake(definition)

    def _refold(self, topic: LiveTopic, definition: Definition) -> None:
        if isinstance(topic, CopyTopic):
            self._engine.part(topic)
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


def _keys(view: View, configuration: Configuration) -> tuple[Path, ...]:
    types = {topic.name: topic.message_type for topic in configuration.topics}
    topics = {name: types[name] for name in view.underlyings}
    return compile_projection(view.projection, view.grouping, topics).keys


def without_place(catalog: Catalog, new: Configuration) -> dict[LiveTopic, str]:
    """Topics of patterns that a new configuration has no place for, and why.

    Those over a pattern's limit, and those whose names conflated topics would have.
    """
    found: dict[LiveTopic, str] = {}
    limit = new.limits.pattern_topics_max
    for pattern in catalog.patterns.values():
        if pattern.matches is not None:
            found |= dict.fromkeys(*pattern.over(limit))
    patterns = dict(catalog.patterns)
    for definition in new.topics:
        if isinstance(definition, Topic) or definition.name in patterns:
            continue
        underlying = None
        if isinstance(definition, ConflatedTopic):
            underlying = patterns.get(definition.underlying)
        if underlying is None:
            names = [definition.name] if definition.name in catalog.topics else []
        else:
            copies = patterns[definition.name] = PatternTopic(definition, None, underlying)
            names = copies.held_among(catalog.topics)
        for topic in map(catalog.topics.__getitem__, names):
            if isinstance(topic, SourceTopic) and catalog.pattern_of(topic) is not None:
                kind = kind_of(definition) if underlying is None else f"copy of {definition.name}"
                found[topic] = f"{topic.name} is the name of a {kind} now"
    return found


def check_definition(catalog: Catalog, definition: Definition, filters: FilterCache) -> None:
    """Raise an error if a definition cannot run, whatever topics there are."""
    make_merger(definition, message_type(definition.message_type, catalog.kinds))
    if not isinstance(definition, Topic) and definition.filter is not None:
        filters.get(definition.filter)


def check_names(
    catalog: Catalog, definition: Definition, leaving: Collection[LiveTopic] = ()
) -> None:
    """Raise ConfigError if a new definition would take the name of an existing topic, unless that
    is `leaving`, or a copy of one."""
    named = catalog.topics.get(definition.name)
    taken = [] if named is None or named in leaving else [definition.name]
    underlying = None
    if isinstance(definition, ConflatedTopic):
        underlying = catalog.patterns.get(definition.underlying)
    if underlying is not None:
        there = {name for name, topic in catalog.topics.items() if topic not in leaving}
        taken += PatternTopic(definition, None, underlying).held_among(there)
    if taken and leaving:
        gone = {name for topic in leaving for name in catalog.with_copies(topic)}
        taken = [name for name in taken if name not in gone]
    for name in taken:
        if name == definition.name:
            raise ConfigError(f"{name}: there is a topic of this name already")
        assert isinstance(definition, ConflatedTopic)
        raise ConfigError(
            f"{definition.name}: there is a topic {name} already, which is what the "
            f"copy of {copied_from(definition, name)} would be called"
        )
