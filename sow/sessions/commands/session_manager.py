"""All sessions, from a client's first command until they end for good.

A session whose socket is closed is kept for a while and goes on collecting updates, until its
client resumes it with a logon. The reason why a session ended is kept for as long as its client may
still return. Commands are executed elsewhere (`sow.sessions.commands.executor`), and each session
owns its queue (`sow.streaming.sessions`).
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import NamedTuple

from sow.core.cooperative import Task
from sow.engine.engine import Engine
from sow.engine.timers import Deadline
from sow.errors import clipped
from sow.protocol.replies import QUEUE_MEMORY, Encoding
from sow.security.authorization import EVERYTHING, Permissions
from sow.sessions.commands.queue_relief import QueueRelief
from sow.sessions.subscriptions.reapply_permissions import PreparedPermissions
from sow.sessions.subscriptions.subscriptions import Subscriptions
from sow.streaming.queue_memory import QueueMemory
from sow.streaming.sessions import BACK_PRESSURE, BARRED, OUTDATED, SLOW, Session

CLOSED_BECAUSE = (
    "disconnected", "expired", "slow", "operator", "recovery", "refused", QUEUE_MEMORY
)  # fmt: skip
OPERATOR = "closed by an operator"
NOT_RECOVERED = "recovery buffer exceeded"
NOT_ENTITLED = "entitlement"
"""What was sent, and may not have arrived, may be more than its client may see now."""
NAMED_MAX = 100
"""So much of a client's name is repeated to an operator."""
FORGOTTEN_MAX = 1000
"""Of so many sessions that are gone it is remembered why."""
GONE_MAX = 100
"""Ended sessions that are listed: a page of them, some ten kilobytes."""


class GoneSession(NamedTuple):
    """The record of a session that has ended."""

    id: str
    client: str | None
    rights: Permissions
    address: str
    connected_us: int
    closed_us: int
    folded: int
    dropped: int
    reason: str


ANONYMOUS = Permissions(None)
"""The permissions of a client that has to authenticate, and has not."""


