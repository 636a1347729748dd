"""Folding: how what waits in a queue becomes less, one update at a time.

Frames are taken apart into single updates, and those that match become one
(`sow.topic.queue_policy`), within a *membership*: a session that unsubscribes and comes back begins
another, so that nothing is moved in front of its new snapshot. An update is taken to an earlier one
that waits, or to the end, and never in front of another one of the same record: a record does not
go backwards.

While there is always a commit group on its way to the disk, a record that changes all the time
would never leave if each change were folded into the one that waits. So an update is not folded
into one that is on its way, but gets an entry of its own, into which all that follow are folded.
There are two of a place at most, a *pair*: the older leaves as soon as the disk has it. If it only
waits for the client, both become one again, in the place in which they would stand had the disk had
the older one at once: what leaves, and in which order, does not depend on the disk.

A whole queue is folded in a *passage* through it, some of it in each step. In front stands what was
gone through, within which updates are folded; between two steps anything may leave or be added.
"""

from collections.abc import Callable, Collection

from sow.core.definitions import Policy
from sow.streaming.outbox.entries import ChannelEntries, Foldable, QueuedDelivery, QueuedUpdate
from sow.streaming.outbox.queue import Queue
from sow.streaming.update_encoder import Delivery, FoldPlace, UpdateEncoder
from sow.topic.queue_policy import DISPLACEMENTS_MAX
from sow.topic.updates import Update

MESSAGE_BYTES = 2048
"""So many bytes of a frame count as a message: a record that is told as a delta, or in part, is
read for it, some ten microseconds for so many."""


class Folding:
    """Folds what waits in `queue`; `released` says up to which group everything is durable."""

    def __init__(self, queue: Queue, released: Callable[[], int]) -> None:
        self._queue = queue
        self._released = released

    # Deliveries.

    def go_on(self, passage: int, policies: Collection[Policy], messages_max: int) -> bool:
        """Go through some of what is still to be gone through in this passage: turn shared frames
        of these policies into single updates, and fold these into what stands before them; whether
        there is more."""
        queue, done = self._queue, 0
        while queue.unfolded and done < messages_max:
            entry = queue.unfolded[0]
            done += 1 + entry.message_count + len(entry.frame) // MESSAGE_BYTES
            self._pass(passage, policies)
        return bool(queue.unfolded)

    def _pass(self, passage: int, policies: Collection[Policy]) -> None:
        """Go through the first entry that was not."""
        before = self._queue.line_count
        entry = self._queue.take_unfolded()
        if isinstance(entry, Foldable):
            entry.membership.begin(passage)
        if isinstance(entry, QueuedDelivery) and entry.policy in policies:
            entry.membership.remove(entry.delivery)
            self.spread(entry.membership, entry.delivery, entry.group, entry.since_us)
        elif entry.lives:
            # What was folded before only has to stay where it is, and to be found.
            self._queue.append_folded(entry)
            if isinstance(entry, QueuedUpdate):
                entry.membership.enter(entry)
                self._reunite(entry)
            elif isinstance(entry, QueuedDelivery) and entry.delivery.is_dated:
                # It stays as it is, and nothing that comes after it may go before it.
                entry.membership.close_places()
        if isinstance(entry, Foldable):
            entry.membership.save(before - self._queue.line_count, entry.since_us)

    def pass_unfolded(self, passage: int) -> None:
        """Go through the first entry that was not, and leave it as it is, since nothing that it
        could be folded into stands before it."""
        self._pass(passage, ())

    def spread(
        self, membership: ChannelEntries, delivery: Delivery, group: int, since_us: int
    ) -> None:
        """Queue the updates of a delivery, or let what waits take them in."""
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
        """Queue an update, or let an earlier one that matches take it in."""

        def entry(says: Update = update, moved: int = 0) -> QueuedUpdate:
            return QueuedUpdate(membership, lines, place, says, group, since_us, moved)

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
            # Its topic's policy has been another one meanwhile, under which it waits elsewhere.
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
        """Queue an update as the newer one of a pair; `apart`: between the two stands another one
        of its record, which it must not get in front of."""
        if older is not None:
            entry.stand_apart(apart)
            self._queue.pair(older, entry)
        self._enter(entry)

    def _reunite(self, newer: QueuedUpdate) -> QueuedUpdate | None:
        """Fold a pair whose older one waits for nothing but the client: into the place that the
        update would have got at once, had the older one been durable when it came. Returns the
        newest of their place, None if nothing is left to say of it."""
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
            # The newer one may stand in what a passage has still to go through.
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
        """Let an entry that leaves say what its pair says, if all of that is durable."""
        if older.newer is not None and older.newer.group <= released:
            self._reunite(older.newer)


def _is_starved(entry: QueuedUpdate) -> bool:
    """It was moved to the end so often that it keeps its place; of a pair the newer one stands
    where the older one was moved to once more."""
    moved = entry.moved if entry.older is None else entry.older.moved + 1 + entry.moved
    return moved >= DISPLACEMENTS_MAX


def _moved(folded: Update, newer: Update) -> Update:
    """What two updates became, in the place of the newer one: so is its bookmark."""
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
