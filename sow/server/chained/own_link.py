"""A session's own connection to the upstream server: for all that it does not share with others.

Commands are passed on as they came, and so are the lines that answer them: an acknowledgement is
upstream's. What the session's client does not read stays upstream, whose queue acts by the rules of
its topics. The connection is opened when it is needed and closed when it has been idle.

When it is lost, commands that were on their way fail, in their order: nobody knows whether they
were carried out. A client that numbers its messages sends them again, and they are applied once.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from sow.errors import ClientError, SowError, UpstreamLost, shown
from sow.protocol import replies
from sow.protocol.commands import ACKS, Command, acks_of
from sow.protocol.replies import LINES
from sow.protocol.wire import LENGTHS
from sow.server.chained.link import (
    IDLE_S,
    Link,
    LinkPool,
    UpstreamLine,
    name_field,
    place_of,
    read_line,
    renamed,
    without_key,
)
from sow.server.chained.share_keys import ShareKey
from sow.server.chained.shared_channel import Joining
from sow.server.chained.upstream import SideTasks, UpstreamServer, Who
from sow.streaming.channel import DirectChannel
from sow.streaming.sessions import Session

ONLY_ACKED = ("publish", "delta_publish", "sow_delete", "flush")
"""Commands after whose acks nothing comes of them."""
ROOM_S = 0.02
"""Interval of looks whether a slow client has made room: upstream waits meanwhile."""
FILL_MAX = 0.25
"""The part of the session's queue that may be full before no more is read."""
UNKNOWN = "it may or may not have been carried out"


@dataclass(slots=True)
class StandIn:
    """A subscription of the connection that stands for a shared one of its session until upstream
    has replaced it. `state` is what it was sent: nothing of that is passed on, but the difference
    that follows, once the session may be sent it (`gate`); of records that leave if it wants `oof`.
    `on_replaced` is called when the state is final."""

    state: Joining
    oof: bool
    on_replaced: Callable[[], None]
    name: str = ""
    is_replaced: bool = False
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    def take(self, line: UpstreamLine) -> None:
        """A line that brings it up to date."""
        self.state.note(line.k, line.c != "oof", place_of(line.bm) if line.bm else None)


@dataclass(slots=True)
class Beginning:
    """A subscription or snapshot on its way: the client's command, and what is done with the name
    that upstream gives it. `joining` waits for a snapshot that is sent under the name `name`;
    `on_end` is called with its bookmark, or None where it was refused; its rows are sent without
    `sow_keys` if those are not wanted. It is about a `stand_in`, or `replaces` that."""

    command: Command
    name: str = ""
    joining: Joining | None = None
    on_end: Callable[[str | None], None] | None = None
    sow_keys: bool = True
    stand_in: StandIn | None = None
    replaces: bool = False
    name_there: bytes = b""
    bookmark: str = ""

    @property
    def is_apart(self) -> bool:
        """Its client is sent nothing."""
        return self.stand_in is not None and not self.replaces

    def named(self, raw: bytes) -> bytes:
        """A line of it as its client is sent it."""
        line = renamed(raw, self.name_there, name_field(self.name))
        return line if self.sow_keys else without_key(line)


class OwnChannel(DirectChannel):
    """Stands for a subscription of the session's own: its lines pass through its connection."""

    def __init__(self, name: str, session: Session, on_end: Callable[[str], None]) -> None:
        super().__init__(name, LINES)
        self._on_end = on_end
        self.join(session)

    def end(self) -> None:
        """The session has left it."""
        if not self.is_over:
            super().end()
            self._on_end(self.name)


@dataclass(slots=True)
class LinkCalls:
    """What the connection reports: lines for the client, a subscription that has begun or ended,
    and the reason for which the session has to end, or the error of this server."""

    send: Callable[[Sequence[bytes]], None]
    reply: Callable[[dict[str, Any]], None]
    began: Callable[[Command, str], None]
    ended: Callable[[str], None]
    close: Callable[[str], None]
    fail: Callable[[Exception], None]
    is_full: Callable[[], bool]


