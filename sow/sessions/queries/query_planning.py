"""Query planning: a command's request, resolved against the existing topics.

Which topics it names, which records of them, and in which shape; an invalid request is an error
before anything is done. An answer is pinned at one moment, and sent between two marks. Nothing here
is followed: the subscriptions (`sow.sessions.subscriptions`) build on this.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from itertools import islice
from typing import NamedTuple

from sow.core.comma_lists import comma_list
from sow.core.cooperative import Task, run_to_completion
from sow.core.paths import Path, parse_member
from sow.engine.engine import Engine
from sow.engine.live_topic import is_hidden
from sow.engine.queries import place_of
from sow.engine.running_topics import LiveTopic, SourceTopic
from sow.errors import ClientError, Stopped, UnknownTopic, invalid_options, shown
from sow.expressions import Filter, check_deterministic, parse_order_by
from sow.expressions.patterns import Search, topic_search
from sow.history.bookmarks import NOW
from sow.history.snapshot import ANSWER_CHUNK_ROWS
from sow.protocol import replies
from sow.protocol.commands import ACKS, Command, acks_of
from sow.protocol.replies import Encoding
from sow.query import Query, QueryAnswer
from sow.sessions.queries.access_control import (
    check_still_permitted,
    is_visible,
    restrict_query,
    restrict_shape,
    row_policy_of,
)
from sow.sessions.queries.newest_events import NewestEvents, check_last
from sow.sessions.queries.query_results import QueryResult, ResultSnapshot, UnreadQuota, pinned
from sow.streaming.sessions import Session
from sow.streaming.update_encoder import FeedKey
from sow.streaming.windows import check_window, window_of
from sow.topic.fields import check_watched
from sow.topic.missing_fields import Unsure, field_advice, unsure_fields
from sow.topic.records import Records
from sow.topic.rendering import Shape

MATCHED_AT_ONCE = 500
"""Topics whose names are compared with a pattern in one step: some two microseconds each."""
TAKEN_AT_ONCE = 25
"""Topics of a pattern that are pinned in one step: some forty microseconds each."""
KNOWN_MAX = 100_000
"""Records that a subscriber to a change under way may have to be known to hold: 15 MB."""
REPLAYS_MAX = 10
"""The log is read for each who begins before a change, some seconds for a million rows. Where it is
for so many others, one waits for the end of the change, and costs nothing."""
ADVISED_MAX = 100
"""Topics of a pattern whose fields are looked for: people name few, programs many."""
AGAIN_FACTOR = 3
"""How often, on average, topics that change meanwhile are pinned again in steps. If publishing is
so fast that many have changed after that, they are pinned at once."""


class TopicSelection(NamedTuple):
    """The topics that a command names, and how to know others that come later."""

    topics: list[LiveTopic]
    pattern: Search | None


class QueryPlanner:
    """Plans the queries of commands, and executes one-time queries. Rows handed out count as
    `unread`; `replays` are the subscriptions that the log is read for beside changes."""

    def __init__(
        self, engine: Engine, pattern_paths: Collection[Path], replays: Collection[object] = ()
    ) -> None:
        self._engine = engine
        self._pattern_paths = pattern_paths
        self._replays = replays
        self.unread = UnreadQuota()

    def answer(
        self, session: Session, command: Command, name: str, bookmark: int | None = None
    ) -> Task[None]:
        """`sow`: send the current records of the topics under `name`; those of a view that was made
        for it are as of a `bookmark`."""
        _, taken = yield from self.take_all(session, command)
        acknowledge(session, command, "processed", s=name, **taken.remarks)
        if bookmark is None and self._reads_before(command):
            _, shown_seq = self._engine.queries.shown(command.topic)
            bookmark = None if shown_seq == self._engine.seq else shown_seq
        self.say_answer(session, taken, name, command, bookmark)
        acknowledge(session, command, *ACKS[1:], s=name, **taken.counts)
        yield from taken.settle()

    def question(self, command: Command) -> tuple[LiveTopic, Query]:
        """The one topic that a command names, and its query, of what may be seen."""
        if self.is_pattern(command):
            raise ClientError(
                f"{shown(command.topic)} is a pattern, and a past state is of one topic; name it",
                reason="invalid topic",
            )
        topic = self._engine.topic(command.topic)
        self.check_fields(topic, command)
        query = self.query(command).at(self._engine.now_us)
        return topic, restrict_query(query, row_policy_of(command, topic.records))

    def answer_with(
        self, session: Session, command: Command, name: str, topic: LiveTopic, found: QueryResult
    ) -> Task[None]:
        """Send what a query of a topic has found."""
        check_still_permitted(session, command)
        yield from self.say_past(session, command, name, topic, found, ACKS[1:]).settle()

    def say_past(
        self,
        session: Session,
        command: Command,
        name: str,
        topic: LiveTopic,
        found: QueryResult,
        then: Sequence[str] = ACKS[1:2],
    ) -> ResultSnapshot:
        """Send it as the answer `name`, and behind it the acks `then`."""
        taken = ResultSnapshot()
        taken.take(topic, found.rows, found.answer.matches)
        acknowledge(session, command, "processed", s=name)
        seq = found.bookmark if found.place is None else found.place
        self.say_answer(session, taken, name, command, seq)
        acknowledge(session, command, *then, s=name, **taken.counts)
        return taken

    def admit(self, session: Session, rows: int) -> None:
        """Raise Busy where a session has requested too much that it has not read."""
        if rows > ANSWER_CHUNK_ROWS:
            self.unread.check(session.id, rows)

    def _reads_before(self, command: Command) -> bool:
        """Whether a command may be answered as of before a change under way: it is about one topic,
        and follows nothing, or can go on from there with the log."""
        return not self.is_pattern(command) and (command.name == "sow" or self._can_go_on(command))

    def _can_go_on(self, command: Command) -> bool:
        """Whether a subscription can go on from a past moment with the log: it needs no account of
        the records that it was sent."""
        topic, options = self._engine.topics.get(command.topic), command.options
        if not isinstance(topic, SourceTopic) or not topic.is_logged:
            return False
        if options.replace or window_of(command) is not None or not self.is_steady(command):
            return False
        if command.bookmark is not None and command.bookmark not in NOW:
            return True
        if len(self._replays) >= REPLAYS_MAX:
            return False
        goes_by_states = options.oof or command.kind.is_delta
        if not command.name.startswith("sow"):
            return not goes_by_states
        if goes_by_states and len(topic.records.table) > KNOWN_MAX:
            return False
        return not (sow_keys(command) or options.top_n is not None or options.skip_n)

    def _lets_read(self, command: Command, changing: LiveTopic) -> bool:
        """Whether a command need not wait for the change of a topic."""
        is_readable = self._engine.atomic.readable(changing) is not None
        return is_readable and self._reads_before(command)

    def check(self, command: Command, encoding: Encoding) -> Task[TopicSelection]:
        """What a subscription names; raises what speaks against it, and changes nothing."""
        self.query(command)
        window = feed_key(command, encoding, complete=False).window
        if window is not None:
            check_window(command, window, self.condition(command), self.is_pattern(command))
        return (yield from self.requested(command))

    def condition(self, command: Command) -> Filter | None:
        """The filter of a command; raises BadFilter."""
        return None if command.filter is None else self._engine.filter(command.filter)

    def is_steady(self, command: Command) -> bool:
        """Whether a record's body and key decide if it was in focus; otherwise that has to be
        recorded."""
        condition = self.condition(command)
        return condition is None or condition.steady

    def check_fields(self, topic: LiveTopic, command: Command) -> None:
        """Refuse what needs fields of messages that have none, and keys that would mix records."""
        options = command.options
        condition = self.condition(command)
        topic.records.check_filter(condition)
        if condition is not None and options.oof:
            check_deterministic(condition, "a subscription with oof")
        if condition is not None and command.name != "sow":
            topic.records.watched.check_room(topic.name, condition, self._pattern_paths)
        if options.select is not None:
            topic.records.renderer.check_select(options.select)
        if options.conflation is not None and topic.records.events is not None:
            raise invalid_options(
                f"topic {topic.name} is a series, and events are never conflated; leave out "
                "conflation"
            )
        if options.last is not None:
            check_last(command, topic.records)
        own = {str(key) for key in topic.records.keys}
        other = {
            str(parse_member("conflation_key", path)) for path in options.conflation_key
        } != own
        if options.conflation_key and other and (options.oof or command.kind.is_delta):
            raise invalid_options(
                "conflation_key other than the topic's key goes with neither oof nor deltas, which "
                "are about single records"
            )

    def is_pattern(self, command: Command) -> bool:
        """Whether a command names topics by a pattern."""
        return self._engine.catalog.is_pattern(command)

    def requested(self, command: Command) -> Task[TopicSelection]:
        """The topics that a command names, one or those of a pattern, checked in steps; raises
        ClientError.

        They are those of the last step, in which all of them are whole, or may be read.
        """
        atomic = self._engine.atomic
        while True:
            requested = yield from self._requested(command)
            changing = atomic.topic
            if changing is None or changing not in requested.topics:
                return requested
            if self._lets_read(command, changing):
                return requested
            yield from atomic.finish_before(changing.name)

    def _requested(self, command: Command) -> Task[TopicSelection]:
        if not self.is_pattern(command):
            topic = self._engine.topic(command.topic)
            self.check_fields(topic, command)
            return TopicSelection([topic], None)
        search = topic_search(command.topic)
        self._check_watch(command)
        catalog = self._engine.catalog
        found = yield from self.found(partial(self.is_requested, search=search, command=command))
        # Whether there are patterns is not for everybody to know.
        some_may_come = bool(catalog.patterns) or not command.rights.is_open
        if not found and (command.name == "sow" or not some_may_come):
            raise UnknownTopic(f"no topic matches the pattern {shown(command.topic)}")
        return TopicSelection(found, search)

    def found(self, is_wanted: Callable[[LiveTopic], bool]) -> Task[list[LiveTopic]]:
        """The topics that are wanted, as of the last step; some are looked at in each."""
        looked_at = dict.fromkeys(self._engine.catalog)
        found: list[LiveTopic] = []
        with self._engine.noting() as noted:
            for at, topic in enumerate(looked_at):
                if at % MATCHED_AT_ONCE == MATCHED_AT_ONCE - 1:
                    yield
                if is_wanted(topic):
                    found.append(topic)
            there = self._engine.topics
            other = [t for t in noted if t not in looked_at or there.get(t.name) is not t]
            return self.still(found, other, is_wanted)

    def still(
        self,
        found: Sequence[LiveTopic],
        noted: Iterable[LiveTopic],
        is_wanted: Callable[[LiveTopic], bool],
    ) -> list[LiveTopic]:
        """The same without those that have gone, and with those that have come since they were
        found; all of these are among `noted`."""
        left = dict.fromkeys(found)
        for topic in noted:
            if self._engine.topics.get(topic.name) is not topic:
                left.pop(topic, None)
            elif topic not in left and is_wanted(topic):
                left[topic] = None
        return [*left]

    def is_requested(self, topic: LiveTopic, search: Search, command: Command) -> bool:
        """Whether a command's pattern names a topic; raises what speaks against it."""
        if not topic.is_listed or topic.records.is_queue or not search(topic.name):
            return False
        if not is_visible(command.rights, topic.records):
            return False
        reason = self._engine.catalog.why_stopped(topic)
        if reason:
            # Without its records no answer is that of the pattern, nor would updates be.
            raise Stopped(f"{shown(command.topic)} takes in the topic {topic.name}, and {reason}")
        self.check_fields(topic, command)
        return True

    def _check_watch(self, command: Command) -> None:
        """Refuse a pattern's filter if topics would have too many fields read for all patterns."""
        condition = self.condition(command)
        if condition is not None and command.name != "sow":
            watched = {*condition.paths, *self._pattern_paths}
            check_watched("patterns", len(watched))

    def take_all(
        self, session: Session, command: Command
    ) -> Task[tuple[TopicSelection, ResultSnapshot]]:
        """The answer of a command from its topics, pinned as of the last step; raises ClientError.

        Each topic is pinned by itself. Those that change before the last one is pinned are pinned
        again, and in the last step those that have changed since.
        """
        requested, query = (yield from self.requested(command)), self.query(command)
        query = query.at(self._engine.now_us)
        partly = query.keys is not None or query.top_n is not None or query.skip_n > 0
        partly |= not self.is_steady(command)
        taken, events = ResultSnapshot(tracks=partly), self._events(command)
        taken.advise((yield from field_advice(self.unsure(command, requested))))
        following = nullcontext() if events is None else self._engine.on_changes(events.note)
        with self._engine.noting() as noted, following:
            for at, topic in enumerate(requested.topics):
                if at % TAKEN_AT_ONCE == TAKEN_AT_ONCE - 1:
                    yield
                with suppress(UnknownTopic):
                    seen = restrict_query(query, row_policy_of(command, topic.records))
                    if events is not None:
                        yield from events.look(topic.name, seen)
                        noted.pop(topic, None)
                        self._take_events(session, taken, topic, events)
                        continue
                    reads_before = self._reads_before(command)
                    answer = yield from self._engine.queries.answering(
                        topic.name, seen, reads_before
                    )
                    noted.pop(topic, None)
                    self._take(session, taken, topic, answer, reads_before)
            if requested.pattern is None:
                noted.clear()  # it was pinned in this step, and others do not matter
            left = AGAIN_FACTOR * len(requested.topics)
            while True:
                while len(noted) > TAKEN_AT_ONCE and left > 0:
                    for topic in [*islice(noted, TAKEN_AT_ONCE)]:
                        del noted[topic]
                        left -= self._take_again(
                            session, command, query, requested, taken, topic, events
                        )
                    yield
                changing = self._engine.atomic.topic
                if changing is None or (changing not in noted and changing not in requested.topics):
                    break
                if self._lets_read(command, changing):
                    break
                yield from self._engine.atomic.finish_before(changing.name)
            for topic in list(noted):
                self._take_again(session, command, query, requested, taken, topic, events)
        if requested.pattern is None:
            self._engine.topic(command.topic)
        check_still_permitted(session, command)
        return requested, taken

    def unsure(self, command: Command, requested: TopicSelection) -> Sequence[Unsure]:
        """What `field_advice` is to look for: fields that a command names, where they are not known
        to be in a record."""
        sent = command.sent or command
        query, topics = self.query(sent), requested.topics
        if requested.pattern is None:
            topics = [self._engine.topic(sent.topic)]  # rows of groups are of another one
        found: list[Unsure] = []
        for records in (topic.records for topic in topics[: ADVISED_MAX + 1]):
            guard = row_policy_of(sent, records)
            found.append(Unsure(records, unsure_fields(records, query, sent.options, guard), guard))
            if not found[-1].paths or len(found) > ADVISED_MAX:
                return ()
        return found

    def _take_again(
        self,
        session: Session,
        command: Command,
        query: Query,
        requested: TopicSelection,
        taken: ResultSnapshot,
        topic: LiveTopic,
        events: NewestEvents | None,
    ) -> bool:
        """A topic has changed, come or gone; whether that was any work."""
        if self._engine.topics.get(topic.name) is not topic:
            taken.drop(topic)
            return False
        if topic not in taken and (
            requested.pattern is None or not self.is_requested(topic, requested.pattern, command)
        ):
            return False
        seen = restrict_query(query, row_policy_of(command, topic.records))
        if events is not None:
            if topic.records not in events:
                run_to_completion(events.look(topic.name, seen))  # it has just come
            self._take_events(session, taken, topic, events)
            return True
        self._take(session, taken, topic, self._engine.queries.at_once(topic.name, seen))
        return True

    def _events(self, command: Command) -> NewestEvents | None:
        """Where an answer has more than the newest event of each record."""
        last = command.options.last or 1
        return NewestEvents(self._engine, last) if last > 1 else None

    def _take_events(
        self, session: Session, taken: ResultSnapshot, topic: LiveTopic, events: NewestEvents
    ) -> None:
        """Take the newest events of a topic, as of now: those that pass the filter."""
        rows = events.snapshot(topic.records)
        self.admit(session, taken.weight + len(rows))
        taken.take(topic, rows, len(rows))

    def _take(
        self,
        session: Session,
        taken: ResultSnapshot,
        topic: LiveTopic,
        answer: QueryAnswer,
        reads_before: bool = False,
    ) -> None:
        self.admit(session, taken.weight + len(answer.slots))
        records = self._engine.queries.shown(topic.name)[0] if reads_before else topic.records
        taken.take(topic, pinned(topic, records, answer.slots), answer.matches)

    def query(self, command: Command) -> Query:
        """The query of a command; raises ClientError."""
        return Query(
            filter=self.condition(command),
            keys=sow_keys(command),
            order_by=parse_order_by(command.order_by) if command.order_by else (),
            top_n=command.options.top_n,
            skip_n=command.options.skip_n or 0,
        )

    def say_answer(
        self,
        session: Session,
        taken: ResultSnapshot,
        name: str,
        command: Command,
        seq: int | None = None,
    ) -> None:
        """Send snapshots as one answer, as of `seq` or the present: few rows at once, many as the
        socket takes them."""
        engine, shape = self._engine, partial(shape_for, command)
        session.send(replies.group_begin(name))
        if taken.is_short:
            for rows in taken.lines(session.encoding, name, shape):
                session.send_records(rows)
        else:
            frames = taken.frames(session.encoding, name, shape)
            held = self.unread.hold(session.id, taken.weight, frames, session.memory.hold_rows)
            session.stream(held, engine.output.group, engine.now_us)
        session.send(replies.group_end(name, self._place(command) if seq is None else seq))

    def _place(self, command: Command) -> int:
        """The bookmark of the present: of what a conflated topic or a view has sent, or of the
        newest change."""
        engine = self._engine
        topic = None if self.is_pattern(command) else engine.topics.get(command.topic)
        if topic is None or is_hidden(topic.name):
            return engine.seq
        return place_of(topic, engine.topics, engine.seq, engine.now_us)


