"""Subscriptions: creating, replaying, replacing and ending them; here, the register of all.

The register finds subscriptions by their sessions, keeps those that follow new topics and those
that are replayed from the log, and counts what is limited for a session. It creates none
(`sow.sessions.subscriptions.subscribe`).

A subscription ends by the client, by the server for a session that does not keep up, with its
topic, or when its channel fails to encode a change. It leaves its channel, and the last one out
ends the feeds (`Unsubscriber`). What was emitted before is still sent.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice

from sow.core.cooperative import Task
from sow.core.paths import Path
from sow.engine.engine import Engine
from sow.engine.running_topics import LiveTopic
from sow.errors import described
from sow.expressions import Filter
from sow.expressions.patterns import Search
from sow.protocol.commands import Command
from sow.security.authorization import Permissions
from sow.security.row_level_security import RowPolicy
from sow.sessions.queries.access_control import is_visible, key_of_feed, row_policy_of
from sow.sessions.queries.aggregations import Share
from sow.sessions.subscriptions.log_replay import LogReplay
from sow.sessions.subscriptions.sent_replay import SentReplay
from sow.store.columns import NO_SLOTS, Slots
from sow.streaming.channel import Channel
from sow.streaming.feeds import Feed
from sow.streaming.router import Router
from sow.streaming.sessions import AUTHORIZATION, BACK_PRESSURE, Session
from sow.streaming.update_encoder import FeedKey
from sow.topic.records import Records


@dataclass(slots=True, eq=False)
class Subscription:
    """What one session follows under one name.

    `topic` is the requested one: a name, or those that match `pattern`. Equal ones share `channel`
    and its `feeds`, by name, one for each topic that has had a change. `complete`: the session was
    sent everything in focus.
    """

    topic: str
    channel: Channel
    feeds: dict[str, Feed]
    session: Session
    key: FeedKey
    condition: Filter | None
    complete: bool
    pattern: Search | None = None
    replay: LogReplay | SentReplay | None = None
    share: Share | None = None
    """In the view that was made for it, if it is about groups of records."""
    command: Command | None = None
    """The command that created it, with the permissions of its user."""
    _answered: dict[str, Slots] = field(default_factory=dict)
    """Records that its session received in an answer, of topics that have no feed yet."""

    @property
    def name(self) -> str:
        """What the server calls it."""
        return self.channel.name

    def check(self) -> None:
        """Assert that it receives what it follows."""
        is_live = self.replay is None
        assert (self.session in self.channel.members) == is_live, "a member that receives nothing"
        assert all(feed.channel is self.channel for feed in self.feeds.values())
        assert all(feed.topic.name == name for name, feed in self.feeds.items())
        self.channel.check()

    def hold(self, share: Share) -> None:
        """Hold a reference to a view until the subscription ends."""
        self.share = share

    def let_go(self) -> None:
        """Release the view that was created for it."""
        if self.share is not None:
            self.share.let_go()

    def can_be_joined(self) -> bool:
        """Another one may share its channel: both receive the same."""
        # Only a subscription with oof to a topic that stores nothing keeps account of what was
        # sent.
        return not self.key.oof or all(feed.can_be_joined() for feed in self.feeds.values())

    def guard(self, topic: Records) -> RowPolicy | None:
        """What its user may see of a topic; None: all."""
        return None if self.command is None else row_policy_of(self.command, topic)

    def seen(self, topic: Records) -> tuple[FeedKey, Filter | None]:
        """What makes its feed of a topic equal to others, and the condition of that feed."""
        guard = self.guard(topic)
        condition = self.condition if guard is None else guard.condition(self.condition)
        return key_of_feed(self.key, topic, guard), condition

    def feed(self, router: Router) -> Feed:
        """The channel's feed of a topic, created if need be."""
        name = router.topic.name
        feed = self.feeds.get(name)
        if feed is None:
            key, condition = self.seen(router.topic)
            feed = self.feeds[name] = router.make(self.channel, key, condition)
            feed.keep_account_of(self._answered.pop(name, NO_SLOTS).tolist())
        return feed

    def follow(self, router: Router) -> None:
        """Follow a topic from now on."""
        feed = self.feed(router)
        if not router.routes_to(feed):
            router.add(feed)

    def was_sent(self, answered: Mapping[str, Slots]) -> None:
        """Its session knows of these records of topics, and of no others."""
        self._answered.update(answered)

    # A follower of a pattern.

    def meet(self, place: Router) -> None:
        """A topic has changed: follow it, if its name matches."""
        if self.wants(place.topic):
            self.follow(place)

    def awaits(self, place: Router) -> bool:
        """Whether it follows a topic that has had no change yet."""
        feed = self.feeds.get(place.topic.name)
        return self.wants(place.topic) if feed is None else not place.routes_to(feed)

    def remove_feed(self, topic: str) -> bool:
        """A topic has gone; False if it was not followed any more."""
        self._answered.pop(topic, None)
        return self.feeds.pop(topic, None) is not None

    def be_guarded_by(self, rights: Permissions) -> None:
        """Set the permissions of its user, where this changes nothing that it has sent."""
        assert self.command is not None
        self.command = replace(self.command, rights=rights)

    def request_by(self, command: Command) -> None:
        """The requested command, where the subscription executes one derived from it."""
        self.command = command

    def be_sent_by(self, replay: LogReplay | SentReplay) -> None:
        """It is replayed from the log until it is live."""
        self.replay = replay

    def be_live(self) -> None:
        """It receives updates from its feeds."""
        self.replay = None

    def confine(self, scope: str) -> None:
        """Share feeds with nobody but those of an equal scope."""
        self.key = self.key._replace(scope=scope)

    @property
    def follows_pace(self) -> bool:
        """Whether it may go on when its client has taken what was sent."""
        return self.key.auto or self.key.window is not None

    @property
    def filter_chars(self) -> int:
        """The length of its filter, a measure of its cost."""
        return 0 if self.condition is None else len(self.condition.text)

    @property
    def search_cost(self) -> int:
        """What searching for the patterns of its filter may cost."""
        return 0 if self.condition is None else self.condition.search_cost

    def follows(self, topic: Records) -> bool:
        """Whether a topic is the one, or one of those, that it is about."""
        return topic.name == self.topic if self.pattern is None else self.wants(topic)

    def wants(self, topic: Records) -> bool:
        """Whether a topic is one of the pattern's.

        Nothing is that the session may not read, nor a queue, which is only consumed. Of messages
        without fields none passes a filter over fields, and of those that are sent whole nothing
        can be selected.
        """
        assert self.pattern is not None
        if topic.is_queue or (
            self.command is not None and not is_visible(self.command.rights, topic)
        ):
            return False
        kind = topic.message_type
        reads = self.condition is not None and bool(self.condition.paths)
        selects = self.key.shape.select is not None
        suits = (kind.structured or not reads) and (kind.partial or not selects)
        return suits and bool(self.pattern(topic.name))


