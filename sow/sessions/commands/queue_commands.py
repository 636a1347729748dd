"""Commands on queues: a session subscribes to messages, and acknowledges them.

A subscription to a queue is a consumer: it holds up to `max_backlog` messages, and gets the next
when it acknowledges one. Its messages belong to the session, so that a session that is kept for its
client keeps them, and they go to others when the subscription or the session ends. At most once, a
message is sent only while the client reads: what has left the queue is not to wait for long.

A queue is looked at with `sow`, and changed by acknowledgements alone: `check` refuses all else by
name, the options that say something about records included.
"""

from collections.abc import Sequence
from functools import partial

import orjson

from sow.core.cooperative import Task
from sow.engine.engine import Engine
from sow.engine.queues import (
    GIVEN_AT_ONCE,
    DeliveredMessage,
    Queues,
    ReceivingConsumer,
    RunningQueue,
)
from sow.errors import ClientError, InvalidTopic, NotEntitled, NotPrimary, shown
from sow.protocol.commands import ACKS, OPTIONS, Command, Options
from sow.protocol.replies import LINES
from sow.security.authorization import Permissions
from sow.sessions.queries.access_control import row_policy_for
from sow.sessions.queries.query_planning import acknowledge
from sow.sessions.subscriptions.subscriptions import Subscriptions
from sow.streaming.sessions import Session

ALLOWED = {
    "sow": frozenset(OPTIONS) - {"as_of", "projection", "grouping", "last", "replace"},
    "subscribe": frozenset(),
    "sow_delete": frozenset({"cancel"}),
}
"""The commands on a queue, and the options that each may have."""
BOOKMARKS_MAX = 10_000
"""Messages that one command names: as many as a subscription may hold, read in one step."""
BOOKMARK_DIGITS_MAX = 18
"""A number of 64 bits has them all."""


def check_readable(queue: RunningQueue, rights: Permissions) -> None:
    """Raise NotEntitled where a user may see only a part of the messages: who takes one takes all
    of it."""
    if row_policy_for(rights, queue.topic.records) is not None:
        raise NotEntitled(
            f"messages of the queue {queue.topic.name} are taken whole, and your roles allow you "
            "to read only a part of them (Filter, Select); ask for Read without these"
        )