def acknowledge(session: Session, command: Command, *kinds: str, **more: object) -> None:
    """Send the requested acks of these kinds, by default `processed`. That one names the ignored
    options, and says how stale the answer may be."""
    for kind in acks_of(command.acks, command.cid is not None):
        if kind in kinds:
            ignored = (command.options.ignored or None) if kind == ACKS[0] else None
            stale = command.stale_s if kind == ACKS[0] else None
            session.send(replies.ack(command.cid, kind, **more, ignored=ignored, stale=stale))


def sow_keys(command: Command) -> tuple[str, ...] | None:
    """The SowKeys that a command names, or None."""
    if command.key is None:
        return command.keys
    if command.keys is not None:
        raise ClientError("give k or keys, not both")
    return tuple(comma_list(command.key))


def feed_key(command: Command, encoding: Encoding, complete: bool, steady: bool = True) -> FeedKey:
    """The feed key of a subscription's command; raises ClientError.

    `complete`: it was sent everything in focus. `steady`: the old state of a record decides whether
    it was in focus, so that this need not be recorded (`Filter.steady`).
    """
    options, delta = command.options, command.kind.is_delta
    if options.no_empties and not delta:
        raise invalid_options(
            "no_empties belongs to delta subscriptions; every update of another one is whole"
        )
    if options.conflation_key:
        if options.conflation is None:
            raise invalid_options("conflation_key needs conflation")
        for path in options.conflation_key:
            parse_member("conflation_key", path)
    window = window_of(command)
    is_sent = options.oof or delta or (options.conflation is not None and not steady)
    return FeedKey(
        filter=command.filter,
        oof=options.oof or window is not None,
        delta=delta,
        no_empties=options.no_empties,
        accounts=window is None and is_sent and not (complete and steady),
        interval_us=options.conflation if isinstance(options.conflation, int) else None,
        auto=options.conflation == "auto",
        conflation_key=options.conflation_key,
        shape=shape_of(command),
        encoding=encoding.name,
        window=window,
        withdrawn=options.withdrawn,
    )


def shape_of(command: Command) -> Shape:
    """What a command wants to see of each record."""
    options = command.options
    marked = options.as_of is not None
    marked |= command.bookmark is not None and command.bookmark not in NOW
    return Shape(not options.no_sowkey, options.timestamp, options.select, marked)


def shape_for(command: Command, topic: Records) -> Shape:
    """The same of each record of one topic, as far as it may be seen."""
    return restrict_shape(shape_of(command), row_policy_of(command, topic))
