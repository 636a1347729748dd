"""Windowing: a live window is opened, and scrolled.

A window first shows a query's answer, and its ordered set starts with the records that the query
found. Where an existing set already has them, nothing is sorted: the query only counts. Scrolling
replaces a window by another one over the same topic in the same order: the session is sent the
difference between the pages, and no record twice.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from sow.core.cooperative import Task
from sow.engine.engine import Engine
from sow.engine.running_topics import LiveTopic
from sow.errors import ClientError, InvalidTopic, TooLarge, invalid_options
from sow.protocol import replies
from sow.protocol.commands import ACKS, Command
from sow.query import Query, QueryAnswer
from sow.sessions.queries.access_control import restrict_query, row_policy_of
from sow.sessions.queries.query_planning import QueryPlanner, TopicSelection, acknowledge, shape_for
from sow.sessions.subscriptions import Register, Subscription, Unsubscriber
from sow.sessions.subscriptions.subscribe import Subscriber
from sow.streaming.sessions import Session
from sow.streaming.update_encoder import WindowKey
from sow.streaming.windows import EMPTY_PAGE, WORDED_AT_ONCE, PageAnswer, WindowPage, window_of
from sow.streaming.windows.ordered_sets import OrderedSet, capacity_of
from sow.streaming.windows.window_channel import (
    SetKey,
    WindowChannel,
    WindowFeed,
    set_key_of,
    terms_of,
)
from sow.topic.missing_fields import field_advice
from sow.topic.rendering import Shape

WINDOWS_MAX = 100
"""Live windows of a session: after each turn those that may have changed are compared with what
their client holds, some dozen microseconds each."""


class Opened(NamedTuple):
    """A requested window: its topic, its definition, and the records that a query found for it; or
    the existing set, `known`, that holds them."""

    requested: TopicSelection
    window: WindowKey
    answer: QueryAnswer
    capacity: int
    known: OrderedSet[WindowFeed] | None
    advice: tuple[str, ...]
    """What to know of fields that no record has."""


class LiveWindows:
    """Opens and scrolls the live windows of sessions."""

    def __init__(
        self,
        engine: Engine,
        register: Register,
        planner: QueryPlanner,
        following: Subscriber,
        ending: Unsubscriber,
    ) -> None:
        self._engine = engine
        self._register = register
        self._planner = planner
        self._following = following
        self._ending = ending

    def subscribe(self, session: Session, command: Command) -> Task[None]:
        """Open a window: `sow_and_subscribe` with `live`, or with `top_n` and `skip_n`."""
        self._check_room(session)
        self._following.check_room(session, command)
        opened = yield from self._open(session, command)
        self._check_room(session)
        subscription = self._following.begin(session, command, opened.requested, complete=True)
        self._go_on(session, command, subscription, opened, EMPTY_PAGE)

    def scroll(
        self,
        session: Session,
        command: Command,
        old_of: Callable[[], Subscription],
        reguards: bool = False,
    ) -> Task[None]:
        """Replace a window by another; `old_of` finds the old one, or raises. Errors are raised
        before anything is changed. `reguards`: only the permissions of its user have changed, and
        with them perhaps a view that was created for it."""
        if not reguards:
            _check_alike(old_of(), command)
        opened = yield from self._open(session, command)
        old = old_of()
        if not reguards:
            _check_alike(old, command)
        self._following.check_filters(session, command, old)
        channel = old.channel
        assert isinstance(channel, WindowChannel)
        self._engine.output.flush_channel(channel)
        held = channel.take_back(session) if reguards else channel.held_by(session)
        if reguards:
            held.lose_all_but(opened.requested.topics[0].records.table.slots)
        seen = next(iter(old.feeds.values())).shape
        self._ending.leave(old)
        new = self._following.begin(
            session, command, opened.requested, complete=True, name=old.name, shares=False
        )
        shape = shape_for(command, opened.requested.topics[0].records)
        last = seen if reguards else shape
        self._go_on(session, command, new, opened, held, from_scratch=shape != seen, last=last)

    def _open(self, session: Session, command: Command) -> Task[Opened]:
        window = window_of(command)
        if window is None:
            raise invalid_options(
                "a live window is replaced by another: write top_n, and live or skip_n, again"
            )
        requested = yield from self._planner.check(command, session.encoding)
        topic = requested.topics[0]
        if not topic.records.retains:
            raise InvalidTopic(f"{topic.name} keeps no records that a window could show (Retain)")
        guard = row_policy_of(command, topic.records)
        key = set_key_of(command.filter, window, guard)
        topic.router.check_room(key)
        advice = yield from field_advice(self._planner.unsure(command, requested))
        if window.top_n > WORDED_AT_ONCE:
            self._planner.unread.check(session.id, window.top_n)
        capacity = capacity_of(window.end, window.top_n)
        query = Query(self._planner.condition(command), None, terms_of(window), capacity)
        query = restrict_query(query, guard)
        if _known(topic, key, window) is not None:
            count = replace(query, order_by=(), top_n=0)
            answer = yield from self._engine.queries.answering(topic.name, count)
            # Meanwhile the name may have become another topic's.
            topic = self._engine.topic(topic.name)
            if (known := _known(topic, key, window)) is not None:
                return Opened(
                    requested._replace(topics=[topic]), window, answer, capacity, known, advice
                )
        answer = yield from self._engine.queries.answering(topic.name, query)
        topic = self._engine.topic(topic.name)
        return Opened(requested._replace(topics=[topic]), window, answer, capacity, None, advice)

    def _check_room(self, session: Session) -> None:
        count = self._register.followed(session).windows
        if count >= WINDOWS_MAX:
            raise TooLarge(
                f"the session has {count} live windows, as many as one may have; unsubscribe those "
                "that are not in use, or scroll one with replace"
            )

    def _go_on(
        self,
        session: Session,
        command: Command,
        subscription: Subscription,
        opened: Opened,
        held: WindowPage,
        from_scratch: bool = False,
        last: Shape | None = None,
    ) -> None:
        """Take the step in which a session changes from the records that it holds to those of the
        window. `last` encodes removed records as they were last sent, where that may have been with
        fewer fields."""
        engine, window = self._engine, opened.window
        topic = engine.topic(subscription.topic)
        subscription.follow(topic.router)
        feed, channel = subscription.feeds[topic.name], subscription.channel
        assert isinstance(feed, WindowFeed)
        assert isinstance(channel, WindowChannel)
        if opened.known is None:
            feed.begin_with(opened.answer.slots, opened.capacity, engine.seq)
        else:
            feed.succeed(opened.known, engine.seq)
        self._following.join(subscription)
        answer = channel.begin(session, held, feed.page(), from_scratch, last)
        remarks = {"advice": opened.advice} if opened.advice else {}
        acknowledge(session, command, "processed", s=subscription.name, **remarks)
        self._send(session, answer, answer.leavings())
        session.send(replies.group_begin(subscription.name))
        self._send(session, answer, answer.answer())
        session.send(replies.group_end(subscription.name, engine.seq))
        matches, end = opened.answer.matches, min(window.end, opened.answer.matches)
        acknowledge(
            session,
            command,
            *ACKS[1:],
            s=subscription.name,
            matches=matches,
            returned=max(0, end - window.skip_n),
            **remarks,
        )

    def _send(
        self, session: Session, answer: PageAnswer, lines_of_page: Iterator[list[bytes]]
    ) -> None:
        """Send few lines at once, and many as the client takes them."""
        if answer.is_short:
            for lines in lines_of_page:
                session.send_records(lines)
            return
        frames = ((session.encoding.frame(lines), len(lines)) for lines in lines_of_page)
        noted = session.memory.hold_rows
        held = self._planner.unread.hold(session.id, answer.rows, frames, noted)
        session.stream(held, self._engine.output.group, self._engine.now_us)


def _known(topic: LiveTopic, key: SetKey, window: WindowKey) -> OrderedSet[WindowFeed] | None:
    """The set that knows at this moment what a window shows, if there is one."""
    known = topic.router.ordered(key)
    return known if known is not None and known.shows(window.end) else None


def _check_alike(old: Subscription, command: Command) -> None:
    """Raise ClientError if one window is not another scrolled."""
    window = old.key.window
    if window is None:
        raise invalid_options(
            "only a live window can be replaced by one; unsubscribe, and subscribe again"
        )
    if old.topic != command.topic:
        raise invalid_options(
            f"a live window stays over its topic, which is {old.topic}; unsubscribe, and subscribe "
            "again"
        )
    if window.order_by != command.order_by:
        raise ClientError(
            f"a live window keeps its order, which is {window.order_by or 'first publication'}; "
            "unsubscribe, and subscribe again",
            reason="bad orderby",
        )