class QueueCommands:
    """The commands of sessions on the `queues` of an engine."""

    def __init__(self, engine: Engine, queues: Queues, subscriptions: Subscriptions) -> None:
        self._engine = engine
        self.queues = queues
        self._subscriptions = subscriptions
        self._leaving: Session | None = None
        """The session whose subscriptions end in this step by its own command."""
        self._consumers: dict[Session, dict[str, tuple[RunningQueue, ReceivingConsumer]]] = {}

    def look(self) -> None:
        """Go by the configuration that is in force since a reload; subscriptions to queues that are
        gone end."""
        self.queues.look()
        by_name = self.queues.by_name
        for session, own in [*self._consumers.items()]:
            for name, (queue, _) in [*own.items()]:
                if by_name.get(queue.topic.name) is not queue:
                    self._subscriptions.end_removed(session, name)

    def check_leads(self, name: str) -> None:
        """Raise NotPrimary where this server follows another one: that alone knows what is
        leased."""
        primary = self._engine.primary
        if primary:
            raise NotPrimary(
                f"this server follows {primary}, and the messages of the queue {name} are given "
                f"out, acknowledged and shown there alone: go on at {primary}",
                primary=primary,
            )

    def find(self, name: str) -> RunningQueue:
        """A queue by its name; raises InvalidTopic for another topic, UnknownTopic, and NotPrimary
        where this server does not lead."""
        if name in self.queues.names:
            self.check_leads(name)
        found = self.queues.by_name.get(name)
        if found is None:
            topic = self._engine.topic(name)
            raise InvalidTopic(
                f"{topic.name} is no queue, so nothing of it is leased; write a Queue with this "
                "UnderlyingTopic into config.xml"
            )
        return found

    def check(self, command: Command) -> None:
        """Raise what speaks against a command on a queue."""
        name, options = command.topic, command.options
        self.check_leads(name)
        allowed = ALLOWED.get(command.name)
        if allowed is None:
            if command.name in ("publish", "delta_publish"):
                return  # refused where all closed topics are, by what to publish to
            raise InvalidTopic(
                f"{name} is a queue, and {command.name} is not for queues: subscribe takes its "
                "messages, sow shows those that nobody has taken"
            )
        blank = Options()
        for option in OPTIONS:
            if option not in allowed and getattr(options, option) != getattr(blank, option):
                raise ClientError(
                    f"{name} is a queue, and {command.name} on a queue takes no {option}; leave it "
                    "out",
                    reason="invalid options",
                )
        if command.name == "sow":
            return
        for field in ("filter", "keys", "key", "bodies", "seq"):
            if getattr(command, field):
                raise ClientError(
                    f"{name} is a queue, and {command.name} on a queue takes no "
                    f"{'k' if field == 'key' else 'd' if field == 'bodies' else field}; "
                    + ("leave it out" if command.name == "subscribe" else "name messages by bm")
                )
        if command.name == "subscribe" and command.bookmark is not None:
            raise ClientError(
                f"{name} is a queue, whose messages go on where they are; leave out bm",
                reason="invalid bookmark",
            )

    # Consuming.

    def subscribe(self, session: Session, command: Command) -> None:
        """`subscribe`: the session takes messages from now on."""
        queue, engine = self.find(command.topic), self._engine
        check_readable(queue, command.rights)
        if session.encoding is not LINES:
            raise InvalidTopic(
                f"{command.topic} is a queue, and a stream of events acknowledges nothing: "
                "subscribe over a WebSocket, or lease messages by POST"
            )
        backlog = _backlog(command.options.max_backlog)
        backlog = min(backlog, queue.definition.subscription_backlog_max)
        name = self._subscriptions.begin_elsewhere(session, command, partial(self._end, session))
        consumer = ReceivingConsumer(
            backlog,
            lambda _bookmark: holder_of(session),
            partial(self._deliver, session, queue, name),
            partial(self._is_open, session, queue, backlog),
        )
        self._consumers.setdefault(session, {})[name] = queue, consumer
        command.heed_backlog()
        acknowledge(session, command, *ACKS, s=name)
        queue.join(consumer, engine.now_us)

    def _is_open(self, session: Session, queue: RunningQueue, backlog: int) -> bool:
        """Whether messages may be sent to a session now."""
        if session.ended is not None or not session.connected or session.holds_back:
            return False
        waiting = session.outbox.message_count + len(session.lines)
        return not queue.is_at_most_once or waiting < backlog

    def _deliver(
        self,
        session: Session,
        queue: RunningQueue,
        name: str,
        messages: Sequence[DeliveredMessage],
    ) -> None:
        renderer = queue.topic.records.renderer
        head = renderer.head("p", name)
        bodies = renderer.line_bodies([message.body for message in messages])
        session.send_records(
            [
                b'%b,"k":%b,"d":%b,"bm":"%d","deliveries":%d}'
                % (head, orjson.dumps(one.key), body, one.bookmark, one.deliveries)
                for one, body in zip(messages, bodies, strict=True)
            ]
        )
        self._engine.output.touch(session)

    def _end(self, session: Session, name: str) -> None:
        """A subscription has ended, perhaps with its session."""
        own = self._consumers.get(session, {})
        found = own.pop(name, None)
        if not own:
            self._consumers.pop(session, None)
        if found is not None:
            queue, consumer = found
            queue.end(consumer, counts=session is not self._leaving)

    def unsubscribe(self, session: Session, steps: Task[None]) -> Task[None]:
        """Take the `steps` of an `unsubscribe`: what its client gives back in order was not
        delivered; what a session held that is lost was, and may be why it was lost."""
        while True:
            self._leaving = session
            try:
                next(steps)
            except StopIteration:
                return
            finally:
                self._leaving = None
            yield

    def go_on(self, session: Session) -> None:
        """The client of a session is back."""
        for queue, consumer in [*self._consumers.get(session, {}).values()]:
            queue.offer(consumer)

    def acknowledge(self, session: Session, command: Command) -> Task[None]:
        """`sow_delete` with `bm`: messages are done, or with `cancel` given back, some in each
        step."""
        queue = self.find(command.topic)
        if command.bookmark is None:
            raise ClientError(
                f"{command.topic} is a queue: name the messages that you acknowledge by bm",
                reason="invalid bookmark",
            )
        act = queue.cancel if command.options.cancel else queue.acknowledge
        bookmarks, count = bookmarks_in(command.bookmark), 0
        for start in range(0, len(bookmarks), GIVEN_AT_ONCE):
            if start:
                yield
            some = bookmarks[start : start + GIVEN_AT_ONCE]
            count += act(some, holder_of(session), self._engine.now_us)
        word = "cancelled" if command.options.cancel else "acknowledged"
        acknowledge(session, command, *ACKS, **{word: count})
        queue.settle(self._engine.now_us)

    def check_parts(self) -> None:
        """Assert what is always true of queues and their consumers, between two steps."""
        self.queues.check()
        for session, own in self._consumers.items():
            assert own.keys() <= self._subscriptions.of(session).keys()


def holder_of(session: Session) -> str:
    """How a session is named as a holder; no lease of an HTTP request is called so."""
    return f"session {session.id}"


def _backlog(text: str | None) -> int:
    """The value of `max_backlog`; one message at a time without it."""
    if text is None:
        return 1
    if not (text.isascii() and text.isdigit() and 0 < len(text) < 10 and int(text)):
        raise ClientError(
            f"max_backlog={shown(text)} must be a whole number of messages, such as max_backlog=10",
            reason="invalid options",
        )
    return int(text)


def bookmarks_in(text: str) -> list[int]:
    """The bookmarks of a comma list; raises ClientError."""
    words = [word.strip() for word in text.split(",", BOOKMARKS_MAX)]
    if len(words) > BOOKMARKS_MAX:
        raise ClientError(
            f"bm names more than {BOOKMARKS_MAX:,} messages, and a consumer holds no more; name "
            "those that were delivered, in several commands",
            reason="invalid bookmark",
        )
    for word in words:
        if not (word.isascii() and word.isdigit() and len(word) <= BOOKMARK_DIGITS_MAX):
            raise ClientError(
                f"bm={shown(text)} names no messages; write it as it was delivered, several with "
                "commas between them",
                reason="invalid bookmark",
            )
    return [*map(int, words)]
