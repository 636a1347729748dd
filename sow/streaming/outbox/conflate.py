"""Conflation in a queue: matching updates become one, one update at a time.

Frames are split into single updates, and those that match (`sow.topic.queue_policy`) become one,
within a *membership* (`ChannelEntries`): a session that unsubscribes and subscribes again begins
another, so that nothing moves in front of its new snapshot. An update goes into an earlier one that
waits, or to the end, and never in front of another one of the same record: a record does not go
backwards.

There is always a commit group on its way to disk, so a record that changes all the time would never
leave if each change were folded into the waiting one. An update is therefore not folded into one
whose group is being written; it gets an entry of its own, and later updates are folded into that.
So a place has at most two entries, a *pair*: the older one leaves as soon as its group is durable.
If it only waits for the client, both become one again, in the position they would have if the older
one had been durable at once: what leaves, and in which order, does not depend on the disk.

A whole queue is folded in a *passage* through it, a part in each step. Entries that were passed
stand in front, and updates are folded within these; between two steps anything may leave or be
added.
"""

from collections.abc import Callable, Collection

from sow.core.definitions import Policy
from sow.streaming.outbox.entries import ChannelEntries, Foldable, QueuedDelivery, QueuedUpdate
from sow.streaming.outbox.queue import Queue
from sow.streaming.update_encoder import Delivery, FoldPlace, UpdateEncoder
from sow.topic.queue_policy import DISPLACEMENTS_MAX
from sow.topic.updates import Update

MESSAGE_BYTES = 2048
"""So many bytes of a frame count as a message: a record that is encoded as a delta or in part is
parsed for it, some ten microseconds for so many."""


