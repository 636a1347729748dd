"""What the sessions of a chained server have upstream: shared subscriptions, and their own.

Each session is notified when upstream is lost and when it is back. One that follows something there
is closed when it has waited for longer than its client could have been away (`ReconnectTimeout`).
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from sow.core.cooperative import Task
from sow.errors import SowError, TooLarge, UpstreamLost
from sow.protocol import replies
from sow.protocol.commands import ACKS, Command, acks_of
from sow.security.authorization import Permissions
from sow.server.chained.link import LinkPool
from sow.server.chained.own_link import (
    FILL_MAX,
    Beginning,
    LinkCalls,
    OwnChannel,
    OwnLink,
    snapshot_of,
)
from sow.server.chained.share_keys import ShareKey
from sow.server.chained.shared import Shares
from sow.server.chained.shared_channel import BEFORE_ALL, SharedChannel
from sow.server.chained.shared_subscription import SHARED, SharedWindowChannel
from sow.server.chained.upstream import (
    NOTICES,
    OF_USERS,
    Refusal,
    SideTasks,
    UpstreamServer,
    Who,
    log_failure,
)
from sow.server.loop.runtime import ServerRuntime
from sow.sessions.commands.executor import Executor
from sow.sessions.commands.publishers import Publishers
from sow.sessions.subscriptions import Subscription
from sow.streaming.channel import Channel
from sow.streaming.sessions import SESSION_FAILED, Session
from sow.streaming.update_encoder import FeedKey
from sow.streaming.windows import PageAnswer

SHARES_MAX = 64
"""Connections for the shared subscriptions of one user: 640,000 subscriptions by the default of
SubscriptionsPerSession, and more by mistake than by need."""
NO_REMARKS: Mapping[str, object] = {}
"""Of most subscriptions upstream says nothing more than that they have begun."""


class UpstreamNumbers(Publishers):
    """Names of publishers: upstream has them, with their numbers."""

    def __init__(self, executor: Executor) -> None:
        super().__init__(executor.engine, executor.sessions.end)
        self.highest: dict[str, int] = {}
        """What upstream has said to the logon that is being carried out, by name."""

    def make_way(self, *_of: object) -> Task[None]:
        """Upstream closes the other one."""
        return (_ for _ in ())

    def claim(self, _session: Session, client: str, _rights: Permissions) -> int:
        """The highest number of a name."""
        return self.highest.pop(client, 0)


class Chain:
    """All that one chained server has upstream."""

    def __init__(
        self, upstream: UpstreamServer, runtime: ServerRuntime, executor: Executor
    ) -> None:
        self.upstream = upstream
        self.executor = executor
        self.numbers = UpstreamNumbers(executor)
        self._runtime = runtime
        self._names = itertools.count(1)
        self._shares: dict[Who, list[Shares]] = {}
        """Of one user there are several where upstream allows no more over one connection."""
        self._own: dict[Session, OwnLink] = {}
        self._pool = LinkPool(upstream)
        self._followers: dict[Session, Who] = {}
        """Who the sessions are that follow something, or have."""
        self._beside = SideTasks(log_failure)
        self._giving_up: asyncio.TimerHandle | None = None
        executor.be_of_log(upstream.log_id)
        executor.publish_under(self.numbers, self._on_gone)
        upstream.on_change(self._on_change)

    @property
    def subscription_count(self) -> int:
        """The shared subscriptions upstream."""
        return sum(len(one) for some in self._shares.values() for one in some)

    @property
    def now_us(self) -> int:
        """The time."""
        return self._runtime.now_us()

    def figures(self) -> Mapping[str, float]:
        """What the metrics say of the upstream server."""
        upstream, received = self.upstream, self.upstream.received
        return {
            "connected": upstream.is_there,
            "losses": received.losses,
            "reconnects": received.reconnects,
            "subscriptions": self.subscription_count,
            "subscribers": sum(
                one.subscriber_count for some in self._shares.values() for one in some
            ),
            "bytes": received.bytes,
            "lines": received.lines,
            "idle_seconds": upstream.now_s() - received.last_s,
        }

    # Sessions.

    def own(self, session: Session, who: Who) -> OwnLink:
        """The session's own connection."""
        found = self._own.get(session)
        if found is not None and found.who != who and not found.is_used:
            # Another user has logged on.
            self._beside.start(self._own.pop(session).close())
            found = None
        if found is None:
            calls = LinkCalls(
                send=lambda lines: self.send(session, lines),
                reply=lambda line: self.reply(session, line),
                began=lambda command, name: self._began(session, command, name),
                ended=lambda name: self.executor.subscriptions.drop(session, name),
                close=lambda reason: self.end(session, reason),
                fail=lambda error: self.fail(session, error),
                is_full=lambda: session.ended is None and session.outbox.fills(FILL_MAX),
            )
            found = self._own[session] = OwnLink(
                self.upstream, self._pool, who, calls, self.upstream.node, session.address
            )
        return found

    async def renew(self, session: Session, who: Who) -> None:
        """The client of a session logs on as `who`, by other credentials: what it has upstream goes
        on by these. Not where another session has the same by those from before, which end when
        they end. Raises UpstreamLost, and upstream's refusal."""
        own, had = self._own.get(session), self._followers.get(session)
        if own is not None and own.is_used and own.who != who:
            await own.renew(who)
        if had is None or had == who or not self.shared_of(session):
            return
        others = [one for one, other in self._followers.items() if other == had]
        if any(one is not session and self.shared_of(one) for one in others):
            return
        for shares in [*self._shares.get(had, ())]:
            await shares.renew(who)
            self._shares.setdefault(who, []).append(shares)
            self._forget(had, shares)
        self._followers[session] = who

    def own_of(self, session: Session) -> OwnLink | None:
        """The session's own connection, if there is one."""
        return self._own.get(session)

    def send(self, session: Session, lines: Sequence[bytes]) -> None:
        """Send lines of upstream to a session."""
        session.send_lines([*lines])
        self.touch(session)

    def reply(self, session: Session, line: dict[str, Any]) -> None:
        """Send a line of this server."""
        session.send(line)
        self.touch(session)

    def acknowledge(
        self,
        session: Session,
        command: Command,
        name: str,
        remarks: Mapping[str, object] = NO_REMARKS,
        **counts: int,
    ) -> None:
        """A subscription has begun, without a snapshot; `counts` are said in the last ack."""
        for kind in acks_of(command.acks, command.cid is not None):
            more: dict[str, object] = {**counts} if kind == ACKS[-1] else {}
            more |= {**remarks, **command.ignored_in(kind)}
            self.reply(session, replies.ack(command.cid, kind, s=name, **more))

    def touch(self, session: Session) -> None:
        """A session has something to write."""
        self.executor.engine.output.touch(session)
        self._runtime.wake()

    def end(self, session: Session, reason: str) -> None:
        """Close a session for a reason of upstream; as it would where that is about its user."""
        reason = self.upstream.reason_here(reason)
        sessions = self.executor.sessions
        (sessions.bar if reason in OF_USERS else sessions.end)(session, reason)
        self._runtime.wake()

    def fail(self, session: Session, error: Exception) -> None:
        """Close a session for an error of this server, which is logged."""
        session.fail(error, self._runtime.now_us())
        self.end(session, SESSION_FAILED)

    def _began(self, session: Session, command: Command, name: str) -> None:
        """A subscription of the session's own has begun."""
        own = self._own[session]
        channel = OwnChannel(name, session, own.unsubscribe)
        self.adopt(session, command, channel, FeedKey(command.filter))

    def adopt(self, session: Session, command: Command, channel: Channel, key: FeedKey) -> None:
        """Let a session follow a channel."""
        one = Subscription(command.topic, channel, {}, session, key, None, complete=False)
        self.executor.subscriptions.adopt(one)

    async def follow(
        self, session: Session, command: Command, wanted: ShareKey, key: FeedKey, who: Who
    ) -> bool:
        """Let a session share a subscription, as its key has it; False where it is not shared.
        Raises UpstreamLost, and upstream's refusal."""
        self._followers[session] = who
        begins = command.name.startswith("sow_and_")
        try:
            found = await self.joined(session, wanted, key, begins, who)
        except Refusal:
            if wanted.oof == key.oof:
                raise
            found = None  # what may be conflated need not go with oof
        if found is None:
            return False
        shares, channel = found
        name, remarks = channel.name, shares.remarks(channel)
        self.adopt(session, command, channel, key)
        if isinstance(channel, SharedWindowChannel):
            self.show(session, command, channel, channel.begun(session), remarks)
            return True
        if not begins:
            await self._or_drop(session, name, shares.caught_up())
            self.begin_now(session, channel)
            self.acknowledge(session, command, name, remarks)
            return True
        on_end = self.placing(session, shares, channel)
        beginning = Beginning(command, name, channel.joining[session], on_end, key.shape.sow_keys)
        own = self.own(session, who)
        await self._or_drop(session, name, own.begin(snapshot_of(command, wanted), beginning))
        return True

    def show(
        self,
        session: Session,
        command: Command,
        channel: SharedWindowChannel,
        answer: PageAnswer,
        remarks: Mapping[str, object] = NO_REMARKS,
    ) -> None:
        """Send a session what differs from the window that it holds, and let it follow that."""
        engine, name, window = self.executor.engine, channel.name, channel.window
        engine.timers.add(channel, engine.output.flush_due)
        wanted = acks_of(command.acks, command.cid is not None)
        if ACKS[0] in wanted:
            more = {**remarks, **command.ignored_in(ACKS[0])}
            session.send(replies.ack(command.cid, ACKS[0], s=name, **more))
        for lines in answer.leavings():
            session.send_records(lines)
        session.send(replies.group_begin(name))
        for lines in answer.answer():
            session.send_records(lines)
        session.send(replies.group_end(name, window.place or 0))
        counts: dict[str, object] = {
            "matches": window.matches,
            "returned": len(window.page.rows),
            **remarks,
        }
        for kind in (kind for kind in ACKS[1:] if kind in wanted):
            session.send(replies.ack(command.cid, kind, s=name, **counts))
        self.touch(session)

    def begin_now(self, session: Session, channel: SharedChannel) -> None:
        """All that has come up to now may have happened before a session began."""
        if (here := channel.joining.get(session)) is not None:
            here.held.clear()
            channel.place(session, BEFORE_ALL, self._runtime.now_us())
            channel.open(session, self._runtime.now_us())

    def placing(
        self, session: Session, shares: Shares, channel: SharedChannel
    ) -> Callable[[str | None], None]:
        """What is called when the snapshot of a session is complete, or has failed."""

        def on_end(bookmark: str | None) -> None:
            if bookmark is None or session.ended is not None:
                self.executor.subscriptions.drop(session, channel.name)
                return
            shares.place(channel, session, bookmark)
            self.touch(session)

        return on_end

    async def joined(
        self,
        session: Session,
        wanted: ShareKey,
        key: FeedKey,
        begins: bool,
        who: Who,
        name: str = "",
    ) -> tuple[Shares, SharedChannel | SharedWindowChannel] | None:
        """A channel over the connection that has the subscription, else one with room for it."""
        while True:
            some = self._shares.setdefault(who, [])
            there = [one for one in some if wanted in one]
            there += [one for one in some if not one.is_full]
            shares = there[0] if there else self._new_shares(who, session.address)
            try:
                channel = await shares.joined(wanted, key, session, begins, name)
                return None if channel is None else (shares, channel)
            except SowError as error:
                is_alone = not len(shares) or len(some) >= SHARES_MAX
                if error.reason != TooLarge.reason or is_alone:
                    raise
                shares.be_full()

    def shares_of(self, channel: Channel, who: Who) -> list[Shares]:
        """The connection that a channel is of, if it is there."""
        return [one for one in self._shares.get(who, ()) if one.wanted_by(channel) is not None]

    def _new_shares(self, who: Who, address: str) -> Shares:
        found = Shares(
            self.upstream,
            who,
            address,
            self.executor.engine,
            self._runtime.now_us,
            lambda: f"{self.upstream.node}-{next(self._names)}",
            self.end,
            self.executor.subscriptions.drop,
            lambda reason: self._end_all(found.who, reason),
            lambda shares: self._leave(shares.who, shares),
        )
        self._shares[who].append(found)
        return found

    async def _or_drop(self, session: Session, name: str, work: Awaitable[None]) -> None:
        """Let a subscription begin; where that fails, it is none."""
        try:
            await work
        except BaseException:
            self.executor.subscriptions.drop(session, name)
            raise

    async def caught_up(self, session: Session, who: Who) -> None:
        """All that upstream has said by now to the shared subscriptions of a session goes before
        what is sent to it next: a command is acknowledged after everything before it. Raises
        UpstreamLost."""
        while self.shared_of(session):
            for shares in [*self._shares.get(who, ())]:
                await shares.caught_up()
            followed = self.executor.subscriptions.of(session).values()
            channels = [x.channel for x in followed if isinstance(x.channel, SHARED)]
            for channel in channels:
                self.executor.engine.output.flush_channel(channel)
            ways = [one.joining.get(session) for one in channels]
            if all(way is None or way.open for way in ways):
                return

    def _leave(self, who: Who, shares: Shares) -> None:
        """Nobody of these follows anything any more, or is about to."""
        if self._forget(who, shares):
            self._beside.start(shares.close())

    def _forget(self, who: Who, shares: Shares) -> bool:
        """They are not these' any more; returns whether they were."""
        some = self._shares.get(who, [])
        was_there = shares in some
        if was_there:
            some.remove(shares)
        if not some:
            self._shares.pop(who, None)
        return was_there

    def _end_all(self, who: Who, reason: str) -> None:
        """Upstream has closed the session of these."""
        for session in [one for one, other in self._followers.items() if other == who]:
            if session.ended is None:
                self.end(session, reason)

    def _on_gone(self, session: Session) -> None:
        self._followers.pop(session, None)
        own = self._own.pop(session, None)
        if own is not None:
            self._beside.start(own.close())

    def shared_of(self, session: Session) -> Sequence[str]:
        """The names of the shared subscriptions of a session."""
        followed = self.executor.subscriptions.of(session).values()
        return [one.name for one in followed if isinstance(one.channel, SHARED)]

    # The upstream server.

    def _on_change(self, is_there: bool) -> None:
        for session in self.executor.sessions:
            self.reply(session, {"c": "notice", "reason": NOTICES[is_there]})
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None
        if is_there:
            self.executor.be_of_log(self.upstream.log_id)
        else:
            settings = self.executor.engine.configuration.sessions
            loop = asyncio.get_running_loop()
            self._giving_up = loop.call_later(settings.reconnect_timeout_us / 1e6, self._give_up)

    def _give_up(self) -> None:
        """Upstream has been away for too long: who follows something there begins again."""
        for session in self.executor.sessions:
            own = self._own.get(session)
            if self.executor.subscriptions.of(session) or (own is not None and own.is_used):
                self.end(session, UpstreamLost.reason)

    async def close(self) -> None:
        """End all connections."""
        if self._giving_up is not None:
            self._giving_up.cancel()
        for own in [*self._own.values()]:
            await own.close()
        for shares in [one for some in self._shares.values() for one in some]:
            await shares.close()
        await self._pool.close()
        self._beside.cancel()
        await self.upstream.close()
