"""Subscriptions that begin at a bookmark: told by the log first, then live.

The frames of a replay (`sow.requests.replay`) are made as the client takes them. With the last one
the feeds join their routers, in one step of the engine, so no change is missed and none comes
twice; or, where a range was asked for, the subscription is over.
"""

from sow.commands import ACKS, Command
from sow.delivery.sessions import Session
from sow.engine.engine import Engine
from sow.errors import SowError
from sow.history.bookmarks import Span
from sow.requests.following import Following
from sow.requests.questions import Questions, acknowledge
from sow.requests.replay import Replay
from sow.requests.subscription import Register, Subscription
from sow.store.protocols import Journal


class FromBookmark:
    """Begins subscriptions in the past."""

    def __init__(
        self,
        engine: Engine,
        journal: Journal,
        register: Register,
        questions: Questions,
        following: Following,
    ) -> None:
        self._engine = engine
        self._journal = journal
        self._register = register
        self._questions = questions
        self._following = following

    def subscribe(self, session: Session, command: Command) -> None:
        """`subscribe` with a bookmark; raises ClientError."""
        engine = self._engine
        span = self._questions.span(command, self._questions.topics(command)[0])
        subscription, topics = self._following.begin(session, command, complete=False, shares=False)
        strand = subscription.strand
        subscription.confine(f"replay {strand.name}")
        for topic in topics:
            self._following.make(subscription, topic)
        replay = Replay(engine, self._journal, strand, subscription.feeds, span)
        self._register.begin_replay(subscription, replay)
        acknowledge(session, command, *ACKS[:2], s=subscription.name)
        self._stream(session, command, subscription, replay, span)

    def _follow_unlogged(self, subscription: Subscription) -> None:
        """Topics of a pattern that came into being during its replay and are not in the log."""
        if subscription.pattern is not None:
            for topic in self._engine.catalog.matching(subscription.pattern):
                if subscription.wants(topic):
                    self._following.follow(subscription, topic)

    def _stream(
        self,
        session: Session,
        command: Command,
        subscription: Subscription,
        replay: Replay,
        span: Span,
    ) -> None:
        engine, strand = self._engine, subscription.strand

        def on_live() -> None:
            self._register.end_replay(subscription)
            if span.until is None:
                for name, feed in subscription.feeds.items():
                    engine.topic(name).router.add(feed)
                self._follow_unlogged(subscription)
                self._following.join(subscription, 0)
                # What was on its way to the disk waits for it; only then is the end said.
                engine.flush_strand(strand)
                engine.look_after(strand)
            else:
                self._register.remove(subscription)
            acknowledge(session, command, ACKS[2], s=subscription.name, bm=str(engine.seq))
            engine.touch(session)
            engine.tell_of_work()

        def on_failure(error: SowError) -> None:
            self._register.remove(subscription)
            session.say_unsubscribed(subscription.name, error.reason, engine.now_us)

        session.stream(replay.frames(on_live, on_failure), engine.group, engine.now_us)