@dataclass(slots=True)
class Followed:
    """All that one session follows, by name; `at_own_pace` waits for the client to take what was
    sent. `filter_chars` is how long the filters are in all, `search_cost` what the searches of all
    may cost, `patterns` how many follow patterns, `windows` how many are live windows."""

    by_name: dict[str, Subscription] = field(default_factory=dict)
    at_own_pace: dict[Subscription, None] = field(default_factory=dict)
    filter_chars: int = 0
    search_cost: int = 0
    patterns: int = 0
    windows: int = 0

    @property
    def aggregated_count(self) -> int:
        """How many are about groups of records."""
        return sum(one.share is not None for one in self.by_name.values())


NOTHING_FOLLOWED = Followed()
"""Of all sessions without a subscription, and never added to."""


class Register:
    """All subscriptions of one engine's sessions."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._followed: dict[Session, Followed] = {}
        self._alike: dict[FeedKey, dict[Subscription, None]] = {}
        self.pattern_paths: Counter[Path] = Counter()
        """The fields that filters of those through patterns name, and in how many."""
        self._replays: dict[Subscription, None] = {}
        self.beside_changes: dict[Subscription, None] = {}
        """Those of them that began while a change was being stored."""

    def new_name(self, kind: str) -> str:
        """A name that nothing else has: q of an answer, f of what is followed."""
        return f"{kind}{next(self._numbers)}"

    def followed(self, session: Session) -> Followed:
        """All that a session follows."""
        return self._followed.get(session, NOTHING_FOLLOWED)

    def of(self, session: Session) -> Mapping[str, Subscription]:
        """A session's subscriptions by their names."""
        return self.followed(session).by_name

    def alike(self, key: FeedKey) -> Collection[Subscription]:
        """Live ones through a pattern that are equal by their key, and of one scope."""
        return self._alike.get(key, ())

    @property
    def replays(self) -> Collection[Subscription]:
        """Those that are not live yet: no router knows of their feeds."""
        return self._replays

    def add(self, subscription: Subscription) -> None:
        """A subscription begins."""
        followed = self._followed.setdefault(subscription.session, Followed())
        followed.by_name[subscription.name] = subscription
        followed.filter_chars += subscription.filter_chars
        followed.search_cost += subscription.search_cost
        if subscription.follows_pace:
            followed.at_own_pace[subscription] = None
            subscription.session.pace(True)
        followed.patterns += subscription.pattern is not None
        followed.windows += subscription.key.window is not None

    def be_shared(self, subscription: Subscription) -> None:
        """One through a pattern is live: others that are equal may share what it has."""
        self._alike.setdefault(subscription.key, {})[subscription] = None
        if subscription.condition is not None:
            self.pattern_paths.update(subscription.condition.paths)

    def remove(self, subscription: Subscription) -> None:
        """It has ended; one that has already is passed over."""
        followed = self._followed.get(subscription.session)
        if followed is not None and followed.by_name.pop(subscription.name, None) is not None:
            followed.filter_chars -= subscription.filter_chars
            followed.search_cost -= subscription.search_cost
            followed.at_own_pace.pop(subscription, None)
            subscription.session.pace(bool(followed.at_own_pace))
            followed.patterns -= subscription.pattern is not None
            followed.windows -= subscription.key.window is not None
            if not followed.by_name:
                del self._followed[subscription.session]
        self._be_shared_no_more(subscription)
        self._forget_replay(subscription)

    def _be_shared_no_more(self, subscription: Subscription) -> None:
        alike = self._alike.get(subscription.key, {})
        if subscription not in alike:
            return
        del alike[subscription]
        if not alike:
            del self._alike[subscription.key]
        if subscription.condition is not None:
            self.pattern_paths -= Counter(subscription.condition.paths)

    def check(self) -> None:
        """Assert that all that is known of subscriptions agrees, between two steps."""
        everybody: list[Subscription] = []
        for session, followed in self._followed.items():
            own = followed.by_name.values()
            everybody += own
            assert own, "a session that follows nothing is kept"
            assert all(one.session is session for one in own)
            assert followed.filter_chars == sum(one.filter_chars for one in own)
            assert followed.search_cost == sum(one.search_cost for one in own)
            assert followed.patterns == sum(one.pattern is not None for one in own)
            assert [*followed.at_own_pace] == [one for one in own if one.follows_pace]
            assert session.is_paced == bool(followed.at_own_pace)
            assert followed.windows == sum(one.key.window is not None for one in own)
        alike = {one for some in self._alike.values() for one in some}
        assert alike == {one for one in everybody if one.pattern is not None and not one.replay}
        paths = [path for one in alike if one.condition for path in one.condition.paths]
        assert self.pattern_paths == Counter(paths)
        assert all(one.key == key for key, some in self._alike.items() for one in some)
        assert {*self._replays} == {one for one in everybody if one.replay is not None}
        assert self.beside_changes.keys() <= self._replays.keys()
        for one in everybody:
            one.check()

    def begin_replay(self, subscription: Subscription, replay: LogReplay | SentReplay) -> None:
        """Replay a subscription from the log until it is live."""
        subscription.be_sent_by(replay)
        self._replays[subscription] = None

    def end_replay(self, subscription: Subscription) -> None:
        """Its replay from the log is complete."""
        subscription.be_live()
        self._forget_replay(subscription)

    def note_beside_change(self, subscription: Subscription) -> None:
        """Its replay has begun while a change was being stored."""
        self.beside_changes[subscription] = None

    def _forget_replay(self, subscription: Subscription) -> None:
        self._replays.pop(subscription, None)
        self.beside_changes.pop(subscription, None)


