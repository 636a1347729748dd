"""The outbox: what waits to be written to one session, in order and bounded.

Frames of channels are shared between sessions and held by reference. While a client keeps up,
nothing but references passes through here. When it does not, updates are *folded*
(`sow.streaming.outbox.conflate`), topic by topic. Whatever must not be changed (acks, snapshots,
topics with the policy `off`) keeps its position.

Every entry has the number of the commit group it belongs to and may leave once that group is
durable, so that nothing a client has seen can be lost in a crash.

There is no I/O and no clock here.
"""

from collections.abc import Callable, Collection, Iterable
from enum import Enum
from typing import Any, Literal, NamedTuple, Self

from sow.core.cooperative import Task
from sow.core.definitions import Policy, SessionSettings
from sow.protocol.replies import Frames
from sow.streaming.outbox import Delivery, Reencode
from sow.streaming.outbox.conflate import MESSAGE_BYTES, Queue, folded_alone
from sow.streaming.outbox.entries import (
    ConflationStats,
    Foldable,
    Membership,
    Queued,
    QueuedDelivery,
    QueuedFrames,
    QueuedUpdate,
)
from sow.streaming.outbox.overflow import ConflationBudget
from sow.streaming.queue_memory import UPDATE_BYTES, Holders
from sow.streaming.session_memory import taken
from sow.topic.records import Records

GATHERED_MAX = 500
"""So many single updates leave in one frame, which is written whole before others have a turn."""
GATHERED_BYTES = 256 * 1024
"""The same in bytes, where they are long: what has left is not counted any more, and sixteen
megabytes take ten milliseconds to be joined and handed to a socket."""
FOLDED_AT_ONCE = 50
"""Messages that one step of folding passes: each takes some seven microseconds where it is one
update of a frame, and one where it was folded before. A large one counts as several
(`MESSAGE_BYTES`)."""
LOOKED_AT_ONCE = 1_000
"""So many entries and lines are looked at in one step of an estimate: each takes some two
microseconds."""
CONFLATION_BUDGET_FACTOR = 2
"""A queue that exceeds its bounds by this factor is folded as it is added to, so many messages for
each new one, within the budget of the step, and before more is added (`ConflationBudget`): else a
busy publisher could stay ahead of it for ever."""

EAGER: tuple[Policy, ...] = ("always",)
ALL: tuple[Policy, ...] = ("always", "conflate", "unsubscribe")
"""Policies that a passage through the queue folds: on queueing, and when it is full."""


class NotYet(Enum):
    """The result of pulling when there is work to do and nothing to send yet: pull again soon."""

    NOT_YET = "not yet"

    def __bool__(self) -> Literal[False]:
        """It is no frame."""
        return False


NOT_YET = NotYet.NOT_YET


class Pulled(NamedTuple):
    """A frame that has left, its number of lines, and since when it had waited; `holders` of one
    that many wait for."""

    frame: bytes
    message_count: int
    since_us: int
    holders: Holders | None = None

    @classmethod
    def of(cls, left: Queued) -> Self:
        """What has left as this entry."""
        holders = left.delivery.holders if isinstance(left, QueuedDelivery) else None
        return cls(left.frame, left.message_count, left.since_us, holders)


