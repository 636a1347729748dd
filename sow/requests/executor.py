"""The executor: carries out the commands of sessions on the engine.

The table of commands (`sow.commands`) says which method carries out which. A method checks
everything before it changes anything; an error of the client's becomes a failure ack and nothing
else. Replies are said to the session in order; when they leave is decided by the engine's groups.

A session whose socket has gone is kept for a while, collecting what it follows, for its client to
take up again with a logon.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import chain, count

import numpy as np

from sow import __version__, replies
from sow.commands import ACKS, COMMANDS, Command
from sow.definitions import Configuration
from sow.delivery.sessions import BACK_PRESSURE, SLOW, Session
from sow.encodings import Encoding, publish_acks, quoted, skip_lines
from sow.engine.engine import Engine
from sow.engine.live_topics import LiveTopic, SourceTopic
from sow.engine.publications import SLICE_ROWS, reading
from sow.engine.reconfiguration import Reconfiguration
from sow.errors import BadMessage, ClientError, SowError
from sow.messages.line_bodies import line_bodies
from sow.publishes import Publishes, Read, put_together
from sow.query import Query
from sow.requests.questions import acknowledge, sow_keys
from sow.requests.subscriptions import Subscriptions
from sow.steps import Steps, at_once
from sow.store.protocols import Journal
from sow.wire import Refused

CLOSED_BECAUSE = ("disconnected", "expired", "slow", "operator", "recovery", "refused")
NAMED_MAX = 100
"""So much of a client's name is repeated to an operator."""
NAMED_AT_ONCE = 500
"""Bodies that name records to delete, of one step: half a millisecond of reading."""
OPERATOR = "closed by an operator"
TOGETHER_MAX = SLICE_ROWS
"""Messages of publishes that are carried out as one, in one step."""
FORGOTTEN_MAX = 1000
"""Of so many sessions that are gone it is remembered why."""


class Dropped:
    """A session without a socket, until its time is over."""

    def __init__(self, session: Session, until_us: int) -> None:
        self.session = session
        self.until_us = until_us

    def due_us(self) -> int | None:
        """When the session's time is over."""
        return self.until_us