REMOVAL = "REMOVAL"
FAILURE = "FAILURE"
FAILURE_DETAIL = (
    "the server failed on an update of this subscription, and its log says why; what was "
    "published stands. Subscribe again to begin with the present state"
)
ENDED_AT_ONCE = 50
"""Subscriptions that end in one step: some 20 us each, and more where many share a channel."""


FEEDS_AT_ONCE = 20
"""Feeds of a pattern that end in one step, of each of so many subscriptions."""


class Unsubscriber:
    """Ends subscriptions; `report` is called with sentences for the operator's log."""

    def __init__(self, engine: Engine, register: Register, report: Callable[[str], None]) -> None:
        self._engine = engine
        self._register = register
        self._report = report

    def end(self, subscription: Subscription) -> None:
        """Hand out what a subscription has to send, and remove it."""
        self._engine.output.flush_channel(subscription.channel)
        self.leave(subscription)

    def leave(self, subscription: Subscription) -> None:
        """Leave a subscription's channel and remove it; the last one out ends its feeds. What still
        waits in the channel is not sent: the caller knows of it."""
        channel = subscription.channel
        if subscription.replay is not None:
            subscription.replay.stop()
        channel.leave(subscription.session)
        if not channel.members:
            channel.end()
            self._engine.output.let_go(channel)
            self._engine.timers.remove(channel)
            self._go_on(self._part(subscription.feeds))
        self._engine.catalog.followers.remove(subscription)
        self._register.remove(subscription)
        subscription.let_go()

    def _go_on(self, steps: Task[None]) -> None:
        """Take the first step of some work now; the others fall due."""
        if self._engine.timers.go_on(steps):
            self._engine.notify_work()

    def _part(self, feeds: dict[str, Feed]) -> Task[None]:
        """End the feeds of a channel without members, some in each step."""
        while feeds:
            for _ in range(min(len(feeds), FEEDS_AT_ONCE)):
                name, feed = feeds.popitem()
                topic = self._engine.topics.get(name)
                if topic is not None and topic.records is feed.topic:
                    topic.router.remove(feed)
            if feeds:
                yield

    def end_many(self, subscriptions: list[Subscription], is_gone: bool = False) -> Task[None]:
        """End subscriptions of one session, some in each step; those that have ended meanwhile are
        passed over. What a session that `is_gone` alone is to get of one is not made. The list is
        emptied: ten thousand of them are not freed in one step either."""
        subscriptions.reverse()
        for at in range(len(subscriptions)):
            if at and at % ENDED_AT_ONCE == 0:
                yield
            subscription = subscriptions.pop()
            channel = subscription.channel
            is_unread = is_gone and len(channel.members) == 1
            if channel.late and not is_unread:
                yield from self._engine.output.catching_up(channel)
            if subscription.name in self._register.of(subscription.session):
                if channel.late:
                    self.leave(subscription)
                else:
                    self.end(subscription)

    def end_all(self, session: Session) -> None:
        """A session is gone, and so is all that it followed: of much the rest falls due. Nothing is
        made for it alone meanwhile, or ten thousand channels would take the time of their end."""
        found = [*self._register.of(session).values()]
        for one in found:
            if len(one.channel.members) == 1:
                one.channel.fall_silent()
        self._go_on(self.end_many(found, is_gone=True))

    def give_up(self, session: Session, name: str) -> str:
        """The session does not keep up with a topic that is not worth more: end it. Returns what it
        was to, "" where there is none."""
        subscription = self._register.of(session).get(name)
        if subscription is None:
            return ""
        self.end(subscription)
        session.send_unsubscribed(name, BACK_PRESSURE, self._engine.now_us)
        return subscription.topic

    def bar(self, session: Session, name: str) -> None:
        """End a subscription that the session may not have any more, and discard its unsent
        lines."""
        subscription = self._register.of(session)[name]
        self.end(subscription)
        session.take_back_all(name)
        session.send_unsubscribed(name, AUTHORIZATION, self._engine.now_us)
        self._engine.output.touch(session)

    def fail(self, channel: Channel, error: Exception) -> None:
        """A channel has failed to encode a change: its sessions are notified soon. Not now: other
        channels are handling the same change."""
        self.report_failure(channel.name, error)
        self._go_on(self._end_failed(channel))

    def _end_failed(self, channel: Channel) -> Task[None]:
        yield
        while channel.members:
            for session in [*islice(channel.members, ENDED_AT_ONCE)]:
                subscription = self._register.of(session)[channel.name]
                self.end(subscription)
                self._say_failed(subscription)
            if channel.members:
                yield

    def fail_replay(self, subscription: Subscription, error: Exception) -> None:
        """A replay failed for a subscription that is not live yet."""
        self.report_failure(subscription.name, error)
        self._register.remove(subscription)
        self._say_failed(subscription)

    def report_failure(self, name: str, error: Exception) -> None:
        """Report to the operator that an internal error has ended a subscription."""
        self._report(f"subscription {name} is ended: {FAILURE}: {described(error)}")

    def _say_failed(self, subscription: Subscription, why: str = FAILURE_DETAIL) -> None:
        session, engine = subscription.session, self._engine
        session.send_unsubscribed(subscription.name, FAILURE, engine.now_us, why)
        engine.output.touch(session)

    def end_topic(self, topic: LiveTopic) -> None:
        """A topic is being removed: end its subscriptions; pattern subscriptions lose only this
        topic."""
        self._end_topic(topic, REMOVAL)

    def fail_topic(self, topic: LiveTopic, why: str, client: Hashable | None) -> None:
        """End the subscriptions to a view that was created for them, of all or of one client, with
        a reason."""
        for feed in list(topic.router.feeds()):
            for session in list(feed.members):
                subscription = self._register.of(session)[feed.name]
                share = subscription.share
                if client is None or (share is not None and share.client == client):
                    self.end(subscription)
                    self._say_failed(subscription, why)

    def end_removed(self, session: Session, name: str) -> None:
        """The queue of a subscription was removed."""
        self._end_if_named(self._register.of(session)[name], REMOVAL)

    def _end_topic(self, topic: LiveTopic, reason: str) -> None:
        name = topic.name
        for feed in list(topic.router.feeds()):
            self._engine.output.flush_channel(feed.channel)
            topic.router.remove(feed)
            for session in list(feed.members):
                subscription = self._register.of(session)[feed.name]
                subscription.remove_feed(name)
                self._end_if_named(subscription, reason)
        for subscription in list(self._register.replays):
            if subscription.remove_feed(name):
                self._end_if_named(subscription, reason)

    def _end_if_named(self, subscription: Subscription, reason: str) -> None:
        """End a subscription whose topic was removed, unless it follows a pattern."""
        if subscription.pattern is None:
            session = subscription.session
            self.end(subscription)
            session.send_unsubscribed(subscription.name, reason, self._engine.now_us)
            self._engine.output.touch(session)
