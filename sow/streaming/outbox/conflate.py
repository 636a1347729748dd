"""The queue of an outbox, and conflation in it: matching updates become one, one at a time.

Entries stand in order, older the nearer they are to the head, with exact counts of messages and
bytes. One that was folded away stays in place, empty, until it is at the head or most of the queue
is such: removing single entries from the middle would cost as much as the queue is long.

Frames are split into single updates, and those that match (`sow.topic.queue_policy`) become one,
within a `Membership`: a session that unsubscribes and subscribes again begins
another, so that nothing moves in front of its new snapshot. An update goes into an earlier one that
waits, or to the end, and never in front of another one of the same record: a record does not go
backwards.

There is always a commit group on its way to disk, so a record that changes all the time would never
leave if each change were folded into the waiting one. An update is therefore not folded into one
whose group is being written; it gets an entry of its own, and later updates are folded into that.
So a place has at most two entries, a *pair*, which counts as one message: the older one leaves as
soon as its group is durable. If it only waits for the client, both become one again, in the
position they would have if the older one had been durable at once: what leaves, and in which order,
does not depend on the disk.

A whole queue is folded in a *passage* through it, a part in each step. Entries that were passed
stand in front, and updates are folded within these; those that it has not reached are apart
(`unfolded`), behind all others, and new entries are appended there. Between two steps anything may
leave or be added. Of a queue that counts, the next passage goes on behind the last entry of the one
before (`passed`): a client that does not read costs others what is sent to it, not what waits.

What waits counts for a client (`sow.streaming.session_memory`) from `count_for` until all of it has
left. Of a session that is away (`keep_lean`) what counts holds no lines that can be made again, and
of no session does an update that others were folded into: its line is made when it leaves, and not
for each of them.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator
from functools import partial
from itertools import chain, pairwise

from sow.core.cooperative import Task, run_to_completion
from sow.core.definitions import Policy
from sow.streaming.outbox import Delivery, FoldPlace
from sow.streaming.outbox.entries import Foldable, Membership, Queued, QueuedDelivery, QueuedUpdate
from sow.streaming.queue_memory import QueueShare
from sow.streaming.session_memory import QueueCount
from sow.streaming.update_encoder import UpdateEncoder
from sow.topic.batch import Update
from sow.topic.queue_policy import DISPLACEMENTS_MAX

MESSAGE_BYTES = 2048
"""So many bytes of a frame count as a message: a record that is encoded as a delta or in part is
parsed for it, some ten microseconds for so many."""
DEAD_MIN = 64
"""Fewer entries that were folded away are not worth a walk through the queue."""
FREED_AT_ONCE = 1_000
"""Entries of a queue that are dropped in one step, each some seven microseconds if it counts."""
NONE_UNFOLDED: deque[Queued] = deque()
"""Shared by all queues that are not being folded, and never added to: an empty deque takes 760
bytes."""


class Queue:
    """Entries, how many messages they are, and the bytes of their frames. Everything up to the
    group `released()` is durable."""

    __slots__ = (
        "_pairs", "_passed", "_passes_all", "_released", "bytes", "count", "dead", "entries",
        "is_lean", "message_count", "unfolded",
    )  # fmt: skip

    def __init__(self, released: Callable[[], int]) -> None:
        self._released = released
        self.entries: deque[Queued] = deque()
        self.unfolded = NONE_UNFOLDED
        """Entries behind them that a passage has not reached."""
        self._passed: Queued | None = None
        """The last entry of a passage that has folded all up to there."""
        self._passes_all = True
        self.dead = 0
        """Entries that were folded away and are still in place."""
        self._pairs = 0
        self.message_count = 0
        """Lines that wait, of a pair only the newer one."""
        self.bytes = 0
        self.count: QueueCount | None = None
        """What it takes; None while its client keeps up."""
        self.is_lean = False

    def __bool__(self) -> bool:
        return len(self.entries) + len(self.unfolded) > self.dead

    def __iter__(self) -> Iterator[Queued]:
        return chain(self.entries, self.unfolded)

    @property
    def line_count(self) -> int:
        """Lines that wait, of a pair both."""
        return self.message_count + self._pairs

    def oldest_us(self) -> int | None:
        """Since when the head of the queue has waited; nothing has waited longer."""
        return next((entry.since_us for entry in self if entry.lives), None)

    # In and out.

    def append(self, entry: Queued, folded: bool = False) -> None:
        """Append an entry at the end, or, `folded`, behind those that a passage has reached."""
        entries = self.entries if folded else self.unfolded or self.entries
        if entries and entry.since_us < entries[-1].since_us:
            # Never older than an entry that stands before it: a clock may be set back.
            entry.wait_since(entries[-1].since_us)
        if self.count is not None:
            if folded or self:
                self._weigh(entry, 1)
            else:
                self.count = None
        entries.append(entry)
        self.message_count += entry.message_count
        self.bytes += entry.size

    def prepend(self, entry: Queued) -> None:
        """Put an entry before all others."""
        oldest_us = self.oldest_us()
        if oldest_us is not None:
            entry.wait_since(min(entry.since_us, oldest_us))
        self.entries.appendleft(entry)
        self._enter(entry)

    def pop(self, unfolded: bool = False) -> Queued:
        """Remove the first entry, or the first one that a passage has not reached."""
        entry = (self.unfolded if unfolded else self.entries).popleft()
        self.dead -= not entry.lives
        self.message_count -= entry.message_count
        self.bytes -= entry.size
        if entry is self._passed:
            self._passed = None
        if self.count is not None and entry.lives:
            self.count.remove(entry)
        return entry

    def filter(self, concerns: Callable[[Queued], bool], wanted: Callable[[Queued], bool]) -> None:
        """Of the entries that it `concerns` keep those that are `wanted`, which may change them;
        and all others, without counting them again."""
        for unfolded, count in ((False, len(self.entries)), (True, len(self.unfolded))):
            entries = self.unfolded if unfolded else self.entries
            for _ in range(count):
                if entries[0].lives and not concerns(entries[0]):
                    entries.rotate(-1)
                    continue
                entry = self.pop(unfolded)
                if entry.lives and wanted(entry):
                    entries.append(entry)
                    self._enter(entry)

    def drop(self, memberships: Collection[Membership]) -> None:
        """Drop what waits within memberships, which begin again."""
        gone: deque[Queued] = deque()
        self._passed = None
        self.entries = _without(self.entries, memberships, gone)
        self.unfolded = _without(self.unfolded, memberships, gone) or NONE_UNFOLDED
        lines = sum(entry.message_count for entry in gone)
        # Both of a pair are of one membership.
        pairs = sum(type(entry) is QueuedUpdate and entry.older is not None for entry in gone)
        self._pairs -= pairs
        self.message_count -= lines - pairs
        self.bytes -= sum(entry.size for entry in gone)
        self.dead -= sum(not entry.lives for entry in gone)
        for entry in gone:
            if isinstance(entry, QueuedDelivery):
                entry.membership.remove(entry.delivery)
        self._free(gone, memberships)

    def clear(self) -> None:
        """Drop everything that waits."""
        gone = self.entries
        gone.extend(self.unfolded)
        self.entries, self.unfolded, self._passed = deque(), NONE_UNFOLDED, None
        self.message_count = self.bytes = self.dead = self._pairs = 0
        self._free(gone, {entry.membership for entry in gone if isinstance(entry, Foldable)})
        self.count = None

    def _free(self, gone: deque[Queued], memberships: Collection[Membership]) -> None:
        """Free what does not wait any more, in steps where that is much and counts. No cycles are
        left: the collector rarely looks for those of long-lived objects
        (`sow.server.loop.background_work`), so each slow client would leave its queue behind."""
        for membership in memberships:
            membership.restart()
        steps = _let_go(gone, self.count)
        if self.count is None:
            run_to_completion(steps)
        else:
            self.count.share.memory.go_on(steps)

    # What it takes.

    def living(self) -> Iterator[Queued]:
        """What waits, without what was folded away."""
        return (entry for entry in self if entry.lives)

    def count_for(self, share: QueueShare | None) -> None:
        """Count what waits, and what comes until all has left, for a client, or for nobody."""
        if self.count is not None:
            for entry in self.living():
                self.count.remove(entry)
        self.count, self._passed = None if share is None else QueueCount(share), None
        for entry in self.living() if share is not None else ():
            self._weigh(entry, 1)

    def keep_lean(self, is_lean: bool) -> None:
        """From now on what counts is held without lines that can be made again; or what comes is
        held with them, and those that were dropped are made when they leave."""
        self.is_lean = is_lean
        if is_lean and self.count is not None:
            before = sum(len(entry.frame) for entry in self)
            for entry in self:
                entry.strip()
            self.count.note_stripped(before - sum(len(entry.frame) for entry in self))

    def _weigh(self, entry: Queued, times: int) -> None:
        """Count an entry that has come, or with -1 one that goes."""
        if self.count is None:
            return
        if times < 0:
            self.count.remove(entry)
        else:
            if self.is_lean:
                entry.strip()
            self.count.add(entry)

    # Waiting entries.

    def _enter(self, entry: Queued) -> None:
        self.message_count += entry.message_count
        self.bytes += entry.size
        self._weigh(entry, 1)

    def _withdraw(self, entry: Queued) -> None:
        self.message_count -= entry.message_count
        self.bytes -= entry.size
        self._weigh(entry, -1)

    def reframe(self, entry: Queued, frame: bytes) -> None:
        """Replace the frame of an entry."""
        self._withdraw(entry)
        entry.reframe(frame)
        self._enter(entry)

    def rewrite(self, entry: QueuedUpdate, update: Update, group: int) -> None:
        """Replace the update of a single update by one of `group`."""
        self.bytes -= entry.size
        if self.count is None:
            entry.rewrite(update, group)
        elif entry.frame or (grown := entry.encoder.grown(entry.update, update)) is None:
            self.count.change(entry, partial(self._rewrite, entry, update, group))
        else:
            self.count.grow(entry, grown, entry.update.new or b"", update.new or b"")
            entry.grow(update, group, grown)
        self.bytes += entry.size

    def _rewrite(self, entry: QueuedUpdate, update: Update, group: int) -> None:
        entry.rewrite(update, group)
        if self.is_lean:
            entry.strip()

    def kill(self, entry: QueuedUpdate) -> None:
        """Another entry has taken in this one's update."""
        self.part(entry)
        self._withdraw(entry)
        self.dead += 1
        entry.fold_away()

    def pair(self, older: QueuedUpdate, newer: QueuedUpdate, apart: bool = False) -> None:
        """Count two single updates of a place as one message."""
        newer.follow(older, apart)
        self._pairs += 1
        self.message_count -= 1

    def part(self, entry: QueuedUpdate) -> None:
        """Dissolve the pair of a single update, if it has one."""
        parted = entry.part()
        self._pairs -= parted
        self.message_count += parted

    def compact(self) -> None:
        """Remove what was folded away, once it is most of the queue."""
        if self.dead > DEAD_MIN and 2 * self.dead > len(self.entries):
            self.remove_dead()

    def remove_dead(self) -> None:
        """Remove what was folded away, of what was folded."""
        count = len(self.entries)
        if self._passed is not None and not self._passed.lives:
            self._passed = None
        self.entries = deque(entry for entry in self.entries if entry.lives)
        self.dead -= count - len(self.entries)

    # A passage.

    def begin_again(self) -> bool:
        """Begin a passage, unless there is one: through what has come since the last one that has
        folded everything, if that has to be folded for the first time, else through all entries;
        whether it is through all."""
        if self.unfolded:
            return False
        last, self._passed, self._passes_all = self._passed, None, True
        fresh: deque[Queued] = deque()
        while last is not None and self.entries[-1] is not last:
            fresh.appendleft(self.entries.pop())
        if last is None or any(isinstance(entry, QueuedUpdate) for entry in fresh):
            self.entries.extend(fresh)
            self.entries, self.unfolded = deque(), self.entries
            return True
        self.unfolded = fresh or NONE_UNFOLDED
        return False

    def end_passage(self) -> None:
        """Everything was passed that the policies fold: the next passage goes on from here, unless
        a frame stands among it as it was, which the policies of then may fold."""
        if self._passes_all and self.count is not None and self.entries:
            self._passed = self.entries[-1]

    def go_on(self, passage: int, policies: Collection[Policy], messages_max: int) -> bool:
        """Pass some of the unfolded entries: split shared frames of these policies into single
        updates, and fold these into what stands before them; whether there are more."""
        done = 0
        while self.unfolded and done < messages_max:
            entry = self.unfolded[0]
            done += 1 + entry.message_count + entry.size // MESSAGE_BYTES
            self.pass_first(passage, policies)
        return bool(self.unfolded)

    def pass_first(self, passage: int, policies: Collection[Policy] = ()) -> None:
        """Pass the first unfolded entry; as it is, where no entry that it could be folded into
        stands before it."""
        before = self.line_count
        entry = self.pop(unfolded=True)
        if not self.unfolded:
            self.unfolded = NONE_UNFOLDED
        if isinstance(entry, Foldable):
            entry.membership.begin(passage)
        if isinstance(entry, QueuedDelivery) and entry.policy in policies:
            entry.membership.remove(entry.delivery)
            self.spread(entry.membership, entry.delivery, entry.group, entry.since_us)
        elif entry.lives:
            # Folded before: it only has to stay in its position, and be found.
            self.append(entry, folded=True)
            if isinstance(entry, QueuedUpdate):
                entry.membership.enter(entry)
                self._reunite(entry)
            elif isinstance(entry, QueuedDelivery):
                self._passes_all = False
                if entry.delivery.is_dated:
                    # It stays as it is, and nothing that comes after it may move in front of it.
                    entry.membership.newest.clear()
        if isinstance(entry, Foldable):
            entry.membership.save(before - self.line_count, entry.since_us)

    def spread(self, membership: Membership, delivery: Delivery, group: int, since_us: int) -> None:
        """Queue the updates of a delivery, or fold them into what waits."""
        for encoder, place, update in delivery.keyed():
            self._fold(membership, encoder, place, update, group, since_us)

    # One update.

    def _fold(
        self,
        membership: Membership,
        encoder: UpdateEncoder,
        place: FoldPlace,
        update: Update,
        group: int,
        since_us: int,
    ) -> None:
        """Queue an update, or fold it into an earlier one that matches. It is queued as the newer
        one of a pair if it stands behind an older one, and `apart` if another update of its record
        stands between the two: it must not move in front of that."""
        current = membership.newest.get(place)
        if current is not None and current.older is not None:
            current = self._reunite(current)
        older, apart, moved = None, False, 0
        if current is not None:
            older, last = current.older, membership.last(encoder, update)
            # Another update of its record waits behind the place into which this one would go.
            overtakes = (older or current).number < last != current.number
            if overtakes and place[-1] == (update.identity,):
                # The policy has changed, and under the former one the record waits elsewhere.
                older = None
            elif older is None and self._released() < current.group < group:
                older, apart = current, overtakes
            else:
                folded, starved = encoder.fold(current.update, update), _is_starved(current)
                if folded == "kept current":
                    return
                if not isinstance(folded, Update) or (overtakes and starved):
                    older = None
                elif folded.is_void:
                    membership.give_up(current)
                    self.kill(current)
                    return
                elif not overtakes and (starved or not encoder.queue_policy.appends):
                    self.rewrite(current, folded, group)
                    if last != current.number:
                        membership.reach(current)
                    return
                else:
                    apart, moved = overtakes or current.apart, current.moved + 1
                    self.kill(current)
                    update = _moved(folded, update)
        entry = QueuedUpdate(membership, encoder, place, update, group, since_us, moved)
        if older is not None:
            self.pair(older, entry, apart)
        self.append(entry, folded=True)
        membership.enter(entry)

    # Pairs.

    def _reunite(self, newer: QueuedUpdate) -> QueuedUpdate | None:
        """Fold a pair whose older update waits only for the client: into the position the update
        would have if the older one had been durable when it came. Returns the newest entry of the
        place, None if nothing is left to send."""
        older = newer.older
        if older is None or older.group > self._released():
            return newer
        membership, encoder, group = newer.membership, newer.encoder, newer.group
        folded, starved = encoder.fold(older.update, newer.update), _is_starved(older)
        if folded == "kept both" or (newer.apart and starved):
            self.part(newer)
            return newer
        moves = newer.apart or (encoder.queue_policy.appends and not starved)
        if moves and isinstance(folded, Update) and not folded.is_void:
            newer.displace(older)
            # The newer one may be among the unfolded entries.
            membership.discard(older)
            self.kill(older)
            self.rewrite(newer, _moved(folded, newer.update), group)
            return newer
        number = membership.number_of(newer)
        membership.give_up(newer)
        self.kill(newer)
        if isinstance(folded, Update):
            if folded.is_void:
                membership.give_up(older)
                self.kill(older)
                return None
            self.rewrite(older, folded, group)
            membership.reach_instead(older, number)
        return older

    def complete(self, older: QueuedUpdate, released: int) -> None:
        """Fold a leaving entry with its pair, if all of that is durable."""
        if older.newer is not None and older.newer.group <= released:
            self._reunite(older.newer)

    def check(self) -> None:
        """Assert what everything above relies on."""
        entries, living = list(self), [e for e in self if e.lives]
        singles = [entry for entry in living if isinstance(entry, QueuedUpdate)]
        assert self.line_count == sum(entry.message_count for entry in entries)
        assert self.bytes == sum(entry.size for entry in entries)
        for entry in living[-1:]:  # what comes is looked at once, about
            again = entry.again()
            assert again == (entry.frame or again), "made again it is another one"
            assert len(again) == entry.size, "made again it is longer or shorter"
        assert self.dead == len(entries) - len(living)
        pairs = [(e.older, e) for e in singles if e.older is not None]
        assert self._pairs == len(pairs) == sum(e.newer is not None for e in singles)
        assert all(older.newer is newer and older.lives for older, newer in pairs)
        gone_through = {id(entry) for entry in self.entries}
        numbered = [pair for pair in pairs if id(pair[1]) in gone_through]
        assert all(older.number < newer.number for older, newer in numbered)
        assert all(older.place == newer.place and older.older is None for older, newer in pairs)
        assert all(one.since_us <= other.since_us for one, other in pairwise(living))


