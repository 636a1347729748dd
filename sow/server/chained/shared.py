"""Subscriptions that many sessions of a chained server share: one upstream for all that are equal.

A session that joins gets a snapshot of its own, over its own connection
(`sow.server.chained.own_link`), and then what follows it (`sow.server.chained.shared_channel`). The
last one out ends the subscription upstream. After a loss the subscription goes on behind its last
line (`sow.server.chained.shared_subscription`).
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from sow.engine.engine import Engine
from sow.errors import ClientError, SowError
from sow.server.chained.link import LINK_PAUSE_S, Link, UpstreamLine, place_of, read_line
from sow.server.chained.share_keys import ShareKey, records_of
from sow.server.chained.shared_channel import ChannelCalls, Joining, SharedChannel
from sow.server.chained.shared_subscription import (
    SharedSubscription,
    SharedWindow,
    SharedWindowChannel,
)
from sow.server.chained.upstream import (
    OF_USERS,
    Refusal,
    SideTasks,
    UpstreamServer,
    Who,
    log_failure,
)
from sow.streaming.channel import Channel
from sow.streaming.sessions import SESSION_FAILED, SLOW, Session
from sow.streaming.update_encoder import FeedKey
from sow.topic.records import Records

log = logging.getLogger("sow")

OVER_S = 1.0
"""How long the connection is kept after all of its subscriptions have ended upstream."""
DESCRIBED_S, DESCRIBED_MAX = 10.0, 1_000
"""How long, and of how many topics, it is known what upstream says of them: equal rules are kept
once, and an operator who has changed them sees it soon."""
AT_ONCE = 1_000
"""So many lines are taken before others have their turn, each counted once for each channel that it
is put into: some milliseconds."""
MARK, MARKS = "mark", 2
"""The acks that have to come until all has come that had happened when the first was requested: it
may go before the lines of its own turn, the second does not."""


class Mark(NamedTuple):
    """What is done once `left` more acks show that all has come."""

    passed: Callable[[], object]
    left: int


class Shares:
    """The shared subscriptions of those who are the same `who` to the upstream, and their
    connection; the first of them is at `address`. `now_us` is the time. `end` closes a session
    whose subscription cannot go on, `drop` ends one that upstream has ended, `end_all` closes all
    sessions of these, and `on_over` is called when there are none."""

    def __init__(
        self,
        upstream: UpstreamServer,
        who: Who,
        address: str,
        engine: Engine,
        now_us: Callable[[], int],
        new_name: Callable[[], str],
        end: Callable[[Session, str], None],
        drop: Callable[[Session, str], None],
        end_all: Callable[[str], None],
        on_over: Callable[["Shares"], None],
    ) -> None:
        self._upstream = upstream
        self.who = who
        self._address = address
        self._engine = engine
        self._new_name = new_name
        self._end_session = end
        self._drop = drop
        self._end_all = end_all
        self._on_over = on_over
        self._now_us = now_us
        self._calls = ChannelCalls(
            engine.output.flush_channel,
            engine.output.touch,
            lambda channel: engine.timers.add(channel, engine.output.flush_due),
            self._on_channel_over,
        )
        self._described: dict[str, tuple[float, Records]] = {}
        self._link: Link | None = None
        self._marks: dict[str, Mark] = {}
        """Commands on their way whose acks show that all before them has come."""
        self._mark_count = 0
        self._flushes: set[asyncio.Future[None]] = set()
        """Those who wait for a mark, and fail with the connection."""
        self._connecting = asyncio.Lock()
        self._coming = 0
        """Sessions that are about to join: what they wait for is not over."""
        self._is_over = False
        self._by_wanted: dict[ShareKey, SharedSubscription] = {}
        self._by_cid: dict[str, SharedSubscription] = {}
        self._by_channel: dict[Channel, SharedSubscription] = {}
        self._by_upstream: dict[str, SharedSubscription] = {}
        self._placing: dict[str, SharedSubscription] = {}
        self._to_go_on: dict[str, SharedSubscription] = {}
        """Those that upstream does not know in its present session, by their cids."""
        self.is_full = False
        """Upstream allows no more over this connection."""
        self._beside = SideTasks(self._on_failure)

    def __len__(self) -> int:
        return len(self._by_wanted)

    @property
    def subscriber_count(self) -> int:
        """The sessions that share them, once for each."""
        return sum(1 for one in self._by_wanted.values() for _ in one.followers())

    def be_full(self) -> None:
        """Upstream allows no more, until one has ended."""
        self.is_full = True

    def __contains__(self, wanted: ShareKey) -> bool:
        return wanted in self._by_wanted

    async def renew(self, who: Who) -> None:
        """Go on as `who`, who shows other credentials of the same user; raises UpstreamLost, and
        upstream's refusal."""
        if self._link is not None:
            await self._link.renew(who)
        self.who = who

    async def joined(
        self, wanted: ShareKey, key: FeedKey, session: Session, begins: bool, name: str
    ) -> SharedChannel | SharedWindowChannel | None:
        """The channel of the subscription that keeps what comes for a session from now on, which
        `begins` with a snapshot; None where it is not shared. Raises UpstreamLost, and upstream's
        refusal."""
        self._coming += 1
        try:
            found = await self._found(wanted)
            if found is None:
                return None
            channel: SharedChannel | SharedWindowChannel
            if isinstance(found, SharedWindow):
                channel = found.window_for(key, session, name, self._on_channel_over)
                channel.joining[session] = None
            else:
                channel = found.channel_for(key, session, name)
                keeps = wanted.accounts and begins
                channel.joining[session] = Joining(keys=set() if keeps else None)
                if begins:
                    channel.whole.add(session)
            self._by_channel[channel] = found
            try:
                await asyncio.shield(found.opened)
            except BaseException:
                channel.give_up(session)
                raise
            return channel
        finally:
            self._coming -= 1
            self._look_over()

    def wanted_by(self, channel: Channel) -> ShareKey | None:
        """What a channel is about, if it is of these."""
        found = self._by_channel.get(channel)
        return None if found is None else found.wanted

    def remarks(self, channel: Channel) -> Mapping[str, object]:
        """The advice with which the subscription of a channel began, for its first session."""
        found = self._by_channel.get(channel)
        return {} if found is None else found.take_remarks()

    async def _found(self, wanted: ShareKey) -> SharedSubscription | None:
        """The subscription to this, which may have to begin."""
        found = self._by_wanted.get(wanted)
        if found is not None:
            return found
        records = await self._records(wanted.topic)
        if records is None:
            return None
        found = self._by_wanted.get(wanted)  # another session may have wanted meanwhile
        if found is None:
            cid = self._new_name()
            kind = SharedSubscription if wanted.window is None else SharedWindow
            found = kind(wanted, cid, records, self._calls, self._new_name)
            self._by_wanted[wanted] = self._by_cid[cid] = found
            self._beside.start(self._begin(found))
        return found

    async def _records(self, topic: str) -> Records | None:
        """A topic as upstream describes it."""
        now_s = asyncio.get_running_loop().time()
        known = self._described.get(topic)
        if known is not None and known[0] > now_s - DESCRIBED_S:
            return known[1]
        described = await self._upstream.describe(topic, self.who, self._address)
        if described is None:
            return None
        records = records_of(described, await self._upstream.message_types(self.who, self._address))
        if records is not None:
            if len(self._described) >= DESCRIBED_MAX:
                self._described.clear()
            self._described[topic] = now_s, records
        return records

    def _look_over(self) -> None:
        if not self._by_wanted and not self._coming and not self._is_over:
            self._is_over = True
            self._on_over(self)

    def place(self, channel: SharedChannel, session: Session, bookmark: str) -> None:
        """The snapshot of a session has been sent: it goes on behind that."""
        channel.place(session, place_of(bookmark), self._now_us())
        if session in channel.joining and not channel.joining[session].open:
            self._beside.start(self._mark(lambda: self._open(channel, session)))

    def _open(self, channel: SharedChannel, session: Session) -> None:
        channel.open(session, self._now_us())
        self._engine.notify_work()

    async def caught_up(self) -> None:
        """Return when all has come that upstream has sent by now; raises UpstreamLost."""
        caught_up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._flushes.add(caught_up)
        caught_up.add_done_callback(self._flushes.discard)

        def passed() -> None:
            if not caught_up.done():
                caught_up.set_result(None)

        self._beside.start(self._mark(passed))
        await caught_up

    async def _mark(self, passed: Callable[[], object], left: int = MARKS) -> None:
        """Have upstream say when all that it had sent has come."""
        self._mark_count += 1
        cid = f"{MARK} {self._mark_count}"
        self._marks[cid] = Mark(passed, left)
        try:
            link = await self._connected()
            await link.send(orjson.dumps({"c": "flush", "cid": cid}))
        except SowError:
            # Once the connection is back it is sent again, if there is one to come back.
            if self._link is None:
                self._pass(cid)

    async def _mark_later(self, passed: Callable[[], object]) -> None:
        await asyncio.sleep(LINK_PAUSE_S)
        await self._mark(passed)

    def _marked(self, cid: str, failed: bool) -> None:
        mark = self._marks.pop(cid, None)
        if mark is None:
            return
        if failed:
            # Upstream has lost its own: its lines come when that is back.
            self._beside.start(self._mark_later(mark.passed))
        elif mark.left > 1:
            self._beside.start(self._mark(mark.passed, mark.left - 1))
        else:
            mark.passed()

    def _pass(self, *cids: str) -> None:
        """There is nothing to wait for any more."""
        for cid in cids:
            mark = self._marks.pop(cid, None)
            if mark is not None:
                mark.passed()

    async def _begin(self, one: SharedSubscription) -> None:
        try:
            link = await self._connected()
            one.be_of_log(link.log_id)
            await link.send(one.first_frame())
        except SowError as error:
            self._fail(one, error)
        except Exception as error:
            log_failure(error)
            self._lose(one, SESSION_FAILED)

    async def _connected(self) -> Link:
        async with self._connecting:
            if self._link is None:
                link = Link(self._upstream, self.who, self, "chained", self._address, exact=True)
                await link.open()
                self._link = link
            await self._link.ready()
            return self._link

    def _fail(self, one: SharedSubscription, error: SowError) -> None:
        """It has not begun."""
        self._forget(one)
        if not one.opened.done():
            one.opened.set_exception(error)
            one.opened.exception()  # nobody may be waiting any more

    def _forget(self, one: SharedSubscription) -> None:
        self._to_go_on.pop(one.cid, None)
        self.is_full = False
        if self._by_cid.pop(one.cid, None) is not None:
            del self._by_wanted[one.wanted]
            self._by_upstream.pop(one.upstream_name, None)
            # A moment later: upstream may be about to say that it closes the session as well.
            asyncio.get_running_loop().call_later(OVER_S, self._look_over)

    def _on_channel_over(self, channel: SharedChannel | SharedWindowChannel) -> None:
        """Nobody follows a channel any more."""
        one = self._by_channel.pop(channel)
        one.drop(channel)
        if one.is_followed or one.cid not in self._by_cid:
            return
        self._forget(one)
        if one.upstream_name:
            self._beside.start(self._unsubscribe(one.upstream_name))
        self._look_over()

    async def _unsubscribe(self, name: str) -> None:
        try:
            if self._link is not None:
                await self._link.send(orjson.dumps({"c": "unsubscribe", "s": name}))
        except SowError:
            pass  # its session ends with the connection, or its next line ends it

    async def close(self) -> None:
        """End the connection."""
        self._beside.cancel()
        if self._link is not None:
            await self._link.close()
            self._link = None
        self._pass(*self._marks)

    # The owner of the connection.

    async def take(self, lines: Sequence[bytes]) -> None:
        """Lines of subscriptions, and the acks of those that begin. All are taken, also where this
        is cancelled meanwhile: they count as seen."""
        now_us, left = self._now_us(), AT_ONCE
        touched: dict[SharedSubscription, None] = {}
        cancelled: asyncio.CancelledError | None = None
        for one, changes in self._runs(lines):
            touched[one] = None
            for count in one.take(changes, now_us):
                left -= count
                if left <= 0 and cancelled is None:
                    try:
                        await asyncio.sleep(0)
                    except asyncio.CancelledError as error:
                        cancelled = error
                    left = AT_ONCE
        # Together, so that what changed together leaves together.
        for one in touched:
            self._schedule(one)
        if cancelled is not None:
            raise cancelled

    def _runs(
        self, lines: Sequence[bytes]
    ) -> Iterator[tuple[SharedSubscription, list[tuple[UpstreamLine, bytes]]]]:
        """The changes in these lines, those of a subscription together that follow each other, as
        far as one turn takes them; all other lines are carried out between them."""
        run: list[tuple[UpstreamLine, bytes]] = []
        of: SharedSubscription | None = None
        for raw in lines:
            line = read_line(raw)
            one = self._by_upstream.get(line.s)
            changed = one if line.c in ("p", "oof") else None
            if of is not None and (changed is not of or len(run) * len(of.channels) >= AT_ONCE):
                yield of, run
                run = []
            of = changed
            if of is None:
                self._take_other(line, raw, one)
            else:
                run.append((line, raw))
        if of is not None:
            yield of, run

    def _schedule(self, one: SharedSubscription) -> None:
        for channel in one.channels:
            self._engine.output.schedule(channel)

    def _take_other(self, line: UpstreamLine, raw: bytes, one: SharedSubscription | None) -> None:
        if line.c == "ack":
            self._take_ack(line, raw)
        elif line.c == "sow" and one is not None:
            one.take_row(line)
        elif line.c == "group_end":
            if one is not None:
                one.take_end(line, self._now_us())
                self._schedule(one)
            elif (placed := self._placing.pop(line.s, None)) is not None:
                placed.note_place(place_of(line.bm), line.bm)
        elif line.c == "turn_end" and one is not None:
            one.take_turn(line, self._now_us())
            self._schedule(one)
        elif line.c == "unsubscribed" and one is not None:
            self._over(one, orjson.loads(raw))
        elif line.c == "close":
            self._lose_all(line.reason)
            if not line.reason.startswith(SLOW):
                self._end_all(line.reason)
        elif line.c in ("p", "oof") and line.s:
            self._beside.start(self._unsubscribe(line.s))

    def _take_ack(self, line: UpstreamLine, raw: bytes) -> None:
        name, _, placing = (line.cid or "").partition(" ")
        if name == MARK:
            self._marked(line.cid or "", failed=line.status == "failure")
            return
        one = self._by_cid.get(name)
        if one is None:
            if line.s and not placing and line.status == "success":
                # All who wanted it have gone before it began.
                self._beside.start(self._unsubscribe(line.s))
            return
        if line.status == "failure":
            is_known = one.opened.done()
            if is_known:
                self._lose(one, str(orjson.loads(raw).get("detail", "")))
            else:
                self._fail(one, Refusal(orjson.loads(raw)))
        elif line.a == "completed":
            one.be_counted(line.matches)
        elif placing:
            self._placing[line.s] = one
        else:
            self._to_go_on.pop(name, None)
            self._by_upstream.pop(one.upstream_name, None)
            self._by_upstream[line.s] = one
            one.be_named(line.s, line.advice)

    def _over(self, one: SharedSubscription, line: dict[str, Any]) -> None:
        """Upstream has ended it."""
        self._forget(one)
        reason, detail = line.get("reason", "FAILURE"), line.get("detail")
        for session, channel in [*one.followers()]:
            session.send_unsubscribed(channel.name, reason, self._now_us(), detail)
            self._engine.output.touch(session)
            self._drop(session, channel.name)
        self._engine.notify_work()

    def _lose(self, one: SharedSubscription, why: str) -> None:
        """It cannot go on: its sessions are closed, and their clients begin again."""
        log.warning("a subscription to %s cannot go on: %s", one.wanted.topic, why)
        self._fail(one, SowError(why) if why == SESSION_FAILED else self._upstream.lost())
        for session, _ in [*one.followers()]:
            is_ours = why in (*OF_USERS, SESSION_FAILED)
            self._end_session(session, why if is_ours else self._upstream.lost().reason)

    def _on_failure(self, error: Exception) -> None:
        """This server has failed on what goes on beside: nobody waits for that in vain."""
        log_failure(error)
        for one in [*self._by_cid.values()]:
            self._lose(one, SESSION_FAILED)
        self._pass(*self._marks)

    def _lose_all(self, reason: str) -> None:
        for one in [*self._by_cid.values()]:
            if reason.startswith(SLOW):
                continue  # this server was too slow: it goes on by its bookmarks
            self._lose(one, reason)

    def on_lost(self) -> None:
        """What had not begun has failed; the rest goes on when the connection is back."""
        for flush in [*self._flushes]:
            if not flush.done():
                flush.set_exception(self._upstream.lost())
        for one in [*self._by_cid.values()]:
            if not one.opened.done():
                self._fail(one, self._upstream.lost())

    async def on_back(self, resumed: bool) -> None:
        """Go on behind what has come. In another session upstream all lines have bookmarks, so that
        no mark is needed; in the same one the last may have been lost."""
        if resumed:
            marks, self._marks = self._marks, {}
            for mark in marks.values():
                self._beside.start(self._mark(mark.passed))
        else:
            self._pass(*self._marks)
            self._by_upstream.clear()
            # One that was wanted meanwhile has no place to go on behind: it begins by itself.
            begun = [one for one in self._by_cid.values() if one.opened.done()]
            self._to_go_on = {one.cid: one for one in begun}
            for one in self._to_go_on.values():
                one.be_unnamed()  # there it may be the name of another one now
        assert self._link is not None
        for one in [*self._to_go_on.values()]:
            await self._link.send(one.next_frame())

    def on_refused(self, error: SowError) -> None:
        """Its user is not known any more."""
        self._link = None
        for one in [*self._by_cid.values()]:
            self._fail(one, error if isinstance(error, ClientError) else self._upstream.lost())
            self._lose(one, error.reason)
        self._pass(*self._marks)