class Outbox:
    """What waits for one socket. Everything up to the group `released()` is durable;
    `conflation_budget` bounds the folding of one step."""

    __slots__ = (
        "_again", "_conflation_budget", "_folds", "_memberships", "_notice", "_passage",
        "_released", "_settings", "folded", "folded_always", "queue",
    )  # fmt: skip

    def __init__(
        self,
        settings: SessionSettings,
        released: Callable[[], int] = lambda: 0,
        conflation_budget: ConflationBudget[Any] | None = None,
    ) -> None:
        self._settings = settings
        self.queue = Queue(released)
        self._released = released
        self._conflation_budget: ConflationBudget[Any] = (
            ConflationBudget() if conflation_budget is None else conflation_budget
        )
        self._notice: Queued | None = None
        self._memberships: dict[str, Membership] = {}
        """By name: of channels that the session is a member of and has received something from."""
        self._passage = 0
        """The number of the last passage through the queue, the policies that it folds, and whether
        another one follows."""
        self._folds: tuple[Policy, ...] = ()
        self._again = False
        self.folded = 0
        """Messages that folding has saved."""
        self.folded_always = 0
        """Those of them that were folded on queueing, whether the client reads or not."""

    def __bool__(self) -> bool:
        # Tested for every frame, so without a call to the queue's.
        queue = self.queue
        return len(queue.entries) + len(queue.unfolded) > queue.dead

    @property
    def message_count(self) -> int:
        """The lines that wait, of a pair only the newer one."""
        return self.queue.message_count

    @property
    def size_bytes(self) -> int:
        """The bytes of the frames that wait."""
        return self.queue.bytes

    def oldest_us(self) -> int | None:
        """Since when the head of the queue has waited; nothing has waited longer."""
        return self.queue.oldest_us()

    @property
    def full(self) -> bool:
        """Over one of the bounds. The line of the notice, which says what was folded, does not
        count: a queue that holds as many records as it may is within them."""
        settings, queue = self._settings, self.queue
        return (
            queue.message_count - (self._notice is not None) > settings.queue_messages_max
            or queue.bytes > settings.queue_bytes_max
        )

    def has_room(self, message_count: int, size_bytes: int) -> bool:
        """Whether it stays within its bounds with so much more."""
        settings, queue = self._settings, self.queue
        return (
            queue.message_count + message_count <= settings.queue_messages_max
            and queue.bytes + size_bytes <= settings.queue_bytes_max
        )

    def fills(self, fraction: float) -> bool:
        """Over this fraction of one of the bounds."""
        settings, queue = self._settings, self.queue
        return (
            queue.message_count > fraction * settings.queue_messages_max
            or queue.bytes > fraction * settings.queue_bytes_max
        )

    # In.

    def push(
        self, frame: bytes, message_count: int, group: int, since_us: int, answers: bool = False
    ) -> None:
        """Queue an opaque frame; `answers`: it has records of an answer."""
        self.queue.append(Queued(group, since_us, frame, message_count, answers))

    def push_first(self, pulled: Iterable[Pulled]) -> None:
        """Put frames before all others; they have left once already, and may have records."""
        for frame, message_count, since_us, _ in reversed(list(pulled)):
            self.queue.prepend(Queued(0, since_us, frame, message_count, answers=True))

    def push_notice(self, frame: bytes, since_us: int) -> None:
        """Queue a frame that replaces a waiting one of its kind."""
        if self._notice is None:
            self._notice = Queued(0, since_us, frame, 1)
            self.queue.append(self._notice)
        else:
            self.queue.reframe(self._notice, frame)

    def push_frames_first(self, frames: Frames, since_us: int) -> None:
        """Put frames that are made when they are pulled before all others."""
        self.queue.prepend(QueuedFrames(0, since_us, frames))

    def push_frames(self, frames: Frames, group: int, since_us: int, answers: bool = False) -> None:
        """Queue frames that are made when they are pulled, and are not counted until then;
        `answers`: of rows that were found already."""
        self.queue.append(QueuedFrames(group, since_us, frames, answers))

    def push_delivery(self, delivery: Delivery, group: int, since_us: int, conflates: bool) -> None:
        """Queue a channel's delivery; may leave the queue over its bounds, for the session to
        handle.

        Where the topic is always conflated, its updates are folded at once: among themselves, and
        into those that wait.
        """
        try:
            membership = self._memberships[delivery.name]
        except KeyError:
            membership = self._memberships[delivery.name] = Membership(delivery.name)
        if delivery.policy == "always":
            if conflates:
                before = self.queue.line_count + delivery.message_count
                delivery = delivery.folded(folded_alone)
                folds = self._folds_at_once(membership, delivery, group)
                if folds:
                    self.queue.spread(membership, delivery, group, since_us)
                    self.queue.compact()
                more = 0 if folds else delivery.message_count
                self._save(membership, before - self.queue.line_count - more, since_us)
                # A record may have come and gone at once: an empty frame would end an event stream.
                if not more:
                    return
            membership.add(delivery)
        entry, queue = QueuedDelivery(membership, delivery, group, since_us), self.queue
        if queue.unfolded:
            queue.append(entry)
            self._fold_allowed(delivery, group)
        elif queue.entries:
            queue.append(entry)
        else:
            # Of clients that keep up nothing waits, or counts: without another call.
            queue.count = None
            queue.entries.append(entry)
            queue.message_count, queue.bytes = delivery.message_count, delivery.size

    def _folds_at_once(self, membership: Membership, delivery: Delivery, group: int) -> bool:
        """Whether the updates of a delivery are folded into what waits now. Not while a passage
        has not reached its end, and not over the budget of the step: that begins one."""
        if not self or not delivery.message_count:
            return False
        if membership.eager:
            self._begin(EAGER)
        if self.queue.unfolded:
            return False
        if self._conflation_budget.allowed(group, delivery.message_count):
            return True
        self._begin(EAGER)
        return False

    def _fold_allowed(self, delivery: Delivery, group: int) -> None:
        """Continue a passage that must not fall behind what is added, within the budget of the
        step; the rest is backlog."""
        if self._folds is EAGER:
            wanted = FOLDED_AT_ONCE
        elif self.is_backlogged:
            wanted = CONFLATION_BUDGET_FACTOR * delivery.message_count
        else:
            return
        allowed = self._conflation_budget.allowed(group, wanted)
        if allowed:
            self.fold_some(allowed)

    def _save(self, membership: Membership, count: int, came_us: int) -> None:
        self.folded += count
        self.folded_always += count
        membership.save(count, came_us)

    def saved(self, name: str) -> ConflationStats | None:
        """What folding has saved the session under a channel's name."""
        membership = self._memberships.get(name)
        return None if membership is None else membership.saved

    def leave(self, name: str) -> None:
        """The session has left a channel: what waits stays, and nothing is folded into it."""
        self._memberships.pop(name, None)

    # Out.

    def pull_alone(self, released: int) -> Queued | None:
        """The shared or opaque frame that alone waits, if it may leave: of a client that keeps up
        it nearly always does, so without what `pull` looks at beside. None: `pull`."""
        queue = self.queue
        if len(queue.entries) != 1 or queue.unfolded or queue.count is not None:
            return None
        head = queue.entries[0]
        if head.group > released:
            return None
        if type(head) is QueuedDelivery:
            if head.membership.eager:
                return None
        elif type(head) is not Queued or head is self._notice:
            return None
        queue.entries.clear()
        queue.message_count = queue.bytes = 0
        return head

    def pull(self, released: int, makes: bool = True) -> Queued | NotYet | None:
        """The next frame of a group up to `released`; None when none may leave.

        NOT_YET where the next frame has to be made and the caller, not `makes`, has no time for it,
        or takes more steps to make.
        """
        queue = self.queue
        while queue.entries or queue.unfolded:
            if not queue.entries:
                queue.pass_first(self._passage)
                continue
            head = queue.entries[0]
            if head.group > released:
                break
            if not makes and not head.frame:
                return NOT_YET
            if type(head) is QueuedDelivery:
                # First, and without another call: nearly every entry is one while clients keep up.
                if queue.count is None:
                    queue.entries.popleft()
                    queue.message_count -= head.message_count
                    queue.bytes -= head.delivery.size
                else:
                    queue.pop()
                    head.make()
                if head.membership.eager:
                    head.membership.remove(head.delivery)
                return head
            if isinstance(head, QueuedUpdate):
                pulled = self._gather(released)
                if pulled is not None:
                    return pulled
            elif isinstance(head, QueuedFrames):
                made = self._make(head)
                if made is not None:
                    return made
            else:
                return self._pop_opaque(head)
        return None

    def _pop_opaque(self, head: Queued) -> Queued:
        if head is self._notice:
            self._notice = None
        return self.queue.pop()

    def _make(self, head: QueuedFrames) -> Queued | NotYet | None:
        """The next of the frames that are made on demand; None if there are no more."""
        made = next(head.frames, None)
        if made is None:
            self.queue.pop()
            return None
        return Queued(0, head.since_us, *made) if made[0] else NOT_YET

    def _gather(self, released: int) -> Queued | None:
        """One frame of the single updates at the head; None if all of them were folded away."""
        queue = self.queue
        gathered: list[QueuedUpdate] = []
        size = 0
        while len(gathered) < GATHERED_MAX and size < GATHERED_BYTES and queue.entries:
            entry = queue.entries[0]
            if not isinstance(entry, QueuedUpdate) or entry.group > released:
                break
            before = queue.line_count
            queue.complete(entry, released)
            self._save(entry.membership, before - queue.line_count, entry.since_us)
            queue.pop()
            if entry.lives:
                queue.part(entry)
                entry.membership.forget(entry)
                gathered.append(entry)
                size += entry.size
        if not gathered:
            return None
        frame = gathered[0].encoder.encoding.frame([entry.line for entry in gathered])
        return Queued(0, gathered[0].since_us, frame, len(gathered))

    def clear(self) -> None:
        """Drop everything that waits."""
        self.queue.clear()
        self._memberships.clear()
        self._notice = None

    # Under back-pressure.

    @property
    def is_folded_at_once(self) -> bool:
        """All of it can be folded in a step or two, and the budget of this step allows that."""
        wanted = self.queue.message_count + self.queue.bytes // MESSAGE_BYTES
        return wanted <= FOLDED_AT_ONCE and bool(
            self._conflation_budget.allowed(self._released(), wanted)
        )

    @property
    def is_backlogged(self) -> bool:
        """So far over its bounds that it has to be folded before more is added."""
        return self.fills(CONFLATION_BUDGET_FACTOR)

    @property
    def is_left_unfolded(self) -> bool:
        """What is folded on queueing exceeded the budget of a step."""
        return bool(self.queue.unfolded) and self._folds is EAGER

    def folded_bytes(self, common_part: float) -> Task[float]:
        """About what all that waits now takes once it is folded: a line of its own for each record,
        and of its state, which others may wait for too, a part."""
        records: set[tuple[Records, str]] = set()
        message_count = line_bytes = state_bytes = size_bytes = 0.0
        looked_at = 0
        for entry in list(self.queue):
            if looked_at >= LOOKED_AT_ONCE:
                yield
                looked_at = 0
            looked_at += 1 + entry.message_count
            if isinstance(entry, QueuedDelivery) and entry.policy in ALL:
                records.update(entry.delivery.records())
                message_count += entry.message_count
                line_bytes += 0 if self.queue.is_lean else entry.size
                state_bytes += entry.delivery.states_bytes
            elif entry.lives:
                own, common = taken(entry)
                size_bytes += own + common * common_part
        each = (line_bytes + state_bytes * common_part) / max(1, message_count)
        return size_bytes + len(records) * (each + UPDATE_BYTES)

    def begin_folding(self) -> None:
        """Begin to fold the whole queue, topic by topic; a passage that folds less is ended first,
        since nothing may be folded into entries before those that it has passed."""
        self._again = bool(self.queue.unfolded) and self._folds is not ALL
        self._begin(ALL)

    def _begin(self, policies: tuple[Policy, ...]) -> None:
        if not self.queue.unfolded:
            self._passage += self.queue.begin_again()
            self._folds = policies

    def stop_folding(self) -> None:
        """Leave what is not folded yet as it is."""
        self._folds, self._again = (), False

    def fold_some(self, messages_max: int | None = None) -> bool:
        """Continue to fold the queue; whether there is more of it."""
        before, passes = self.queue.line_count, bool(self.queue.unfolded)
        more = self.queue.go_on(self._passage, self._folds, messages_max or FOLDED_AT_ONCE)
        self.queue.compact()
        self.folded += before - self.queue.line_count
        if self._folds is EAGER:
            self.folded_always += before - self.queue.line_count
        if not more and self._again:
            self._again = False
            self._begin(ALL)
        elif passes and not more and self._folds is ALL:
            self.queue.end_passage()
        return bool(self.queue.unfolded)

    def to_give_up(self) -> list[Membership]:
        """Memberships with a topic that back-pressure unsubscribes.

        What waits of one that has ended stays: it may have been replaced, and later lines under its
        name rely on everything that was sent before.
        """
        if not self._may_give_up:
            return []
        found = dict.fromkeys(
            entry.membership
            for entry in self.queue
            if isinstance(entry, Foldable) and entry.policy == "unsubscribe"
        )
        return [one for one in found if self._memberships.get(one.name) is one]

    @property
    def _may_give_up(self) -> bool:
        """Whether a topic that may wait has that policy: looked for each time a queue is folded, so
        without a call for each entry."""
        frames = [one for one in self.queue.entries if type(one) is QueuedDelivery]
        lines = (line for one in self._memberships.values() for line in one.encoders)
        return (
            bool(self.queue.unfolded)
            or any(one.delivery.policy == "unsubscribe" for one in frames)
            or any(line.queue_policy.policy == "unsubscribe" for line in lines)
        )

    def drop(self, memberships: Collection[Membership]) -> int:
        """Drop what waits of memberships; returns how many lines that were."""
        before = self.queue.line_count
        self.queue.drop({*memberships})
        return before - self.queue.line_count

    def take_back_all(self, name: str) -> None:
        """Drop what waits of a channel, even if the session has left it."""
        waiting = (entry for entry in self.queue if isinstance(entry, Foldable))
        self.drop({entry.membership for entry in waiting if entry.membership.name == name})

    @property
    def has_answers(self) -> bool:
        """Whether anything waits that is not from a channel: rows of an answer, perhaps."""
        return any(not isinstance(entry, Foldable) for entry in self.queue)

    @property
    def has_found_records(self) -> bool:
        """Whether records of answers wait, which were read already."""
        return any(not isinstance(entry, Foldable) and entry.answers for entry in self.queue)

    # Under changed permissions.

    def sent_under(self, name: str) -> list[Foldable]:
        """What waits of a channel, even if the session has left it."""
        return [
            entry
            for entry in self.queue
            if isinstance(entry, Foldable) and entry.lives and entry.membership.name == name
        ]

    def reencode(self, name: str, replace: Reencode) -> None:
        """Replace each waiting update of a channel by `replace` of it, in its position."""

        def concerns(entry: Queued) -> bool:
            return isinstance(entry, Foldable) and entry.membership.name == name

        def stays(entry: Queued) -> bool:
            assert isinstance(entry, Foldable)
            if entry.reencode(replace):
                return True
            if isinstance(entry, QueuedUpdate):
                self.queue.part(entry)
                entry.membership.discard(entry)
            return False

        self.queue.filter(concerns, stays)

    def check(self) -> None:
        """Assert what everything above relies on."""
        self.queue.check()
        assert self._notice is None or self._notice in self.queue
        assert all(one.name == name for name, one in self._memberships.items())
        foldable = [one for one in self.queue if one.lives and isinstance(one, Foldable)]
        folded = len([one for one in self.queue.entries if one.lives and isinstance(one, Foldable)])
        for membership in {entry.membership for entry in foldable} | {*self._memberships.values()}:
            living, unfolded = (
                [entry for entry in part if entry.membership is membership]
                for part in (foldable[:folded], foldable[folded:])
            )
            membership.check(living, unfolded, self._passage)
