"""Window channels: what the members of a live window are sent, and when.

    end of the turn, or of an interval ──> the page as it is now
        each member: difference from the page that it holds, unless it does not keep up

A window's lines are never folded in a queue: one that replaced another would arrive before a record
has made room for it. A member that does not keep up is sent nothing instead; the page that it was
last sent is remembered, and once it has read what waits it gets the difference to the current page,
however much has happened. So a slow client costs one page, and lines only up to where a queue
begins to be conflated. A turn without room in the queue is not sent either, so that no session is
closed because of its windows; only a turn that is longer than the whole queue is sent when nothing
waits.

`conflation=` is the same for all members: what is conflated is the window's content.

A window's feed reads a range of an ordered set (`sow.streaming.windows.ordered_sets`), which
processes the topic's changes for it and notifies it when something may have changed there. The
channel finds out what has changed when it is time to send.
"""

import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from sow.core.definitions import Policy
from sow.core.delta import Document, difference
from sow.expressions import Filter, OrderTerm, parse_order_by
from sow.protocol import replies
from sow.protocol.replies import Encoding
from sow.security.row_level_security import RowPolicy
from sow.store.columns import Slots
from sow.streaming.channel import Channel, raised
from sow.streaming.feeds import Feed
from sow.streaming.outbox import Delivery
from sow.streaming.outbox.entries import QueuedDelivery
from sow.streaming.sessions import Session
from sow.streaming.update_encoder import FeedKey, UpdateEncoder, WindowKey
from sow.streaming.windows import (
    EMPTY_PAGE,
    PageAnswer,
    PageRow,
    PageStep,
    Parted,
    WindowPage,
    difference_of,
    page_before,
)
from sow.streaming.windows.ordered_sets import OrderedSet
from sow.topic.batch import Batch, Update
from sow.topic.records import Records
from sow.topic.rendering import Shape


class Room(NamedTuple):
    """What lines take of a queue."""

    message_count: int
    bytes: int


NOTHING_LACKED = Room(0, 0)


def _nothing() -> None:
    """The view of a channel that shows nothing yet."""


