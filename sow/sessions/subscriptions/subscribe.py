"""Subscribing: a subscription is created, follows its topics, and joins its channel.

Equal subscriptions share a channel and its feeds. A pattern subscription is registered with no
topic: a topic finds it at its first change (`sow.streaming.router`), and a topic
that is created later is followed from its beginning. One that begins at a bookmark is replayed from
the log until it is live.
"""

from sow.core.cooperative import Task
from sow.engine.engine import Engine
from sow.errors import Busy, ClientError, SowError, TooLarge
from sow.history.bookmarks import Span
from sow.protocol.commands import ACKS, Command
from sow.protocol.encodings import Encoding
from sow.sessions.queries.access_control import restrict_key, row_policy_of
from sow.sessions.queries.query_planning import (
    QueryPlanner,
    TopicSelection,
    acknowledge,
    check_still_permitted,
    feed_key,
)
from sow.sessions.subscriptions.log_replay import LogReplay
from sow.sessions.subscriptions.subscription import Register, Subscription
from sow.sessions.subscriptions.unsubscribe import Unsubscriber
from sow.store.protocols import Journal
from sow.streaming.channel import ChangeChannel, Channel, DirectChannel
from sow.streaming.conflated_channel import ConflatedChannel
from sow.streaming.feeds import ChangeFeed, Feed
from sow.streaming.sessions import Session
from sow.streaming.update_encoder import FeedKey
from sow.streaming.windows.window_channel import WindowChannel

PATTERNS_MAX = 1_000
"""Maximum for a session: every new topic is compared with each pattern, some microseconds, and
followed by each that matches, some ten."""
FILTER_CHARS_MAX = 2 * 1024**2
"""Of all filters of a session's subscriptions: compiled they take up to a hundred times as much."""

SEARCH_COST_MAX = 200_000
"""The maximum cost of the patterns in all filters of a session's subscriptions: twice that of 5,000
simple ones of some ten steps and as many characters. In the worst case a text of a thousand
characters takes a tenth of a second with them; without the bound, 13 seconds."""