class OwnLink:
    """The connection of one session, as `who`, whose client is at an `address`. `node` gives names
    to commands that no client can give."""

    def __init__(
        self,
        upstream: UpstreamServer,
        pool: LinkPool,
        who: Who,
        calls: LinkCalls,
        node: str,
        address: str,
    ) -> None:
        self._upstream = upstream
        self._pool = pool
        self.who = who
        self._calls = calls
        self._address = address
        self._mark = f"{node} "
        self._count = 0
        self._link: Link | None = None
        self._opening = asyncio.Lock()
        self._numbered = False
        self._sent: dict[str, list[int]] = {}
        """How many acks each command on its way still gets, by their cids."""
        self._failed: set[str] = set()
        """Cids of commands that have failed when the connection was lost."""
        self._beginnings: dict[str, Beginning] = {}
        self._answer: Beginning | None = None
        """The snapshot whose rows are arriving."""
        self._done: list[Beginning] = []
        """Snapshots whose lines have arrived."""
        self._own: set[str] = set()
        self._is_clean = True
        """Once what is under way is answered, no more comes: the connection may serve others."""
        self._taking = False
        self._stand_in: StandIn | None = None
        self._is_replaced = False
        """The stand-in has been replaced by the last line."""
        self._over: set[str] = set()
        """Stand-ins that are ending: nothing of them is passed on."""
        self._idle: asyncio.TimerHandle | None = None
        self._beside = SideTasks(calls.fail)

    # Commands.

    @property
    def is_used(self) -> bool:
        """It has something that a loss would take away."""
        waits = self._sent or self._beginnings or self._own or self._stand_in
        return bool(waits or self._numbered or self._taking)

    async def number(self, client: str) -> int:
        """Own the name `client` upstream, to number messages, in the session that is there, since
        it may follow something; returns the name's highest number. Raises UpstreamLost, and
        upstream's refusal."""
        had, self._numbered = self._numbered, True
        try:
            link = await self._connected()
            self._is_clean = False
            return await link.own_name(client)
        except BaseException:
            self._numbered = had
            self._look_idle()
            raise

    async def renew(self, who: Who) -> None:
        """Go on as `who`, who shows other credentials of the same user; raises UpstreamLost, and
        upstream's refusal."""
        if self._link is not None:
            await self._link.renew(who)
        self.who = who

    async def pass_on(self, head: dict[str, Any], frame: bytes) -> None:
        """Send a command as it came; raises UpstreamLost, and ClientError for a `cid` that would
        be taken for one of this server's."""
        cid = cid_of(head)
        if cid is not None and cid.startswith(self._mark):
            raise ClientError(f"cid {shown(cid)} begins as this server's own do; write another one")
        link = await self._connected()
        acks = acks_of(acks_wanted(head), cid is not None)
        self._is_clean &= bool(acks) and head["c"] in ONLY_ACKED
        if cid is not None and acks:
            self._sent.setdefault(cid, []).append(len(acks))
        try:
            await link.send(frame)
        except UpstreamLost:
            self._count_down(cid or "", has_failed=True)
            raise
        self._look_idle()

    async def begin(self, head: dict[str, Any], beginning: Beginning) -> None:
        """Send a command whose answer is about a subscription; raises UpstreamLost."""
        link = await self._connected()
        self._count += 1
        cid = f"{self._mark}{self._count}"
        self._beginnings[cid] = beginning
        acks = ",".join(dict.fromkeys(("processed", *acks_wanted(head), "completed")))
        try:
            await link.send(orjson.dumps({**head, "cid": cid, "a": acks}))
        except UpstreamLost:
            self._beginnings.pop(cid, None)
            raise

    def stand_for(self, stand_in: StandIn | None) -> None:
        """Let something stand for a shared subscription; None: it is over."""
        was, self._stand_in = self._stand_in, stand_in
        if was is not None and was.name:
            self._end(was.name)

    def _end(self, name: str) -> None:
        """Nothing of a subscription is passed on any more."""
        self._is_clean = False
        self._over.add(name)
        command = {"c": "unsubscribe", "s": name, "cid": f"{self._mark}{name}"}
        self._beside.start(self._send_quietly(command))

    @property
    def awaits(self) -> bool:
        """Commands are on their way, and neither answered nor failed."""
        return bool(self._sent or self._beginnings)

    async def _connected(self) -> Link:
        async with self._opening:
            if self._link is None:
                self._is_clean = True
                self._link = await self._pool.take(self.who, self, self._address)
            await self._link.ready()
            return self._link

    def stay(self) -> None:
        """Its client is there still: upstream ends what says nothing for long."""
        if self._link is not None:
            self._beside.start(self._send_quietly({"c": "heartbeat"}))

    def unsubscribe(self, name: str) -> None:
        """The session does not follow a subscription of its own any more."""
        if name in self._own:
            self._own.discard(name)
            self._beside.start(self._send_quietly({"c": "unsubscribe", "s": name}))

    async def _send_quietly(self, command: dict[str, Any]) -> None:
        try:
            if self._link is not None:
                await self._link.send(orjson.dumps(command))
        except UpstreamLost:
            pass  # it has ended with the connection
        self._look_idle()

    def _look_idle(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        if not self.is_used and self._link is not None:
            loop = asyncio.get_running_loop()
            delay_s = 0 if self._is_clean else IDLE_S
            self._idle = loop.call_later(delay_s, lambda: self._beside.start(self._close_idle()))

    async def _close_idle(self) -> None:
        async with self._opening:
            if not self.is_used and self._link is not None:
                link, self._link = self._link, None
                await self._pool.give_back(link, self._is_clean)

    async def close(self) -> None:
        """End it."""
        if self._idle is not None:
            self._idle.cancel()
        link, self._link = self._link, None
        self._numbered = False
        if link is not None:
            await self._pool.give_back(link, is_clean=False)

    # The owner of the connection.

    async def take(self, lines: Sequence[bytes]) -> None:
        """Pass on what upstream says; then wait for a client that does not read."""
        self._taking = True
        try:
            await self._take(lines)
        finally:
            self._taking = False
            self._look_idle()

    async def _take(self, lines: Sequence[bytes]) -> None:
        passed: list[bytes] = []
        for line in lines:
            found = self._passed(line)
            if self._is_replaced:
                # The session has to be sent first what was kept for it.
                self._is_replaced = False
                if passed:
                    self._calls.send(passed)
                passed = []
            passed += found
        if self._stand_in is not None and self._stand_in.is_replaced:
            await self._stand_in.gate.wait()
        if passed:
            self._calls.send(passed)
        self._finish()
        await asyncio.sleep(0)
        while self._calls.is_full():
            await asyncio.sleep(ROOM_S)

    def _passed(self, line: bytes) -> Sequence[bytes]:
        """What the client is sent of a line."""
        if line.startswith((b'{"c":"p"', b'{"c":"oof"')):
            return self._change(line) if self._stand_in or self._over else (line,)
        if line.startswith(b'{"c":"sow"'):
            return self._row(line)
        return [*self._take_other(line)]

    def _change(self, raw: bytes) -> Sequence[bytes]:
        line, stand_in, answer = read_line(raw), self._stand_in, self._answer
        if stand_in is None or line.s != stand_in.name:
            return () if line.s in self._over else (raw,)
        if stand_in.is_replaced and answer is None:
            return ()  # it follows the difference: the shared one says it
        stand_in.take(line)
        if not stand_in.is_replaced or answer is None or (line.c == "oof" and not stand_in.oof):
            return ()
        return (answer.named(raw),)

    def _row(self, raw: bytes) -> Sequence[bytes]:
        answer = self._answer
        if answer is None or answer.name_there not in raw[:200]:
            return (raw,)
        if answer.stand_in is not None:
            answer.stand_in.take(read_line(raw))
        elif answer.joining is not None and answer.joining.keys is not None:
            answer.joining.keys.add(read_line(raw).k)
        return () if answer.is_apart else (answer.named(raw),)

    def _take_other(self, raw: bytes) -> Iterator[bytes]:
        line = read_line(raw)
        if line.c == "ack":
            yield from self._take_ack(raw, line.cid)
        elif line.c in ("group_begin", "group_end"):
            answer = self._answer
            if answer is not None and answer.name_there == name_field(line.s):
                answer.bookmark = line.bm or answer.bookmark
                if answer.stand_in is not None:
                    answer.stand_in.take(line)
                if not answer.is_apart:
                    yield answer.named(raw)
            else:
                yield raw
        elif line.c == "unsubscribed":
            self._own.discard(line.s)
            self._calls.ended(line.s)
            yield raw
        elif line.c == "close":
            self._calls.close(line.reason)
        elif line.c == "turn_end":
            yield raw
        # Heartbeats and notices are about this connection, not about the client's.

    def _take_ack(self, raw: bytes, cid: str | None) -> Iterator[bytes]:
        if cid is None or not cid.startswith(self._mark):
            self._count_down(cid or "", b'"status":"failure"' in raw)
            if cid not in self._failed:
                yield raw
            return
        one = self._beginnings.get(cid)
        if one is None:
            self._over.discard(cid.removeprefix(self._mark))
            ack = orjson.loads(raw)
            if ack["a"] == "processed" and "s" in ack and ack["s"] not in self._own:
                self._end(ack["s"])  # its client knows that it is lost
            return
        ack = orjson.loads(raw)
        name = ack.get("s", "")
        yield from self._said(one, ack)
        if ack["status"] == "failure":
            del self._beginnings[cid]
            if one.on_end is not None:
                one.on_end(None)
        elif ack["a"] == "processed":
            self._has_begun(one, name)
        elif ack["a"] == "completed":
            self._beginnings.pop(cid, None)
            self._done.append(one)
            if one is self._answer:
                self._answer = None

    def _count_down(self, cid: str, has_failed: bool) -> None:
        """A command has got an ack; one that has failed gets no other. Of several with one cid it
        may be any: then the one with most acks left, so that none is waited for in vain."""
        left = self._sent.get(cid)
        if left is None:
            return
        self._failed.discard(cid)
        if has_failed:
            left.remove(max(left))
        elif left[0] > 1:
            left[0] -= 1
        else:
            del left[0]
        if not left:
            del self._sent[cid]

    def _has_begun(self, one: Beginning, name: str) -> None:
        if one.stand_in is not None:
            one.stand_in.name = one.stand_in.name or name
            if one.replaces:
                self._is_replaced = one.stand_in.is_replaced = True
                one.stand_in.on_replaced()
        if one.name:
            one.name_there = name_field(name)
            self._answer = one
        else:
            self._own.add(name)
            self._is_clean = False
            self._calls.began(one.command, name)

    def _said(self, one: Beginning, ack: dict[str, Any]) -> Iterator[bytes]:
        """An ack as the client has requested it."""
        command = one.command
        failed = ack["status"] == "failure"
        if one.is_apart:
            return
        if not failed and ack["a"] not in acks_of(command.acks, command.cid is not None):
            return
        del ack["cid"]
        if command.cid is not None:
            ack["cid"] = command.cid
        if one.name and "s" in ack:
            ack["s"] = one.name
        if one.name and not failed:
            ack |= command.ignored_in(ack["a"])
        yield orjson.dumps(ack)

    def _finish(self) -> None:
        """Snapshots that are complete, once their lines are on the way."""
        done, self._done = self._done, []
        for one in done:
            if one.on_end is not None:
                one.on_end(one.bookmark)

    def on_lost(self) -> None:
        """What was on its way has failed."""
        error = self._upstream.lost(UNKNOWN)
        for cid, left in self._sent.items():
            for _ in left:
                self._calls.reply(replies.failure(cid, error))
        self._failed = set(self._sent)
        self._sent.clear()
        for one in [*self._beginnings.values(), *self._done]:
            self._calls.reply(replies.failure(one.command.cid, error))
            if one.on_end is not None:
                one.on_end(None)
        self._beginnings.clear()
        self._done.clear()
        self._answer = None
        self.stand_for(None)

    async def on_back(self, resumed: bool) -> None:
        """Go on; what was followed in another session is not followed in this one."""
        over, self._over = self._over, set()
        if resumed:
            for name in over:
                self._end(name)
        else:
            self._failed.clear()
        if not resumed and self._own:
            self._calls.close(UpstreamLost.reason)

    def on_refused(self, error: SowError) -> None:
        """Upstream does not know the user any more, or another connection has its name."""
        self._pool.forget(self._link)
        self._link = None
        self._calls.close(error.reason)


def cid_of(head: dict[str, Any]) -> str | None:
    """The cid with which a command is answered."""
    cid = head.get("cid")
    known = type(cid) is int or (isinstance(cid, str) and len(cid) <= LENGTHS["cid"])
    return str(cid) if known else None


def acks_wanted(head: dict[str, Any]) -> list[str]:
    """The acks that a line asks for."""
    given = head.get("a")
    words = given.split(",") if isinstance(given, str) else given
    if not isinstance(words, list):
        return []  # it is refused upstream
    return [word for word in (str(one).strip() for one in words) if word in ACKS]


def snapshot_of(command: Command, wanted: ShareKey) -> dict[str, Any]:
    """The query whose answer begins a shared subscription."""
    options = command.options
    fields: dict[str, Any] = {
        "c": "sow",
        "t": wanted.topic,
        "filter": wanted.filter,
        "order_by": command.order_by,
        "top_n": options.top_n,
        "opts": wanted.options("timestamp") or None,
        "a": ",".join(command.acks),
    }
    return {key: value for key, value in fields.items() if value is not None}
