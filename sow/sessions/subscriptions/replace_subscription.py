"""Replacing: a subscription continues under its name with another filter, without a gap.

There is neither gap nor repeat. Preparation is done in steps, while the subscription goes on; then,
in one step, the state of its client is computed: what was sent, and what waits to be sent. The
subscription ends, another begins under its name, and the difference is sent for each record
(`sow.sessions.subscriptions.subscription_diff`): that it has left the focus, its current state, or
nothing. Many lines are made lazily as the client takes them, before all later changes.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from functools import partial
from typing import NamedTuple

import numpy as np

from sow.core.cooperative import Task
from sow.engine.engine import Engine
from sow.engine.live_topic import is_hidden
from sow.engine.running_topics import LiveTopic
from sow.errors import TooLarge
from sow.expressions import Filter
from sow.history.snapshot import ANSWER_CHUNK_ROWS, Snapshot
from sow.protocol.commands import ACKS, Command
from sow.query import ConsistentBatch, Query, QueryAnswer, TopicQuery
from sow.sessions.queries.access_control import restrict_query, row_policy_of
from sow.sessions.queries.query_planning import (
    MATCHED_AT_ONCE,
    QueryPlanner,
    TopicSelection,
    acknowledge,
    shape_for,
    sow_keys,
)
from sow.sessions.queries.query_results import ResultSnapshot
from sow.sessions.subscriptions import Subscription, Unsubscriber
from sow.sessions.subscriptions.pending_updates import (
    NO_ROWS,
    PendingKnown,
    PendingUpdates,
    UnsentUpdates,
    oldest_of,
)
from sow.sessions.subscriptions.subscribe import Subscriber
from sow.sessions.subscriptions.subscription_diff import (
    NOTHING_HELD,
    ClientState,
    ClientTarget,
    DiffMessages,
    client_diff,
    client_state,
)
from sow.store.columns import NO_SLOTS, Mask, Slots
from sow.streaming.feeds import Feed
from sow.streaming.sessions import Session
from sow.streaming.update_encoder import UpdateEncoder
from sow.topic.batch import Update
from sow.topic.records import Records

TOPICS_MAX = 1_000
"""What is held of each has to be compared in one step, some fifty microseconds each."""

Answers = Mapping[TopicQuery, QueryAnswer]


class Replacement(NamedTuple):
    """The replacement of `old` that a `command` requests.

    `topics` are those that it names, and `followed` those that `old` may have sent records of.
    `condition` is its filter, `whole` its answer without a page, both as of one moment.
    """

    old: Subscription
    command: Command
    with_snapshot: bool
    topics: list[LiveTopic]
    followed: list[LiveTopic]
    condition: Filter | None
    whole: Query
    reguards: bool = False
    """Only the permissions of its user have changed: newly visible records are sent as they stand,
    if the session had everything before; records that may not be seen any more are removed."""

    @property
    def sends_newly_visible(self) -> bool:
        """Whether newly visible records are sent."""
        return self.reguards and self.old.complete

    @property
    def goes_by_focus(self) -> bool:
        """What the session holds is what was in the old focus: it was given all of that, or wants
        all that is withdrawn to be reported."""
        return self.old.complete or (self.reguards and self.command.options.withdrawn)

    def condition_for(self, records: Records) -> Filter | None:
        """The filter of a topic's records."""
        guard = row_policy_of(self.command, records)
        return self.condition if guard is None else guard.condition(self.condition)

    def focus_of(self, topic: LiveTopic) -> TopicQuery:
        """Which records are in the new focus."""
        return topic.records.indexes, Query(filter=self.condition_for(topic.records))

    def rows_of(self, topic: LiveTopic) -> TopicQuery:
        """Which records belong to the answer."""
        guard = row_policy_of(self.command, topic.records)
        return topic.records.indexes, restrict_query(self.whole, guard)

    def held_of(self, records: Records) -> TopicQuery:
        """Which records are held by a session that was given all in the old focus."""
        return records.indexes, Query(filter=self.old.seen(records)[1])

    def visible_of(self, records: Records) -> TopicQuery | None:
        """Which records may be seen; None: all, for all that is known."""
        guard = row_policy_of(self.command, records)
        if guard is None or guard.rows is None:
            return None
        return records.indexes, Query(filter=guard.rows)

    def questions(self) -> Iterator[TopicQuery]:
        """All that has to be known."""
        for topic in self.topics:
            yield self.focus_of(topic)
            if self.with_snapshot:
                yield self.rows_of(topic)
        if self.goes_by_focus:
            for topic in self.followed:
                yield self.held_of(topic.records)
        for topic in dict.fromkeys((*self.topics, *self.followed)):
            if (visible := self.visible_of(topic.records)) is not None:
                yield visible