class Subscriber:
    """Begins subscriptions."""

    def __init__(
        self,
        engine: Engine,
        journal: Journal,
        register: Register,
        planner: QueryPlanner,
        ending: Unsubscriber,
    ) -> None:
        self._engine = engine
        self._journal = journal
        self._register = register
        self._planner = planner
        self._ending = ending

    def begin(
        self,
        session: Session,
        command: Command,
        requested: TopicSelection,
        complete: bool,
        name: str = "",
        shares: bool = True,
    ) -> Subscription:
        """Make a subscription to topics that were found, which follows nothing yet, under `name` or
        one that suits it.

        `shares`: it may use the channel of an equal one.
        """
        check_rights(session, command)
        if not name:
            self.check_room(session, command)
        pattern = requested.pattern
        condition = self._planner.condition(command)
        key = feed_key(command, session.encoding, complete, self._planner.is_steady(command))
        scope, equal = self._scope(session, command, key, requested)
        if equal is None or name or not shares:
            channel = self._channel(name or self._register.new_name("f"), key, session.encoding)
            feeds: dict[str, Feed] = {}
        else:
            channel, feeds = equal.channel, equal.feeds
        subscription = Subscription(
            command.topic,
            channel,
            feeds,
            session,
            key,
            condition,
            complete,
            pattern,
            command=command,
        )
        if name or scope:
            subscription.confine(scope or channel.name)
        self._register.add(subscription)
        return subscription

    def _channel(self, name: str, key: FeedKey, encoding: Encoding) -> Channel:
        if key.window is not None:
            return WindowChannel(name, encoding, key, self._ending.fail)
        if key.interval_us is None and not key.auto:
            return DirectChannel(name, encoding, self._ending.fail)
        return ConflatedChannel(name, encoding, key.interval_us, self._ending.fail)

    def _scope(
        self,
        session: Session,
        command: Command,
        key: FeedKey,
        requested: TopicSelection,
    ) -> tuple[str, Subscription | None]:
        """The scope of a subscription's feeds (empty: shared with any equal one)."""
        taken = self._register.of(session)
        if requested.pattern is None:
            router = requested.topics[0].router
            seen = restrict_key(key, row_policy_of(command, router.topic))
            feed = None if key.auto else router.shared(seen, taken)
            scope = f"session {session.id}" if key.auto else ""
            if feed is None:
                return scope, None
            return scope, self._register.of(next(iter(feed.members)))[feed.name]
        if key.accounts or key.auto:
            return f"session {session.id}", None
        scope = f"pattern {command.topic}"
        if not command.rights.is_open:
            # Each topic has its own row policy: users share feeds if they may see the same of all
            # topics.
            scope += f"\n{command.rights.text}"
        for other in self._register.alike(key._replace(scope=scope)):
            if other.name not in taken and other.can_be_joined():
                return scope, other
        return scope, None

    def check_room(self, session: Session, command: Command) -> None:
        """Raise ClientError if a session may not have one subscription more."""
        if command.subscription is not None:
            raise ClientError(
                "the server names subscriptions: leave out s, or add the option replace to change "
                "the one of that name"
            )
        count = len(self._register.of(session))
        if count >= self._engine.configuration.limits.subscriptions_max:
            raise TooLarge(f"the session has {count} subscriptions, as many as one may have")
        patterns = self._register.followed(session).patterns
        if patterns >= PATTERNS_MAX and self._planner.is_pattern(command):
            raise TooLarge(
                f"the session has {patterns} subscriptions to patterns, as many as one may have; "
                "let one pattern match more topics, and a filter pick the records"
            )
        self.check_filters(session, command)

    def check_filters(
        self, session: Session, command: Command, instead_of: Subscription | None = None
    ) -> None:
        """Raise TooLarge if one filter more, or one instead of another, would be too much."""
        check_rights(session, command)
        rest = self._register.followed(session).filter_chars
        rest -= 0 if instead_of is None else instead_of.filter_chars
        if rest + len(command.filter or "") > FILTER_CHARS_MAX:
            raise TooLarge(
                f"the filters of the session's other subscriptions have {rest} characters, and "
                f"{FILTER_CHARS_MAX} are the most of all; unsubscribe, or write shorter ones"
            )

        self._check_searches(session, command, instead_of)

    def _check_searches(
        self, session: Session, command: Command, instead_of: Subscription | None
    ) -> None:
        condition = self._planner.condition(command)
        if condition is None or not condition.search_cost:
            return
        rest = self._register.followed(session).search_cost
        rest -= 0 if instead_of is None else instead_of.search_cost
        if rest + condition.search_cost > SEARCH_COST_MAX:
            raise TooLarge(
                f"searching for the LIKE patterns of the session's filters would cost "
                f"{rest + condition.search_cost}, {condition.search_cost} of it by this filter, "
                f"and {SEARCH_COST_MAX} is the most; unsubscribe, or write patterns with fewer "
                "classes, dots and numbers in braces"
            )

    def join(self, subscription: Subscription, seq: int | None = None) -> None:
        """Join a session to its channel, with everything known up to `seq`, or to now; its topics
        are followed from now on."""
        engine, channel = self._engine, subscription.channel
        if subscription.pattern is None:
            subscription.follow(engine.topic(subscription.topic).router)
        if not isinstance(channel, WindowChannel):
            # Members of a window each hold a page of their own.
            engine.output.flush_channel(channel)
        if isinstance(channel, ConflatedChannel):
            channel.join_at(subscription.session, engine.seq if seq is None else seq)
        else:
            channel.join(subscription.session)
        if isinstance(channel, ConflatedChannel | WindowChannel):
            engine.timers.add(channel, engine.output.flush_due)
        if subscription.pattern is not None:
            self._register.be_shared(subscription)
            engine.catalog.followers.add(subscription)

    # From the log.

    def replay(self, session: Session, command: Command) -> Task[None]:
        """Begin a subscription at its bookmark; raises ClientError.

        The frames of a replay (`sow.sessions.subscriptions.log_replay`) are made as the client
        takes them. With the last one the feeds join their routers, in one step of the engine, so no
        change is missed or repeated; a replay of a range ends the subscription instead.
        """
        engine = self._engine
        self.check_room(session, command)
        requested = yield from self._planner.requested(command)
        span = self._planner.span(command, requested.topics)
        subscription = self.begin(session, command, requested, complete=False, shares=False)
        channel = subscription.channel
        assert isinstance(channel, ChangeChannel)
        if requested.pattern is None:
            subscription.feed(requested.topics[0].router)
        subscription.confine(f"replay {channel.name}")
        replay = LogReplay(
            engine,
            self._journal,
            channel,
            lambda name: self._feed_in_log(subscription, name),
            span,
            session.memory.hold_beside,
        )
        self._register.begin_replay(subscription, replay)
        acknowledge(session, command, *ACKS[:2], s=subscription.name)
        self._stream(session, command, subscription, replay, span)

    def _feed_in_log(self, subscription: Subscription, name: str) -> ChangeFeed | None:
        """The feed of a topic in the log; None for one that is not followed."""
        feed = subscription.feeds.get(name)
        if feed is None:
            topic = self._engine.topics.get(name)
            if topic is None or not topic.is_logged or not subscription.follows(topic.records):
                return None
            feed = subscription.feed(topic.router)
        assert isinstance(feed, ChangeFeed)
        return feed

    def _stream(
        self,
        session: Session,
        command: Command,
        subscription: Subscription,
        replay: LogReplay,
        span: Span,
    ) -> None:
        engine, channel = self._engine, subscription.channel

        def on_live() -> None:
            self._register.end_replay(subscription)
            if span.until is None:
                self.join(subscription, 0)
                # Entries on their way to the disk wait until they are durable; only then is the end
                # acknowledged.
                engine.output.flush_channel(channel)
                engine.output.schedule(channel)
            else:
                self._register.remove(subscription)
            acknowledge(session, command, ACKS[2], s=subscription.name, bm=str(engine.seq))
            engine.output.touch(session)
            engine.notify_work()

        def on_failure(error: Exception) -> None:
            if not isinstance(error, SowError):
                self._ending.fail_replay(subscription, error)
                return
            self._register.remove(subscription)
            name, now_us = subscription.name, engine.now_us
            session.send_unsubscribed(name, error.reason, now_us, error.detail)

        frames = replay.frames(on_live, on_failure)
        session.stream(frames, engine.output.group, engine.now_us, answers=False)


def check_rights(session: Session, command: Command) -> None:
    """Raise Busy, or NotEntitled, where the permissions of the session have changed since the
    request: results computed so far may not be sent."""
    check_still_permitted(session, command)
    if command.rights is not session.rights:
        raise Busy("what this session may see has changed meanwhile; send this again")
