"""Subscriptions that begin at a bookmark: a replay of the log, then live updates.

The frames of a replay (`sow.sessions.subscriptions.log_replay`) are made as the client takes them.
With the last one the feeds join their routers, in one step of the engine, so no change is missed or
repeated; a replay of a range ends the subscription instead.
"""

from sow.core.cooperative import Task
from sow.engine.engine import Engine
from sow.errors import SowError
from sow.history.bookmarks import Span
from sow.protocol.commands import ACKS, Command
from sow.sessions.queries.query_planning import QueryPlanner, acknowledge
from sow.sessions.subscriptions.log_replay import Replay
from sow.sessions.subscriptions.subscribe import Subscriber
from sow.sessions.subscriptions.subscription import Register, Subscription
from sow.sessions.subscriptions.unsubscribe import Unsubscriber
from sow.store.protocols import Journal
from sow.streaming.feeds import Feed
from sow.streaming.sessions import Session


class BookmarkSubscriber:
    """Begins subscriptions in the past."""

    def __init__(
        self,
        engine: Engine,
        journal: Journal,
        register: Register,
        questions: QueryPlanner,
        following: Subscriber,
        ending: Unsubscriber,
    ) -> None:
        self._engine = engine
        self._journal = journal
        self._register = register
        self._questions = questions
        self._following = following
        self._ending = ending

    def subscribe(self, session: Session, command: Command) -> Task[None]:
        """`subscribe` with a bookmark; raises ClientError."""
        engine = self._engine
        self._following.check_room(session, command)
        requested = yield from self._questions.requested(command)
        span = self._questions.span(command, requested.topics)
        subscription = self._following.begin(
            session, command, requested, complete=False, shares=False
        )
        channel = subscription.channel
        if requested.pattern is None:
            subscription.feed(requested.topics[0].router)
        subscription.confine(f"replay {channel.name}")
        replay = Replay(
            engine, self._journal, channel, lambda name: self._feed(subscription, name), span
        )
        self._register.begin_replay(subscription, replay)
        acknowledge(session, command, *ACKS[:2], s=subscription.name)
        self._stream(session, command, subscription, replay, span)

    def _feed(self, subscription: Subscription, name: str) -> Feed | None:
        """The feed of a topic in the log; None for one that is not followed."""
        feed = subscription.feeds.get(name)
        if feed is not None:
            return feed
        topic = self._engine.topics.get(name)
        if topic is None or not topic.is_logged or not subscription.follows(topic.records):
            return None
        return subscription.feed(topic.router)

    def _stream(
        self,
        session: Session,
        command: Command,
        subscription: Subscription,
        replay: Replay,
        span: Span,
    ) -> None:
        engine, channel = self._engine, subscription.channel

        def on_live() -> None:
            self._register.end_replay(subscription)
            if span.until is None:
                self._following.join(subscription, 0)
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
