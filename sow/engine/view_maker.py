"""View maker: from a definition to the rows of a view and what maintains them.

A view is made of existing topics, and receives no changes until the catalog subscribes it. Which of
its rows is the newest is kept only where a view above needs it; that is tracked here, too.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping
from weakref import WeakSet

from sow.core.definitions import Configuration, ConflatedTopic, Definition, Topic, View
from sow.core.join_tree import join_levels
from sow.engine.running_topics import LiveTopic, ViewTopic, is_hidden
from sow.expressions import Filter, Projection, compile_projection
from sow.messages import message_type
from sow.store.memory import Usage
from sow.streaming.router import PatternSubscriptions
from sow.topic.records import Records
from sow.topic.views.accumulators import goes_by_newest
from sow.topic.views.groups import RowGroups
from sow.topic.views.joins import Joins
from sow.topic.views.row_deltas import RowProducer
from sow.topic.views.single_source import SingleSource
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
        return compile_projection(
            definition.projection, definition.grouping, self._types(definition)
        )

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
        paths = [source.path for source in projection.inputs]
        return SingleSource(self._topics[name].records, paths, condition)

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
