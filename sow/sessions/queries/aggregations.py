"""Aggregations: queries and subscriptions about groups of records instead of records.

    projection=[SUM(/qty) AS /qty,/desk],grouping=[/desk]

An aggregation is an anonymous view (`sow.engine.running_topics`): the view is created, and the
command continues on that topic, so order, pages, deltas, oof and conflation work as for any topic.
The filter applies to the records that are grouped.

A query is answered from the records as of one moment, by a view that receives no updates. A
subscription has one that is updated; equal subscriptions share it, and it ends with the last of
them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from sow.core.cooperative import Task
from sow.core.definitions import View
from sow.core.paths import Path
from sow.engine.engine import Engine
from sow.engine.running_topics import HiddenTopic, LiveTopic, SourceTopic, ViewTopic
from sow.engine.topic_changes import TopicChanges
from sow.errors import BadMessage, ClientError, Full, TooLarge, UnknownTopic, shown
from sow.expressions import UNSTEADY, Projection, check_deterministic, compile_projection, nested
from sow.expressions.filters import Filter
from sow.history.snapshot import Snapshot
from sow.messages.base import MessageType
from sow.protocol.commands import Command
from sow.query import Query
from sow.sessions.queries.access_control import row_policy_of
from sow.topic.batch import Batch
from sow.topic.records import Records
from sow.topic.views.groups import RowGroups
from sow.topic.views.row_deltas import Forgettable, RowDeltas, Take

STEP_ROWS = 250
"""Records that are given in one step: two milliseconds or so with what a view makes of them."""


class ViewInputSnapshot:
    """The records of a snapshot, in the order of their first publication, with the values of
    `paths`. `newest` is how new each is, where its sequence number does not decide that
    (`Columns.newest`), `order` the position of each (`Columns.order`), where several may share one:
    rows of a view do."""

    def __init__(
        self,
        snapshot: Snapshot,
        paths: Sequence[Path],
        newest: NDArray[np.int64] | None = None,
        order: NDArray[np.int64] | None = None,
    ) -> None:
        self._snapshot = snapshot
        self._newest, self._order = newest, order
        self._decoder = snapshot.topic.decoder(tuple(paths))

    @property
    def underlyings(self) -> Sequence[Records]:
        """The topic whose records they were."""
        return (self._snapshot.topic,)

    def on_batch(self, _batch: Batch) -> Iterable[RowDeltas]:
        """Nothing: no change is about that moment."""
        return ()

    @property
    def kept_bytes(self) -> int:
        """Snapshots are counted by themselves."""
        return 0

    @property
    def is_behind(self) -> bool:
        """Never: nothing is received."""
        return False

    def work(self) -> Iterator[RowDeltas]:
        """Nothing is left."""
        return iter(())

    def rows(self) -> Iterator[RowDeltas]:
        """All records, as having come."""
        for start, stop in self._snapshot.chunks(STEP_ROWS):
            columns = self._snapshot.part(start, stop)
            count, places = stop - start, range(start, stop)
            yield RowDeltas(
                places,
                None,
                self._decoder.columns(columns.bodies),
                [False] * count,
                [True] * count,
                places if self._order is None else self._order[start:stop].tolist(),
                columns.seqs,
                columns.ts_us,
                newest_seqs=None if self._newest is None else self._newest[start:stop].tolist(),
            )

    def filling(self, take: Take) -> Task[None]:
        """The same, given to `take`."""
        for changes in self.rows():
            take(changes)
            yield

    def stop(self) -> None:
        """Nothing was watched."""

    def kept(self) -> Iterable[Forgettable]:
        """Nothing is kept of records but the snapshot."""
        return ()


TEXT_BYTES_MAX = 64 * 1024
"""Of a projection and its grouping together, as AMPS has it."""
PARTS_MAX = 1_000
"""Of a projection, as of an order: what it takes to read and compile, at once, stays around
50 ms."""
FOLLOWED_MAX = 32
"""Aggregated subscriptions of a session: each may be a view of its own, which costs every publish
to its topic three to twelve microseconds a record and holds memory for every group."""
GROUPS_MAX = 1_000_000
"""Groups of one that is made for a client: some kilobyte each. A view of the configuration may have
more (`Limits/ViewGroups`)."""
MEMORY_SHARE = 4
"""The groups of all clients take at most this part of `Limits/Memory`, so that queries cannot stop
publishing."""
Admit = Callable[[int], None]


class Share:
    """A reference to a view that was created for a client, until it is released."""

    def __init__(self, topic: ViewTopic, let_go: Callable[[], None]) -> None:
        self.topic = topic
        self._let_go: Callable[[], None] | None = let_go

    def let_go(self) -> None:
        """Release it; releasing twice does nothing."""
        let_go, self._let_go = self._let_go, None
        if let_go is not None:
            let_go()


@dataclass(eq=False)
class Aggregation:
    """A view that follows its topic, or will once the steps of its `filling` are done."""

    filling: Task[ViewTopic]
    members: int = 0
    topic: ViewTopic | None = None
    error: Exception | None = None

    def fill(self) -> Task[ViewTopic]:
        """The view, once it is filled. Each waiter takes the steps, so any of several may stop
        waiting."""
        while self.topic is None:
            if self.error is not None:
                raise self.error
            try:
                next(self.filling)
            except StopIteration as over:
                self.topic = over.value
            except Exception as error:
                self.error = error
                raise
            else:
                yield
        return self.topic


@dataclass(frozen=True)
class AggregatedQuestion:
    """A requested aggregation of one topic's records: its definition as a view, and the filter of
    those records."""

    view: View
    topic: LiveTopic
    projection: Projection
    condition: Filter | None = field(compare=False)

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for questions that may share a view."""
        return self.topic, self.view.filter, self.projection.texts