class SubscriptionReplacer:
    """Puts one subscription in the place of another."""

    def __init__(
        self, engine: Engine, planner: QueryPlanner, following: Subscriber, ending: Unsubscriber
    ) -> None:
        self._engine = engine
        self._planner = planner
        self._following = following
        self._ending = ending

    def replace(
        self,
        session: Session,
        command: Command,
        with_snapshot: bool,
        old_of: Callable[[], Subscription],
        reguards: bool = False,
    ) -> Task[None]:
        """Replace a subscription by the requested one, without gap or repeat.

        `old_of` finds the subscription, which may have ended between two steps, or raises. Whatever
        is wrong is raised before anything is changed.
        """
        planner, atomic = self._planner, self._engine.atomic
        old = old_of()
        unsent = _unsent(session, old, command) if reguards else None
        waiting = PendingKnown(unsent)
        with (
            self._engine.noting() as noted,
            closing(ConsistentBatch()) as together,
            closing(waiting),
            self._engine.on_changes(waiting.hear),
        ):
            requested = yield from planner.check(command, session.encoding)
            followed = yield from self._followed(old)
            query = planner.query(command).at(self._engine.now_us)
            condition, whole = query.filter, dataclasses.replace(query, top_n=None, skip_n=0)
            replacement = Replacement(
                old, command, with_snapshot, requested.topics, followed, condition, whole, reguards
            )
            answers: Answers | None = None
            while answers is None:
                _check_many(replacement)
                yield from together.make_ready(replacement.questions())
                replacement = yield from self._catch_up(replacement, requested, noted)
                # No atomic change that it has followed so far may be sent in part, either.
                yield from atomic.finish_any()
                old = old_of()
                while waiting.is_behind(old.channel):
                    yield from waiting.catch_up(old.channel, session)
                    yield from atomic.finish_any()
                    old = old_of()
                replacement = self._as_of_now(replacement._replace(old=old), requested, noted)
                noted.clear()
                answers = together.answers(replacement.questions())
            _check_many(replacement)
            diff, taken = self._change(session, requested, replacement, answers, waiting, unsent)
            yield from waiting.settle()
        yield from diff.settle()
        yield from taken.settle()

    def _followed(self, old: Subscription) -> Task[list[LiveTopic]]:
        """The topics that a subscription may have sent records of."""
        if old.pattern is None:
            return [self._engine.topic(old.topic)]
        return [*(yield from self._planner.found(_is_followed_by(old)))]

    def _catch_up(
        self, replacement: Replacement, requested: TopicSelection, noted: dict[LiveTopic, None]
    ) -> Task[Replacement]:
        """Know of the topics that have come or gone, until few may be left."""
        while len(noted) > MATCHED_AT_ONCE:
            some = [noted.popitem()[0] for _ in range(MATCHED_AT_ONCE)]
            replacement = self._as_of_now(replacement, requested, some)
            yield
        return replacement

    def _as_of_now(
        self, replacement: Replacement, requested: TopicSelection, noted: Iterable[LiveTopic]
    ) -> Replacement:
        """The same with the topics that have come meanwhile, and without those that have gone."""
        planner, old, command = self._planner, replacement.old, replacement.command
        topics, followed = replacement.topics, replacement.followed
        if requested.pattern is None:
            topics = [self._engine.topic(command.topic)]
        else:
            is_requested = partial(planner.is_requested, search=requested.pattern, command=command)
            topics = planner.still(topics, noted, is_requested)
        if old.pattern is None:
            followed = [self._engine.topic(old.topic)]
        else:
            followed = planner.still(followed, noted, _is_followed_by(old))
        return replacement._replace(topics=topics, followed=followed)

    def _change(
        self,
        session: Session,
        requested: TopicSelection,
        replacement: Replacement,
        answers: Answers,
        known: PendingKnown,
        unsent: UnsentUpdates | None,
    ) -> tuple[DiffMessages, ResultSnapshot]:
        """Take the step in which one subscription ends and the other begins; returns what was taken
        hold of, to be settled."""
        old, command, with_snapshot = replacement[:3]
        self._following.check_filters(session, command, old)
        self._say_all(replacement)
        unsaid = unsent.taken(_sight(replacement, answers)) if unsent else []
        pending = known.as_of_now((_encoder_now(old, encoder), said) for encoder, said in unsaid)
        held = {
            feed.topic: _held(replacement, feed, answers, pending.get(feed.encoder, NO_ROWS))
            for feed in old.feeds.values()
        }
        gone = _of_gone(old, pending)
        oldest = oldest_of((had.waiting for had in held.values()), self._engine.seq)
        found = {
            topic: client_diff(
                topic.records,
                held.pop(topic.records, NOTHING_HELD),
                _target(replacement, topic, answers),
            )
            for topic in replacement.topics
        }
        reports = command.options.oof or command.options.withdrawn
        lines = sum(differs.line_count(reports) for differs in found.values())
        if lines > ANSWER_CHUNK_ROWS:
            self._planner.unread.check(session.id, lines)
        # Not flushed again: that would send what the difference accounts for.
        self._ending.leave(old)
        partly = command.options.top_n is not None or command.options.skip_n
        complete = with_snapshot and not partly and sow_keys(command) is None
        complete &= self._planner.is_steady(command)
        if replacement.reguards:
            complete = old.complete
        new = self._following.begin(session, command, requested, complete, name=old.name)
        diff = DiffMessages(session.encoding, oldest if with_snapshot else None)
        for records, update in gone:
            diff.take_update(_last_encoder(replacement, _encoder_of(new, records)), update)
        taken = ResultSnapshot()
        for topic, differs in found.items():
            if with_snapshot:
                rows = Snapshot.take(topic.records, differs.rows)
                taken.take(topic, rows, differs.matches)
            new.follow(topic.router)
            feed = new.feeds[topic.name]
            if feed.known is not None:
                feed.keep_account_of(differs.places(topic.records))
            diff.take(feed.encoder, differs, _last_encoder(replacement, feed.encoder))
        for records, had in held.items():
            nothing = ClientTarget(visible=_visible(replacement, records, answers))
            differs = client_diff(records, had, nothing)
            left = _encoder_of(new, records)
            diff.take(left, differs, _last_encoder(replacement, left))
        self._following.join(new)
        if unsent:
            unsent.leave_rest(partial(_encoder_of, new))
        self._send(session, replacement, new, diff, taken)
        return diff, taken

    def _send(
        self,
        session: Session,
        replacement: Replacement,
        new: Subscription,
        diff: DiffMessages,
        taken: ResultSnapshot,
    ) -> None:
        """Send the difference: few lines at once, many as the client takes them."""
        command = replacement.command
        acknowledge(session, command, "processed", s=new.name, **taken.remarks)
        if diff.is_short:
            for some in diff.lines():
                session.send_records(some)
        else:
            noted = session.memory.hold_rows
            frames = self._planner.unread.hold(session.id, diff.weight, diff.frames(), noted)
            session.stream(frames, self._engine.output.group, self._engine.now_us)
        if replacement.with_snapshot:
            self._planner.say_answer(session, taken, new.name, command)
        acknowledge(session, command, *ACKS[1:], s=new.name, **taken.counts)

    def _say_all(self, replacement: Replacement) -> None:
        """Send the session the collected difference."""
        old = replacement.old
        if old.pattern is not None:
            # From now on the held records of topics without a feed matter, too.
            for topic in replacement.followed:
                old.follow(topic.router)
        self._engine.output.flush_channel(old.channel)


