"""Subscriptions that many sessions of a chained server share: one upstream for all that are equal.

A session that joins gets a snapshot of its own, over its own connection
(`sow.server.chained.own_link`), and then what follows it (`sow.server.chained.shared_channel`). The
last one out ends the subscription upstream. Where what is said depends on what was sent before, it
is known here what upstream has sent (`held`), as in a feed (`sow.streaming.feeds`), so that a queue
can fold it. After a loss the subscription goes on behind its last line.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import orjson

from sow.core.definitions import Topic
from sow.core.delta import merged
from sow.engine.engine import Engine
from sow.errors import ClientError, SowError, TooLarge
from sow.protocol.encodings import LINES
from sow.server.chained.lines import UpstreamLine, name_field, place_of, read_line, renamed, time_of
from sow.server.chained.link import LINK_PAUSE_S, Link
from sow.server.chained.share_keys import NO_RECORD, ShareKey, records_of
from sow.server.chained.shared_channel import Joining, Passed, PassedEncoder, SharedChannel
from sow.server.chained.upstream import Refusal, UpstreamServer, Who
from sow.streaming.sessions import SLOW, Session
from sow.streaming.update_encoder import FeedKey
from sow.topic.records import Records
from sow.topic.rendering import Shape
from sow.topic.updates import Update

log = logging.getLogger("sow")

OVER_S = 1.0
"""How long the connection is kept after all of its subscriptions have ended upstream."""
MARK, MARKS = "mark", 2
"""The acks that have to come until all has come that had happened when the first was requested: it
may go before the lines of its own turn, the second does not."""


class SharedSubscription:
    """One subscription upstream, `wanted` for through `shares`, under this server's own `name`."""

    def __init__(self, shares: "Shares", wanted: ShareKey, name: str, records: Records) -> None:
        self.wanted = wanted
        self.name = name
        self.channel = SharedChannel(name, shares.flush, lambda: shares.end(self))
        self.upstream_name = ""
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.place: int | None = None
        """What it goes on behind after a loss."""
        self.bookmark = ""
        self.log_id = ""
        """The log that its bookmarks are of."""
        self._field = b""
        self._own_field = name_field(name)
        self._counts = isinstance(records.definition, Topic)
        """Each line has a higher bookmark than the one before."""
        self._held: dict[str, bytes] | None = {} if wanted.accounts else None
        shape = Shape(timestamps=wanted.timestamp)
        key = FeedKey(wanted.filter, wanted.oof, wanted.delta, wanted.no_empties, shape=shape)
        self.encoder = PassedEncoder(records, name, LINES, key)

    def first_frame(self) -> bytes:
        """What begins it. Of single changes only the bookmark is requested before."""
        wanted, kind = self.wanted, "delta_subscribe" if self.wanted.delta else "subscribe"
        options = wanted.options()
        if wanted.accounts:
            return wanted.line(f"sow_and_{kind}", self.name, opts=options)
        literal = "non_regex_topic" if wanted.literal else ""
        first = wanted.line("sow", f"{self.name} place", opts=literal, keys=NO_RECORD)
        return first + b"\n" + wanted.line(kind, self.name, opts=options)

    def next_frame(self) -> bytes:
        """What continues it, in a new session upstream, which may have another log by then."""
        kind = "delta_subscribe" if self.wanted.delta else "subscribe"
        place = f"{self.log_id}-{self.bookmark}"
        return self.wanted.line(kind, self.name, opts=self.wanted.options(), bm=place)

    def be_named(self, upstream_name: str) -> None:
        """Upstream has begun it under this name."""
        self.upstream_name = upstream_name
        self._field = name_field(upstream_name)
        self._look_open()

    def note_place(self, bookmark: str) -> None:
        """Everything up to a bookmark has come."""
        self.place, self.bookmark = place_of(bookmark), bookmark
        self._look_open()

    def _look_open(self) -> None:
        """It has begun once it can go on after a loss."""
        if self.upstream_name and self.bookmark and not self.opened.done():
            self.opened.set_result(None)

    def take_row(self, line: UpstreamLine) -> None:
        """A row of the snapshot that it begins with: what each session has or will have got."""
        if self._held is not None:
            self._held[line.k] = bytes(line.d) if self.wanted.delta else b""

    def take(self, line: UpstreamLine, raw: bytes, now_us: int) -> None:
        """A change."""
        place = place_of(line.bm) if line.bm else self.place or 0
        if line.bm:
            if self._counts and self.place is not None and place <= self.place:
                return  # upstream has begun it twice, since the connection was lost twice
            self.note_place(line.bm)
        update = self._update(line, place, time_of(line.ts))
        if update is not None:
            named = renamed(raw, self._field, self._own_field)
            self.channel.put(Passed(self.encoder, update, named, bool(line.bm)), now_us)

    def _update(self, line: UpstreamLine, seq: int, ts_us: int) -> Update | None:
        """The update that a line stands for; None: the sessions have it already."""
        key, body, held = line.k, bytes(line.d), self._held
        reason: Any = line.reason
        if held is None:
            left = line.c == "oof"  # its user may not see it any more
            new = None if left else body
            old = body if left else None
            return Update(key, True, new, seq, ts_us, seq, ts_us, reason or None, old=old)
        known, old = key in held, held.get(key) or None
        if line.c == "oof":
            if not known:
                return None
            del held[key]
            return Update(key, True, None, seq, ts_us, seq, ts_us, reason, parting=body, old=body)
        delta = None
        if line.delta:
            delta = orjson.loads(body)
            body = orjson.dumps(merged(orjson.loads(old or b"{}"), delta))
        held[key] = body if self.wanted.delta else b""
        return Update(key, known, body, seq, ts_us, seq, ts_us, delta=delta, old=old)