def is_aggregated(command: Command) -> bool:
    """Whether a command is about groups of records."""
    options = command.options
    return options.projection is not None or options.grouping is not None


def about_rows(command: Command, share: Share) -> Command:
    """The same command, about the rows that were made for it."""
    options = replace(command.options, projection=None, grouping=None)
    return replace(command, topic=share.topic.name, filter=None, options=options)


class Aggregations:
    """The views created for clients' aggregations, of one engine. `end` is called for each that has
    stopped, with the reason: it has no rows any more."""

    def __init__(self, engine: Engine, end: Callable[[ViewTopic, str], None]) -> None:
        self._engine = engine
        self._end = end
        self._usage = engine.catalog.view_maker.usage_of_clients
        self._changes = TopicChanges(engine)
        self._shared: dict[tuple[object, ...], Aggregation] = {}
        engine.on_stopped(lambda _why: self._end_stopped())

    def question(self, command: Command) -> AggregatedQuestion:
        """The aggregation of a command; raises ClientError if it is not valid."""
        options = command.options
        _check_form(command)
        projected, grouping = options.projection or (), options.grouping or ()
        size = sum(len(text.encode(errors="surrogatepass")) for text in (*projected, *grouping))
        if size > TEXT_BYTES_MAX:
            raise TooLarge(
                f"projection and grouping have {size} bytes, and the limit is {TEXT_BYTES_MAX}; "
                "project fewer fields, or configure a View"
            )
        topic = self._topic(command)
        condition = None if command.filter is None else self._engine.filter(command.filter)
        topic.records.check_filter(condition)
        if condition is not None and command.name != "sow":
            check_deterministic(condition, "an aggregated subscription")
            _check_steady(condition)
        kind = topic.definition.message_type
        projection = _compiled(projected, grouping, {topic.name: kind})
        guard, text = row_policy_of(command, topic.records), command.filter
        if guard is not None:
            projected, grouping = guard.projection(projected), guard.grouping(grouping)
            projection = _compiled(projected, grouping, {topic.name: kind})
            condition = guard.condition(condition)
        if guard is not None and condition is not None:
            text = condition.text
            self._engine.filters.keep(text, condition)
        _check_rows(topic.records.message_type, projection)
        name = HiddenTopic(topic.name)
        view = View(
            name=name,
            message_type=kind,
            underlyings=(topic.name,),
            projection=tuple(projected),
            grouping=tuple(grouping),
            filter=text,
            key_domain=topic.name,
        )
        return AggregatedQuestion(view, topic, projection, condition)

    def _topic(self, command: Command) -> LiveTopic:
        name = command.topic
        if self._engine.catalog.is_pattern(command):
            raise ClientError(
                f"{shown(name)} is a pattern, and an aggregation is of one topic; name it",
                reason="invalid topic",
            )
        topic = self._engine.topic(name)
        kind = topic.records.message_type
        if not (kind.structured and kind.partial):
            raise ClientError(
                f"messages of {topic.name} ({kind.name}) cannot be made field by field, so there "
                "are no rows of them",
                reason="invalid options",
            )
        if isinstance(topic, SourceTopic) and not topic.records.retains:
            raise ClientError(
                f"topic {topic.name} stores no records (Retain), so there is nothing to group",
                reason="invalid topic",
            )
        return topic

    def computed(self, question: AggregatedQuestion, admit: Admit) -> Task[Share]:
        """The rows as of one moment, for a query."""
        shared = self._shared.get(question.key)
        if shared is not None and _is_current(shared.topic):
            return (yield from self.followed(question))
        engine, topic = self._engine, question.topic
        query = Query(filter=question.condition).at(engine.now_us)
        answer = yield from engine.queries.answering(topic.name, query)
        admit(len(answer.slots))
        records = self._still(topic).records
        rows, table = Snapshot.take(records, answer.slots), records.table
        newest = table.newest[answer.slots] if table.keeps_newest else None
        order = table.order[answer.slots]
        yield
        yield from rows.settle()
        return (yield from self.computed_of(question, rows, newest, order))

    def computed_of(
        self,
        question: AggregatedQuestion,
        rows: Snapshot,
        newest: NDArray[np.int64] | None = None,
        order: NDArray[np.int64] | None = None,
    ) -> Task[Share]:
        """The rows of these records, which are those that match, in the order of their first
        publication; `newest` is how new each is, where its sequence number does not decide that,
        `order` the position of each, where several may share one."""
        self._still(question.topic)
        paths = [source.path for source in question.projection.inputs]
        producer = ViewInputSnapshot(rows, paths, newest, order)
        view = yield from self._changes.add_private(question.view, self._check_new, producer)
        return Share(view, lambda: self._changes.remove_private(view))

    def followed(self, question: AggregatedQuestion) -> Task[Share]:
        """The rows, which follow the topic; shared by equal subscriptions."""
        key = question.key
        shared = self._shared.get(key)
        if shared is None or not self._is_there(shared):
            filling = self._changes.add_private(question.view, self._check_new)
            shared = self._shared[key] = Aggregation(filling)
        shared.members += 1
        is_filled = False
        try:
            topic = yield from shared.fill()
            topic.view.bound(self._check_grown)
            self._still(question.topic)
            is_filled = True
        finally:
            if not is_filled:
                self._leave(key, shared)
        return Share(topic, lambda: self._leave(key, shared))

    def _check_new(self, groups: RowGroups) -> None:
        """Raise TooLarge or Full for more groups than a client may have, or all of them."""
        self._check_groups(groups, self._usage.bytes)

    def _check_grown(self, groups: RowGroups) -> None:
        """The same while they are followed: where all have too many, those that take most go."""
        limit = self._engine.capacity.limit_bytes
        # Called for each view at every publish: mostly this is all.
        if limit is None or self._usage.bytes <= limit // MEMORY_SHARE:
            self._check_groups(groups, 0)
            return
        topics = [one.topic for one in self._shared.values() if one.topic is not None]
        used_bytes = sum(topic.view.groups.kept_bytes for topic in topics)
        is_large = groups.kept_bytes * len(topics) >= used_bytes
        self._check_groups(groups, used_bytes if is_large else 0)

    def _check_groups(self, groups: RowGroups, used_bytes: int) -> None:
        if len(groups) > GROUPS_MAX:
            raise TooLarge(
                f"there are more than {GROUPS_MAX} groups, the most of an aggregation; "
                "group by fields with fewer values, or filter the records"
            )
        limit = self._engine.capacity.limit_bytes
        if limit is not None and used_bytes > limit // MEMORY_SHARE:
            raise Full(
                f"the groups of clients' queries take {used_bytes} bytes, and a quarter of "
                f"{limit} bytes (Limits/Memory) is theirs; group by fields with fewer values, "
                "filter the records, or have a View configured that all can follow"
            )

    def _end_stopped(self) -> None:
        topics = [one.topic for one in self._shared.values()]
        for topic in topics:
            if topic is not None and topic.stopped:
                self._end(topic, topic.stopped)

    def _is_there(self, shared: Aggregation) -> bool:
        topic = shared.topic
        return shared.error is None and (
            topic is None or self._engine.topics.get(topic.name) is topic
        )

    def _leave(self, key: tuple[object, ...], shared: Aggregation) -> None:
        shared.members -= 1
        if shared.members:
            return
        if self._shared.get(key) is shared:
            del self._shared[key]
        shared.filling.close()
        if shared.topic is not None:
            self._changes.remove_private(shared.topic)

    def _still(self, topic: LiveTopic) -> LiveTopic:
        """The topic, if it has not gone meanwhile."""
        if self._engine.topics.get(topic.name) is not topic:
            raise UnknownTopic(f"topic {topic.name} has gone meanwhile")
        return topic

    def check(self) -> None:
        """Assert what is always true between two steps."""
        for shared in self._shared.values():
            assert shared.members > 0, "a view without followers"


