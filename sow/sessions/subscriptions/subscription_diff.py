"""The difference: which records of one topic a session has to be sent when its filter is replaced.

Records are compared by their slots, all at once: a record costs some bytes of masks and no step of
its own, so a million take milliseconds. What waits in windows is there as columns already
(`sow.sessions.subscriptions.pending_updates`). The records to send are pinned as of that moment
(`sow.history.snapshot`) and encoded later, a chunk at a time.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sow.core.cooperative import Task
from sow.expressions import Filter
from sow.history.snapshot import ANSWER_CHUNK_ROWS, Snapshot, Stamps, rows_at_once
from sow.protocol.encodings import Encoding, Frames
from sow.sessions.subscriptions.pending_updates import NO_WAITING, SLOTLESS, PendingColumns
from sow.store.columns import NO_SLOTS, Slots
from sow.streaming.feeds import Place
from sow.streaming.update_encoder import UpdateEncoder
from sow.topic.records import Records
from sow.topic.updates import Update

Mask = NDArray[np.bool_]


class ClientState(NamedTuple):
    """The records of a topic that a session's client holds, including what waits to be sent.

    `slots` are those of the records that it holds once what waits has been sent; for a topic that
    stores nothing, `unstored` are their identities. `reports`: a waiting update knows whether the
    session held its record before.
    """

    slots: Slots
    unstored: frozenset[Place]
    waiting: PendingColumns
    reports: bool


NOTHING_HELD = ClientState(NO_SLOTS, frozenset(), NO_WAITING, True)


class NewMatchSet(NamedTuple):
    """The replacement: the records in `focus`, and those of its answer, in order and whole, if it
    has one; of these only `page` is sent. `wins`: everything else in focus that is not held in its
    visible form is sent, too."""

    focus: Slots
    rows: Slots | None
    page: slice
    wins: bool = False


@dataclass(slots=True)
class ClientDiff:
    """Slots of records: `lost` have left the focus, `late` are sent as they stand, in the place of
    changes with the sequence numbers and times of `late_stamps`, and `rows` are sent in an answer
    of `matches` records. Afterwards the session holds the records `known`.

    `parted` and `late_updates` are updates of records without a slot.
    """

    lost: Slots
    late: Slots
    late_stamps: tuple[NDArray[np.int64], NDArray[np.int64]]
    rows: Slots
    matches: int
    known: Slots
    unstored: frozenset[Place] = frozenset()
    parted: Sequence[Update] = ()
    late_updates: Sequence[Update] = ()
    taken: Slots = field(default_factory=lambda: NO_SLOTS)
    """Those of the lost ones that may not be seen any more, unchanged since they were sent."""

    def line_count(self, oof: bool) -> int:
        """The number of lines; `oof`: with removals."""
        left = len(self.lost) + len(self.taken) + len(self.parted) if oof else 0
        return left + len(self.late) + len(self.late_updates) + len(self.rows)

    def places(self, records: Records) -> Collection[Place]:
        """The records that the session knows of then."""
        return self.known.tolist() if records.retains else self.unstored


def difference(
    records: Records,
    held: ClientState,
    requested: NewMatchSet,
    *,
    same_shape: bool,
    by_deltas: bool,
) -> ClientDiff:
    """The difference between the stored records that a session holds and those that it requests.

    `same_shape`: the visible fields stay the same. `by_deltas`: the client has to hold the whole
    record, or deltas could not be merged into it.
    """
    table = records.table
    size = len(table.bodies)
    has, waits, to_come, focus = (np.zeros(size, np.bool_) for _ in range(4))
    has[held.slots] = focus[requested.focus] = True
    first_seqs, first_ts_us = table.seqs[:size], table.ts_us[:size]
    parted: list[Update] = []
    waiting = held.waiting
    if not held.reports:
        # One record may wait at several places: the last one decides.
        waiting = waiting.in_order()
    if len(waiting.slots):
        there = waiting.slots != SLOTLESS
        slots = waiting.slots[there]
        waits[slots] = True
        to_come[slots] = waiting.to_come[there]
        if held.reports:
            has[slots] = waiting.held[there]
            parted = waiting.at(np.flatnonzero(waiting.held & ~there))
        first_seqs, first_ts_us = first_seqs.copy(), first_ts_us.copy()
        first_seqs[slots] = waiting.first_seqs[there]
        first_ts_us[slots] = waiting.first_ts_us[there]
    current = has & ~waits if held.reports and same_shape else np.zeros(size, np.bool_)
    rows, matches = NO_SLOTS, 0
    if requested.rows is not None:
        rows = requested.rows[~current[requested.rows]]
        matches = len(rows)
        rows = rows[requested.page]
    late = focus & (to_come | (has & ~current & (waits | by_deltas)))
    if requested.wins:
        late |= focus & ~current
    late[rows] = False
    known = has & focus
    known |= late
    known[rows] = True
    late_slots = np.flatnonzero(late)
    return ClientDiff(
        lost=table.ordered(np.flatnonzero(has & ~focus)),
        late=late_slots,
        late_stamps=(first_seqs[late_slots], first_ts_us[late_slots]),
        rows=rows,
        matches=matches,
        known=np.flatnonzero(known),
        parted=parted,
    )


def without_hidden(
    records: Records, found: ClientDiff, held: ClientState, visible: Slots
) -> ClientDiff:
    """The same where only these of the lost records may be seen: the others are sent in the state
    that was last sent."""
    if not len(found.lost):
        return found
    sees = np.zeros(len(records.table.bodies), np.bool_)
    sees[visible] = True
    hidden = found.lost[~sees[found.lost]]
    waiting = held.waiting
    waits = np.isin(waiting.slots, hidden)
    updates = [
        update._replace(new=None, reason="entitlement", parting=None, delta=None)
        for update in waiting.at(np.flatnonzero(waits))
    ]
    return replace(
        found,
        lost=found.lost[sees[found.lost]],
        taken=hidden[~np.isin(hidden, waiting.slots[waits])],
        parted=[*found.parted, *updates],
    )


def all_lost(records: Records, held: ClientState) -> ClientDiff:
    """The difference for a topic that is not requested any more."""
    if not records.retains:
        return ClientDiff(NO_SLOTS, NO_SLOTS, (NO_SLOTS, NO_SLOTS), NO_SLOTS, 0, NO_SLOTS)
    nothing = NewMatchSet(NO_SLOTS, None, slice(None))
    return difference(records, held, nothing, same_shape=True, by_deltas=False)


def unstored_difference(
    records: Records, held: ClientState, condition: Filter | None
) -> ClientDiff:
    """The same for a topic that stores nothing: of its records only the identities that were sent,
    and what waits, are known."""
    newest = {update.identity: update for update in held.waiting.all()}
    waiting = [update for update in newest.values() if update.new is not None]
    if condition is not None:
        bodies = [update.new or b"" for update in waiting]
        columns = records.decoder(condition.paths).columns(bodies)
        messages = records.messages(
            [update.identity for update in waiting],
            bodies,
            [update.seq for update in waiting],
            [update.ts_us for update in waiting],
        )
        inside = condition.matches_messages(columns, messages)
        waiting = [update for update, hit in zip(waiting, inside, strict=True) if hit]
    known = held.unstored.union(update.identity for update in waiting)
    late = [update._replace(delta=None) for update in waiting]
    return ClientDiff(
        NO_SLOTS, NO_SLOTS, (NO_SLOTS, NO_SLOTS), NO_SLOTS, 0, NO_SLOTS, known, late_updates=late
    )


class DiffMessages:
    """The messages of the differences of several topics, pinned as of the moment at which each is
    added: first the removals, topic by topic, then the late updates, in the order of the changes.

    `oldest`: the rest of the updates is in an answer, which a client that resumes from a line does
    not have yet, so no line has a higher bookmark than this; None: there is no answer.
    """

    def __init__(self, encoding: Encoding, oldest: int | None) -> None:
        self._encoding = encoding
        self._oldest = oldest
        self._updates: list[tuple[UpdateEncoder, Update]] = []
        self._lost: list[
            tuple[UpdateEncoder, Sequence[tuple[UpdateEncoder, Update]], Snapshot]
        ] = []
        self._taken: list[tuple[UpdateEncoder, Snapshot]] = []
        self._late: list[tuple[UpdateEncoder, Snapshot]] = []
        self._late_updates: list[tuple[UpdateEncoder, Update]] = []

    @property
    def weight(self) -> int:
        """How many lines there are."""
        lost = sum(len(parted) + len(rows) for _, parted, rows in self._lost)
        late = sum(len(rows) for _, rows in (*self._late, *self._taken))
        return len(self._updates) + lost + late + len(self._late_updates)

    @property
    def is_short(self) -> bool:
        """Whether all of it can be written in one go."""
        held = [rows for _, _, rows in self._lost]
        held += [rows for _, rows in (*self._late, *self._taken)]
        return self.weight <= ANSWER_CHUNK_ROWS and all(rows.is_short for rows in held)

    def take_update(self, lines: UpdateEncoder, update: Update) -> None:
        """The waiting updates of a topic that no longer exists."""
        self._updates.append((lines, lines.as_seen(update)))

    def take(
        self, lines: UpdateEncoder, found: ClientDiff, last: UpdateEncoder | None = None
    ) -> None:
        """Add the difference of a topic, encoded by `lines`; `last` encodes the last states that
        were sent, if with another shape."""
        last = last or lines
        if lines.key.oof and (len(found.lost) or found.parted):
            seen = map(lines.as_seen, found.parted)
            parted = [(lines if one.reason == "match" else last, one) for one in seen]
            self._lost.append((lines, parted, Snapshot.take(lines.topic, found.lost)))
        if lines.key.oof and len(found.taken):
            self._taken.append((last, Snapshot.take(lines.topic, found.taken)))
        if len(found.late):
            rows = Snapshot.take(lines.topic, found.late)
            assert rows.stamps is not None
            seqs, ts_us = found.late_stamps
            stamps = Stamps(rows.stamps.sow_keys, self._claimed(seqs), ts_us)
            self._late.append((lines, replace(rows, stamps=stamps)))
        for update in found.late_updates:
            claimed = min(update.first_seq, self._oldest or update.first_seq)
            self._late_updates.append((lines, update._replace(first_seq=claimed)))

    def _claimed(self, seqs: NDArray[np.int64]) -> NDArray[np.int64]:
        return seqs if self._oldest is None else np.minimum(seqs, self._oldest)

    def settle(self) -> Task[None]:
        """Release pinned records that are in no line."""
        for _, _, rows in self._lost:
            yield from rows.settle()
        for _, rows in (*self._late, *self._taken):
            yield from rows.settle()

    def lines(self) -> Iterator[list[bytes]]:
        """The lines, some hundred at a time."""
        yield from _worded(self._updates)
        for lines, parted, rows in self._lost:
            for start, stop in rows.chunks(rows_at_once(lines.key.shape)):
                yield lines.left(rows.part(start, stop))
            yield from _worded(parted)
        for lines, rows in self._taken:
            for start, stop in rows.chunks(rows_at_once(lines.key.shape)):
                yield lines.left(rows.part(start, stop), "entitlement")
        yield from self._late_lines()

    def frames(self) -> Frames:
        """The lines in frames, each made lazily."""
        for lines in self.lines():
            if lines:
                yield self._encoding.frame(lines), len(lines)

    def _late_lines(self) -> Iterator[list[bytes]]:
        """What is late, in the order of the changes whatever their topics."""
        updates = self._late_updates
        numbers = [rows.stamps.seqs for _, rows in self._late if rows.stamps is not None]
        numbers.append(np.array([update.first_seq for _, update in updates], np.int64))
        sources = np.repeat(np.arange(len(numbers)), [len(some) for some in numbers])
        places = np.concatenate([np.arange(len(some)) for some in numbers])
        order = np.argsort(np.concatenate(numbers), kind="stable")
        for start in range(0, len(order), ANSWER_CHUNK_ROWS):
            part = order[start : start + ANSWER_CHUNK_ROWS]
            for source, run in groupby(part.tolist(), lambda at: int(sources[at])):
                rows = places[list(run)]
                if source == len(self._late):
                    yield from _worded([updates[at] for at in rows.tolist()])
                else:
                    lines, late = self._late[source]
                    some = late.at(rows)
                    for first, last in some.chunks(rows_at_once(lines.key.shape)):
                        yield lines.stand(some.part(first, last))


def _worded(updates: Sequence[tuple[UpdateEncoder, Update]]) -> Iterator[list[bytes]]:
    for start in range(0, len(updates), ANSWER_CHUNK_ROWS):
        some = updates[start : start + ANSWER_CHUNK_ROWS]
        yield [line for lines, update in some if (line := lines.line(update)) is not None]