def _held(
    replacement: Replacement, feed: Feed, answers: Answers, pending: PendingUpdates
) -> ClientState:
    """What the session holds of a feed's topic, with these updates still waiting."""
    in_focus = None
    if feed.known is None and replacement.goes_by_focus:
        in_focus = answers[replacement.held_of(feed.topic)].slots
    return client_state(feed, pending.columns(), in_focus)


def _target(replacement: Replacement, topic: LiveTopic, answers: Answers) -> ClientTarget:
    """What the session shall hold of a topic that is still followed, or newly followed."""
    records, command = topic.records, replacement.command
    condition = replacement.condition_for(records)
    if not records.retains:
        return ClientTarget(follows=True, condition=condition)
    options = command.options
    first = options.skip_n or 0
    last = None if options.top_n is None else first + options.top_n
    return ClientTarget(
        answers[replacement.focus_of(topic)].slots,
        answers[replacement.rows_of(topic)].slots if replacement.with_snapshot else None,
        slice(first, last),
        replacement.sends_newly_visible,
        _visible(replacement, records, answers),
        same_shape=replacement.old.seen(records)[0].shape == shape_for(command, records),
        by_deltas=command.kind.is_delta,
    )


def _visible(replacement: Replacement, records: Records, answers: Answers) -> Slots | None:
    """The records of a topic that may be seen; None: all."""
    if is_hidden(records.name):
        return NO_SLOTS if replacement.reguards else None
    visible = replacement.visible_of(records)
    if visible is None:
        return None
    answer = answers.get(visible)
    return NO_SLOTS if answer is None else answer.slots