class Executor:
    """Sessions of one engine and what they may ask for.

    `new_name` gives names that nobody can guess: a name is all that taking a session up needs.
    `sessions` are found by their ids, which tell one life of the server from another by `boot`.
    """

    def __init__(
        self, engine: Engine, journal: Journal, new_name: Callable[[], str], boot: str = ""
    ) -> None:
        self.engine = engine
        self.sessions: dict[str, Session] = {}
        self.subscriptions = Subscriptions(engine, journal)
        self._new_name = new_name
        self._by_name: dict[str, Session] = {}
        self._boot = boot
        self._numbers = count(1)
        self._dropped: dict[Session, Dropped] = {}
        self._gone: dict[str, str] = {}
        self._lagging: dict[Session, None] = {}
        self._notices: list[Callable[[str], None]] = []
        self.closed = Counter(dict.fromkeys(CLOSED_BECAUSE, 0))
        """Sessions that are gone, by why."""
        self._folded_before = 0
        self._dropped_before = 0

    @property
    def folded(self) -> int:
        """Messages that folding has saved all sessions that there ever were."""
        return self._folded_before + sum(s.outbox.folded for s in self.sessions.values())

    @property
    def dropped(self) -> int:
        """Messages that were dropped with subscriptions that sessions gave up, ever."""
        return self._dropped_before + sum(s.dropped for s in self.sessions.values())

    # Sessions.

    def open(self, encoding: Encoding, now_us: int) -> Session:
        """A new session."""
        settings = self.engine.configuration.sessions
        session_id = f"s{self._boot}{next(self._numbers)}"
        name, engine = self._new_name(), self.engine
        session = Session(
            session_id,
            name,
            encoding,
            settings,
            now_us,
            released=lambda: engine.ledger.released,
            give_up=self._give_up,
            on_end=lambda session: self._report(session, f"is closed: {session.ended}"),
        )
        self.sessions[session_id] = self._by_name[session.name] = session
        return session

    def find(self, called: str) -> Session | None:
        """The session that goes by an id, or by the name that only its owner knows."""
        return self.sessions.get(called) or self._by_name.get(called)

    def _forget(self, session: Session) -> bool:
        """The session can be found no more; False if it could not before."""
        self._by_name.pop(session.name, None)
        return self.sessions.pop(session.id, None) is not None

    def _give_up(self, session: Session, name: str) -> None:
        self._report(session, f"gives up its subscription {name}: {BACK_PRESSURE}")
        self.subscriptions.give_up(session, name)

    def _report(self, session: Session, what: str) -> None:
        box = session.outbox
        line = (
            f"session {session.id} of client {repr(session.client)[:NAMED_MAX]} {what}; "
            f"{box.message_count} messages, {box.bytes} bytes waited"
        )
        for heard in self._notices:
            heard(line)

    def hear_of_slow_clients(self, heard: Callable[[str], None]) -> None:
        """Call `heard` with each sentence that an operator should be able to read of them."""
        self._notices.append(heard)

    def drop(self, session: Session, now_us: int) -> bool:
        """The session's socket has gone; True if the session is kept for its client to return.

        One that follows nothing has nothing to collect: its client begins anew.
        """
        timeout_us = session.settings.reconnect_timeout_us
        kept = session.named and self.subscriptions.of(session) and timeout_us
        if session.ended is not None or not kept:
            self.close(session, f"closed for {session.ended}" if session.ended else "disconnected")
            return False
        session.disconnect()
        dropped = self._dropped[session] = Dropped(session, now_us + timeout_us)
        self.engine.timers.add(dropped, lambda _dropped, _now_us: self.close(session, "expired"))
        return True

    def close(self, session: Session, why: str = "disconnected") -> None:
        """A session is gone for good; its subscriptions end with it."""
        self.subscriptions.end_all(session)
        if self._forget(session):
            self.closed[_because(session, why)] += 1
            self._folded_before += session.outbox.folded
            self._dropped_before += session.dropped
            session.abandon()
            if session.named:
                self._gone[session.name] = why
                if len(self._gone) > FORGOTTEN_MAX:
                    del self._gone[next(iter(self._gone))]
        self._lagging.pop(session, None)
        dropped = self._dropped.pop(session, None)
        if dropped is not None:
            self.engine.timers.remove(dropped)

    def end(self, session: Session, reason: str) -> None:
        """Give a session up for a reason it is told."""
        session.end(reason, self.engine.now_us)
        self.engine.touch(session)
        if not session.connected:
            self.close(session, f"closed for {reason}")

    def apply_back_pressure(self, session: Session, now_us: int) -> None:
        """Bring a session's queue under its bounds; without a socket there is no patience."""
        waits = session.apply_back_pressure(now_us)
        if session.ended is not None:
            if not session.connected:
                self.close(session, f"closed for {session.ended}")
        elif waits and session.wants_folding():
            self._lagging[session] = None

    def conflate_in_background(self, now_us: int) -> bool:
        """Conflate one queue that fills, while there is time; True when there are more."""
        while self._lagging:
            session = self._lagging.popitem()[0]
            if session.ended is None and session.wants_folding():
                session.conflate(now_us)
                break
        return bool(self._lagging)

    def reconfigure(
        self,
        configuration: Configuration,
        now_us: int,
        give_up: Callable[[dict[LiveTopic, str]], None] | None = None,
    ) -> list[str]:
        """`reconfiguration`, at once."""
        return at_once(self.reconfiguration(configuration, now_us, give_up))

    def reconfiguration(
        self,
        configuration: Configuration,
        now_us: int,
        give_up: Callable[[dict[LiveTopic, str]], None] | None = None,
    ) -> Steps[list[str]]:
        """Go on under another configuration; returns what was changed, or raises ConfigError.

        `give_up` takes topics whose records have no place in it; without it they are a refusal.
        One is to be over before the next begins.
        """
        end_topic = self.subscriptions.end_topic
        change = Reconfiguration(self.engine, configuration, end_topic, give_up)
        return change.apply(now_us)

    # Commands.

    def execute_all(self, session: Session, commands: Sequence[Read], now_us: int) -> None:
        """Carry out commands in order, all of them at once."""
        at_once(self.carry_out(session, commands, lambda: now_us))

    def carry_out(
        self, session: Session, commands: Sequence[Read], now_us: Callable[[], int]
    ) -> Steps[None]:
        """Carry out commands in order, each in one step or more; publishes that follow each other
        share their cost, and so a step."""
        for read in chain.from_iterable(map(_parts, put_together(commands))):
            if not isinstance(read, Publishes):
                yield from self._carry_out_one(session, read, now_us())
                yield
            elif self._publish_all(session, read, now_us()):
                yield
            else:
                for command in read.singly():
                    yield from self._carry_out_one(session, command, now_us())
                    yield
            # A logon may have taken up another session: the rest is said to that one.
            session = session.successor or session

    def _publish_all(self, session: Session, publishes: Publishes, now_us: int) -> bool:
        """Publish them as one batch; False, and nothing is done, if any of them is refused, or if
        they are to be carried out in steps."""
        engine = self.engine
        if (
            len(publishes.bodies) > TOGETHER_MAX
            or engine.publications.has_left
            or engine.undivided.concerns((publishes.topic,))
        ):
            return False
        try:
            topic = engine.publishable(publishes.topic)
            bodies = self._bodies(topic, publishes, publishes.bodies)
            last = engine.publish_slice(topic, bodies, now_us)
        except SowError:
            return False
        session.say_lines(publish_acks(publishes.asked(last - len(bodies))))
        self.engine.touch(session)
        return True

    def execute(self, session: Session, command: Command | Refused, now_us: int) -> None:
        """Carry out one command, all of it at once."""
        at_once(self._carry_out_one(session, command, now_us))

    def _carry_out_one(
        self, session: Session, command: Command | Refused, now_us: int
    ) -> Steps[None]:
        """Carry out one command, with steps between its parts if it may take long; whatever is
        wrong with it is answered with a failure ack."""
        self.engine.reach(now_us)
        try:
            if isinstance(command, Refused):
                session.say(replies.failure(command.cid, command.error))
            elif (steps := ACTIONS[command.name](self, session, command, now_us)) is not None:
                yield from steps
        except SowError as error:
            session.say(replies.failure(command.cid, error))
        finally:
            self.engine.touch(session)

    def _logon(self, session: Session, command: Command, _now_us: int) -> None:
        session.log_on(command.client)
        if command.session is not None:
            self._resume(session, command)
            return
        if command.seen is not None:
            raise ClientError("seen says how far a session was read; give the session as well")
        self._name(session, command, {})

    def _name(self, session: Session, command: Command, more: dict[str, object]) -> None:
        """Acknowledge a logon; lines are counted after the last of its acks."""
        acks = sorted(command.acks or {"processed"})
        for kind in acks:
            said = replies.ack(command.cid, kind, **_identity(session), **more)
            if kind == acks[-1]:
                session.say_name(said, self.engine.group, self.engine.now_us)
            else:
                session.say(said)

    def _resume(self, session: Session, command: Command) -> None:
        """Take up a session whose socket has gone, in place of the one that logs on."""
        name = command.session or ""
        old = self._by_name.get(name)
        if session.named:
            raise ClientError("this connection has a session already; open another to resume one")
        if old is None or old is session or old.encoding is not session.encoding:
            self._refuse_resume(session, command, self._gone.get(name, "unknown session"))
            return
        if old.ended is not None:
            self._refuse_resume(session, command, f"closed for {old.ended}")
            return
        sent = old.recovery.sent
        if command.seen is not None and not 0 <= command.seen <= sent:
            raise ClientError(
                f"seen is {command.seen}, and {sent} lines were sent on this session; count them "
                "from the ack that named it, or leave seen out if all have arrived",
                reason="invalid seen",
            )
        if not old.take_back(command.seen, skip_lines):
            self.close(old, "recovery buffer exceeded")
            self._refuse_resume(session, command, "recovery buffer exceeded")
            return
        old.resume(command.client)
        dropped = self._dropped.pop(old, None)
        if dropped is not None:
            self.engine.timers.remove(dropped)
        ack = replies.ack(command.cid, "processed", **_identity(old), resumed=True)
        old.say_resumed(ack, self.engine.now_us)
        session.give_way_to(old)
        self._forget(session)
        self.engine.touch(old)

    def _refuse_resume(self, session: Session, command: Command, reason: str) -> None:
        self._name(session, command, {"resumed": False, "reason": reason})

    def _heartbeat(self, session: Session, command: Command, _now_us: int) -> None:
        session.say(replies.heartbeat())
        acknowledge(session, command, *ACKS)

    def _flush(self, session: Session, command: Command, _now_us: int) -> None:
        # Everything said so far leaves before this, and only once it is durable.
        acknowledge(session, command, *ACKS)

    def _publish(self, session: Session, command: Command, now_us: int) -> Steps[None]:
        engine = self.engine
        topic = engine.publishable(command.topic)
        if not command.bodies:
            raise ClientError(f'{command.name} needs a body: "d", or "n" and that many lines')
        if command.key is None:
            read = yield from reading(
                command.bodies, lambda part: engine.read(topic, self._bodies(topic, command, part))
            )
        else:
            bodies = self._bodies(topic, command, command.bodies)
            read = [engine.read(topic, bodies, (command.key,))]
        bookmark = yield from engine.publications.carry_out(
            command.topic,
            read,
            now_us,
            expires_s=command.expires_s,
            delta=command.kind.is_delta,
        )
        acknowledge(session, command, *ACKS, bm=str(bookmark))

    def _sow_delete(self, session: Session, command: Command, now_us: int) -> Steps[None]:
        topic = self.engine.catalog.deletable(command.topic)
        bodies = self._bodies(topic, command, command.bodies) if command.bodies else ()
        deleted = yield from self.deletion(
            topic,
            now_us,
            filter_text=command.filter,
            sow_keys=sow_keys(command),
            identities=(yield from _identities(topic, bodies)) if bodies else None,
        )
        acknowledge(session, command, *ACKS, deleted=deleted)

    @staticmethod
    def _bodies(
        topic: LiveTopic, command: Command | Publishes, bodies: Sequence[bytes]
    ) -> Sequence[bytes]:
        """Some of a command's bodies as they are to be stored, whichever way they came."""
        kind = topic.records.message_type
        if command.enc is None:
            return bodies if command.framed else line_bodies(kind, bodies)
        if kind.enc != command.enc:
            raise ClientError(
                f"messages of {topic.name} are text ({kind.name}), which has no "
                f"enc {command.enc}; leave enc out and send the text"
            )
        texts = quoted([body.decode("latin-1") for body in bodies]) if command.framed else bodies
        return line_bodies(kind, texts)

    def deletion(
        self,
        topic: SourceTopic,
        now_us: int,
        *,
        filter_text: str | None,
        sow_keys: tuple[str, ...] | None,
        identities: Collection[str] | None,
    ) -> Steps[int]:
        """Remove the records that exactly one of the three selectors names, as of the moment at
        which they are found; returns how many.

        Raises ClientError for another number of selectors, and what `Engine.removal` does.
        """
        given = [selector is not None for selector in (filter_text, sow_keys, identities)]
        if sum(given) != 1:
            raise ClientError(
                "a delete takes exactly one of a filter (1=1 for all), keys, or bodies whose "
                f"key fields name the records; {sum(given)} were given"
            )
        # What this client has left of a publish came before.
        yield from self.engine.publications.finish_left(topic.name)
        yield from self.engine.undivided.let_by(topic.name)
        if identities is None:
            self.engine.reach(now_us)
            condition = None if filter_text is None else self.engine.filter(filter_text)
            query = Query(filter=condition, keys=sow_keys)
            slots = (yield from self.engine.answering(topic.name, query)).slots
        else:
            held = topic.records.table.slots
            there = dict.fromkeys([held[name] for name in identities if name in held])
            slots = np.fromiter(there, np.int64, len(there))
        return (yield from self.engine.removal(topic.name, slots, now_us))

    def _sow(self, session: Session, command: Command, _now_us: int) -> Steps[None]:
        return self.subscriptions.snapshot(session, command)

    def _subscribe(self, session: Session, command: Command, _now_us: int) -> Steps[None]:
        return self.subscriptions.subscribe(session, command)

    def _sow_and_subscribe(self, session: Session, command: Command, _now_us: int) -> Steps[None]:
        return self.subscriptions.sow_and_subscribe(session, command)

    def _unsubscribe(self, session: Session, command: Command, _now_us: int) -> Steps[None]:
        return self.subscriptions.unsubscribe(session, command)


