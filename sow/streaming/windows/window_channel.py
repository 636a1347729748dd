"""Window strands: what is said to the members of a live window, and when.

    turn's end, or the end of an interval ──> the page as it is now
        each member: difference from the page that it holds, unless it does not keep up

A window's lines are never folded in a queue: one that takes the place of another would be seen
before a record has made room for it. A member that does not keep up is told nothing instead; the
page that it was last told of is remembered, and once it has taken what waits it is told the
difference to what the window is then, however much has happened. So what is kept for a slow client
is one page, and lines only up to where a queue begins to be conflated. A turn that has no room in
the queue beside what waits is not told either, so that no session is closed for its windows: but
for one turn that is longer than the whole queue, which is told when nothing waits.

`conflation=` is the same for all members: the membership of a window is what is conflated.
"""

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from sow.core import protocol_messages
from sow.core.definitions import Policy
from sow.core.delta import Document, difference
from sow.protocol.encodings import Encoding
from sow.streaming.channel import Channel, raised
from sow.streaming.outbox.entries import QueuedDelivery
from sow.streaming.sessions import Session
from sow.streaming.update_encoder import Delivery, FeedKey, UpdateEncoder
from sow.streaming.windows.window_pages import (
    EMPTY_PAGE,
    PageRow,
    PageStep,
    Parted,
    WindowPage,
    difference_of,
    page_before,
)
from sow.topic.batch import Batch
from sow.topic.rendering import LineColumns, Shape
from sow.topic.updates import Update

WORDED_AT_ONCE = 500
WORDED_BYTES_AT_ONCE = 256 * 1024
"""Rows of an answer that are worded in one go, as everywhere; where they are long, fewer."""


class Room(NamedTuple):
    """What lines take of a queue."""

    message_count: int
    bytes: int


NOTHING_LACKED = Room(0, 0)


class WindowView(Protocol):
    """What a window's strand shows (`sow.streaming.windows.window_feeds`)."""

    lines: UpdateEncoder

    @property
    def can_be_read(self) -> bool:
        """What it shows is there, or at hand."""
        ...

    @property
    def seq(self) -> int:
        """The number of the newest change that it knows of."""
        ...

    def page(self) -> WindowPage:
        """What it shows now; only while that can be read."""
        ...

    def due_us(self) -> int | None:
        """When it goes on with what it takes to be read, if that can be by itself."""
        ...

    def go_on(self, now_us: int) -> "Sequence[WindowChannel]":
        """Take a step towards that; returns whom else that concerns, with the last one."""
        ...


class PageAnswer:
    """What somebody is told who begins to look at a page: what leaves, `left`, and the rows of an
    answer, `come`, each with its place; worded when it is written, some at a time, since a page may
    have very long records. `last` words the last states of what has gone."""

    def __init__(
        self,
        lines: UpdateEncoder,
        last: UpdateEncoder,
        positions: bool,
        left: Sequence[tuple[Update, int]],
        come: Sequence[tuple[str, PageRow, int]],
    ) -> None:
        self._lines = lines
        self._last = last
        self._positions = positions
        self._left = left
        self._come = come
        self.rows = len(left) + len(come)
        self.bytes = sum(len(update.last) for update, _ in left)
        self.bytes += sum(len(row.body) for _, row, _ in come)

    @property
    def is_short(self) -> bool:
        """Whether all of it can be written in one go."""
        return self.rows <= WORDED_AT_ONCE and self.bytes <= WORDED_BYTES_AT_ONCE

    def leavings(self) -> Iterator[list[bytes]]:
        """Lines of what leaves."""
        for start, stop in _pieces([len(update.last) for update, _ in self._left]):
            said = [
                self._words(update).placed_line(update, [at] if self._positions else (), moved=True)
                for update, at in self._left[start:stop]
            ]
            yield [line for line in said if line is not None]

    def _words(self, update: Update) -> UpdateEncoder:
        return self._lines if update.reason == "match" else self._last

    def answer(self) -> Iterator[list[bytes]]:
        """Lines of the rows."""
        for start, stop in _pieces([len(row.body) for _, row, _ in self._come]):
            come = self._come[start:stop]
            columns = LineColumns(
                [self._lines.topic.sow_key_of(identity) for identity, _, _ in come],
                [row.body for _, row, _ in come],
                [row.seq for _, row, _ in come],
                [row.ts_us for _, row, _ in come],
                [at for _, _, at in come] if self._positions else (),
            )
            yield self._lines.answer(columns)


