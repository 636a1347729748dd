"""One subscription upstream that sessions of a chained server share, and the channels of these.

Upstream's lines become updates (`sow.topic.batch`) as far as queues and windows need them. Where
what is said depends on what was sent before, it is known here what upstream has sent (`held`), as
in a feed (`sow.streaming.feeds`). One that has to begin again, since upstream knows no bookmark of
it, is compared with that: its sessions are sent what differs.

What a live window shows is kept here as a page. So its sessions are sent what those of a server
with records are: the difference from the page that each holds, in its own form and at its own pace,
by the same channel (`sow.streaming.windows.window_channel`). One that joins, or scrolls to another
window, is sent what differs from the page that is here.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

from sow.core.definitions import Topic
from sow.core.delta import difference, merged
from sow.protocol.replies import LINES
from sow.server.chained.link import UpstreamLine, name_field, place_of, time_of
from sow.server.chained.share_keys import NO_RECORD, SHARED_FLAGS, ShareKey
from sow.server.chained.shared_channel import (
    ChannelCalls,
    Passed,
    SharedChannel,
    channel_for,
)
from sow.streaming.sessions import Session
from sow.streaming.update_encoder import FeedKey, UpdateEncoder
from sow.streaming.windows import (
    EMPTY_PAGE,
    PageAnswer,
    PageRow,
    Parted,
    WindowPage,
)
from sow.streaming.windows.window_channel import WindowChannel
from sow.topic.batch import Update
from sow.topic.records import Records

PUT_AT_ONCE = 1_000
"""Lines that are put into channels in one step, at some three microseconds each."""


class SharedSubscription:
    """What is `wanted`; `cid` names it in commands, and `new_name` gives names to channels."""

    def __init__(
        self,
        wanted: ShareKey,
        cid: str,
        records: Records,
        calls: ChannelCalls,
        new_name: Callable[[], str],
    ) -> None:
        self.wanted = wanted
        self.cid = cid
        self.channels: dict[Any, FeedKey] = {}
        """Its channels, those of a live window included, and what is sent alike on each."""
        self.upstream_name = ""
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.place: int | None = None
        """What it goes on behind after a loss."""
        self.bookmark = ""
        self.matches = 0
        """How many records passed the filter when it began."""
        self._advice: tuple[str, ...] = ()
        self.log_id = ""
        """The log that its bookmarks are of."""
        self._records = records
        self._calls = calls
        self._new_name = new_name
        self._field = b""
        self._counts = isinstance(records.definition, Topic) and not wanted.aggregated
        """Each line has a higher bookmark than the one before."""
        self._held: dict[str, bytes] | None = {} if wanted.accounts or wanted.bodies else None
        self._rows: dict[str, UpstreamLine] | None = None
        """Those with which it has begun again, until their moment is known."""

    # Its sessions.

    def channel_for(self, key: FeedKey, session: Session, name: str) -> SharedChannel:
        """The channel of those who are sent the same in the same way, under `name` if there is one;
        another one for a session that follows this already."""
        key, there = self._there(key, session, name)
        if there is not None:
            found: SharedChannel = there
            return found
        encoder = UpdateEncoder(self._records, name or self._new_name(), LINES, key)
        channel = channel_for(encoder, self._calls)
        self.channels[channel] = key
        return channel

    def _there(self, key: FeedKey, session: Session, name: str) -> tuple[FeedKey, Any]:
        """The key of a session's channel, and the channel if there is one that it may join."""
        if key.auto:
            key = key._replace(scope=f"session {session.id}")
        for channel, other in self.channels.items():
            is_member = session in channel.members or session in channel.joining
            if other == key and not is_member and name in ("", channel.name):
                return key, channel
        return key, None

    def followers(self) -> Iterator[tuple[Session, Any]]:
        """All sessions that follow it, or are about to."""
        for channel in [*self.channels]:
            for session in [*channel.members, *channel.joining]:
                yield session, channel

    def drop(self, channel: Any) -> None:
        """Nobody follows a channel any more."""
        self.channels.pop(channel, None)

    @property
    def is_followed(self) -> bool:
        """Somebody follows it, or is about to."""
        return bool(self.channels)

    # Its commands.

    def first_frame(self) -> bytes:
        """What begins it. Of single changes only the bookmark is requested before."""
        wanted, kind = self.wanted, "delta_subscribe" if self.wanted.delta else "subscribe"
        options = wanted.options(*SHARED_FLAGS)
        if wanted.begins:
            return wanted.line(f"sow_and_{kind}", self.cid, opts=options)
        first = wanted.line("sow", f"{self.cid} place", opts=wanted.options(), keys=NO_RECORD)
        return first + b"\n" + wanted.line(kind, self.cid, opts=options)

    def next_frame(self) -> bytes:
        """What continues it, in a new session upstream, which may have another log by then."""
        if self.wanted.aggregated:
            self._rows = {}
            return self.first_frame()
        kind = "delta_subscribe" if self.wanted.delta else "subscribe"
        place = f"{self.log_id}-{self.bookmark}"
        return self.wanted.line(kind, self.cid, opts=self.wanted.options(*SHARED_FLAGS), bm=place)

    # What upstream says.

    def be_of_log(self, log_id: str) -> None:
        """Its bookmarks are of this log."""
        self.log_id = log_id

    def be_counted(self, matches: int | None) -> None:
        """So many records passed the filter when it began."""
        self.matches = matches or 0

    def be_unnamed(self) -> None:
        """Upstream does not know it in its present session."""
        self.upstream_name = ""

    def be_named(self, upstream_name: str, advice: tuple[str, ...] = ()) -> None:
        """Upstream has begun it under this name, with advice on fields that no record has."""
        self.upstream_name, self._advice = upstream_name, advice
        self._field = name_field(upstream_name)
        self._look_open()

    def take_remarks(self) -> dict[str, object]:
        """The field of acks with that advice, once: records may be others for who comes later."""
        advice, self._advice = self._advice, ()
        return {"advice": advice} if advice else {}

    def note_place(self, place: int, bookmark: str) -> None:
        """Everything up to a bookmark has come, which is this place."""
        self.place, self.bookmark = place, bookmark
        if not self.opened.done():
            self._look_open()

    def _look_open(self) -> None:
        """It has begun once it can go on after a loss."""
        if self.upstream_name and self.bookmark and not self.opened.done():
            self.opened.set_result(None)

    def take_row(self, line: UpstreamLine) -> None:
        """A row of the snapshot that it begins with: what each session has or will have got."""
        if self._rows is not None:
            self._rows[line.k] = line
        elif self._held is not None:
            self._held[line.k] = self._body(line) if self.wanted.bodies else b""

    def take_end(self, line: UpstreamLine, now_us: int) -> None:
        """The snapshot is complete."""
        self.note_place(place_of(line.bm), line.bm)
        rows, self._rows = self._rows, None
        if rows is None:
            return
        assert self._held is not None
        left = [key for key in self._held if key not in rows]
        lines = [UpstreamLine("oof", k=key, reason="deleted") for key in left]
        lines += [one for key, one in rows.items() if self._held.get(key) != self._body(one)]
        for one in lines:
            update = self._update(one, self.place or 0, time_of(one.ts))
            if update is not None:
                self._put(update, now_us)

    def take_turn(self, line: UpstreamLine, now_us: int) -> None:
        """A live window is complete."""

    def take(self, changes: Sequence[tuple[UpstreamLine, bytes]], now_us: int) -> Iterator[int]:
        """Changes, in order, each with its line as it came; in steps. Each step says how many
        lines it has put into channels."""
        passed: list[Passed] = []
        for line, raw in changes:
            bookmark = line.bm
            place = place_of(bookmark) if bookmark else self.place or 0
            if bookmark:
                if self._counts and self.place is not None and place <= self.place:
                    continue  # upstream has begun it twice, since the connection was lost twice
                self.note_place(place, bookmark)
            update = self._update(line, place, time_of(line.ts) if line.ts else 0)
            if update is not None:
                passed.append(Passed(update, raw, self._field, bool(bookmark)))
        channels = [*self.channels]
        some = max(1, PUT_AT_ONCE // max(1, len(passed)))
        # Who joins between two steps has a snapshot that is newer.
        for start in range(0, len(channels), some):
            part = channels[start : start + some]
            for channel in part:
                channel.put_all(passed, now_us)
            yield len(passed) * len(part)

    def _put(self, update: Update, now_us: int) -> None:
        """A change that upstream has not sent as one."""
        for channel in [*self.channels]:
            line = channel.encoder.line(update)
            if line is not None:
                channel.put_all([Passed(update, line, name_field(channel.name))], now_us)

    def _body(self, line: UpstreamLine) -> bytes:
        return self._records.message_type.from_line(bytes(line.d))

    def _update(self, line: UpstreamLine, seq: int, ts_us: int) -> Update | None:
        """The update that a line stands for; None: the sessions have it already."""
        key, held = line.k, self._held
        body = self._body(line) if line.d else b""
        if held is None and line.c == "p":  # most lines of most subscriptions
            return Update(key, True, body, seq, ts_us, seq, ts_us)
        reason: Any = line.reason
        if held is None:  # its user may not see it any more
            return Update(key, True, None, seq, ts_us, seq, ts_us, reason or None, old=body)
        known, old = key in held, held.get(key) or None
        if line.c == "oof":
            if not known:
                return None
            del held[key]
            last = body or old
            return Update(key, True, None, seq, ts_us, seq, ts_us, reason, parting=last, old=last)
        delta = None
        if line.delta:
            parse = self._records.renderer.document
            before, said = parse(old or b""), parse(body)
            now = merged(before, said)
            body, delta = self._records.message_type.encode(now), difference(before, now)
        held[key] = body if self.wanted.bodies else b""
        return Update(key, known, body, seq, ts_us, seq, ts_us, delta=delta, old=old)


class SharedView:
    """What a channel shows of a window, with the `encoder` of its lines."""

    can_be_read = True

    def __init__(self, window: "SharedWindow", encoder: UpdateEncoder) -> None:
        self._window = window
        self.encoder = encoder

    def page(self) -> WindowPage:
        """The page as it is now."""
        return self._window.page

    @property
    def seq(self) -> int:
        """The bookmark that it is as of."""
        return self._window.place or 0

    def due_us(self) -> None:
        """It is always there."""


class SharedWindowChannel(WindowChannel):
    """The window as some sessions are sent it; `on_over` is called once there are none."""

    def __init__(
        self,
        window: "SharedWindow",
        encoder: UpdateEncoder,
        on_over: Callable[["SharedWindowChannel"], None],
    ) -> None:
        super().__init__(encoder.name, LINES, encoder.key)
        self.window = window
        self._on_over = on_over
        self._shown = SharedView(window, encoder)
        self.show(cast(Any, self._shown))
        self.joining: dict[Session, None] = {}
        """Those that wait until there is a page."""

    def part(self, identity: str, parted: Parted) -> None:
        """A record has left the window."""
        for page in {id(page): page for page in self._held.values()}.values():
            if identity in page.rows:
                page.parted[identity] = parted

    def begun(
        self, session: Session, held: WindowPage = EMPTY_PAGE, from_scratch: bool = False
    ) -> PageAnswer:
        """Let a session follow it that holds a page; returns what it is to be sent."""
        self.joining.pop(session, None)
        self.join(session)
        now = self.window.page
        there = WindowPage({key: _known(now, key, row) for key, row in held.rows.items()})
        # What has scrolled out of sight is as it was.
        there.parted.update({key: Parted("match", row.body) for key, row in held.rows.items()})
        there.parted.update(held.parted)
        return self.begin(session, there, now, from_scratch)

    def give_up(self, session: Session) -> None:
        """A session that was on its way does not come."""
        self.joining.pop(session, None)
        if not self.members:
            self.end()

    def leave(self, session: Session) -> None:
        """A member leaves, or one that is on its way."""
        self.joining.pop(session, None)
        super().leave(session)

    def fall_silent(self) -> None:
        """It goes on until it ends, for those that are on their way."""

    def end(self) -> None:
        """The last member has left; others may be on their way."""
        if not self.joining and not self.is_over:
            super().end()
            self._on_over(self)


SHARED = (SharedChannel, SharedWindowChannel)
"""The channels of what is shared."""


class SharedWindow(SharedSubscription):
    """A live window that is `wanted`."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.page = EMPTY_PAGE
        self._order: list[str] = []
        self._shown: dict[str, PageRow] = {}
        self._left: set[str] = set()
        """The records of the last page that upstream has reported to have left."""

    def window_for(
        self, key: FeedKey, session: Session, name: str, over: Callable[[SharedWindowChannel], None]
    ) -> SharedWindowChannel:
        """The channel of those who are sent the same in the same way."""
        key, there = self._there(key, session, name)
        if there is not None:
            found: SharedWindowChannel = there
            return found
        encoder = UpdateEncoder(self._records, name or self._new_name(), LINES, key)
        channel = SharedWindowChannel(self, encoder, over)
        self.channels[channel] = key
        return channel

    def first_frame(self) -> bytes:
        """What begins it."""
        window = self.wanted.window
        assert window is not None
        more = {"top_n": window.top_n, "skip_n": window.skip_n, "a": "processed,completed"}
        options = self.wanted.options(*SHARED_FLAGS)
        return self.wanted.line("sow_and_subscribe", self.cid, opts=options, **more)

    def next_frame(self) -> bytes:
        """What begins it again: its sessions are sent what differs then."""
        self._order, self._shown = [], {}
        return self.first_frame()

    def take_row(self, line: UpstreamLine) -> None:
        """A row of the window that it begins with."""
        self._put_row(line)

    def take_end(self, line: UpstreamLine, now_us: int) -> None:
        """The window is complete."""
        for key, row in self.page.rows.items():
            if key not in self._shown and key not in self._left:
                self._part(key, Parted("match", row.body))
        self.take_turn(line, now_us)

    def take(self, changes: Sequence[tuple[UpstreamLine, bytes]], _now_us: int) -> Iterator[int]:
        """Steps to the next page."""
        for line, _ in changes:
            if line.c == "p":
                self._put_row(line)
            elif line.k in self._shown:
                self._order.remove(line.k)
                del self._shown[line.k]
                self._left.add(line.k)
                reason: Any = line.reason
                self._part(line.k, Parted(reason, self._body(line)))
        yield len(changes) * len(self.channels)

    def take_turn(self, line: UpstreamLine, now_us: int) -> None:
        """The page is complete as of a bookmark."""
        self.note_place(place_of(line.bm), line.bm)
        self.page = WindowPage({key: self._shown[key] for key in self._order})
        self._left.clear()
        for channel in self.channels:
            channel.notice(now_us)

    def _put_row(self, line: UpstreamLine) -> None:
        if line.k in self._shown:
            self._order.remove(line.k)
        self._order.insert(len(self._order) if line.at is None else line.at, line.k)
        seq = place_of(line.bm) if line.bm else 0
        row = PageRow(self._body(line), seq, time_of(line.ts), 0)
        self._shown[line.k] = row if line.bm else _known(self.page, line.k, row)

    def _part(self, identity: str, parted: Parted) -> None:
        for channel in self.channels:
            channel.part(identity, parted)


def _known(page: WindowPage, key: str, row: PageRow) -> PageRow:
    """A row as a page has it, if that shows the same state: only changes have a bookmark."""
    there = page.rows.get(key)
    is_same = there is not None and (there.body, there.ts_us) == (row.body, row.ts_us)
    return there if there is not None and is_same else row