def _without(
    entries: deque[Queued], memberships: Collection[Membership], gone: deque[Queued]
) -> deque[Queued]:
    """Entries of other memberships, and of none; those of these are added to `gone`."""
    stay: deque[Queued] = deque()
    for entry in entries:
        goes = isinstance(entry, Foldable) and entry.membership in memberships
        (gone if goes else stay).append(entry)
    return stay


def _let_go(gone: deque[Queued], count: QueueCount | None) -> Task[None]:
    """Free what waits no more, and count it no more."""
    while gone:
        for _ in range(min(FREED_AT_ONCE, len(gone))):
            entry = gone.popleft()
            if count is not None and entry.lives:
                count.remove(entry)
            if isinstance(entry, QueuedUpdate):
                entry.part()
        if gone:
            yield


def _is_starved(entry: QueuedUpdate) -> bool:
    """It was moved to the end so often that it keeps its position; of a pair the newer one stands
    where the older one was moved to once more."""
    moved = entry.moved if entry.older is None else entry.older.moved + 1 + entry.moved
    return moved >= DISPLACEMENTS_MAX


def _moved(folded: Update, newer: Update) -> Update:
    """The folded update in the position of the newer one, and so with its bookmark."""
    return folded._replace(first_seq=newer.first_seq)


def folded_alone(delivery: Delivery) -> list[tuple[UpdateEncoder, Update]]:
    """What a queue in which nothing else waits makes of a delivery that it folds."""
    queue = Queue(lambda: 0)
    queue.spread(Membership(delivery.name), delivery, 0, 0)
    return [
        (entry.encoder, entry.update)
        for entry in queue
        if isinstance(entry, QueuedUpdate) and entry.lives
    ]
