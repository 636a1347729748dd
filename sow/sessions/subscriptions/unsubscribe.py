"""Unsubscribing: a subscription leaves its channel, and the last one out ends the feeds.

A subscription ends by the client, by the server for a session that does not keep up, with its
topic, or when its channel fails to encode a change. What was emitted before is still sent.
"""

from collections.abc import Callable, Hashable
from itertools import islice

from sow.core.cooperative import Task
from sow.engine.engine import Engine
from sow.engine.running_topics import LiveTopic
from sow.errors import described
from sow.sessions.subscriptions.subscription import Register, Subscription
from sow.streaming.channel import Channel
from sow.streaming.feeds import Feed
from sow.streaming.sessions import AUTHORIZATION, BACK_PRESSURE, Session

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