def _check_many(replacement: Replacement) -> None:
    """Raise TooLarge where there are too many topics of a pattern."""
    most = max(len(replacement.followed), len(replacement.topics))
    if most > TOPICS_MAX:
        raise TooLarge(
            f"the pattern names {most} topics, and {TOPICS_MAX} are the most of a subscription "
            "that is replaced; unsubscribe, and subscribe again"
        )


def _is_followed_by(subscription: Subscription) -> Callable[[LiveTopic], bool]:
    return lambda topic: topic.is_listed and subscription.follows(topic.records)


def _unsent(session: Session, old: Subscription, command: Command) -> UnsentUpdates:
    return UnsentUpdates(session, old.name, command.rights, partial(shape_for, command))


def _sight(replacement: Replacement, answers: Answers) -> Callable[[Records, int], bool]:
    """Which records may be seen as they are now."""
    masks: dict[Records, Mask | None] = {}

    def mask(records: Records) -> Mask | None:
        visible = replacement.visible_of(records)
        answer = None if visible is None else answers.get(visible)
        if answer is None:
            return None
        found = np.zeros(len(records.table.bodies), np.bool_)
        found[answer.slots] = True
        return found

    def sees(records: Records, slot: int) -> bool:
        if records not in masks:
            masks[records] = mask(records)
        found = masks[records]
        return found is None or bool(found[slot])

    return sees


def _encoder_now(old: Subscription, encoder: UpdateEncoder) -> UpdateEncoder:
    """The encoder of a subscription for a topic; `lines` is an encoder that it has used."""
    feed = old.feeds.get(encoder.topic.name)
    return encoder if feed is None or feed.topic is not encoder.topic else feed.encoder


def _encoder_of(new: Subscription, records: Records) -> UpdateEncoder:
    return UpdateEncoder(records, new.name, new.session.encoding, new.seen(records)[0])


def _last_encoder(replacement: Replacement, encoder: UpdateEncoder) -> UpdateEncoder:
    """The encoder of the last states that were sent, which may have had fewer fields under other
    permissions."""
    if not replacement.reguards:
        return encoder
    return encoder.within(replacement.old.seen(encoder.topic)[0].shape)


def _of_gone(
    subscription: Subscription, pending: Mapping[UpdateEncoder, PendingUpdates]
) -> list[tuple[Records, Update]]:
    """Waiting updates of topics that no longer exist: the removal of their records."""
    there = {feed.encoder for feed in subscription.feeds.values()}
    return [
        (encoder.topic, update)
        for encoder, rows in pending.items()
        if encoder not in there
        for update in rows.columns().all()
    ]
