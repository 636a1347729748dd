"""Making views: of a definition, the rows that are to be kept and what keeps them.

A view is made of topics that are there, and hears of nothing until the catalog lets it. Which of
its rows is the newest is kept only where a view above it asks; that is known here, too.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping
from weakref import WeakSet

from sow.core.definitions import Configuration, ConflatedTopic, Definition, Topic, View
from sow.core.join_tree import join_levels
from sow.engine.hidden_topics import is_hidden
from sow.engine.running_topics import LiveTopic, ViewTopic
from sow.expressions import Filter, Projection, compile_projection
from sow.messages import message_type
from sow.store.memory import Usage, UsageOfSome
from sow.streaming.pattern_subscriptions import PatternSubscriptions
from sow.streaming.router import Router
from sow.topic.records import Records
from sow.topic.views.accumulators import goes_by_newest
from sow.topic.views.groups import RowGroups
from sow.topic.views.joins import Joins
from sow.topic.views.row_deltas import RowProducer
from sow.topic.views.single_source import SingleSource
from sow.topic.views.view import MaterializedView


class ViewMaker:
    """Makes views of `topics`, which are looked up as they are then; what they keep is counted in
    `usage`. `configuration` gives the one that holds, `wake` is called with a view that has
    something to release, and had nothing. Who follows patterns of names is in `followers`."""

    def __init__(
        self,
        topics: Mapping[str, LiveTopic],
        configuration: Callable[[], Configuration],
        compile_filter: Callable[[str], Filter],
        usage: Usage,
        wake: Callable[[MaterializedView], None],
        followers: PatternSubscriptions[Router],
    ) -> None:
        self._topics = topics
        self._configuration = configuration
        self._compile_filter = compile_filter
        self._usage = usage
        self.usage_of_clients = UsageOfSome(usage)
        """What is kept of the groups of views whose names are private."""
        self._wake = wake
        self._followers = followers
        self._numbers = itertools.count()
        self._groups: WeakSet[RowGroups] = WeakSet()
        """Those of views that are there, that are being filled, and that are being forgotten."""
        self._requested_newest: set[str] = set()
        """Topics of which a view asks which of their records is the newest."""
        definitions = configuration().topics
        types = {one.name: one.message_type for one in definitions}
        for definition in reversed(definitions):
            self._ask_newest(definition, types)

    def make(self, definition: View, producer: RowProducer | None = None) -> ViewTopic:
        """A view of topics that are there, which hears nothing yet and is empty; or of what
        `producer` gives of them, which hears nothing ever."""
        projection, configuration = self.projection(definition), self._configuration()
        kinds = {options.name: options for options in configuration.message_types}
        kind = message_type(definition.message_type, kinds)
        records = Records(
            definition, kind, tuple(map(str, projection.keys)), definition.domain, self._usage,
            instance=configuration.name, makes_keys=True,
        )  # fmt: skip
        view = self.materialized(definition, records, producer)
        heard = definition.underlyings if producer is None else ()
        # Patterns are of names that everybody may know.
        followers = PatternSubscriptions() if is_hidden(definition.name) else self._followers
        return ViewTopic(definition, view, heard, followers)

    def projection(self, definition: View) -> Projection:
        """What the rows of a view are made of; raises BadFilter."""
        return compile_projection(
            definition.projection, definition.grouping, self._types(definition)
        )

    def _types(self, definition: View) -> dict[str, str]:
        """The message types of the topics that a view is made of."""
        topics = self._topics
        return {name: topics[name].definition.message_type for name in definition.underlyings}

    def materialized(
        self, definition: View, records: Records, producer: RowProducer | None = None
    ) -> MaterializedView:
        """What makes `records` the rows of a view, and hears nothing yet."""
        projection = self.projection(definition)
        if producer is None:
            producer = self._producer(definition, projection)
        above, sources = self._made_of(definition.underlyings)
        rank = above, next(self._numbers)
        view = MaterializedView(
            records, producer, projection, rank, sources, self._wake,
            definition.name in self._requested_newest,
            self.usage_of_clients if is_hidden(definition.name) else self._usage,
            None if is_hidden(definition.name) else self._check_groups,
        )  # fmt: skip
        self._groups.add(view.groups)
        return view

    def _check_groups(self, groups: RowGroups) -> None:
        groups.check_count(self._configuration().limits.view_groups_max)

    def ask_newest(self, definition: View) -> list[ViewTopic]:
        """Know whether a view asks which record of the topics that it is made of is the newest, so
        that these say so if they are views, and so on; returns the views that do not yet, those
        first that others are made of."""
        return self._ask_newest(definition, self._types(definition))

    def _ask_newest(self, definition: Definition, types: Mapping[str, str]) -> list[ViewTopic]:
        found: list[ViewTopic] = []
        for name in _requested_newest(definition, types, definition.name in self._requested_newest):
            self._requested_newest.add(name)
            topic = self._topics.get(name)
            if topic is not None:
                found += self._ask_newest(topic.definition, types)
            if isinstance(topic, ViewTopic) and not topic.view.reports_newest:
                found.append(topic)
        return found

    @property
    def kept_bytes(self) -> int:
        """What is kept of the groups of all views, about."""
        return sum(groups.kept_bytes for groups in self._groups)

    def objects_max(self) -> int:
        """How many Python objects views may hold, their groups foremost; looks at all topics."""
        if not self._groups:
            return 0
        records = sum(len(topic.records.table) for topic in self._topics.values())
        return sum(groups.objects_max(records) for groups in self._groups)

    def _producer(self, definition: View, projection: Projection) -> RowProducer:
        """What says which rows go into the groups of a view."""
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
        paths = [source.path for source in projection.inputs]
        return SingleSource(self._topics[name].records, paths, condition)

    def _made_of(self, names: Iterable[str]) -> tuple[int, frozenset[str]]:
        """How many views stand above each other in what is made of these topics, and the names of
        all that it is made of."""
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
    """Of which topics a definition has to know which record is the newest; `is_requested`: so has
    somebody of its own records."""
    if isinstance(definition, ConflatedTopic):
        return (definition.underlying,) if is_requested else ()
    if isinstance(definition, Topic):
        return ()
    if not is_requested:
        of_view = {name: types[name] for name in definition.underlyings}
        projection = compile_projection(definition.projection, definition.grouping, of_view)
        is_requested = goes_by_newest(projection)
    return definition.underlyings if is_requested else ()