class WindowChannel(Channel):
    """A channel that reports a window. Its view (`show`) is set before the first member joins."""

    def __init__(
        self,
        name: str,
        encoding: Encoding,
        key: FeedKey,
        on_failure: Callable[[Channel, Exception], None] = raised,
    ) -> None:
        super().__init__(name, encoding, on_failure)
        self._key = key
        self._view: Callable[[], WindowFeed | None] = _nothing
        """Weakly: the view refers to the channel, and the cycle would outlive all members."""
        self.encoder: UpdateEncoder
        """Encodes its lines."""
        self._held: dict[Session, WindowPage] = {}
        """The page that each member was last sent."""
        self._newest = EMPTY_PAGE
        """The page that was sent last: members with an equal one share it."""
        self._lagging: dict[Session, Room] = {}
        """Members that have not been sent the newest page, and the room that they lacked."""
        self._since_us: int | None = None
        """When the page may first have come to differ from what was sent."""
        self._is_due = False

    def show(self, view: "WindowFeed") -> None:
        """Set what it reports."""
        self._view, self.encoder = weakref.ref(view), view.encoder

    @property
    def view(self) -> "WindowFeed":
        """What it reports."""
        view = self._view()
        assert view is not None, "the view is gone"
        return view

    # Changes.

    def notice(self, now_us: int) -> None:
        """The page may have changed."""
        if self._since_us is None:
            self._since_us = now_us

    def part_with(self, batch: Batch) -> None:
        """Records have left the topic; members that hold them need the reason."""
        for page in {id(page): page for page in self._held.values()}.values():
            page.part_with(batch)

    # Time.

    def due_us(self) -> int | None:
        """When `advance` next has something to do; without an interval it waits for the end of the
        turn, unless something has to be done first."""
        if self.is_over or self._since_us is None or not self.members:
            return None
        ready_us = None if self.view.can_be_read else self.view.due_us()
        if self._key.interval_us is None or self._is_due:
            return ready_us
        if ready_us is None and not self.view.can_be_read:
            return None
        return max(self._since_us + self._key.interval_us, ready_us or 0)

    def advance(self, now_us: int) -> Sequence[Channel]:
        """Do what is due: `flush` then sends, if the page can be read. Returns other channels that
        can send now."""
        others: Sequence[Channel] = ()
        if self.members and not self.view.can_be_read:
            try:
                others = self.view.go_on(now_us)
            except Exception as error:
                self.fail(error)
                return ()
        interval_us, since_us = self._key.interval_us, self._since_us
        if interval_us is not None and since_us is not None:
            self._is_due = since_us + interval_us <= now_us
        return others

    # Members.

    @property
    def waiting(self) -> bool:
        """`flush` may have something to deliver."""
        if self.is_over or not self.members or not self.view.can_be_read:
            return False
        return self._reports_all() or any(map(self._takes, self._lagging))

    def _reports_all(self) -> bool:
        """What has changed is to be sent now."""
        if self._since_us is None:
            return False
        return self._is_due or self._key.interval_us is None

    def _takes(self, session: Session) -> bool:
        """Whether a member is sent the difference now."""
        if session.holds_back:
            # Once its permissions apply, the difference is from the page that it was sent.
            return False
        if self._key.auto:
            return session.idle
        if not self._may_lag(session):
            return True
        if self.encoder.topic.folding.policy == "always":
            return session.idle
        return session.keeps_up and session.has_room(*self._lagging.get(session, NOTHING_LACKED))

    def _has_room(self, session: Session, room: Room) -> bool:
        """Whether lines for a member may be queued; else it is sent the difference later."""
        return not self._may_lag(session) or session.has_room(*room)

    def _may_lag(self, session: Session) -> bool:
        """Whether a member that does not keep up skips turns."""
        policy = self.encoder.topic.folding.policy
        return policy not in ("off", "unsubscribe") and session.conflates

    def join(self, session: Session) -> None:
        """Add a member, which holds nothing yet."""
        super().join(session)
        self._held[session] = EMPTY_PAGE

    def leave(self, session: Session) -> None:
        """Remove a member; nothing is pending."""
        super().leave(session)
        self._held.pop(session, None)
        self._lagging.pop(session, None)

    def held_by(self, session: Session) -> WindowPage:
        """The page that a member holds when it has read what waits for it."""
        return self._held[session]

    def take_back(self, session: Session) -> WindowPage:
        """Drop what waits for a member; returns the page that it then holds."""
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
    ) -> PageAnswer:
        """Move a member from a page to the current one; returns what it is to be sent.
        `from_scratch`: it has seen its records in another shape so far; of the last state of a
        removed record it may be sent what both this and the shape `last` show."""
        self._held[session] = now = self._turn_to(now)
        left: list[tuple[Update, int]] = []
        come: list[tuple[str, PageRow, int]] = []
        for step in difference_of(held, now, from_scratch):
            if step.new is not None:
                come.append((step.identity, step.new, step.at))
            elif step.old is not None:
                left.append((self._leaving(step.identity, step.old, held), step.at))
        encoder = self.encoder if last is None else self.encoder.within(last)
        return PageAnswer(self.encoder, encoder, self._positions, left, come)

    # Sending.

    def _turn_to(self, page: WindowPage) -> WindowPage:
        """The current page as the object that all members with an equal one share."""
        if page.rows != self._newest.rows:
            self._newest = page
        return self._newest

    def flush(self, group: int, now_us: int) -> None:
        """Send each member that keeps up the difference from what it holds."""
        now, reports_all = self._turn_to(self.view.page()), self._reports_all()
        receivers = [*self.members] if reports_all else [*self._lagging]
        if reports_all:
            self._since_us, self._is_due = None, False
        together: dict[int, list[Session]] = {}
        for session in receivers:
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
            # They are considered again when the next interval ends.
            self.notice(now_us)

    def _send(self, sessions: Iterable[Session], now: WindowPage, group: int, now_us: int) -> None:
        """Send members that hold the same page the difference from it."""
        sessions = list(sessions)
        held = self._held[sessions[0]]
        steps = [*difference_of(held, now)]
        encoded = [self._line(step, held) for step in steps]
        rendered = [line for line in encoded if line is not None]
        if rendered:
            rendered.append(self.encoding.reply(replies.turn_end(self.name, self.view.seq)))
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
        policy = self.encoder.topic.folding.policy
        return "unsubscribe" if policy == "unsubscribe" else "off"

    @property
    def _positions(self) -> bool:
        return self._key.window is not None and self._key.window.positions

    def _line(self, step: PageStep, held: WindowPage) -> bytes | None:
        """The line of one step from a page that is held."""
        old, new = step.old, step.new
        encoder, places = self.encoder, [step.at] if self._positions else ()
        if new is None:
            assert old is not None
            update = self._leaving(step.identity, old, held)
            return encoder.placed_line(update, places, moved=True)
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
        return encoder.placed_line(update, places, moved=step.moved and self._positions)

    def _leaving(self, identity: str, old: PageRow, held: WindowPage) -> Update:
        """A record has left the window: it was removed, or others took its position."""
        table = self.encoder.topic.table
        slot, parted = table.slots.get(identity), held.parted.get(identity)
        seq, ts_us = old.seq, old.ts_us
        if slot is not None:
            seq, ts_us = int(table.seqs[slot]), int(table.ts_us[slot])
            parted = Parted("match", table.bodies[slot])
        assert parted is not None, "a removed record without a reason"
        if parted.reason == "match" and not self.encoder.may_see(parted.body or b""):
            parted = Parted("entitlement", None)
        return Update(identity, True, None, seq, ts_us, seq, ts_us, *parted, old=old.body)

    def _delta(self, old: PageRow, new: PageRow) -> Document | None:
        """The delta of a change as a member sees it; None if it is sent whole."""
        encoder = self.encoder
        if not encoder.key.delta or not encoder.topic.message_type.partial:
            return None
        renderer = encoder.topic.renderer
        before, now = [
            renderer.shown_of(encoder.shape, renderer.document(row.body)) for row in (old, new)
        ]
        return difference(before, now)

    def check(self) -> None:
        """Assert what sending relies on."""
        assert self._held.keys() == self.members.keys(), "pages of other sessions than the members"
        assert self._lagging.keys() <= self.members.keys(), "a former member lags"
        view = self._view()
        if view is None or not view.can_be_read or self._since_us is not None or self.is_over:
            return
        now = view.page()
        for session, page in self._held.items():
            assert session in self._lagging or page.rows == now.rows, "a change that was not sent"