class SessionManager:
    """Sessions of one engine, found by their ids and their names.

    `new_name` makes unguessable names: a name is all that resuming a session needs. `boot` makes
    ids differ between runs of the server. The `subscriptions` of a session end with it. `fail` is
    called with a sentence for each session that ends by an internal error.
    """

    def __init__(
        self,
        engine: Engine,
        subscriptions: Subscriptions,
        new_name: Callable[[], str],
        boot: str = "",
        fail: Callable[[str], None] = lambda _line: None,
    ) -> None:
        self._engine = engine
        self._fail = fail
        self._subscriptions = subscriptions
        self._new_name = new_name
        self._boot = boot
        self._numbers = count(1)
        self._by_id: dict[str, Session] = {}
        self._by_name: dict[str, Session] = {}
        self._awaited: dict[Session, Deadline] = {}
        self._entitled: dict[Session, Deadline] = {}
        self._gone: dict[str, str] = {}
        self._lagging: dict[Session, None] = {}
        self._folding: dict[Session, None] = {}
        self._folding_listeners: list[Callable[[], None]] = []
        self.memory = QueueMemory(
            lambda: engine.configuration.limits.queue_memory_bytes_max, self._notify_folding
        )
        """What waits for all sessions."""
        self.relief = QueueRelief(self.memory, self)
        engine.conflation_budget.relieved_by(self.relief)
        self._notices: list[Callable[[str], None]] = []
        self._coming_listeners: list[Callable[[str], None]] = []
        self._on_disconnected: Callable[[Session, int], None] = lambda _session, _now_us: None
        self._on_gone: Callable[[Session], None] = lambda _session: None
        self.closed = Counter(dict.fromkeys(CLOSED_BECAUSE, 0))
        """Sessions that are gone, by why."""
        self.gone: deque[GoneSession] = deque(maxlen=GONE_MAX)
        """Those that are gone, the last one last."""
        self._folded_before = 0
        self._folded_always_before = 0
        self._dropped_before = 0
        self._left_behind: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Session]:
        """All that there are now, in order of their coming; some may be closed meanwhile."""
        return iter(list(self._by_id.values()))

    @property
    def folded(self) -> int:
        """Messages that folding has saved all sessions that there ever were."""
        return self._folded_before + sum(session.outbox.folded for session in self)

    @property
    def dropped(self) -> int:
        """Messages that were dropped with subscriptions that sessions gave up, ever."""
        return self._dropped_before + sum(session.overflow.dropped for session in self)

    @property
    def folded_because(self) -> dict[str, int]:
        """Messages that folding has saved, ever: since their topic wants it always, or since a
        client read too slowly."""
        always = sum(session.outbox.folded_always for session in self)
        always += self._folded_always_before
        return {"always": always, "slow": self.folded - always}

    @property
    def dropped_because(self) -> dict[str, int]:
        """Messages that waited and were dropped, in total: with subscriptions that were given up,
        or with sessions, by the reason of their end."""
        with_sessions = {why: self._left_behind[why] for why in CLOSED_BECAUSE}
        return {"given up": self.dropped, **with_sessions}

    def open(
        self,
        encoding: Encoding,
        now_us: int,
        rights: Permissions | None = None,
        shown: object = None,
        address: str = "",
    ) -> Session:
        """A new session, of a client at an address; `shown` are the credentials that gave it these
        permissions; None: it has not authenticated."""
        engine = self._engine
        session = Session(
            f"s{self._boot}{next(self._numbers)}",
            self._new_name(),
            encoding,
            engine.configuration.sessions,
            now_us,
            released=lambda: engine.sequencer.released,
            give_up=self._give_up,
            on_end=self._ended,
            conflation_budget=engine.conflation_budget,
            address=address,
        )
        self._by_id[session.id] = self._by_name[session.name] = session
        if rights is None:
            authenticates = engine.configuration.security.authentication is not None
            rights = ANONYMOUS if authenticates else EVERYTHING
        self.entitle(session, rights, shown)
        return session

    def entitle(self, session: Session, rights: Permissions, shown: object = None) -> None:
        """Set the permissions of a session, until they expire; `shown` are the credentials that
        gave them."""
        session.entitle(rights, shown)
        share = self.memory.share(session.account)
        if share is not session.memory.share:
            session.memory.move(session, share)
        waiting = self._entitled.get(session)
        if rights.expires_us is not None and waiting is None:
            waiting = self._entitled[session] = Deadline(
                lambda: session.rights.expires_us, lambda: self.bar(session)
            )
            self._engine.timers.add(waiting)
            self._engine.notify_work()
        elif waiting is not None:
            self._engine.timers.note(waiting)

    def go_on_with(self, prepared: Mapping[Session, PreparedPermissions]) -> list[Session]:
        """Put prepared permissions into effect for all sessions in one step; from then on nothing
        is sent that they do not allow. Returns the sessions that continue. A session without
        prepared permissions ends, and so does one that waits for an answer computed under the old
        ones."""
        going_on: list[Session] = []
        for session in self:
            found = prepared.get(session)
            had, rights = session.rights, found and found.rights
            if found is None or not found.is_of(session) or rights is None:
                self.bar(session)
                continue
            if rights.text != had.text and _has_answers(session, rights):
                self.bar(session, OUTDATED)
                continue
            self.entitle(session, rights, session.shown)
            if rights.text != had.text:
                session.hold_back()
            going_on.append(session)
        return going_on

    def bar(self, session: Session, why: str = BARRED) -> None:
        """End a session whose user is not authenticated any more, or for the reason `why`; nothing
        that waits is sent."""
        self._stop(self._entitled, session)
        session.bar([*self._subscriptions.of(session)], self._engine.now_us, why)
        self._engine.output.touch(session)
        if not session.connected:
            self.close(session, f"closed for {session.ended}")

    def _stop(self, deadlines: dict[Session, Deadline], session: Session) -> None:
        deadline = deadlines.pop(session, None)
        if deadline is not None:
            self._engine.timers.remove(deadline)

    def find(self, called: str) -> Session | None:
        """The session with an id, or with the name that only its owner knows."""
        return self._by_id.get(called) or self.named(called)

    def has(self, session: Session) -> bool:
        """Whether a session is there still."""
        return self._by_id.get(session.id) is session

    def named(self, name: str) -> Session | None:
        """The session of a name."""
        return self._by_name.get(name)

    def why_gone(self, name: str) -> str:
        """Why there is no session of a name."""
        return self._gone.get(name, "unknown session")

    def forget(self, session: Session) -> None:
        """The session can be found no more."""
        self._by_name.pop(session.name, None)
        self._stop(self._entitled, session)
        if self._by_id.pop(session.id, None) is not None:
            session.memory.end(session)

    def _give_up(self, session: Session, name: str) -> str:
        self._report(session, f"gives up its subscription {name}: {BACK_PRESSURE}")
        return self._subscriptions.give_up(session, name)

    def _ended(self, session: Session) -> None:
        self._report(session, f"is closed: {session.ended}")
        self._note_left_behind(session, "")
        if session.fault:
            self._fail(f"session {session.id}: {session.fault}")

    def _note_left_behind(self, session: Session, why: str) -> None:
        self._left_behind[_because(session, why)] += session.outbox.message_count

    def _report(self, session: Session, what: str) -> None:
        box = session.outbox
        waited = f"{box.message_count} messages, {box.size_bytes} bytes waited"
        line = f"{_called(session)} {what}; {waited}"
        for listener in self._notices:
            listener(line)

    def on_slow_client(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with each sentence about slow clients for the operator's log."""
        self._notices.append(listener)

    def on_session_change(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with a sentence for each client that logs on, and for each session that
        ends, except those dropped as slow (`on_slow_client`)."""
        self._coming_listeners.append(listener)

    def follow(
        self, disconnected: Callable[[Session, int], None], gone: Callable[[Session], None]
    ) -> None:
        """Call one of these with each session that loses its socket, and when, and the other with
        each that is gone for good."""
        self._on_disconnected, self._on_gone = disconnected, gone

    def bar_expired(self, now_us: int) -> None:
        """End the sessions whose credentials have expired by a clock that may be ahead of the
        engine's."""
        for session in [*self._entitled]:
            expires_us = session.rights.expires_us
            if expires_us is not None and expires_us <= now_us:
                self.bar(session)
                self._engine.notify_work()

    def note_logon(self, session: Session, address: str | None) -> None:
        """Note that the client of a session has logged on."""
        user = session.rights.user
        as_user = f" as {clipped(user.name)}" if user is not None else ""
        whence = f" from {address}" if address else ""
        for listener in self._coming_listeners:
            listener(f"{_called(session)} has logged on{as_user}{whence}")

    def _report_gone(self, session: Session, why: str) -> None:
        # With a key of its own: the log is rate-limited per key, and disconnects must not hide
        # connects.
        for listener in self._coming_listeners:
            listener(f"{_called(session)} is gone: {why}")

    def is_kept(self, session: Session) -> bool:
        """Whether a session would outlive its socket, for what its client has subscribed to."""
        has_some = session.named and self._subscriptions.of(session)
        return bool(has_some and session.settings.reconnect_timeout_us)

    def drop(self, session: Session, now_us: int) -> bool:
        """The session's socket has gone; True if the session is kept for its client to return.

        One without subscriptions has nothing to collect and ends: its client starts again.
        """
        self._on_disconnected(session, now_us)
        timeout_us = session.settings.reconnect_timeout_us
        if session.ended is not None or not self.is_kept(session):
            self.close(session, f"closed for {session.ended}" if session.ended else "disconnected")
            return False
        session.disconnect()
        until_us = now_us + timeout_us
        waiting = Deadline(lambda: until_us, lambda: self.close(session, "expired"))
        self._awaited[session] = waiting
        self._engine.timers.add(waiting)
        return True

    def come_back(self, session: Session) -> None:
        """The client of a session without a socket has come back to it."""
        self._stop(self._awaited, session)

    def close(self, session: Session, why: str = "disconnected") -> None:
        """A session is gone for good; its subscriptions end with it."""
        self._stop(self._entitled, session)
        self._subscriptions.end_all(session)
        self._on_gone(session)
        if self.has(session):
            self.closed[_because(session, why)] += 1
            if session.ended is None:
                self._report_gone(session, why)
                self._note_left_behind(session, why)
            self.gone.append(_gone(session, why, self._engine.now_us))
            self._folded_before += session.outbox.folded
            self._folded_always_before += session.outbox.folded_always
            self._dropped_before += session.overflow.dropped
            session.abandon()
            self.forget(session)
            if session.named:
                self._gone[session.name] = why
                if len(self._gone) > FORGOTTEN_MAX:
                    del self._gone[next(iter(self._gone))]
        self._lagging.pop(session, None)
        self._folding.pop(session, None)
        self.come_back(session)

    def end(self, session: Session, reason: str) -> None:
        """End a session, for a reason that is sent to it."""
        session.end(reason, self._engine.now_us)
        self._engine.output.touch(session)
        if not session.connected:
            self.close(session, f"closed for {reason}")

    def give_up(self, session: Session) -> Task[None]:
        """End the subscriptions of a session that may be given up, in steps."""
        yield from session.give_up(self._engine.now_us)
        self._engine.output.touch(session)

    def fold(self, session: Session) -> Task[None]:
        """Fold the queue of a session, in steps."""
        session.conflate(self._engine.now_us)
        self._engine.output.touch(session)
        while session.folds:
            self._fold_now(session)
            yield

    def close_for(self, session: Session, reason: str) -> None:
        """Close a session so that nothing is held for it any more."""
        self.end(session, reason)
        self._subscriptions.end_all(session)
        session.memory.let_go()
        self._engine.notify_work()

    def apply_back_pressure(self, session: Session, now_us: int) -> None:
        """Bring a session's queue under its bounds; without a socket there is no patience."""
        waits = session.apply_back_pressure(now_us)
        if session.ended is not None:
            if not session.connected:
                self.close(session, f"closed for {session.ended}")
        elif session.folds:
            self._note_folding(session)
        elif waits and session.wants_folding():
            self._lagging[session] = None

    def conflate_in_background(self, now_us: int) -> bool:
        """Conflate one queue that fills, while there is time; True when there are more."""
        while self._lagging:
            session = self._lagging.popitem()[0]
            if session.ended is None and session.wants_folding():
                session.conflate(now_us)
                if session.folds:
                    self._note_folding(session)
                break
        return bool(self._lagging)

    def on_backlog(self, listener: Callable[[], None]) -> None:
        """Call `listener` when a queue is so long that it has to be folded in steps
        (`fold_some`)."""
        self._folding_listeners.append(listener)

    def _note_folding(self, session: Session) -> None:
        self._folding[session] = None
        self._engine.conflation_budget.note(session, self._fold_now)
        self._notify_folding()

    def _notify_folding(self) -> None:
        for listener in self._folding_listeners:
            listener()

    def fold_some(self, now_us: int) -> bool:
        """Go on folding one of the queues that are being folded, by a step; whether there is more
        to do. One that is done is judged and written. Queue memory that is over its bound comes
        first."""
        if self.relief.look():
            return self.relief.go_on() or bool(self._folding)
        session = next(iter(self._folding), None)
        if session is None:
            return False
        self._fold(session, now_us)
        return bool(self._folding)

    def _fold_now(self, session: Session) -> None:
        self._fold(session, self._engine.now_us)

    def _fold(self, session: Session, now_us: int) -> None:
        # The next step is another one's.
        self._folding.pop(session, None)
        if session.fold_some(now_us):
            self._folding[session] = None
        else:
            self._engine.output.touch(session)
            self._engine.notify_work()
            self.apply_back_pressure(session, now_us)


def _called(session: Session) -> str:
    """What an operator finds a session by; never its name, which is a secret."""
    if session.client is None:
        return f"session {session.id}"
    return f"session {session.id} of client {repr(session.client)[:NAMED_MAX]}"


def _has_answers(session: Session, rights: Permissions) -> bool:
    """Whether anything waits for a session that might be rows of an answer that it may not have by
    these rights: records that were found already, and all of it where its topics are others."""
    same = rights.reads == session.rights.reads
    return session.has_found_records if same else session.has_answers


def _gone(session: Session, why: str, now_us: int) -> GoneSession:
    """What is remembered of a session; not itself, which refers to much."""
    return GoneSession(
        session.id,
        None if session.client is None else session.client[:NAMED_MAX],
        session.rights,
        session.address,
        session.connected_us,
        now_us,
        session.outbox.folded,
        session.overflow.dropped,
        session.ended or why,
    )


def _because(session: Session, why: str) -> str:
    """The reason of a session's end, in one word of `CLOSED_BECAUSE`."""
    if session.ended is not None:
        named = {SLOW: "slow", OPERATOR: "operator", QUEUE_MEMORY: QUEUE_MEMORY}
        return named.get(session.ended, "refused")
    return {NOT_RECOVERED: "recovery", NOT_ENTITLED: "refused"}.get(why, why)