def _pieces(sizes_bytes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Where runs of rows of these sizes begin and end that are written in one go; one at least."""
    start = size_bytes = 0
    for at, size in enumerate(sizes_bytes):
        size_bytes += size
        if at > start and (at - start == WORDED_AT_ONCE or size_bytes > WORDED_BYTES_AT_ONCE):
            yield start, at
            start, size_bytes = at, size
    if start < len(sizes_bytes):
        yield start, len(sizes_bytes)


def _nothing() -> None:
    """What is shown by a strand that has not been shown anything."""


class WindowChannel(Channel):
    """A strand that tells of a window. What it shows (`show`) is known before anybody joins."""

    def __init__(
        self,
        name: str,
        encoding: Encoding,
        key: FeedKey,
        on_failure: Callable[[Channel, Exception], None] = raised,
    ) -> None:
        super().__init__(name, encoding, on_failure)
        self._key = key
        self._view: Callable[[], WindowView | None] = _nothing
        """Weakly: it has the strand, and together they would stay when all have left."""
        self.lines: UpdateEncoder
        """What words what it tells."""
        self._held: dict[Session, WindowPage] = {}
        """The page that each member was last told of."""
        self._newest = EMPTY_PAGE
        """The page that was told of last: who holds an equal one holds this."""
        self._lagging: dict[Session, Room] = {}
        """Members that have not been told of the newest one, and the room that they lacked."""
        self._since_us: int | None = None
        """When what is shown may first have become another than what was told."""
        self._is_due = False

    def show(self, view: WindowView) -> None:
        """What it tells of."""
        self._view, self.lines = weakref.ref(view), view.lines

    @property
    def view(self) -> WindowView:
        """What it tells of."""
        view = self._view()
        assert view is not None, "it is shown nothing any more"
        return view

    # Hearing.

    def notice(self, now_us: int) -> None:
        """What is shown may be another now."""
        if self._since_us is None:
            self._since_us = now_us

    def part_with(self, batch: Batch) -> None:
        """Records have left the topic; who holds them has to be told why."""
        for page in {id(page): page for page in self._held.values()}.values():
            page.part_with(batch)

    # Time.

    def due_us(self) -> int | None:
        """When `release` next has something to do; without an interval it is the turn's end that
        there is to wait for, unless something has to be made first."""
        if self.is_over or self._since_us is None or not self.members:
            return None
        ready_us = None if self.view.can_be_read else self.view.due_us()
        if self._key.interval_us is None or self._is_due:
            return ready_us
        if ready_us is None and not self.view.can_be_read:
            return None
        return max(self._since_us + self._key.interval_us, ready_us or 0)

    def release(self, now_us: int) -> None:
        """Do what is due: `flush` then tells, if all is there that it takes."""
        self.go_on(now_us)

    def go_on(self, now_us: int) -> Sequence["WindowChannel"]:
        """The same; returns others that can tell now, too."""
        others: Sequence[WindowChannel] = ()
        if self.members and not self.view.can_be_read:
            others = self.view.go_on(now_us)
        interval_us, since_us = self._key.interval_us, self._since_us
        if interval_us is not None and since_us is not None:
            self._is_due = since_us + interval_us <= now_us
        return others

    # Members.

    @property
    def waiting(self) -> bool:
        """There is something that `flush` may hand out, and somebody to take it."""
        if self.is_over or not self.members or not self.view.can_be_read:
            return False
        return self._reports_all() or any(map(self._takes, self._lagging))

    def _reports_all(self) -> bool:
        """What has changed is to be told now."""
        if self._since_us is None:
            return False
        return self._is_due or self._key.interval_us is None

    def _takes(self, session: Session) -> bool:
        """Whether a member is told now what there is to tell."""
        if session.holds_back:
            # What it is told when its rights hold counts from the page that it was told of.
            return False
        if self._key.auto:
            return session.idle
        if not self._may_lag(session):
            return True
        if self.lines.topic.folding.policy == "always":
            return session.idle
        return session.keeps_up and session.has_room(*self._lagging.get(session, NOTHING_LACKED))

    def _has_room(self, session: Session, room: Room) -> bool:
        """Whether lines that a member takes may be queued; else it is told later."""
        return not self._may_lag(session) or session.has_room(*room)

    def _may_lag(self, session: Session) -> bool:
        """Whether a member that does not keep up is told later, and not every turn."""
        policy = self.lines.topic.folding.policy
        return policy not in ("off", "unsubscribe") and session.conflates

    def join_at(self, session: Session, seq: int) -> None:
        """Add a member, which holds nothing yet."""
        super().join_at(session, seq)
        self._held[session] = EMPTY_PAGE

    def leave(self, session: Session) -> None:
        """Take a member out; what gathered was handed out."""
        super().leave(session)
        self._held.pop(session, None)
        self._lagging.pop(session, None)

    def held_by(self, session: Session) -> WindowPage:
        """The page that a member holds when it has read what waits for it."""
        return self._held[session]

    def take_back(self, session: Session) -> WindowPage:
        """Let nothing leave that waits for a member; returns the page that it holds then."""
        waiting = session.outbox.sent_under(self.name)
        turns = [entry.delivery.steps for entry in waiting if isinstance(entry, QueuedDelivery)]
        session.take_back_all(self.name)
        return page_before(self._held[session], turns)

    def begin(
        self,
        session: Session,
        held: WindowPage,
        now: WindowPage,
        from_scratch: bool,
        last: Shape | None = None,
    ) -> "PageAnswer":
        """Let a member go from a page to the one that is shown now; returns what is to be said.
        `anew`: it has seen its records otherwise so far; of the last state of one that has gone it
        may be told what both this and the shape `last` show."""
        self._held[session] = now = self._turn_to(now)
        left: list[tuple[Update, int]] = []
        come: list[tuple[str, PageRow, int]] = []
        for step in difference_of(held, now, from_scratch):
            if step.new is not None:
                come.append((step.identity, step.new, step.at))
            elif step.old is not None:
                left.append((self._leaving(step.identity, step.old, held), step.at))
        told = self.lines if last is None else self.lines.within(last)
        return PageAnswer(self.lines, told, self._positions, left, come)

    # Telling.

    def _turn_to(self, page: WindowPage) -> WindowPage:
        """What is shown now, as all hold it who hold the same."""
        if page.rows != self._newest.rows:
            self._newest = page
        return self._newest

    def flush(self, group: int, now_us: int) -> None:
        """Tell each member that keeps up what differs from what it holds."""
        now, reports_all = self._turn_to(self.view.page()), self._reports_all()
        told = [*self.members] if reports_all else [*self._lagging]
        if reports_all:
            self._since_us, self._is_due = None, False
        together: dict[int, list[Session]] = {}
        for session in told:
            if self._held[session].rows == now.rows:
                self._lagging.pop(session, None)
                self._held[session] = now
            elif self._takes(session):
                together.setdefault(id(self._held[session]), []).append(session)
            else:
                self._lagging.setdefault(session, NOTHING_LACKED)
        for sessions in together.values():
            self._send(sessions, now, group, now_us)
        if self._lagging and self._key.interval_us is not None:
            # They are looked at again when the next interval ends.
            self.notice(now_us)

    def _send(self, sessions: Iterable[Session], now: WindowPage, group: int, now_us: int) -> None:
        """Hand members that hold the same page what differs from it."""
        sessions = list(sessions)
        held = self._held[sessions[0]]
        steps = [*difference_of(held, now)]
        said = [self._line(step, held) for step in steps]
        rendered = [line for line in said if line is not None]
        if rendered:
            rendered.append(
                self.encoding.reply(protocol_messages.turn_end(self.name, self.view.seq))
            )
        delivery = Delivery(self.name, self.encoding, rendered, [], self._policy)
        delivery.lead(steps)
        room = Room(delivery.message_count, len(delivery.frame) if rendered else 0)
        for session in sessions:
            if not self._has_room(session, room):
                self._lagging[session] = room
                continue
            self._lagging.pop(session, None)
            self._held[session] = now
            if rendered:
                session.deliver(delivery, group, now_us)

    @property
    def _policy(self) -> Policy:
        policy = self.lines.topic.folding.policy
        return "unsubscribe" if policy == "unsubscribe" else "off"

    @property
    def _positions(self) -> bool:
        return self._key.window is not None and self._key.window.positions

    def _line(self, step: PageStep, held: WindowPage) -> bytes | None:
        """The line of one step from a page that is held."""
        old, new = step.old, step.new
        lines, places = self.lines, [step.at] if self._positions else ()
        if new is None:
            assert old is not None
            update = self._leaving(step.identity, old, held)
            return lines.placed_line(update, places, moved=True)
        delta = None if old is None else self._delta(old, new)
        update = Update(
            step.identity,
            old is not None,
            new.body,
            new.seq,
            new.ts_us,
            new.seq,
            new.ts_us,
            delta=delta,
            old=None if old is None else old.body,
        )
        return lines.placed_line(update, places, moved=step.moved and self._positions)

    def _leaving(self, identity: str, old: PageRow, held: WindowPage) -> Update:
        """A record has left the window: it has gone, or others stand there now."""
        table = self.lines.topic.table
        slot, parted = table.slots.get(identity), held.parted.get(identity)
        seq, ts_us = old.seq, old.ts_us
        if slot is not None:
            seq, ts_us = int(table.seqs[slot]), int(table.ts_us[slot])
            parted = Parted("match", table.bodies[slot])
        assert parted is not None, "nobody knows why a record has gone"
        if parted.reason == "match" and not self.lines.may_see(parted.body or b""):
            parted = Parted("entitlement", None)
        return Update(identity, True, None, seq, ts_us, seq, ts_us, *parted, old=old.body)

    def _delta(self, old: PageRow, new: PageRow) -> Document | None:
        """What a member sees of a change, if it wants deltas and one can say it."""
        lines = self.lines
        if not lines.key.delta or not lines.topic.message_type.partial:
            return None
        renderer = lines.topic.renderer
        before, now = [
            renderer.shown_of(lines.shape, renderer.document(row.body)) for row in (old, new)
        ]
        return difference(before, now)

    def check(self) -> None:
        """Assert what telling relies on."""
        super().check()
        assert self._held.keys() == self.members.keys(), "a page that nobody holds"
        assert self._lagging.keys() <= self.members.keys(), "one who has left is behind"
        view = self._view()
        if view is None or not view.can_be_read or self._since_us is not None or self.is_over:
            return
        now = view.page()
        for session, page in self._held.items():
            assert session in self._lagging or page.rows == now.rows, "a change nobody told of"
