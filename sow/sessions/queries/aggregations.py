"""Aggregations: queries and subscriptions about groups of records instead of records.

    projection=[SUM(/qty) AS /qty,/desk],grouping=[/desk]

An aggregation is an anonymous view (`sow.engine.running_topics`): the view is created, and the
command continues on that topic, so order, pages, deltas, oof and conflation work as for any topic.
The filter applies to the records that are grouped.

A query is answered from the records as of one moment, by a view that receives no updates. A
subscription has one that is updated; equal subscriptions share it, and it ends with the last of
them.

What these views take is bounded (`Limits/GroupMemory`), for each client and for all of them. A
command that needs too much is refused while its view is filled. Where groups that are followed
become too many, the subscriptions end that have most of them: the client's, or of all. A view that
several clients follow counts once in all, and for each of them.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from sow.core.cooperative import SharedTask, Task
from sow.core.definitions import View
from sow.core.paths import Path
from sow.core.quota import Quota, SharedHolder
from sow.engine.engine import Engine
from sow.engine.live_topic import HiddenTopic
from sow.engine.running_topics import LiveTopic, SourceTopic, ViewTopic
from sow.engine.topic_changes import TopicChanges
from sow.errors import BadMessage, ClientError, Full, TooLarge, UnknownTopic, invalid_options, shown
from sow.expressions import UNSTEADY, Projection, check_deterministic, compile_projection, nested
from sow.expressions.filters import Filter
from sow.history.snapshot import Snapshot
from sow.messages.base import MessageType
from sow.protocol.commands import Command
from sow.query import Query
from sow.sessions.queries.access_control import row_policy_of
from sow.store.memory import RECORD_BYTES, ReportedUsage
from sow.topic.batch import Batch
from sow.topic.records import Records
from sow.topic.views import RowDeltas, RowProducer, Take

STEP_ROWS = 250
"""Records that are given in one step: two milliseconds or so with what a view makes of them."""


class ViewInputSnapshot(RowProducer):
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

    may_be_late = False

    def on_batch(self, _batch: Batch) -> Iterable[RowDeltas]:
        """Nothing: no change is about that moment."""
        return ()

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


TEXT_BYTES_MAX = 64 * 1024
"""Of a projection and its grouping together, as AMPS has it."""
PARTS_MAX = 1_000
"""Of a projection, as of an order: what it takes to read and compile, at once, stays around
50 ms."""
FOLLOWED_MAX = 32
"""Aggregated subscriptions of a session: each may be a view of its own, which costs every publish
to its topic three to twelve microseconds a record and holds memory for every group."""
VIEW_BYTES = 20_000
"""What a view takes without a group, measured: its compiled projection foremost."""
GROUP_MEMORY = "group memory"
"""The reason of a refusal, and the detail of what ends."""
Admit = Callable[[int], None]


class Share:
    """A reference to a view that was created for `client`, until it is released; `bookmark` is the
    moment that its rows are as of, None where they follow the topic."""

    def __init__(self, topic: ViewTopic, client: Hashable, let_go: Callable[[], None]) -> None:
        self.topic = topic
        self.client = client
        self.bookmark: int | None = None
        self._let_go: Callable[[], None] | None = let_go

    def let_go(self) -> None:
        """Release it; releasing twice does nothing."""
        let_go, self._let_go = self._let_go, None
        if let_go is not None:
            let_go()


class Aggregation(SharedTask[ViewTopic]):
    """A view for clients, once it is filled; `held` is what it takes. Each waiter takes the steps,
    so any of several may stop waiting."""

    def __init__(self, filling: Task[ViewTopic], held: SharedHolder) -> None:
        super().__init__(filling)
        self.held = held

    @property
    def topic(self) -> ViewTopic | None:
        """The view, if it is filled."""
        return self.result() if self.is_over and self.error is None else None


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
    return replace(command, topic=share.topic.name, filter=None, options=options, sent=command)


End = Callable[[ViewTopic, str, Hashable | None], None]


class Aggregations:
    """The views created for clients' aggregations, of one engine. `end` ends the subscriptions to
    one, of all or of one client, with a reason."""

    def __init__(self, engine: Engine, end: End) -> None:
        self._engine = engine
        self._end = end
        self.memory = Quota(lambda: engine.configuration.limits.group_memory_bytes_max)
        """What they take, by client."""
        self._changes = TopicChanges(engine)
        self._shared: dict[tuple[object, ...], Aggregation] = {}
        self._changed: dict[SharedHolder, None] = {}
        """What has changed since its clients were looked at."""
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
            raise invalid_options(
                f"messages of {topic.name} ({kind.name}) cannot be made field by field, so there "
                "are no rows of them"
            )
        if isinstance(topic, SourceTopic) and not topic.records.retains:
            raise ClientError(
                f"topic {topic.name} stores no records (Retain), so there is nothing to group",
                reason="invalid topic",
            )
        return topic

    def computed(self, question: AggregatedQuestion, client: Hashable, admit: Admit) -> Task[Share]:
        """The rows as of one moment, for a query."""
        shared = self._shared.get(question.key)
        if shared is not None and _is_current(shared.topic):
            return (yield from self.followed(question, client))
        engine, topic = self._engine, question.topic
        query = Query(filter=question.condition).at(engine.now_us)
        answer = yield from engine.queries.answering(topic.name, query)
        admit(len(answer.slots))
        records, seq = self._still(topic).records, engine.seq
        rows, table = Snapshot.take(records, answer.slots), records.table
        newest = table.newest[answer.slots] if table.keeps_newest else None
        order = table.order[answer.slots]
        yield
        yield from rows.settle()
        share = yield from self.computed_of(question, client, rows, newest, order)
        share.bookmark = seq
        return share

    def computed_of(
        self,
        question: AggregatedQuestion,
        client: Hashable,
        rows: Snapshot,
        newest: NDArray[np.int64] | None = None,
        order: NDArray[np.int64] | None = None,
    ) -> Task[Share]:
        """The rows of these records, which are those that match, in the order of their first
        publication; `newest` is how new each is, where its sequence number does not decide that,
        `order` the position of each, where several may share one."""
        self._still(question.topic)
        paths = [source.path for source in question.projection.inputs]
        made = self._begun(question, ViewInputSnapshot(rows, paths, newest, order))
        return (yield from self._joined(question, made, client))

    def followed(self, question: AggregatedQuestion, client: Hashable) -> Task[Share]:
        """The rows, which follow the topic; shared by equal subscriptions."""
        shared = self._shared.get(question.key)
        if shared is None or not self._is_there(shared):
            shared = self._shared[question.key] = self._begun(question)
        share = yield from self._joined(question, shared, client)
        shared.held.watch(self._note_change)
        return share

    def _begun(
        self, question: AggregatedQuestion, producer: ViewInputSnapshot | None = None
    ) -> Aggregation:
        held = SharedHolder(self.memory)
        held.add(VIEW_BYTES)
        filling = self._changes.add_private(question.view, ReportedUsage(held.add), producer)
        return Aggregation(filling, held)

    def _joined(
        self, question: AggregatedQuestion, one: Aggregation, client: Hashable
    ) -> Task[Share]:
        """A client's share, once the view is filled. Each that waits is bounded by itself."""
        one.held.join(client)
        is_filled = False
        try:
            while not one.is_over:
                one.step()
                if not one.is_over:
                    self._check_room(one, client)
                    yield
            view = one.result()
            self._check_room(one, client)
            self._still(question.topic)
            is_filled = True
        finally:
            if not is_filled:
                self._leave(question.key, one, client)
        return Share(view, client, lambda: self._leave(question.key, one, client))

    # Memory.

    def _check_room(self, one: Aggregation, client: Hashable) -> None:
        """Raise Full where a client, or all of them, have too many groups."""
        one.held.settle()
        if (lack := self.memory.lack(client, 0)) is not None:
            raise Full(
                f"{lack}, for groups that queries ask for (Limits/GroupMemory): group by fields "
                "with fewer values, filter the records, or have a View configured, which all can "
                "follow",
                reason=GROUP_MEMORY,
            )

    def look(self) -> None:
        """The bound may be another one."""
        for one in self._shared.values():
            self._note_change(one.held)

    def _note_change(self, held: SharedHolder) -> None:
        """Look at the clients of a view soon: others are taking in the same change."""
        if not self._changed and self._engine.timers.go_on(self._relieve()):
            self._engine.notify_work()
        self._changed[held] = None

    def _relieve(self) -> Task[None]:
        """End the largest subscriptions of clients whose groups have become too many."""
        yield
        changed, self._changed = self._changed, {}
        for held in changed:
            held.settle()
        for held in changed:
            for client in [*held.clients]:
                while self.memory.is_over_share(client) and self._end_largest(client):
                    yield
        while self.memory.room < 0 and self._end_largest(None):
            yield

    def _end_largest(self, client: Hashable | None) -> bool:
        """End the subscriptions of a client, or of all, to the view that takes most; False: there
        is none, or what there is goes on."""
        views = [one for one in self._shared.values() if client in (None, *one.held.clients)]
        for one in sorted(views, key=lambda one: one.held.held, reverse=True):
            if one.topic is None:
                continue
            self._end(one.topic, GROUP_MEMORY, client)
            left = one.held.clients
            if (client not in left) if client is not None else not left:
                return True
        return False

    def _end_stopped(self) -> None:
        topics = [one.topic for one in self._shared.values()]
        for topic in topics:
            if topic is not None and topic.stopped:
                self._end(topic, topic.stopped, None)

    def _is_there(self, shared: Aggregation) -> bool:
        topic = shared.topic
        return shared.error is None and (
            topic is None or self._engine.topics.get(topic.name) is topic
        )

    def _leave(self, key: tuple[object, ...], one: Aggregation, client: Hashable) -> None:
        one.held.leave(client)
        if one.held.clients:
            return
        if self._shared.get(key) is one:
            del self._shared[key]
        one.steps.close()
        if one.topic is not None:
            self._changes.remove_private(one.topic)

    def _still(self, topic: LiveTopic) -> LiveTopic:
        """The topic, if it has not gone meanwhile."""
        if self._engine.topics.get(topic.name) is not topic:
            raise UnknownTopic(f"topic {topic.name} has gone meanwhile")
        return topic

    def check(self) -> None:
        """Assert what is always true between two steps."""
        for shared in self._shared.values():
            assert shared.held.clients, "a view without followers"
            if shared.topic is not None:
                view = shared.topic.view
                table = view.rows.table
                rows_bytes = table.bytes + RECORD_BYTES * len(table)
                assert shared.held.held == VIEW_BYTES + rows_bytes + view.groups.kept_bytes
        held = sum(shared.held.held for shared in self._shared.values())
        assert self.memory.used >= held, "queries that run come on top"


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
        raise invalid_options(problem)


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
            raise invalid_options(
                f"a message of the type {kind.name} has no place for {target}; write "
                + ("a path of one name" if len(target.steps) > 1 else "another name")
                + " behind AS"
            )


def _can_hold(kind: MessageType, target: Path, value: str | int) -> bool:
    try:
        kind.encode(nested(target, value))
    except BadMessage:
        return False
    return True
