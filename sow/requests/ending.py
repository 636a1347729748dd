"""Ending: a subscription leaves its strand, and the last one out ends the feeds.

It may be the client who wants no more, the server that gives up what a session does not keep up
with, or a topic that goes. What was said before still leaves.
"""

from sow.delivery.sessions import BACK_PRESSURE, Session
from sow.engine.engine import Engine
from sow.engine.live_topics import LiveTopic
from sow.requests.subscription import Register, Subscription

REMOVAL = "REMOVAL"


class Ending:
    """Ends subscriptions."""

    def __init__(self, engine: Engine, register: Register) -> None:
        self._engine = engine
        self._register = register

    def end(self, subscription: Subscription) -> None:
        """Leave a subscription's strand and forget it; the last one out ends its feeds."""
        strand = subscription.strand
        if subscription.replay is not None:
            subscription.replay.stop()
        self._engine.flush_strand(strand)
        strand.leave(subscription.session)
        if not strand.members:
            for name, feed in subscription.feeds.items():
                self._engine.topic(name).router.remove(feed)
            self._engine.timers.remove(strand)
        self._register.remove(subscription)

    def end_all(self, session: Session) -> None:
        """A session is gone: so is all that it followed."""
        for subscription in list(self._register.of(session).values()):
            self.end(subscription)

    def give_up(self, session: Session, name: str) -> None:
        """The session does not keep up with a topic that is not worth more: end it."""
        subscription = self._register.of(session).get(name)
        if subscription is not None:
            self.end(subscription)
            session.say_unsubscribed(name, BACK_PRESSURE, self._engine.now_us)

    def end_topic(self, topic: LiveTopic) -> None:
        """A topic is going: end what follows it, and nothing else of what follows a pattern."""
        name = topic.definition.name
        for feed in list(topic.router.feeds()):
            self._engine.flush_strand(feed.strand)
            topic.router.remove(feed)
            for session in list(feed.members):
                subscription = self._register.of(session)[feed.name]
                subscription.remove_feed(name)
                self._end_if_named(subscription)
        for subscription in list(self._register.replays):
            if subscription.remove_feed(name):
                self._end_if_named(subscription)

    def _end_if_named(self, subscription: Subscription) -> None:
        """End a subscription whose topic has gone, unless it is one through a pattern."""
        if subscription.pattern is None:
            session = subscription.session
            self.end(subscription)
            session.say_unsubscribed(subscription.name, REMOVAL, self._engine.now_us)
            self._engine.touch(session)