class Folding:
    """Folds what waits in `queue`; everything up to the group `released()` is durable."""

    __slots__ = ("_queue", "_released")

    def __init__(self, queue: Queue, released: Callable[[], int]) -> None:
        self._queue = queue
        self._released = released

    # Deliveries.

    def go_on(self, passage: int, policies: Collection[Policy], messages_max: int) -> bool:
        """Pass some of the unfolded entries: split shared frames of these policies into single
        updates, and fold these into what stands before them; whether there are more."""
        queue, done = self._queue, 0
        while queue.unfolded and done < messages_max:
            entry = queue.unfolded[0]
            done += 1 + entry.message_count + len(entry.frame) // MESSAGE_BYTES
            self._pass(passage, policies)
        return bool(queue.unfolded)

    def _pass(self, passage: int, policies: Collection[Policy]) -> None:
        """Pass the first unfolded entry."""
        before = self._queue.line_count
        entry = self._queue.take_unfolded()
        if isinstance(entry, Foldable):
            entry.membership.begin(passage)
        if isinstance(entry, QueuedDelivery) and entry.policy in policies:
            entry.membership.remove(entry.delivery)
            self.spread(entry.membership, entry.delivery, entry.group, entry.since_us)
        elif entry.lives:
            # Folded before: it only has to stay in its position, and be found.
            self._queue.append_folded(entry)
            if isinstance(entry, QueuedUpdate):
                entry.membership.enter(entry)
                self._reunite(entry)
            elif isinstance(entry, QueuedDelivery) and entry.delivery.is_dated:
                # It stays as it is, and nothing that comes after it may move in front of it.
                entry.membership.close_places()
        if isinstance(entry, Foldable):
            entry.membership.save(before - self._queue.line_count, entry.since_us)

    def pass_unfolded(self, passage: int) -> None:
        """Pass the first unfolded entry as it is: no entry that it could be folded into stands
        before it."""
        self._pass(passage, ())

    def spread(
        self, membership: ChannelEntries, delivery: Delivery, group: int, since_us: int
    ) -> None:
        """Queue the updates of a delivery, or fold them into what waits."""
        for lines, place, update in delivery.keyed():
            self._fold(membership, lines, place, update, group, since_us)

    # One update.

    def _fold(
        self,
        membership: ChannelEntries,
        lines: UpdateEncoder,
        place: FoldPlace,
        update: Update,
        group: int,
        since_us: int,
    ) -> None:
        """Queue an update, or fold it into an earlier one that matches."""

        def entry(of: Update = update, moved: int = 0) -> QueuedUpdate:
            return QueuedUpdate(membership, lines, place, of, group, since_us, moved)

        current = membership.newest.get(place)
        if current is not None:
            current = self._reunite(current)
        if current is None:
            self._enter(entry())
            return
        older, last = current.older, membership.last(lines, update)
        # Another update of its record waits behind the place into which this one would go.
        overtakes = (older or current).number < last != current.number
        if overtakes and place[-1] == (update.identity,):
            # The topic's policy has changed, and under the former one the record waits elsewhere.
            self._enter(entry())
            return
        if older is None and self._released() < current.group < group:
            self._enter_behind(entry(), current, overtakes)
            return
        folded, starved = lines.fold(current.update, update), _is_starved(current)
        if folded == "kept current":
            return
        if not isinstance(folded, Update) or (overtakes and starved):
            self._enter(entry())
        elif folded.is_void:
            membership.give_up(current)
            self._queue.kill(current)
        elif not overtakes and (starved or not lines.queue_policy.appends):
            self._rewrite(current, folded, group)
        else:
            apart = overtakes or current.apart
            self._queue.kill(current)
            self._enter_behind(entry(_moved(folded, update), current.moved + 1), older, apart)

    def _enter(self, entry: QueuedUpdate) -> None:
        self._queue.append_folded(entry)
        entry.membership.enter(entry)

    def _rewrite(self, entry: QueuedUpdate, update: Update, group: int) -> None:
        self._queue.rewrite(entry, update, group)
        entry.membership.reach(entry)

    # Pairs.

    def _enter_behind(self, entry: QueuedUpdate, older: QueuedUpdate | None, apart: bool) -> None:
        """Queue an update as the newer one of a pair; `apart`: another update of its record stands
        between the two, and it must not move in front of that."""
        if older is not None:
            entry.stand_apart(apart)
            self._queue.pair(older, entry)
        self._enter(entry)

    def _reunite(self, newer: QueuedUpdate) -> QueuedUpdate | None:
        """Fold a pair whose older update waits only for the client: into the position the update
        would have if the older one had been durable when it came. Returns the newest entry of the
        place, None if nothing is left to send."""
        older = newer.older
        if older is None or older.group > self._released():
            return newer
        membership, lines, group = newer.membership, newer.lines, newer.group
        folded, starved = lines.fold(older.update, newer.update), _is_starved(older)
        if folded == "kept both" or (newer.apart and starved):
            self._queue.part(newer)
            return newer
        moves = newer.apart or (lines.queue_policy.appends and not starved)
        if moves and isinstance(folded, Update) and not folded.is_void:
            newer.displace(older)
            # The newer one may be among the unfolded entries.
            membership.discard(older)
            self._queue.kill(older)
            self._queue.rewrite(newer, _moved(folded, newer.update), group)
            return newer
        number = membership.number_of(newer)
        membership.give_up(newer)
        self._queue.kill(newer)
        if isinstance(folded, Update):
            if folded.is_void:
                membership.give_up(older)
                self._queue.kill(older)
                return None
            self._queue.rewrite(older, folded, group)
            membership.reach_instead(older, number)
        return older

    def complete(self, older: QueuedUpdate, released: int) -> None:
        """Fold a leaving entry with its pair, if all of that is durable."""
        if older.newer is not None and older.newer.group <= released:
            self._reunite(older.newer)


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
    queue = Queue()
    Folding(queue, lambda: 0).spread(ChannelEntries(delivery.name), delivery, 0, 0)
    return [
        (entry.lines, entry.update)
        for entry in queue
        if isinstance(entry, QueuedUpdate) and entry.lives
    ]
