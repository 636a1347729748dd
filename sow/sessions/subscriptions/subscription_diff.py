"""The difference between what a client holds of a topic and what it shall hold, and its lines.

    ClientState  ──┐
                   ├─ client_diff ─> records that leave, come or have changed
    ClientTarget ──┘

A pure function, whatever the reason: another filter, other permissions, a reload. Records are
compared by their slots, all at once: a record costs some bytes of masks and no step of its own, so
a million take milliseconds. What waits in windows is there as columns already
(`sow.sessions.subscriptions.pending_updates`). The records to send are pinned as of that moment
(`sow.history.snapshot`) and encoded later, a chunk at a time.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sow.core.cooperative import Task
from sow.core.definitions import Topic
from sow.expressions import Filter
from sow.history.snapshot import ANSWER_CHUNK_ROWS, Snapshot, Stamps, rows_at_once
from sow.protocol.replies import Encoding, Frames, SentPlace
from sow.sessions.subscriptions.pending_updates import NO_WAITING, SLOTLESS, PendingColumns
from sow.store.columns import NO_SLOTS, Slots
from sow.streaming.feeds import Feed, Place
from sow.streaming.update_encoder import UpdateEncoder, withdrawn
from sow.topic.batch import Update
from sow.topic.records import Records
from sow.topic.rendering import LineColumns


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


class ClientTarget(NamedTuple):
    """The records of a topic that a session's client shall hold: those in `focus`, and those of its
    answer, in order and whole, if it has one; of these only `page` is sent.

    `sends_newly_visible`: everything else in focus that is not held in its visible form is sent,
    too. `visible` are the records that may be seen; None: all. `same_shape`: the visible fields
    stay the same. `by_deltas`: the client has to hold the whole record, or deltas could not be
    merged into it. Of a topic that stores nothing it shall hold what passes `condition`, if it
    still `follows` it.
    """

    focus: Slots = NO_SLOTS
    rows: Slots | None = None
    page: slice = slice(None)
    sends_newly_visible: bool = False
    visible: Slots | None = None
    same_shape: bool = True
    by_deltas: bool = False
    follows: bool = False
    condition: Filter | None = None


class ClientDiff(NamedTuple):
    """Slots of records: `lost` have left the focus, `late` are sent as they stand, in the place of
    changes with the sequence numbers and times of `late_stamps`, and `rows` are sent in an answer
    of `matches` records. Afterwards the session holds the records `known`.

    `parted` and `late_updates` are updates of records without a slot.
    """

    lost: Slots = NO_SLOTS
    late: Slots = NO_SLOTS
    late_stamps: tuple[NDArray[np.int64], NDArray[np.int64]] = (NO_SLOTS, NO_SLOTS)
    rows: Slots = NO_SLOTS
    matches: int = 0
    known: Slots = NO_SLOTS
    unstored: frozenset[Place] = frozenset()
    parted: Sequence[Update] = ()
    late_updates: Sequence[Update] = ()
    taken: Slots = NO_SLOTS
    """Those of the lost ones that may not be seen any more, unchanged since they were sent."""

    def line_count(self, oof: bool) -> int:
        """The number of lines; `oof`: with removals."""
        left = len(self.lost) + len(self.taken) + len(self.parted) if oof else 0
        return left + len(self.late) + len(self.late_updates) + len(self.rows)

    def places(self, records: Records) -> Collection[Place]:
        """The records that the session knows of then."""
        return self.known.tolist() if records.retains else self.unstored


def client_state(feed: Feed, waiting: PendingColumns, in_focus: Slots | None) -> ClientState:
    """What a session holds of a feed's topic, once what waits has been sent; `in_focus` are the
    records that it was given, if it was given all."""
    records = feed.topic
    if feed.known is None:
        if in_focus is None:
            return ClientState(NO_SLOTS, frozenset(), waiting, False)
        return ClientState(in_focus, frozenset(), waiting, feed.knows_what_is_held)
    if not records.retains:
        return ClientState(NO_SLOTS, frozenset(feed.known), waiting, False)
    find = records.table.slots.get
    slots = [find(one, SLOTLESS) if isinstance(one, str) else one for one in feed.known]
    held = np.array([slot for slot in slots if slot != SLOTLESS], np.int64)
    return ClientState(held, frozenset(), waiting, feed.knows_what_is_held)


def client_diff(records: Records, held: ClientState, wanted: ClientTarget) -> ClientDiff:
    """What leads from the records that a session holds to those that it shall hold."""
    if not records.retains:
        return _unstored_diff(records, held, wanted)
    found = _stored_diff(records, held, wanted)
    if wanted.visible is None or not len(found.lost):
        return found
    return _without_hidden(records, found, held, wanted.visible)


def _stored_diff(records: Records, held: ClientState, wanted: ClientTarget) -> ClientDiff:
    """By what a session has of a record, and whether it is in the focus that is wanted:

    | has it | in focus | what it gets |
    | --- | --- | --- |
    | yes | no | that the record left (`lost`) |
    | as it is (`current`) | yes | nothing |
    | in another shape or state | yes | an update (`late`), if something waits or it takes deltas |
    | an update is to come | yes | an update (`late`) |
    | no | yes | a row of the answer (`rows`), else an update if it `sends_newly_visible` |
    """
    table = records.table
    size = len(table.bodies)
    has, waits, to_come, focus = (np.zeros(size, np.bool_) for _ in range(4))
    has[held.slots] = focus[wanted.focus] = True
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
    current = has & ~waits if held.reports and wanted.same_shape else np.zeros(size, np.bool_)
    rows, matches = NO_SLOTS, 0
    if wanted.rows is not None:
        rows = wanted.rows[~current[wanted.rows]]
        matches = len(rows)
        rows = rows[wanted.page]
    late = focus & (to_come | (has & ~current & (waits | wanted.by_deltas)))
    if wanted.sends_newly_visible:
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


def _without_hidden(
    records: Records, found: ClientDiff, held: ClientState, visible: Slots
) -> ClientDiff:
    """The same where only these of the lost records may be seen: the others are sent in the state
    that was last sent."""
    sees = np.zeros(len(records.table.bodies), np.bool_)
    sees[visible] = True
    hidden = found.lost[~sees[found.lost]]
    waiting = held.waiting
    waits = np.isin(waiting.slots, hidden)
    updates = [withdrawn(update) for update in waiting.at(np.flatnonzero(waits))]
    return found._replace(
        lost=found.lost[sees[found.lost]],
        taken=hidden[~np.isin(hidden, waiting.slots[waits])],
        parted=[*found.parted, *updates],
    )


def _unstored_diff(records: Records, held: ClientState, wanted: ClientTarget) -> ClientDiff:
    """The same for a topic that stores nothing: of its records only the identities that were sent,
    and what waits, are known."""
    waiting: list[Update] = []
    if wanted.follows:
        newest = {update.identity: update for update in held.waiting.all()}
        waiting = [update for update in newest.values() if update.new is not None]
    if wanted.condition is not None:
        bodies = [update.new or b"" for update in waiting]
        columns = records.decoder(wanted.condition.paths).columns(bodies)
        messages = records.messages(
            [update.identity for update in waiting],
            bodies,
            [update.seq for update in waiting],
            [update.ts_us for update in waiting],
        )
        inside = wanted.condition.matches_messages(columns, messages)
        waiting = [update for update, hit in zip(waiting, inside, strict=True) if hit]
    return ClientDiff(
        unstored=held.unstored.union(update.identity for update in waiting),
        late_updates=[update._replace(delta=None) for update in waiting],
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

    def take_update(self, encoder: UpdateEncoder, update: Update) -> None:
        """The waiting updates of a topic that no longer exists."""
        self._updates.append((encoder, encoder.as_seen(update)))

    def take(
        self, encoder: UpdateEncoder, found: ClientDiff, last: UpdateEncoder | None = None
    ) -> None:
        """Add the difference of a topic, encoded by `lines`; `last` encodes the last states that
        were sent, if with another shape."""
        last = last or encoder
        reports = encoder.key.reports_withdrawn
        if reports and (len(found.lost) or found.parted):
            seen = map(encoder.as_seen, found.parted)
            parted = [(encoder if one.reason == "match" else last, one) for one in seen]
            self._lost.append((encoder, parted, Snapshot.take(encoder.topic, found.lost)))
        if reports and len(found.taken):
            self._taken.append((last, Snapshot.take(encoder.topic, found.taken)))
        if len(found.late):
            rows = Snapshot.take(encoder.topic, found.late)
            assert rows.stamps is not None
            seqs, ts_us = found.late_stamps
            stamps = Stamps(rows.stamps.sow_keys, self._claimed(seqs), ts_us)
            self._late.append((encoder, replace(rows, stamps=stamps)))
        for update in found.late_updates:
            first_seq = update.first_seq
            claimed = first_seq if self._oldest is None else min(first_seq, self._oldest)
            self._late_updates.append((encoder, update._replace(first_seq=claimed)))

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
        for encoder, parted, rows in self._lost:
            for start, stop in rows.chunks(rows_at_once(encoder.key.shape)):
                yield encoder.left(_placed(encoder, rows.part(start, stop)))
            yield from _worded(parted)
        for encoder, rows in self._taken:
            for start, stop in rows.chunks(rows_at_once(encoder.key.shape)):
                yield encoder.left(_placed(encoder, rows.part(start, stop)), "entitlement")
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
                    encoder, late = self._late[source]
                    some = late.at(rows)
                    for first, last in some.chunks(rows_at_once(encoder.key.shape)):
                        columns = some.part(first, last)
                        if self._oldest is None:  # else it may be lower than that of the record
                            columns = _placed(encoder, columns)
                        yield encoder.stand(columns)


def _placed(encoder: UpdateEncoder, rows: LineColumns) -> LineColumns:
    """Rows of a conflated topic or a view with places in what it has sent: the moment at which each
    has changed, which is before it was sent."""
    if isinstance(encoder.topic.definition, Topic):
        return rows
    return rows._replace(seqs=list(map(SentPlace, rows.seqs, rows.ts_us)))


def _worded(updates: Sequence[tuple[UpdateEncoder, Update]]) -> Iterator[list[bytes]]:
    for start in range(0, len(updates), ANSWER_CHUNK_ROWS):
        some = updates[start : start + ANSWER_CHUNK_ROWS]
        yield [line for encoder, update in some if (line := encoder.line(update)) is not None]