def _is_current(topic: ViewTopic | None) -> bool:
    """Whether a view's rows contain everything that its groups know."""
    return topic is not None and not topic.view.is_dirty


def _check_form(command: Command) -> None:
    """Refuse what an aggregated command cannot be."""
    options = command.options
    example = "write for example projection=[SUM(/qty) AS /qty,/desk],grouping=[/desk]"
    problem = ""
    if not options.projection:
        problem = f"grouping needs projection, what rows are made of; {example}"
    elif not options.grouping:
        problem = f"projection needs grouping, the fields that make a group; {example}"
    elif command.name not in AGGREGATED:
        problem = f"{command.name} takes no projection: rows are of all records there are; use " + (
            "sow_and_delta_subscribe" if command.kind.is_delta else "sow_and_subscribe"
        )
    elif options.select is not None:
        problem = "projection and select do not go together; project the fields to see"
    elif command.key is not None or command.keys is not None:
        problem = (
            "keys name records, and rows are of groups; write a filter of the records that are "
            "grouped, such as SOW_KEY() IN ('1', '2')"
        )
    if problem:
        raise ClientError(problem, reason="invalid options")


AGGREGATED = ("sow", "sow_and_subscribe", "sow_and_delta_subscribe")
"""Commands that may be about groups."""


def _compiled(
    projected: Sequence[str], grouping: Sequence[str], topics: Mapping[str, str]
) -> Projection:
    """The projection; an error names the list that it is in."""
    try:
        compile_projection((), grouping, topics)
    except ClientError as error:
        error.detail = f"grouping: {error.detail}"
        raise
    try:
        return compile_projection(projected, grouping, topics, PARTS_MAX)
    except ClientError as error:
        error.detail = f"projection: {error.detail}"
        raise


def _check_steady(condition: Filter) -> None:
    """The old state of a record has to decide whether it matched."""
    for trait in sorted(UNSTEADY.intersection(condition.traits)):
        raise ClientError(
            f"an aggregated subscription cannot use {trait}(), which differs at each "
            "change of a record; compare a field",
            reason="invalid options",
            position=condition.position_of({trait}),
        )


def _check_rows(kind: MessageType, projection: Projection) -> None:
    """Refuse fields for which a message of the topic's type has no place."""
    for target in projection.targets:
        if not any(_can_hold(kind, target, value) for value in ("x", 1)):
            raise ClientError(
                f"a message of the type {kind.name} has no place for {target}; write "
                + ("a path of one name" if len(target.steps) > 1 else "another name")
                + " behind AS",
                reason="invalid options",
            )


def _can_hold(kind: MessageType, target: Path, value: str | int) -> bool:
    try:
        kind.encode(nested(target, value))
    except BadMessage:
        return False
    return True