class Mark(NamedTuple):
    """What is done once `left` more acks show that all has come."""

    passed: Callable[[], object]
    left: int


class Shares:
    """The shared subscriptions of those who are the same `who` to the upstream, and their
    connection. `end` closes a session whose subscription cannot go on, `drop` ends one that
    upstream has ended, `end_all` closes all sessions of these, and `on_over` is called when there
    are none."""

    def __init__(
        self,
        upstream: UpstreamServer,
        who: Who,
        engine: Engine,
        new_name: Callable[[], str],
        end: Callable[[Session, str], None],
        drop: Callable[[Session, str], None],
        end_all: Callable[[str], None],
        on_over: Callable[[], None],
    ) -> None:
        self._upstream = upstream
        self._who = who
        self._engine = engine
        self._new_name = new_name
        self._end_session = end
        self._drop = drop
        self._end_all = end_all
        self._on_over = on_over
        self.flush = engine.output.flush_channel
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
        self._by_name: dict[str, SharedSubscription] = {}
        self._by_upstream: dict[str, SharedSubscription] = {}
        self._placing: dict[str, SharedSubscription] = {}
        self._to_go_on: dict[str, SharedSubscription] = {}
        """Those that upstream does not know in its present session, by name."""
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._by_wanted)

    def name_of(self, wanted: ShareKey) -> str:
        """The name of the subscription to this, if there is one."""
        found = self._by_wanted.get(wanted)
        return "" if found is None else found.name

    async def joined(self, wanted: ShareKey, session: Session) -> SharedSubscription | None:
        """The subscription, which keeps what comes for a session from now on; None where it is not
        shared. Raises UpstreamLost, and upstream's refusal."""
        self._coming += 1
        try:
            found = await self._found(wanted)
            if found is None:
                return None
            channel = found.channel
            channel.joining[session] = Joining(keys=set() if wanted.accounts else None)
            try:
                await asyncio.shield(found.opened)
            except BaseException as error:
                channel.joining.pop(session, None)
                if not channel.members:
                    channel.end()
                if isinstance(error, SowError) and error.reason == TooLarge.reason:
                    return None  # the others have all that one may have: it gets its own
                raise
            return found
        finally:
            self._coming -= 1
            self._look_over()

    async def _found(self, wanted: ShareKey) -> SharedSubscription | None:
        """The subscription to this, which may have to begin."""
        found = self._by_wanted.get(wanted)
        if found is not None:
            return found
        described = await self._upstream.describe(wanted.topic, self._who)
        records = None if described is None else records_of(described)
        if records is None:
            return None
        found = self._by_wanted.get(wanted)  # another session may have wanted meanwhile
        if found is None:
            found = SharedSubscription(self, wanted, self._new_name(), records)
            self._by_wanted[wanted] = self._by_name[found.name] = found
            self._go_on(self._begin(found))
        return found

    def _look_over(self) -> None:
        if not self._by_wanted and not self._coming and not self._is_over:
            self._is_over = True
            self._on_over()

    def place(self, channel: SharedChannel, session: Session, bookmark: str) -> None:
        """The snapshot of a session has been sent: it goes on behind that."""
        channel.place(session, place_of(bookmark), self._engine.now_us)
        if session in channel.joining and not channel.joining[session].open:
            self._go_on(self._mark(lambda: self._open(channel, session)))

    def _open(self, channel: SharedChannel, session: Session) -> None:
        channel.open(session, self._engine.now_us)
        self._engine.output.touch(session)
        self._engine.notify_work()

    async def caught_up(self) -> None:
        """Return when all has come that upstream has sent by now; raises UpstreamLost."""
        caught_up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._flushes.add(caught_up)
        caught_up.add_done_callback(self._flushes.discard)

        def passed() -> None:
            if not caught_up.done():
                caught_up.set_result(None)

        self._go_on(self._mark(passed))
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
            self._go_on(self._mark_later(mark.passed))
        elif mark.left > 1:
            self._go_on(self._mark(mark.passed, mark.left - 1))
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
            one.log_id = link.log_id
            await link.send(one.first_frame())
        except SowError as error:
            self._fail(one, error)

    async def _connected(self) -> Link:
        async with self._connecting:
            if self._link is None:
                link = Link(self._upstream, self._who, self, "chained", exact=True)
                await link.open()
                self._link = link
            await self._link.ready()
            return self._link

    def _go_on(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _fail(self, one: SharedSubscription, error: SowError) -> None:
        """It has not begun."""
        self._forget(one)
        if not one.opened.done():
            one.opened.set_exception(error)
            one.opened.exception()  # nobody may be waiting any more

    def _forget(self, one: SharedSubscription) -> None:
        self._to_go_on.pop(one.name, None)
        if self._by_name.pop(one.name, None) is not None:
            del self._by_wanted[one.wanted]
            self._by_upstream.pop(one.upstream_name, None)
            # A moment later: upstream may be about to say that it closes the session as well.
            asyncio.get_running_loop().call_later(OVER_S, self._look_over)

    def end(self, one: SharedSubscription) -> None:
        """Nobody follows it any more."""
        if one.name not in self._by_name:
            return
        self._forget(one)
        if one.upstream_name:
            self._go_on(self._unsubscribe(one.upstream_name))
        self._look_over()

    async def _unsubscribe(self, name: str) -> None:
        try:
            if self._link is not None:
                await self._link.send(orjson.dumps({"c": "unsubscribe", "s": name}))
        except SowError:
            pass  # its session ends with the connection, or its next line ends it

    async def close(self) -> None:
        """End the connection."""
        for task in [*self._tasks]:
            task.cancel()
        if self._link is not None:
            await self._link.close()
            self._link = None
        self._pass(*self._marks)

    # The owner of the connection.

    async def take(self, lines: Sequence[bytes]) -> None:
        """Lines of subscriptions, and the acks of those that begin."""
        engine, now_us = self._engine, self._engine.now_us
        touched: dict[SharedChannel, None] = {}
        for raw in lines:
            line = read_line(raw)
            one = self._by_upstream.get(line.s)
            if one is None or line.c not in ("p", "oof"):
                self._take_other(line, raw, one)
                continue
            one.take(line, raw, now_us)
            touched[one.channel] = None
        for channel in touched:
            engine.output.schedule(channel)

    def _take_other(self, line: UpstreamLine, raw: bytes, one: SharedSubscription | None) -> None:
        if line.c == "ack":
            self._take_ack(line, raw)
        elif line.c == "sow" and one is not None:
            one.take_row(line)
        elif line.c == "group_end":
            placed = one or self._placing.pop(line.s, None)
            if placed is not None:
                placed.note_place(line.bm)
        elif line.c == "unsubscribed" and one is not None:
            self._over(one, orjson.loads(raw))
        elif line.c == "close":
            self._lose_all(line.reason)
            if not line.reason.startswith(SLOW):
                self._end_all(line.reason)
        elif line.c in ("p", "oof") and line.s:
            self._go_on(self._unsubscribe(line.s))

    def _take_ack(self, line: UpstreamLine, raw: bytes) -> None:
        name, _, placing = (line.cid or "").partition(" ")
        if name == MARK:
            self._marked(line.cid or "", failed=line.status == "failure")
            return
        one = self._by_name.get(name)
        if one is None:
            if line.s and not placing and line.status == "success":
                # All who wanted it have gone before it began.
                self._go_on(self._unsubscribe(line.s))
            return
        if line.status == "failure":
            is_known = one.opened.done()
            if is_known:
                self._lose(one, str(orjson.loads(raw).get("detail", "")))
            else:
                self._fail(one, Refusal(orjson.loads(raw)))
        elif placing:
            self._placing[line.s] = one
        else:
            self._to_go_on.pop(name, None)
            self._by_upstream.pop(one.upstream_name, None)
            self._by_upstream[line.s] = one
            one.be_named(line.s)

    def _over(self, one: SharedSubscription, line: dict[str, Any]) -> None:
        """Upstream has ended it."""
        self._forget(one)
        channel, now_us = one.channel, self._engine.now_us
        for session in [*channel.members, *channel.joining]:
            session.send_unsubscribed(
                one.name, line.get("reason", "FAILURE"), now_us, line.get("detail")
            )
            self._engine.output.touch(session)
            self._drop(session, one.name)
        self._engine.notify_work()

    def _lose(self, one: SharedSubscription, why: str) -> None:
        """It cannot go on: its sessions are closed, and their clients begin again."""
        log.warning("a subscription to %s cannot go on: %s", one.wanted.topic, why)
        self._forget(one)
        for session in [*one.channel.members, *one.channel.joining]:
            self._end_session(session, self._upstream.lost().reason)

    def _lose_all(self, reason: str) -> None:
        for one in [*self._by_name.values()]:
            if reason.startswith(SLOW):
                continue  # this server was too slow: it goes on by its bookmarks
            self._lose(one, reason)

    def on_lost(self) -> None:
        """What had not begun has failed; the rest goes on when the connection is back."""
        for flush in [*self._flushes]:
            if not flush.done():
                flush.set_exception(self._upstream.lost())
        for one in [*self._by_name.values()]:
            if not one.opened.done():
                self._fail(one, self._upstream.lost())

    async def on_back(self, resumed: bool) -> None:
        """Go on behind what has come. In another session upstream all lines have bookmarks, so that
        no mark is needed; in the same one the last may have been lost."""
        if resumed:
            marks, self._marks = self._marks, {}
            for mark in marks.values():
                self._go_on(self._mark(mark.passed))
        else:
            self._pass(*self._marks)
            self._by_upstream.clear()
            self._to_go_on = dict(self._by_name)
            for one in self._to_go_on.values():
                one.upstream_name = ""  # there it may be the name of another one now
        assert self._link is not None
        for one in [*self._to_go_on.values()]:
            await self._link.send(one.next_frame())

    def on_refused(self, error: SowError) -> None:
        """Its user is not known any more."""
        self._link = None
        for one in [*self._by_name.values()]:
            self._fail(one, error if isinstance(error, ClientError) else self._upstream.lost())
            self._lose(one, error.reason)
        self._pass(*self._marks)
