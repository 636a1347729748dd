"""Following: a subscription is made, hears its topics, and is joined to its strand.

Equal subscriptions share a strand and its feeds. A topic that comes into being later and matches a
subscription's pattern is followed from its beginning.
"""

from collections.abc import Iterable

from sow.commands import Command
from sow.delivery.conflated_strands import ConflatedStrand
from sow.delivery.feeds import Feed
from sow.delivery.lines import FeedKey
from sow.delivery.sessions import Session
from sow.delivery.strands import Strand
from sow.encodings import Encoding
from sow.engine.engine import Engine
from sow.engine.live_topics import LiveTopic
from sow.errors import ClientError, TooLarge
from sow.expressions.patterns import Search
from sow.requests.questions import Questions, feed_key
from sow.requests.subscription import Register, Subscription

FILTER_CHARS_MAX = 2 * 1024**2
"""Of all filters of a session's subscriptions: compiled they take up to a hundred times as much."""

SEARCH_COST_MAX = 200_000
"""Of the patterns of all filters of a session's subscriptions: twice what 5,000 simple ones of some
ten steps and as many characters take. At worst a text of a thousand characters takes a tenth of a
second with them, where nobody bounded it 13."""


class Following:
    """Begins subscriptions."""

    def __init__(self, engine: Engine, register: Register, questions: Questions) -> None:
        self._engine = engine
        self._register = register
        self._questions = questions
        engine.hear_of_topics(self._follow_new)

    def begin(
        self,
        session: Session,
        command: Command,
        complete: bool,
        name: str = "",
        shares: bool = True,
    ) -> tuple[Subscription, list[LiveTopic]]:
        """Make a subscription that follows nothing yet, under `name` or one that suits it.

        `shares`: it may do with the strand of an equal one.
        """
        if not name:
            self.check_room(session, command)
        topics, pattern = self._questions.topics(command)
        for topic in topics:
            self._questions.check_fields(topic, command)
        condition = self._questions.condition(command)
        key = feed_key(command, session.encoding, complete)
        scope, equal = self._scope(session, command, key, topics, pattern)
        if equal is None or name or not shares:
            strand = self._strand(name or self._register.new_name("f"), key, session.encoding)
            feeds: dict[str, Feed] = {}
        else:
            strand, feeds = equal.strand, equal.feeds
        subscription = Subscription(strand, feeds, session, key, condition, complete, pattern)
        if name or scope:
            subscription.confine(scope or strand.name)
        self._register.add(subscription)
        return subscription, topics

    @staticmethod
    def _strand(name: str, key: FeedKey, encoding: Encoding) -> Strand:
        if key.interval_us is None and not key.auto:
            return Strand(name, encoding)
        return ConflatedStrand(name, encoding, key.interval_us)

    def _scope(
        self,
        session: Session,
        command: Command,
        key: FeedKey,
        topics: list[LiveTopic],
        pattern: Search | None,
    ) -> tuple[str, Subscription | None]:
        """What confines a subscription's feeds (nothing: any equal one), and whose it may share."""
        taken = self._register.of(session)
        if pattern is None:
            feed = None if key.auto else topics[0].router.shared(key, taken)
            scope = f"session {session.id}" if key.auto else ""
            if feed is None:
                return scope, None
            return scope, self._register.of(next(iter(feed.members)))[feed.name]
        if key.accounts or key.auto:
            return f"session {session.id}", None
        scope = f"pattern {command.topic}"
        scoped = key._replace(scope=scope)
        for other in self._register.patterns:
            if (
                other.key == scoped
                and other.name not in taken
                and all(feed.can_be_joined() for feed in other.feeds.values())
            ):
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
        self.check_filters(session, command)

    def check_filters(
        self, session: Session, command: Command, instead_of: Subscription | None = None
    ) -> None:
        """Raise TooLarge if one filter more, or one instead of another, would be too much."""
        rest = self._register.filter_chars(session)
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
        condition = self._questions.condition(command)
        if condition is None or not condition.search_cost:
            return
        rest = self._register.search_cost(session)
        rest -= 0 if instead_of is None else instead_of.search_cost
        if rest + condition.search_cost > SEARCH_COST_MAX:
            raise TooLarge(
                f"searching for the LIKE patterns of the session's filters would cost "
                f"{rest + condition.search_cost}, of which {condition.search_cost} by this filter, "
                f"and {SEARCH_COST_MAX} is the most; unsubscribe, or write patterns with fewer "
                "classes, dots and numbers in braces"
            )

    def follow(
        self, subscription: Subscription, topic: LiveTopic, told: Iterable[str] = ()
    ) -> Feed:
        """The strand's feed of a topic, hearing it from now on; the session knows of `told`."""
        feed = subscription.feeds.get(topic.name)
        if feed is None:
            feed = self.make(subscription, topic)
            topic.router.add(feed)
        feed.keep_account_of(told)
        return feed

    @staticmethod
    def make(subscription: Subscription, topic: LiveTopic) -> Feed:
        """A feed of a topic for a subscription's strand, which hears nothing yet."""
        feed = topic.router.make(subscription.strand, subscription.key, subscription.condition)
        subscription.add_feed(topic.name, feed)
        return feed

    def join(self, subscription: Subscription, seq: int | None = None) -> None:
        """Let a session have its strand's lines, knowing everything up to `seq`, or to now."""
        engine, strand = self._engine, subscription.strand
        engine.flush_strand(strand)
        strand.join_at(subscription.session, engine.seq if seq is None else seq)
        if isinstance(strand, ConflatedStrand):
            engine.timers.add(strand, engine.release_strand)

    def _follow_new(self, topic: LiveTopic) -> None:
        """A topic has come into being: those who follow patterns may want it."""
        for subscription in self._register.patterns:
            if not subscription.wants(topic):
                continue
            if subscription.replay is None:
                self.follow(subscription, topic)
            elif topic.is_logged:
                # The replay will come to it, and is where the topic is heard until then.
                self.make(subscription, topic)
