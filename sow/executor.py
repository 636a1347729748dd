"""The executor: carries out the commands of sessions on the engine.

One table, one method a command. A method checks everything before it changes anything; an error
of the client's becomes a failure ack and nothing else. Replies are said to the session in order;
when they leave is decided by the engine's groups.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

from sow import __version__, replies
from sow.commands import Command
from sow.engine import Engine, RunningTopic
from sow.errors import ClientError, NotAvailable, SowError, TooLarge, UnknownTopic
from sow.expressions import parse_order_by
from sow.feeds import Feed, FeedKey, Shape
from sow.query import Query
from sow.sessions import Session
from sow.snapshot import CHUNK_ROWS, Snapshot
from sow.wire import ACKS, Encoding, Refused, comma_list

PATTERN_CHARACTERS = frozenset("^$.*+?()[]{}|\\")


class Executor:
    """Sessions of one engine and what they may ask for."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.sessions: dict[str, Session] = {}
        self._numbers = itertools.count(1)

    # Sessions.

    def open(self, encoding: Encoding, now_us: int) -> Session:
        """A new session."""
        name = f"s{next(self._numbers)}"
        session = Session(name, encoding, self.engine.configuration.sessions, now_us)
        self.sessions[name] = session
        return session

    def close(self, session: Session) -> None:
        """A session has gone; its subscriptions end with it."""
        for feed in list(session.subscriptions.values()):
            self._leave(session, feed)
        self.sessions.pop(session.name, None)

    def end(self, session: Session, reason: str) -> None:
        """Give a session up for a reason it is told."""
        session.end(reason)
        self.engine.touch(session)

    # Commands.

    def execute_all(
        self, session: Session, commands: Iterable[Command | Refused], now_us: int
    ) -> None:
        """Carry out commands in order; publishes that follow each other share their cost."""
        for run in runs_of(commands):
            if len(run) == 1 or not self._publish_run(session, run, now_us):
                for command in run:
                    self.execute(session, command, now_us)

    def _publish_run(self, session: Session, run: Sequence[Command | Refused], now_us: int) -> bool:
        """Publish a run as one batch; False, and nothing is done, if any of it is refused."""
        commands = [command for command in run if isinstance(command, Command)]
        name = commands[0].topic
        try:
            topic = self.engine.topic(name)
            bodies = [self._bodies(topic, command) for command in commands]
            seq = self.engine.publish(name, list(chain.from_iterable(bodies)), now_us)
        except SowError:
            return False
        self.engine.touch(session)
        seq -= sum(map(len, bodies))
        for command, published in zip(commands, bodies, strict=True):
            seq += len(published)
            self._acknowledge_publish(session, command, seq)
        return True

    def execute(self, session: Session, command: Command | Refused, now_us: int) -> None:
        """Carry out one command; whatever is wrong with it is answered with a failure ack."""
        self.engine.touch(session)
        if isinstance(command, Refused):
            session.say(replies.failure(command.cid, command.error))
            return
        try:
            COMMANDS[command.name](self, session, command, now_us)
        except SowError as error:
            session.say(replies.failure(command.cid, error))

    def _acknowledge(self, session: Session, command: Command, *kinds: str, **more: object) -> None:
        """Say the acks of these kinds that were asked for; `processed` when none was."""
        asked = command.acks or ({"processed"} if command.cid is not None else frozenset())
        for kind in kinds:
            if kind in asked:
                session.say(replies.ack(command.cid, kind, **more))

    def _logon(self, session: Session, command: Command, _now_us: int) -> None:
        session.client = command.client
        acks = command.acks or {"processed"}
        for kind in sorted(acks):
            session.say(replies.ack(command.cid, kind, session=session.name, version=__version__))

    def _heartbeat(self, session: Session, command: Command, _now_us: int) -> None:
        session.say(replies.heartbeat())
        self._acknowledge(session, command, *ACKS)

    def _flush(self, session: Session, command: Command, _now_us: int) -> None:
        # Everything said so far leaves before this, and only once it is durable.
        self._acknowledge(session, command, *ACKS)

    def _publish(self, session: Session, command: Command, now_us: int) -> None:
        if not command.bodies:
            raise ClientError('publish needs a body: "d", or "n" and that many lines')
        bodies = self._bodies(self.engine.topic(command.topic), command)
        bookmark = self.engine.publish(
            command.topic, bodies, now_us, key=command.key, expires_s=command.expires_s
        )
        self._acknowledge_publish(session, command, bookmark)

    def _acknowledge_publish(self, session: Session, command: Command, bookmark: int) -> None:
        if command.acks or command.cid is not None:
            self._acknowledge(session, command, *ACKS, bm=str(bookmark))

    def _sow_delete(self, session: Session, command: Command, now_us: int) -> None:
        topic = self.engine.topic(command.topic)
        slots = self.slots_to_delete(
            topic,
            filter_text=command.filter,
            sow_keys=self._sow_keys(command),
            bodies=self._bodies(topic, command) if command.bodies else None,
        )
        deleted = self.engine.delete(command.topic, slots, now_us)
        self._acknowledge(session, command, *ACKS, deleted=deleted)

    @staticmethod
    def _bodies(topic: RunningTopic, command: Command) -> Sequence[bytes]:
        """Bodies as they are to be stored, whichever way they came."""
        return command.bodies if command.framed else topic.records.from_line(command.bodies)

    def slots_to_delete(
        self,
        topic: RunningTopic,
        *,
        filter_text: str | None,
        sow_keys: tuple[str, ...] | None,
        bodies: Sequence[bytes] | None,
    ) -> list[int]:
        """Slots of the records that exactly one of the three selectors names."""
        given = [selector is not None for selector in (filter_text, sow_keys, bodies)]
        if sum(given) != 1:
            raise ClientError(
                "a delete takes exactly one of a filter (1=1 for all), keys, or bodies whose "
                f"key fields name the records; {sum(given)} were given"
            )
        name, table = topic.definition.name, topic.records.table
        if bodies is not None:
            names = topic.records.identities_of(bodies)
            return [table.slots[identity] for identity in names if identity in table]
        condition = None if filter_text is None else self.engine.filter(filter_text)
        answer = self.engine.query(name, Query(filter=condition, keys=sow_keys))
        return [int(slot) for slot in answer.slots]

    @staticmethod
    def _sow_keys(command: Command) -> tuple[str, ...] | None:
        if command.key is None:
            return command.keys
        if command.keys is not None:
            raise ClientError("give k or keys, not both")
        return tuple(comma_list(command.key))

    def _sow(self, session: Session, command: Command, _now_us: int) -> None:
        topic, query = self._query(command)
        shape = self._shape(command)
        name = f"q{next(self._numbers)}"
        snapshot, matches = self._snapshot(topic, query)
        self._acknowledge(session, command, "processed", s=name)
        self._say_snapshot(session, topic, snapshot, name, shape)
        self._acknowledge(
            session, command, *ACKS[1:], s=name, matches=matches, returned=len(snapshot)
        )

    def _subscribe(self, session: Session, command: Command, _now_us: int) -> None:
        topic = self._subscribable(session, command)
        if command.order_by or command.options.top_n is not None or command.options.skip_n:
            raise ClientError(
                f"{command.name} takes no order_by, top_n or skip_n; use sow_and_"
                f"{command.name} for a snapshot that is ordered and limited"
            )
        feed = self._join(session, topic, command)
        self._acknowledge(session, command, *ACKS, s=feed.name)

    def _sow_and_subscribe(self, session: Session, command: Command, _now_us: int) -> None:
        topic = self._subscribable(session, command)
        if command.options.top_n is not None and command.options.skip_n is not None:
            raise NotAvailable(
                "a paginated subscription (top_n and skip_n together) is not available yet; "
                "top_n alone limits the snapshot"
            )
        _, query = self._query(command)
        snapshot, matches = self._snapshot(topic, query)
        feed = self._join(session, topic, command)
        self._acknowledge(session, command, "processed", s=feed.name)
        self._say_snapshot(session, topic, snapshot, feed.name, feed.shape)
        self._acknowledge(
            session, command, *ACKS[1:], s=feed.name, matches=matches, returned=len(snapshot)
        )

    def _subscribable(self, session: Session, command: Command) -> RunningTopic:
        if command.subscription is not None:
            raise ClientError(
                "the server names subscriptions: leave out s (replacing one is not available yet)"
            )
        if len(session.subscriptions) >= self.engine.configuration.limits.subscriptions_max:
            raise TooLarge(
                "the session has "
                f"{len(session.subscriptions)} subscriptions, as many as one may have"
            )
        return self._topic(command)

    def _topic(self, command: Command) -> RunningTopic:
        try:
            return self.engine.topic(command.topic)
        except UnknownTopic:
            if PATTERN_CHARACTERS.isdisjoint(command.topic):
                raise
            raise NotAvailable(
                f"{command.topic!r} is a pattern; topic patterns are not available yet"
            ) from None

    def _join(self, session: Session, topic: RunningTopic, command: Command) -> Feed:
        key = FeedKey(
            command.filter, command.options.oof, self._shape(command), session.encoding.name
        )
        condition = None if command.filter is None else self.engine.filter(command.filter)
        name = f"f{next(self._numbers)}"
        feed = topic.router.join(session, key, condition, name)
        session.subscriptions[feed.name] = feed
        return feed

    def _leave(self, session: Session, feed: Feed) -> None:
        router = self.engine.topic(feed.topic.name).router
        router.leave(session, feed)
        session.subscriptions.pop(feed.name, None)

    def _unsubscribe(self, session: Session, command: Command, _now_us: int) -> None:
        if command.subscription is None:
            raise ClientError("unsubscribe needs s: one or more subscriptions, or all")
        names = comma_list(command.subscription)
        if names == ["all"]:
            names = list(session.subscriptions)
        for name in names:
            if name not in session.subscriptions:
                raise ClientError(
                    f"this session has no subscription {name!r}",
                    reason="subscription does not exist",
                )
        for name in dict.fromkeys(names):
            self._leave(session, session.subscriptions[name])
        self._acknowledge(session, command, *ACKS)

    # Snapshots.

    def _query(self, command: Command) -> tuple[RunningTopic, Query]:
        topic = self._topic(command)
        condition = None if command.filter is None else self.engine.filter(command.filter)
        return topic, Query(
            filter=condition,
            keys=self._sow_keys(command),
            order_by=parse_order_by(command.order_by) if command.order_by else (),
            top_n=command.options.top_n,
            skip_n=command.options.skip_n or 0,
        )

    @staticmethod
    def _shape(command: Command) -> Shape:
        return Shape(not command.options.no_sowkey, command.options.timestamp)

    def _snapshot(self, topic: RunningTopic, query: Query) -> tuple[Snapshot, int]:
        answer = self.engine.query(topic.definition.name, query)
        return Snapshot.take(topic.records, answer.slots.tolist()), answer.matches

    def _say_snapshot(
        self, session: Session, topic: RunningTopic, snapshot: Snapshot, name: str, shape: Shape
    ) -> None:
        head = topic.records.line_head("sow", name)
        session.say(replies.group_begin(name))
        if len(snapshot) <= CHUNK_ROWS:
            session.say_lines(snapshot.lines(session.encoding, head, shape, 0))
        else:
            session.stream(snapshot.frames(session.encoding, head, shape), self.engine.group)
        session.say(replies.group_end(name, self.engine.seq))


def runs_of(commands: Iterable[Command | Refused]) -> Iterator[list[Command | Refused]]:
    """Commands in order; plain publishes to one topic that follow each other in one run."""
    run: list[Command | Refused] = []
    topic: str | None = None
    for command in commands:
        plain_topic = _topic_of_plain_publish(command)
        if run and (plain_topic is None or plain_topic != topic):
            yield run
            run = []
        run.append(command)
        topic = plain_topic
    if run:
        yield run


def _topic_of_plain_publish(command: Command | Refused) -> str | None:
    """The topic of a publish that carries nothing but bodies; None for any other command."""
    if isinstance(command, Refused) or command.name != "publish" or not command.bodies:
        return None
    return command.topic if command.key is None and command.expires_s is None else None


COMMANDS: dict[str, Callable[[Executor, Session, Command, int], None]] = {
    "logon": Executor._logon,
    "heartbeat": Executor._heartbeat,
    "flush": Executor._flush,
    "publish": Executor._publish,
    "sow_delete": Executor._sow_delete,
    "sow": Executor._sow,
    "subscribe": Executor._subscribe,
    "sow_and_subscribe": Executor._sow_and_subscribe,
    "unsubscribe": Executor._unsubscribe,
}
