"""Subscribing: a subscription is created, follows its topics, and joins its channel.

Equal subscriptions share a channel and its feeds. A pattern subscription is registered with no
topic: a topic finds it at its first change (`sow.streaming.router`), and a topic
that is created later is followed from its beginning. One that begins at a bookmark is replayed from
the log until it is live; where it depends on what the client holds, the states of its topics at the
bookmark are computed before.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from sow.core.cooperative import Task, while_wanted
from sow.engine.engine import Engine
from sow.engine.queries import place_of
from sow.engine.running_topics import LiveTopic, SourceTopic
from sow.errors import Busy, ClientError, NotKept, SowError, TooLarge, shown
from sow.expressions import check_fields_alone
from sow.history.bookmarks import NOW, Moment, Span, parse_bookmark, parse_sent
from sow.protocol.commands import ACKS, Command
from sow.protocol.replies import Encoding
from sow.sessions.queries.access_control import check_still_permitted, key_of_feed, row_policy_of
from sow.sessions.queries.past_states import PastStates, answered
from sow.sessions.queries.query_planning import QueryPlanner, TopicSelection, acknowledge, feed_key
from sow.sessions.subscriptions import Register, Subscription, Unsubscriber
from sow.sessions.subscriptions.log_replay import (
    Known,
    KnownStates,
    LogReplay,
    ReplayControl,
    forget,
    not_controlled,
)
from sow.sessions.subscriptions.sent_replay import SentReplay
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

KNOWN_TOPICS_MAX = 100
"""Topics of a pattern whose states are computed: the log is looked through for each of them."""
KNOWN_PART = 4
"""The fraction of `Limits/SnapshotMemory` that bodies which are read for it may take."""


class Subscriber:
    """Begins subscriptions."""

    def __init__(
        self,
        engine: Engine,
        journal: Journal,
        register: Register,
        planner: QueryPlanner,
        past: PastStates,
        ending: Unsubscriber,
    ) -> None:
        self._engine = engine
        self._journal = journal
        self._past = past
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
        self, session: Session, command: Command, key: FeedKey, requested: TopicSelection
    ) -> tuple[str, Subscription | None]:
        """The scope of a subscription's feeds (empty: shared with any equal one)."""
        taken = self._register.of(session)
        if requested.pattern is None:
            router = requested.topics[0].router
            seen = key_of_feed(key, router.topic, row_policy_of(command, router.topic))
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
            channel.join_at(subscription.session, self._known(subscription) if seq is None else seq)
        else:
            channel.join(subscription.session)
        if isinstance(channel, ConflatedChannel | WindowChannel):
            engine.timers.add(channel, engine.output.flush_due)
        if subscription.pattern is not None:
            self._register.be_shared(subscription)
            engine.catalog.followers.add(subscription)

    def _known(self, subscription: Subscription) -> int:
        """The bookmark up to which everything is known: of one topic that of what it has sent."""
        engine = self._engine
        if subscription.pattern is not None:
            return engine.seq
        topic = engine.topic(subscription.topic)
        return place_of(topic, engine.topics, engine.seq, engine.now_us)

    # From the log.

    def check_start(self, command: Command, requested: TopicSelection) -> None:
        """Raise what speaks against where a subscription is to begin."""
        if command.options.as_of is not None:
            for topic in requested.topics:
                self._past.moment(topic, command.options.as_of, self._engine.seq)
        elif command.bookmark is not None and command.bookmark not in NOW:
            if _derived(requested) is None:
                self._span(command, requested.topics)
            else:
                self._sent_from(command)

    def _span(self, command: Command, topics: list[LiveTopic]) -> Span:
        """The part of the log that a bookmark subscription requests."""
        self._check_from_past(command)
        for topic in topics:
            if not topic.is_logged:
                alone = "" if isinstance(topic, SourceTopic) else ", or with it to this topic alone"
                raise ClientError(
                    f"topic {topic.name} is not in the log; subscribe without bm{alone}",
                    reason="invalid topic",
                )
        assert command.bookmark is not None
        not_found = command.options.bookmark_not_found
        with self._naming_range():
            return parse_bookmark(command.bookmark, self._journal, self._engine.seq, not_found)

    def _sent_from(self, command: Command) -> Moment:
        """The moment after which a subscription requests what a topic has sent."""
        self._check_from_past(command)
        engine, log, not_found = self._engine, self._past.log, command.options.bookmark_not_found
        assert command.bookmark is not None
        with self._naming_range():
            return parse_sent(command.bookmark, log, engine.seq, engine.now_us, not_found)

    @contextmanager
    def _naming_range(self) -> Iterator[None]:
        """Say in a refusal which moments are kept."""
        try:
            yield
        except NotKept as error:
            self._past.name_range(error)
            raise

    def _check_from_past(self, command: Command) -> None:
        """Refuse a filter that a state of the past does not answer, where that matters."""
        condition = self._planner.condition(command)
        goes_by_states = command.options.oof or command.kind.is_delta
        if goes_by_states and condition is not None and not condition.steady:
            check_fields_alone(condition, "a subscription from the past with oof or deltas")

    def replay(self, session: Session, command: Command) -> Task[None]:
        """Begin a subscription at its bookmark; raises ClientError.

        The frames of a replay (`sow.sessions.subscriptions.log_replay`) are made as the client
        takes them. With the last one the feeds join their routers, in one step of the engine, so no
        change is missed or repeated; a replay of a range ends the subscription instead.
        """
        self.check_room(session, command)
        requested = yield from self._planner.requested(command)
        derived = _derived(requested)
        if derived is not None:
            if command.options.pause or command.options.rate is not None:
                raise not_controlled(command.topic)
            moment = self._sent_from(command)
            yield from self._replay_sent(session, command, requested, derived, moment)
            return
        span = self._span(command, requested.topics)
        known = yield from self._held(session, command, requested, span.after)
        try:
            subscription = self.begin(
                session, command, requested, complete=known is not None, shares=False
            )
        except SowError:
            forget(known or {}, self._engine)
            raise
        acknowledge(session, command, *ACKS[:2], s=subscription.name)
        self._replay(session, command, subscription, requested, span, known)

    def _replay(
        self,
        session: Session,
        command: Command,
        subscription: Subscription,
        requested: TopicSelection,
        span: Span,
        known: Known | None,
        then: Sequence[str] = ACKS[2:],
    ) -> None:
        channel = subscription.channel
        assert isinstance(channel, ChangeChannel)
        if requested.pattern is None:
            subscription.feed(requested.topics[0].router)
        subscription.confine(f"replay {channel.name}")
        rate, is_paused = command.options.rate, command.options.pause
        is_controlled = is_paused or rate is not None
        replay = LogReplay(
            self._engine,
            self._journal,
            channel,
            lambda name: self._feed_in_log(subscription, name),
            span,
            session.memory.hold_beside,
            known,
            ReplayControl(self._engine, rate, is_paused) if is_controlled else None,
        )
        self._register.begin_replay(subscription, replay)
        self._stream(session, command, subscription, replay, span.until is None, then)

    def begins_before(self, requested: TopicSelection) -> bool:
        """Whether the topic of a subscription shows what there was before a change."""
        is_one = requested.pattern is None
        return is_one and self._engine.atomic.shows_before(requested.topics[0])

    def from_before(
        self,
        session: Session,
        command: Command,
        requested: TopicSelection,
        complete: bool,
        answer: Callable[[Subscription], object],
    ) -> Task[None]:
        """Begin a subscription that `begins_before` a change. `answer` sends what it begins with,
        and the log what comes behind that."""
        seq = self._engine.atomic.seq_of(requested.topics[0])
        known = yield from self._held(session, command, requested, seq)
        try:
            subscription = self.begin(session, command, requested, complete, shares=False)
        except SowError:
            forget(known or {}, self._engine)
            raise
        answer(subscription)
        self._replay(session, command, subscription, requested, Span(seq), known, then=())
        self._register.note_beside_change(subscription)

    def _replay_sent(
        self,
        session: Session,
        command: Command,
        requested: TopicSelection,
        topic: LiveTopic,
        moment: Moment,
    ) -> Task[None]:
        """The same of a conflated topic or a view, from a place in what it has sent."""
        replay = yield from self.sent(session, topic, moment)
        try:
            subscription = self.begin(session, command, requested, complete=True, shares=False)
        except SowError:
            replay.stop()
            raise
        acknowledge(session, command, *ACKS[:2], s=subscription.name)
        self.go_on_with(session, command, subscription, replay)

    def from_past(self, session: Session, command: Command, text: str) -> Task[None]:
        """Begin a subscription with the state at a past moment, then what was sent since, then what
        comes."""
        self.check_room(session, command)
        self._check_from_past(command)
        requested = yield from self._planner.requested(command)
        topic, query = self._planner.question(command)
        admit = partial(self._planner.admit, session)
        if _derived(requested) is None:
            found = yield from self._past.query(topic.name, text, query, admit)
            known = yield from self._held(session, command, requested, found.bookmark)
            try:
                subscription = self._begin_whole(session, command, requested)
            except SowError:
                forget(known or {}, self._engine)
                raise
            self._planner.say_past(session, command, subscription.name, topic, found)
            span = Span(found.bookmark)
            self._replay(session, command, subscription, requested, span, known)
            return
        moment = self._past.moment(topic, text, self._engine.seq)
        replay = yield from self.sent(session, topic, moment)
        try:
            then = yield from replay.state()
            steps = answered(then, query, moment.seq, admit)
            found = (yield from steps)._replace(place=replay.place(moment.seq))
            subscription = self._begin_whole(session, command, requested)
        except SowError:
            replay.stop()
            raise
        self._planner.say_past(session, command, subscription.name, topic, found)
        self.go_on_with(session, command, subscription, replay)

    def _begin_whole(
        self, session: Session, command: Command, requested: TopicSelection
    ) -> Subscription:
        return self.begin(session, command, requested, complete=True, shares=False)

    def sent(self, session: Session, topic: LiveTopic, moment: Moment) -> Task[SentReplay]:
        """A replay of what a topic has sent, that has come to a moment."""
        replay = SentReplay(self._engine, self._journal, topic, session.memory.hold_beside)
        try:
            steps = replay.beginning(self._past, moment)
            yield from while_wanted(steps, lambda: session.connected)
            if session.ended is not None:
                raise Busy("the session has ended")
        except BaseException:
            replay.stop()
            raise
        return replay

    def go_on_with(
        self, session: Session, command: Command, subscription: Subscription, replay: SentReplay
    ) -> None:
        """Send a subscription to one topic what was sent since, and then what comes."""
        feed = subscription.feed(self._engine.topic(subscription.topic).router)
        assert isinstance(feed, ChangeFeed)
        subscription.confine(f"replay {subscription.name}")
        replay.follow(feed)
        self._register.begin_replay(subscription, replay)
        self._stream(session, command, subscription, replay, goes_on=True)

    def _held(
        self, session: Session, command: Command, requested: TopicSelection, bookmark: int
    ) -> Task[Known | None]:
        """What a client holds of topics that was sent everything up to a bookmark; None where that
        makes no difference."""
        if not (command.options.oof or command.kind.is_delta):
            return None
        if len(requested.topics) > KNOWN_TOPICS_MAX:
            raise TooLarge(
                f"{shown(command.topic)} matches {len(requested.topics)} topics, and what left is "
                f"known of {KNOWN_TOPICS_MAX} at most; name fewer, or leave out oof and deltas"
            )
        known = Known()
        bytes_max = self._engine.configuration.limits.snapshot_bytes_max // KNOWN_PART
        try:
            for topic in requested.topics:
                if topic.records.retains:
                    bodies = yield from self._past.bodies(topic, bookmark, bytes_max, waits=True)
                    states = KnownStates(topic.records, bodies, session.memory.hold_beside)
                    known[topic.name] = states
            if session.ended is not None:
                raise Busy("the session has ended")
        except BaseException:
            forget(known, self._engine)
            raise
        return known

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
        replay: LogReplay | SentReplay,
        goes_on: bool,
        then: Sequence[str] = ACKS[2:],
    ) -> None:
        """Queue the frames of a replay; at its end the acks `then` are sent."""
        engine, channel = self._engine, subscription.channel

        def on_live() -> None:
            self._register.end_replay(subscription)
            if goes_on:
                self.join(subscription, 0)
                # Entries on their way to the disk wait until they are durable; only then is the end
                # acknowledged.
                engine.output.flush_channel(channel)
                engine.output.schedule(channel)
            else:
                self._register.remove(subscription)
            acknowledge(session, command, *then, s=subscription.name, bm=str(engine.seq))
            engine.output.touch(session)
            engine.notify_work()

        def on_failure(error: Exception) -> None:
            if not isinstance(error, SowError):
                self._ending.fail_replay(subscription, error)
                return
            self._register.remove(subscription)
            name, now_us = subscription.name, engine.now_us
            session.send_unsubscribed(name, error.reason, now_us, error.detail)

        self._go_on(session, replay, on_live, on_failure)

    def _go_on(
        self,
        session: Session,
        replay: LogReplay | SentReplay,
        on_live: Callable[[], None],
        on_failure: Callable[[Exception], None],
    ) -> None:
        """Queue frames of a replay until it is over, or has to wait."""
        output = self._engine.output
        again = partial(self._go_on, session, replay, on_live, on_failure)
        frames = replay.frames(on_live, on_failure, again)
        session.stream(frames, output.group, self._engine.now_us, answers=False)
        output.touch(session)


def _derived(requested: TopicSelection) -> LiveTopic | None:
    """The one topic of a request, if it is a conflated topic or a view: the log has what it is made
    of."""
    if requested.pattern is not None or isinstance(requested.topics[0], SourceTopic):
        return None
    return requested.topics[0]


def check_rights(session: Session, command: Command) -> None:
    """Raise Busy, or NotEntitled, where the permissions of the session have changed since the
    request: results computed so far may not be sent."""
    check_still_permitted(session, command)
    if command.rights is not session.rights:
        raise Busy("what this session may see has changed meanwhile; send this again")
