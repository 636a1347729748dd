"""A live window upstream that sessions of a chained server share.

What it shows is kept here as a page. So its sessions are sent what those of a server with records
are: the difference from the page that each holds, in its own form and at its own pace, by the same
channel (`sow.streaming.windows.window_channel`). One that joins, or scrolls to another window, is
sent what differs from the page that is here.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

from sow.protocol.replies import LINES
from sow.server.chained.lines import UpstreamLine, place_of, time_of
from sow.server.chained.share_keys import SHARED_FLAGS
from sow.server.chained.shared_channel import SharedChannel
from sow.server.chained.shared_subscription import SharedSubscription
from sow.streaming.sessions import Session
from sow.streaming.update_encoder import FeedKey, UpdateEncoder
from sow.streaming.windows.window_channel import WindowChannel
from sow.streaming.windows.window_pages import (
    EMPTY_PAGE,
    PageAnswer,
    PageRow,
    Parted,
    WindowPage,
)


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