SetKey = tuple[str | None, tuple[OrderTerm, ...], RowPolicy | None]
"""What makes two windows ranges of one ordered set: filter, order and what may be seen."""


class WindowFeed(Feed):
    """The feed of a window's channel, over the set that the topic's router gives it."""

    __slots__ = ("__weakref__", "_ordered", "window")

    channel: WindowChannel

    def __init__(
        self, channel: WindowChannel, topic: Records, key: FeedKey, condition: Filter | None
    ) -> None:
        super().__init__(channel, topic, key, condition)
        assert key.window is not None
        self.window: WindowKey = key.window
        self._ordered: OrderedSet[WindowFeed] | None = None
        channel.show(self)

    def look_at(self, ordered: OrderedSet["WindowFeed"] | None) -> None:
        """Show a range of this set from now on, or of none."""
        if self._ordered is not None:
            self._ordered.remove(self)
        self._ordered = ordered
        if ordered is not None:
            ordered.add(self)

    def begin_with(self, slots: Slots, requested: int, seq: int) -> None:
        """A query for so many records has just found these to be the first, as of the change `seq`:
        the set continues from them, unless it knows as much."""
        self.ordered.begin_with(slots, requested, seq)

    def succeed(self, known: OrderedSet["WindowFeed"], seq: int) -> None:
        """This set knows what it shows, as of the change `seq`, even if its last window has just
        been closed."""
        self.ordered.succeed(known, seq)

    @property
    def set_key(self) -> SetKey:
        """What identifies the set that it is a range of."""
        return set_key_of(self.key.filter, self.window, self.key.guard)

    @property
    def ordered(self) -> OrderedSet["WindowFeed"]:
        """The set that it is a range of; only while it follows its topic."""
        assert self._ordered is not None
        return self._ordered

    @property
    def first(self) -> int:
        """The first position that it shows."""
        return self.window.skip_n

    @property
    def end(self) -> int:
        """How many records, from the first, determine what it shows."""
        return self.window.end

    @property
    def length(self) -> int:
        """How many it shows at most."""
        return self.window.top_n

    @property
    def can_be_read(self) -> bool:
        """What it shows is there, or can be queried at once."""
        return self._ordered is not None and self._ordered.can_be_read

    def page(self) -> WindowPage:
        """The current page; only while it can be read."""
        window = self.window
        return WindowPage(self.ordered.rows(window.skip_n, window.end))

    @property
    def seq(self) -> int:
        """The number of the newest change that it includes."""
        return self.ordered.seq

    def due_us(self) -> int | None:
        """When the set continues the work before it can be read, if it has any."""
        return None if self._ordered is None else self._ordered.due_us()

    def go_on(self, now_us: int) -> Sequence[WindowChannel]:
        """Take a step of that work; returns all readers of the set, with the last one."""
        is_full = self.ordered.go_on(now_us)
        return [one.channel for one in self.ordered.readers] if is_full else ()

    def notice(self, now_us: int) -> None:
        """Something that it shows may have changed."""
        self.channel.notice(now_us)

    def part_with(self, batch: Batch) -> None:
        """Records have left the topic."""
        self.channel.part_with(batch)


def set_key_of(own: str | None, window: WindowKey, guard: RowPolicy | None) -> SetKey:
    """The set of a window over what passes its own filter, and may be seen."""
    terms = terms_of(window)
    return own, terms if guard is None else guard.order(terms), guard


def terms_of(window: WindowKey) -> tuple[OrderTerm, ...]:
    """The order of a window; () is that of first publication."""
    return parse_order_by(window.order_by) if window.order_by else ()
