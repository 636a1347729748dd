"""The executor: carries out the commands of sessions on the engine.

The table of commands (`sow.protocol.commands`) names the method of each. A method checks everything
before it changes anything; a client error becomes a failure ack and nothing else. Replies are
queued for the session in order; the engine's group commit decides when they are sent.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain

from sow import __version__
from sow.core.cooperative import Task, run_to_completion
from sow.core.definitions import Configuration
from sow.core.quota import RateLimiter
from sow.core.security_definitions import User
from sow.engine.bulk_publish import SLICE_ROWS, reading
from sow.engine.engine import Engine
from sow.engine.key_chains import KeyChains
from sow.engine.queues import Queues
from sow.engine.reconfiguration import GiveUp, Reconfiguration
from sow.errors import (
    BadMessage,
    Busy,
    ClientError,
    NotEntitled,
    NotPrimary,
    SowError,
    Unauthenticated,
    described,
)
from sow.protocol import replies
from sow.protocol.commands import ACKS, COMMANDS, Command, acks_of
from sow.protocol.publish_batching import PublishBatch, Read, coalesce
from sow.protocol.replies import publish_acks, skip_lines
from sow.protocol.wire import Refused
from sow.security.authorization import Permissions, RoleSet
from sow.sessions.commands import record_ops
from sow.sessions.commands.actions import Actions
from sow.sessions.commands.audit import Audit
from sow.sessions.commands.publishers import NumberedTurn, Publishers
from sow.sessions.commands.queue_commands import QueueCommands
from sow.sessions.commands.session_manager import NOT_ENTITLED, NOT_RECOVERED, SessionManager
from sow.sessions.queries.access_control import permit_for, redact_error
from sow.sessions.queries.query_planning import acknowledge, sow_keys
from sow.sessions.subscriptions.reapply_permissions import PreparedPermissions
from sow.sessions.subscriptions.subscriptions import Subscriptions
from sow.store.protocols import NOTHING_STORED, Checkpoint, Journal
from sow.streaming.sessions import Session
from sow.topic.records import CheckedMessages

TOGETHER_MAX = SLICE_ROWS
"""Messages of publishes that are carried out as one, in one step."""
CHANGING = ("write", "delete")  # what commands demand that only a primary takes
FAILED_DETAIL = "the server failed on this command; its log says why"


class Executor:
    """Executes the commands of one engine's sessions; `new_name` and `boot` are for `sessions`,
    errors are counted in `refused`, with those of others, and `checkpoints` are those of stored
    topics, by the names of their definitions."""

    def __init__(
        self,
        engine: Engine,
        journal: Journal,
        new_name: Callable[[], str],
        boot: str = "",
        refused: Counter[str] | None = None,
        checkpoints: Mapping[str, Checkpoint] = NOTHING_STORED,
    ) -> None:
        self.engine = engine
        self._log_id = journal.log_id
        self.role_set = RoleSet(engine.configuration.security)
        self.audit = Audit(engine)
        self._named: Callable[[str], User] = User
        """The user of a name who is impersonated, with groups."""
        self.rates = RateLimiter(lambda: engine.configuration.limits)
        self.refused: Counter[str] = Counter() if refused is None else refused
        """Commands and requests that were refused, by the reason of each kind of error."""
        self._failures: list[Callable[[str], None]] = []
        self.subscriptions = Subscriptions(engine, journal, self._fail, checkpoints)
        self.sessions = SessionManager(engine, self.subscriptions, new_name, boot, self._fail)
        self.publishers = Publishers(engine, self.sessions.end)
        self.sessions.follow(self.publishers.disconnect, self.publishers.leave)
        self.queues = QueueCommands(engine, Queues(engine, self._fail), self.subscriptions)
        self.chains = KeyChains(engine)
        self.actions = Actions(engine, self.audit, self._fail)
        self.sessions.on_slow_client(self.actions.note_slow_client)

    def publish_under(self, publishers: Publishers, gone: Callable[[Session], None]) -> None:
        """From now on `publishers` has the names of those that number their messages; `gone` is
        called with each session that has ended."""
        self.publishers = publishers

        def leave(session: Session) -> None:
            publishers.leave(session)
            gone(session)

        self.sessions.follow(publishers.disconnect, leave)

    def be_of_log(self, log_id: str) -> None:
        """Bookmarks are those of this log from now on."""
        self._log_id = log_id

    def on_internal_error(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with a sentence for each internal error that has failed one client."""
        self._failures.append(listener)

    def _fail(self, line: str) -> None:
        for listener in self._failures:
            listener(line)

    def reconfigure(
        self, configuration: Configuration, now_us: int, give_up: GiveUp | None = None
    ) -> list[str]:
        """`reconfiguration`, at once."""
        return run_to_completion(self.reconfiguration(configuration, now_us, give_up))

    def reconfiguration(
        self, configuration: Configuration, now_us: int, give_up: GiveUp | None = None
    ) -> Task[list[str]]:
        """Go on under another configuration; returns what was changed, or raises ConfigError.

        `give_up` is called with topics whose records have no place in it; without it such topics
        are an error. One change has to end before the next begins.
        """
        end_topic = self.subscriptions.end_topic
        change = Reconfiguration(self.engine, configuration, end_topic, give_up)
        changed = yield from change.apply(now_us)
        self.sessions.memory.look()
        self.subscriptions.aggregations.look()
        self.queues.look()
        self.actions.look()
        return changed

    def go_on_under(
        self, role_set: RoleSet, prepared: Mapping[Session, PreparedPermissions] | None = None
    ) -> list[Session]:
        """Other roles hold from now on, for everybody at this moment; `prepared` are the rights
        that live sessions have by them. Returns those that are to be settled (`settle`)."""
        self.role_set = role_set
        return [] if prepared is None else self.sessions.go_on_with(prepared)

    def set_user_lookup(self, named: Callable[[str], User]) -> None:
        """From now on `named` resolves names of impersonated users."""
        self._named = named

    def user_named(self, name: str) -> User:
        """The user of a name, with the groups that files give."""
        return self._named(name)

    def settle(self, session: Session) -> Task[None]:
        """Let what a session follows go by the rights that it has."""
        yield from self.subscriptions.reguard(session)
        self.queues.go_on(session)  # it may be sent messages again

    def rights(self, user: User | None, acts_as: str | None = None) -> Permissions:
        """The permissions of a user, or of the impersonated one; raises NotEntitled."""
        rights = self.role_set.rights(user)
        if user is None or acts_as is None or rights.is_open:
            return rights
        rights.check("impersonate")
        return self.role_set.rights(self._named(acts_as), user)

    def reguard(self, session: Session, rights: Permissions) -> Task[None]:
        """Apply new permissions to a session: its subscriptions are replaced.

        Records that its user may not see any more leave with the reason ``entitlement``, newly
        visible ones arrive. If its permissions change once more meanwhile, the next call continues.
        """
        session.entitle(rights, session.shown)
        session.hold_back()
        return self.engine.requests.together(self.settle(session))

    # Commands.

    def publish_at_once(self, session: Session, commands: Sequence[Read], now_us: int) -> bool:
        """Execute plain publishes to one topic that fit in one step, without the overhead of steps:
        this is the common case. Returns False, with nothing done, for anything else, and if any of
        them has an error."""
        publishes = commands[0] if len(commands) == 1 else None
        return isinstance(publishes, PublishBatch) and self._publish_all(session, publishes, now_us)

    def carry_out(
        self, session: Session, commands: Sequence[Read], now_us: Callable[[], int]
    ) -> Task[None]:
        """Carry out commands in order, each in one step or more; publishes that follow each other
        share their cost, and so a step. To live windows all of it is one turn."""
        return self.engine.requests.together(self._carry_out_all(session, commands, now_us))

    def _carry_out_all(
        self, session: Session, commands: Sequence[Read], now_us: Callable[[], int]
    ) -> Task[None]:
        begun = False
        for read in chain.from_iterable(map(_parts, coalesce(commands))):
            # Between two of them: what is all that has come, mostly one publish, is one step.
            if begun:
                self.engine.requests.acknowledge()
                yield
            begun = True
            if not isinstance(read, PublishBatch):
                yield from self._carry_out_one(session, read, now_us())
            else:
                yield from self.engine.make_ready(read.topic, len(read.bodies) >= TOGETHER_MAX)
                if not self._publish_all(session, read, now_us()):
                    for command in read.singly():
                        yield from self._carry_out_one(session, command, now_us())
                        self.engine.requests.acknowledge()
                        yield
            # A logon may have resumed another session: the rest is sent to that one.
            session = session.successor or session

    def _publish_all(self, session: Session, publishes: PublishBatch, now_us: int) -> bool:
        """Publish them as one batch; False, and nothing is done, if any of them is refused, or if
        they are to be carried out in steps."""
        engine, rights, publisher = self.engine, session.rights, None
        if publishes.seqs is not None:
            publisher = self.publishers.of_batch(session, publishes)
            if publisher is None:
                return False
        if (
            not (rights.is_open or _writes_all(rights, publishes.topic))
            or len(publishes.bodies) > TOGETHER_MAX
            or not engine.is_free(publishes.topic)
            or (
                engine.configuration.limits.publishes_per_second_max is not None
                and self.rates.charge(rights, len(publishes.bodies), now_us) is not None
            )
        ):
            return False
        try:
            topic = engine.publishable(publishes.topic)
            bodies = record_ops.stored_bodies(topic, publishes, publishes.bodies)
            author = "" if topic.records.events is None else rights.author(session.client)
            last = engine.publish_slice(topic, bodies, now_us, author)
        except SowError:
            # Each of them is carried out and counted by itself, and some of them are refused.
            self.rates.give_back(rights, len(publishes.bodies))
            return False
        if publisher is not None:
            self.publishers.note(publisher, len(bodies))
        session.send_lines(publish_acks(publishes.requested(last - len(bodies))))
        self.engine.output.touch(session)
        return True

    def execute(self, session: Session, command: Command | Refused, now_us: int) -> None:
        """Carry out one command, all of it at once."""
        run_to_completion(self._carry_out_one(session, command, now_us))

    def _carry_out_one(
        self, session: Session, command: Command | Refused, now_us: int
    ) -> Task[None]:
        """Carry out one command, with steps between its parts if it may take long; whatever is
        wrong with it is answered with a failure ack."""
        self.engine.sequencer.moment(now_us)
        try:
            if isinstance(command, Refused):
                self.refused[type(command.error).reason] += 1
                session.send(replies.failure(command.cid, command.error))
            else:
                self._check(session, command)
                steps = ACTIONS[command.name](self, session, command, now_us)
                if steps is not None:
                    yield from steps
        except SowError as error:
            self.refused[type(error).reason] += 1
            if isinstance(error, NotEntitled | Unauthenticated):
                self._note_refused(session, command, error)
            catalog = self.engine.catalog
            error = redact_error(error, session.rights, catalog.topics, catalog.pattern_texts)
            session.send(replies.failure(command.cid, error))
        except Exception as error:
            self._fail(f"session {session.id}: {described(error)}")
            session.send(replies.failure(command.cid, SowError(FAILED_DETAIL)))
        finally:
            self.engine.output.touch(session)

    def _check(self, session: Session, command: Command) -> None:
        """Raise what speaks against a command of this session."""
        if not command.topic and "t" in command.kind.fields and not command.governs_replays:
            raise ClientError(f'{command.name} names no topic; give t, such as "t":"orders"')
        rights = session.rights
        command.be_sent_by(rights)
        is_queue = command.topic in self.queues.queues.names and rights.sees(command.topic)
        if self.engine.primary and (command.kind.demand in CHANGING or command.sequence):
            raise NotPrimary(
                f"this server follows {self.engine.primary}, which alone takes {command.name}"
                f"{' with sequence' if command.sequence else ''}: send it there",
                primary=self.engine.primary,
            )
        if is_queue:
            self.queues.check(command)
        if rights.is_open:
            return
        demand = command.kind.demand
        if demand == "read" and (not command.topic or self.engine.catalog.is_pattern(command)):
            # Of its topics those are meant that may be read.
            demand = "logon"
        rights.check(demand, command.topic)

    def _note_refused(self, session: Session, command: Command | Refused, error: SowError) -> None:
        if isinstance(command, Command):
            self.audit.note(
                "refused", session.rights, command.name, topic=command.topic, tried=command.user,
                acts_as=command.acts_as, reason=error.detail,
                address=command.identified and command.identified.address,
            )  # fmt: skip

    def _identify(self, session: Session, command: Command) -> None:
        """Set the session's permissions at a logon; raises Unauthenticated, NotEntitled."""
        before = session.rights
        if before.is_open:
            return
        user, shown = before.by or before.user, session.shown
        if command.identified is not None:
            found, under, shown, _ = command.identified
            if isinstance(found, SowError):
                raise found
            if under is not self.role_set:
                raise Busy("users and roles have been read again in this moment; log on once more")
            user = found
        if user is None:
            before.check("logon")
        again = command.identified is None and command.acts_as is None
        rights = before if again else self.rights(user, command.acts_as)
        if session.named and rights.owner != before.owner:
            raise ClientError(
                "this connection has been logged on by another user; open another connection"
            )
        self.sessions.entitle(session, rights, shown)
        address = command.identified and command.identified.address
        self.audit.note("logon", rights, "logon", address=address)

    def _logon(self, session: Session, command: Command, _now_us: int) -> Task[None]:
        if command.seen is not None and command.session is None:
            raise ClientError("seen is a position in a session; give the session as well")
        had = session.rights
        self._identify(session, command)
        session.log_on(command.client)
        if session.rights is not had:
            # Another token may hold other claims of the same user.
            yield from self.settle(session)
        if command.sequence:
            taken_up = self.sessions.named(command.session or "") or session
            yield from self.publishers.make_way(taken_up, command.client, session.rights)
        if command.session is None:
            self._name(session, command, {})
        elif (steps := self._resume(session, command)) is not None:
            yield from steps
        identified = command.identified
        self.sessions.note_logon(session, identified and identified.address)

    def _name(self, session: Session, command: Command, more: dict[str, object]) -> None:
        """Acknowledge a logon; lines are counted after the last of its acks."""
        acks = acks_of(command.acks, has_cid=True)
        more = {**self._identity(session, command), **more}
        for kind in acks:
            reply = replies.ack(command.cid, kind, **more)
            if kind == acks[-1]:
                session.send_name(reply, self.engine.output.group, self.engine.now_us)
            else:
                session.send(reply)

    def _identity(self, session: Session, command: Command) -> dict[str, object]:
        """The fields of a logon's ack: the session's secret name, its public id, and the log of its
        bookmarks; the highest number of its client, which is the session's from now on; and which
        options of the logon were ignored."""
        names = {"session": session.name, "id": session.id, "log": self._log_id}
        highest = None
        if command.sequence and command.client is not None:
            highest = self.publishers.claim(session, command.client, session.rights)
        else:
            self.publishers.go_on(session)
        ignored = command.options.ignored or None
        return {**names, "version": __version__, "sequence": highest, "ignored": ignored}

    def _resume(self, session: Session, command: Command) -> Task[None] | None:
        """Resume a disconnected session, in place of the one that logs on."""
        name = command.session or ""
        old = self.sessions.named(name)
        if session.named:
            raise ClientError("this connection has a session already; open another to resume one")
        if old is None or old is session or old.encoding is not session.encoding:
            self._refuse_resume(session, command, self.sessions.why_gone(name))
            return None
        if old.rights.owner != session.rights.owner:
            # For all other users it does not exist.
            self._refuse_resume(session, command, self.sessions.why_gone(""))
            return None
        if old.ended is not None:
            self._refuse_resume(session, command, f"closed for {old.ended}")
            return None
        sent = old.recovery.sent
        if command.seen is not None and not 0 <= command.seen <= sent:
            raise ClientError(
                f"seen is {command.seen}, and {sent} lines were sent on this session; count them "
                "from the ack that named it, or leave seen out if all have arrived",
                reason="invalid seen",
            )
        if old.rights.text != session.rights.text:
            old.recovery.withdraw()
        if not old.take_back(command.seen, skip_lines):
            why = NOT_ENTITLED if old.is_withdrawn(command.seen) else NOT_RECOVERED
            self.sessions.close(old, why)
            self._refuse_resume(session, command, why)
            return None
        old.resume(command.client, session.address)
        self.sessions.come_back(old)
        self.queues.go_on(old)
        had, rights = old.rights, session.rights
        self.sessions.entitle(old, rights, session.shown)
        ack = replies.ack(command.cid, "processed", **self._identity(old, command), resumed=True)
        old.send_resumed(ack, self.engine.now_us)
        session.give_way_to(old)
        self.sessions.forget(session)
        self.engine.output.touch(old)
        # Another token may hold other claims of the same user.
        same = had.user == rights.user and not old.holds_back
        return None if same else self.settle(old)

    def _refuse_resume(self, session: Session, command: Command, reason: str) -> None:
        self._name(session, command, {"resumed": False, "reason": reason})

    def _heartbeat(self, session: Session, command: Command, _now_us: int) -> None:
        session.send(replies.heartbeat())
        acknowledge(session, command, *ACKS)

    def _flush(self, session: Session, command: Command, _now_us: int) -> None:
        # Everything queued so far is sent before this, and only once it is durable.
        acknowledge(session, command, *ACKS)

    def _publish(self, session: Session, command: Command, now_us: int) -> Task[None]:
        if command.seq is None or not command.bodies:
            yield from self._store(session, command, command.bodies, now_us)
            return
        count = len(command.bodies)
        with (yield from self._turn(session, command, command.seq, count)) as turn:
            if turn.is_duplicate:
                acknowledge(session, command, *ACKS, duplicate=True, bm=str(self.engine.seq))
                return
            try:
                yield from self._store(session, command, turn.rest(command.bodies), now_us, turn)
            except BadMessage as error:
                raise error.moved(turn.skipped) from None

    def _turn(self, session: Session, command: Command, seq: int, count: int) -> Task[NumberedTurn]:
        """The turn of the name of a session; its messages are numbered from `seq` on."""
        owned, gaps = partial(self.publishers.owned_by, session), command.options.gaps
        return self.publishers.turn(owned, command.topic, seq, count, gaps=gaps)

    def _store(
        self,
        session: Session,
        command: Command,
        bodies: Sequence[bytes],
        now_us: int,
        turn: NumberedTurn | None = None,
    ) -> Task[None]:
        """Publish some of a command's bodies; those that are numbered are counted in `turn`."""
        engine = self.engine
        topic = engine.publishable(command.topic)
        if not bodies:
            raise ClientError(f'{command.name} needs a body: "d", or "n" and that many lines')
        self.rates.take(session.rights, len(bodies), now_us)
        keys, author = command.key and (command.key,), session.rights.author(session.client)

        def read_part(part: Sequence[bytes]) -> CheckedMessages:
            some = record_ops.stored_bodies(topic, command, part)
            return engine.read(topic, some, keys, now_us=now_us, author=author)

        read = yield from reading(bodies, read_part)
        yield from engine.atomic.finish_before(command.topic)
        record_ops.check_still(session, command)
        bookmark = yield from engine.publications.carry_out(
            command.topic,
            read,
            now_us,
            expires_s=command.expires_s,
            delta=command.kind.is_delta,
            permit=permit_for(command.rights, "write", command.topic),
            counted=None if turn is None else turn.stored,
        )
        more = {} if turn is None else turn.fields()
        acknowledge(session, command, *ACKS, **more, bm=str(bookmark))

    def _sow_delete(self, session: Session, command: Command, now_us: int) -> Task[None]:
        if command.topic in self.queues.queues.by_name:
            yield from self.queues.acknowledge(session, command)
            return
        if command.bookmark is not None or command.options.cancel:
            raise ClientError(
                f"{command.topic} is no queue, so nothing of it is acknowledged; leave out bm and "
                "cancel, and name records by a filter, keys or bodies"
            )
        if command.seq is None:
            yield from self._remove(session, command, now_us)
            return
        with (yield from self._turn(session, command, command.seq, 1)) as turn:
            if turn.is_duplicate:
                acknowledge(session, command, *ACKS, deleted=0, duplicate=True)
            else:
                yield from self._remove(session, command, now_us, turn)

    def _remove(
        self, session: Session, command: Command, now_us: int, turn: NumberedTurn | None = None
    ) -> Task[None]:
        topic = self.engine.catalog.deletable(command.topic)
        bodies = record_ops.stored_bodies(topic, command, command.bodies) if command.bodies else ()
        deleted = yield from record_ops.delete_selected(
            self.engine,
            self.audit,
            topic,
            now_us,
            filter_text=command.filter,
            sow_keys=sow_keys(command),
            identities=(yield from record_ops.identities(topic, bodies)) if bodies else None,
            rights=command.rights,
            check_still=lambda: record_ops.check_still(session, command),
            counted=None if turn is None else turn.removed,
        )
        acknowledge(session, command, *ACKS, deleted=deleted)

    def _subscribe(self, session: Session, command: Command, _now_us: int) -> Task[None] | None:
        if command.topic in self.queues.queues.by_name:
            self.queues.subscribe(session, command)
            return None
        return self.subscriptions.subscribe(session, command)

    def _unsubscribe(self, session: Session, command: Command, _now_us: int) -> Task[None]:
        steps = self.subscriptions.unsubscribe(session, command)
        return self.queues.unsubscribe(session, steps) if self.queues.queues.by_name else steps

    def _sow(self, session: Session, command: Command, _now_us: int) -> Task[None]:
        return self.subscriptions.snapshot(session, command)

    def _sow_and_subscribe(self, session: Session, command: Command, _now_us: int) -> Task[None]:
        return self.subscriptions.sow_and_subscribe(session, command)


def _writes_all(rights: Permissions, topic: str) -> bool:
    """Whether every record of a topic may be written."""
    return rights.may("write", topic) and permit_for(rights, "write", topic) is None


def _parts(read: Read) -> Iterable[Read]:
    return read.parts(TOGETHER_MAX) if isinstance(read, PublishBatch) else (read,)


Action = Callable[[Executor, Session, Command, int], Task[None] | None]
ACTIONS: dict[str, Action] = {
    name: getattr(Executor, f"_{kind.action}") for name, kind in COMMANDS.items()
}