def _parts(read: Read) -> Iterable[Read]:
    return read.parts(TOGETHER_MAX) if isinstance(read, Publishes) else (read,)


def _identities(topic: LiveTopic, bodies: Sequence[bytes]) -> Steps[list[str]]:
    """Whose records bodies are; raises BadMessage with the index of the first that names none."""
    names: list[str] = []
    for start in range(0, len(bodies), NAMED_AT_ONCE):
        try:
            names += topic.records.identities_of_sent(bodies[start : start + NAMED_AT_ONCE])
        except BadMessage as error:
            raise error.moved(start) from None
        yield
    return names


def _identity(session: Session) -> dict[str, object]:
    """What an ack tells the client of its session: its secret name, and what others call it."""
    return {"session": session.name, "id": session.id, "version": __version__}


def _because(session: Session, why: str) -> str:
    """Why a session is gone, in one word of `CLOSED_BECAUSE`."""
    if session.ended is not None:
        return {SLOW: "slow", OPERATOR: "operator"}.get(session.ended, "refused")
    return "recovery" if why == "recovery buffer exceeded" else why


ACTIONS: dict[str, Callable[[Executor, Session, Command, int], Steps[None] | None]] = {
    name: getattr(Executor, f"_{kind.action}") for name, kind in COMMANDS.items()
}
