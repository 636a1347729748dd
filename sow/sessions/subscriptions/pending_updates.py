"""Pending updates: what waits for a subscription that is to be replaced, read while it goes on.

Very many updates may wait in its windows, and replacing a subscription needs all of them as of one
moment. So they are copied into columns beforehand, some in each step; the channel notes which
places change meanwhile, and these are read again. At the moment itself few are left. The result
equals a read of all of them in one step, except for their order. The slots of records are part of
it, so changes of slots have to be reported (`hear`).

A session whose permissions change is sent nothing meanwhile (`Session.hold_back`): what its
channels have emitted since waits like what is in a window, before it.

Before anything is sent, its queue is filtered by the new permissions (`UnsentUpdates`): no line of
an invisible record may leave. Most lines stay in place, without hidden fields. A line with a state
that is now invisible is folded into the next line of its record; if there is none, or the record is
invisible now, it waits like what is in a window: a client that held the record before is sent its
removal, others are sent nothing.
"""

from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sow.core.cooperative import Task
from sow.engine.live_topic import is_hidden
from sow.security.authorization import Permissions
from sow.sessions.queries.access_control import row_policy_for
from sow.store.columns import Slots
from sow.streaming.channel import Channel
from sow.streaming.conflated_channel import ConflatedChannel, ConflationPlace, Places
from sow.streaming.outbox.entries import Foldable
from sow.streaming.sessions import Session
from sow.streaming.update_encoder import UpdateEncoder
from sow.topic.batch import Update, compose
from sow.topic.queue_policy import Key
from sow.topic.records import Records
from sow.topic.rendering import Shape

LOOKED_AT_ONCE = 250
"""Updates that are looked at in one step, some microseconds each."""

Sees = Callable[[Records, int], bool]
"""Whether the record at a slot may be seen as it is now."""
Said = tuple[UpdateEncoder, Update]


class UnsentUpdates:
    """The unsent updates of a session under a subscription's name; `rights` are the current
    permissions, `shape_of` the fields that they leave visible."""

    def __init__(
        self, session: Session, name: str, rights: Permissions, shape_of: Callable[[Records], Shape]
    ) -> None:
        self._session = session
        self._name = name
        self._rights = rights
        self._shape_of = shape_of
        self._looked_at: dict[int, object] = {}
        """The entries that were examined: no frame is split for that, since it may have many
        lines."""
        self._seen: dict[int, tuple[Update, bool]] = {}
        """By examined update: whether its state may be seen."""
        self._instead: dict[int, Update | None] = {}
        """By update: what is sent in its place; None: nothing."""

    def _waiting(self) -> list[Foldable]:
        return self._session.outbox.sent_under(self._name)

    def _not_looked_at(self) -> list[Foldable]:
        return [entry for entry in self._waiting() if not self._knows(entry)]

    def _knows(self, entry: Foldable) -> bool:
        return id(entry.source) in self._looked_at

    @property
    def is_behind(self) -> bool:
        """Whether more has to be looked at than one step should."""
        return sum(entry.message_count for entry in self._not_looked_at()) > LOOKED_AT_ONCE

    def look(self) -> None:
        """Look at some of it."""
        done = 0
        for entry in self._not_looked_at():
            if done >= LOOKED_AT_ONCE:
                break
            done += entry.message_count
            self._look_at(entry)

    def _look_at(self, entry: Foldable) -> None:
        self._looked_at[id(entry.source)] = entry.source
        for encoder, update in entry.updates():
            self._seen[id(update)] = update, self._may_see(encoder, update)

    def _may_see(self, encoder: UpdateEncoder, update: Update) -> bool:
        """Whether the state of an update may be seen; a removal may."""
        state = update.new if update.new is not None else update.parting
        guard = row_policy_for(self._rights, encoder.topic)
        if state is None or guard is None or guard.rows is None:
            return True
        columns = encoder.topic.decoder(guard.rows.paths).columns([state])
        return guard.rows.matches(columns, 1)[0]

    def taken(self, sees: Sees) -> list[Said]:
        """Split the queue into what stays and what does not; returns the latter as one update a
        record, in the order of the queue."""
        entries = self._waiting()
        for entry in self._not_looked_at():
            self._look_at(entry)
        self._instead.clear()
        left: dict[tuple[Records, str], Said] = {}
        for encoder, update in (one for entry in entries for one in entry.updates()):
            record = encoder.topic, update.identity
            before = left.pop(record, None)
            whole = update if before is None else compose(before[1], update)
            if not self._stays(encoder, update, sees):
                self._instead[id(update)] = None
                left[record] = encoder, whole
            elif before is not None:
                # In the place of the newer one, and so with its bookmark.
                placed = whole._replace(first_seq=update.first_seq, first_ts_us=update.first_ts_us)
                self._instead[id(update)] = None if placed.is_void else placed
        return [*left.values()]

    def _stays(self, encoder: UpdateEncoder, update: Update, sees: Sees) -> bool:
        if is_hidden(encoder.topic.name):
            return False
        if encoder.key.delta and encoder.shape != self._shape_of(encoder.topic):
            # A delta is of what was seen before.
            return False
        slot = encoder.topic.table.slots.get(update.identity)
        return self._seen[id(update)][1] and (slot is None or sees(encoder.topic, slot))

    def leave_rest(self, encoder_of: Callable[[Records], UpdateEncoder]) -> None:
        """Encode what stays with its visible fields; what was taken out is sent by the caller. The
        state that the client holds, which the next oof may repeat, is the one that was visible when
        it was sent."""
        sent: set[tuple[Records, str]] = set()

        def encoded(encoder: UpdateEncoder, update: Update) -> Said | None:
            left = self._instead.get(id(update), update)
            if left is None:
                return None
            if encoder.shape == self._shape_of(encoder.topic):
                return encoder, left
            record = encoder.topic, update.identity
            if record in sent:
                return encoder_of(encoder.topic), left
            sent.add(record)
            return encoder_of(encoder.topic), encoder.as_sent(left)

        self._session.outbox.reencode(self._name, encoded)


NOTED_AT_ONCE = 250
"""Places that are looked at in one step, four microseconds each; at the moment at which all has to
be known, no more are left."""
SLOTLESS = -1
"""The slot of a record that is not there."""


class PendingColumns(NamedTuple):
    """What waits of one topic, as of a moment, in no order; `to_come`: the record is in focus.
    `rows` are the places of `updates` at which there is something, `slots` those of the records,
    `SLOTLESS` of one that is gone."""

    slots: Slots
    updates: Sequence[Update | None]
    rows: NDArray[np.int64]
    held: NDArray[np.bool_]
    to_come: NDArray[np.bool_]
    first_seqs: NDArray[np.int64]
    first_ts_us: NDArray[np.int64]

    def at(self, some: NDArray[np.int64]) -> list[Update]:
        """The updates at these positions, in the order of the changes."""
        found = [self.updates[row] for row in self.rows[some].tolist()]
        return sorted(filter(None, found), key=lambda update: (update.first_seq, update.seq))

    def all(self) -> list[Update]:
        """All of them, in the order of the changes."""
        return self.at(np.arange(len(self.rows)))

    def in_order(self) -> "PendingColumns":
        """The same in the order of the changes."""
        order = np.argsort(self.first_seqs, kind="stable")
        return PendingColumns(
            self.slots[order],
            self.updates,
            self.rows[order],
            self.held[order],
            self.to_come[order],
            self.first_seqs[order],
            self.first_ts_us[order],
        )


class PendingUpdates:
    """What waits of one topic: a row for each key at which something does, or did."""

    def __init__(self) -> None:
        self._rows: dict[Key, int] = {}
        self._slots = array("q")
        self._updates: list[Update | None] = []
        self._waits, self._held, self._to_come = bytearray(), bytearray(), bytearray()
        self._first_seqs, self._first_ts_us = array("q"), array("q")

    def put_before(self, key: Key, update: Update, slot: int) -> None:
        """The same for updates that precede what waits at a key."""
        row = self._rows.get(key)
        if row is not None and self._waits[row] and (later := self._updates[row]) is not None:
            update = compose(update, later)
        self.put(key, update, slot)

    def put(self, key: Key, update: Update | None, slot: int = SLOTLESS) -> None:
        """Store what waits at a key now (None: nothing), and the slot of its record."""
        row = self._rows.get(key)
        if update is None:
            if row is not None:
                self._waits[row], self._updates[row] = False, None
            return
        if row is None:
            self._rows[key] = len(self._rows)
            self._slots.append(slot)
            self._updates.append(update)
            self._waits.append(True)
            self._held.append(update.known)
            self._to_come.append(update.new is not None)
            self._first_seqs.append(update.first_seq)
            self._first_ts_us.append(update.first_ts_us)
            return
        self._slots[row], self._updates[row], self._waits[row] = slot, update, True
        self._held[row], self._to_come[row] = update.known, update.new is not None
        self._first_seqs[row], self._first_ts_us[row] = update.first_seq, update.first_ts_us

    def columns(self) -> PendingColumns:
        """What waits."""
        rows = np.flatnonzero(np.array(self._waits, np.bool_))
        return PendingColumns(
            np.array(self._slots, np.int64)[rows],
            self._updates,
            rows,
            np.array(self._held, np.bool_)[rows],
            np.array(self._to_come, np.bool_)[rows],
            np.array(self._first_seqs, np.int64)[rows],
            np.array(self._first_ts_us, np.int64)[rows],
        )

    def settle(self) -> Task[None]:
        """Forget all of it."""
        while self._rows:
            for _ in range(min(len(self._rows), NOTED_AT_ONCE)):
                self._rows.popitem()
            del self._updates[-NOTED_AT_ONCE:]
            yield


class ReportedSince:
    """What a channel has emitted for a session that is sent nothing meanwhile, one update a key."""

    def __init__(self, session: Session, name: str) -> None:
        self._session = session
        self._name = name
        self._read = 0
        self.updates: dict[ConflationPlace, Update] = {}

    @property
    def is_behind(self) -> bool:
        """Whether more has to be looked at than one step should."""
        left = self._session.held_back(self._name)[self._read :]
        return sum(delivery.message_count for delivery, _ in left) > NOTED_AT_ONCE

    def look(self) -> None:
        """Read the next updates that it has emitted, as many as were emitted at one time."""
        delivery, _ = self._session.held_back(self._name)[self._read]
        self._read += 1
        _put_by_places(self.updates, ((encoder, update) for encoder, _, update in delivery.keyed()))

    def look_at_all(self) -> None:
        """Look at what is left."""
        while self._read < len(self._session.held_back(self._name)):
            self.look()


def _put_by_places(
    updates: dict[ConflationPlace, Update], said: Iterable[tuple[UpdateEncoder, Update]]
) -> None:
    """Store emitted updates, one a key, after those that are stored already."""
    for encoder, update in said:
        key: Key = (update.identity,)
        if encoder.conflation_key:
            (key,) = encoder.keys((update,))
        earlier = updates.get((encoder, key))
        updates[encoder, key] = update if earlier is None else compose(earlier, update)


NO_WAITING = PendingUpdates().columns()
NO_ROWS = PendingUpdates()


class PendingKnown:
    """What waits for a session in the channel of a subscription; `unsent`: and in its queue, as far
    as it may not leave."""

    def __init__(self, unsent: UnsentUpdates | None = None) -> None:
        self._unsent = unsent
        self._channel: Channel | None = None
        self._session: Session | None = None
        self._said: ReportedSince | None = None
        self._left: list[ConflationPlace] = []
        """Places at which something waited in the beginning, and that have not been looked at."""
        self._noted: Places = {}
        """Those at which something has changed since."""
        self._topics: dict[UpdateEncoder, PendingUpdates] = {}
        self._encoders: dict[Records, UpdateEncoder] = {}
        """How the subscription sees each of the topics with pending updates."""
        self._keys: dict[tuple[UpdateEncoder, str], dict[Key, None]] = {}
        """Where records may wait, if not at keys of their own."""

    def is_behind(self, channel: Channel) -> bool:
        """Whether more has to be looked at than one step should."""
        if channel is not self._channel or self._said is None:
            return True
        queued = self._unsent is not None and self._unsent.is_behind
        return queued or self._count > NOTED_AT_ONCE or self._said.is_behind

    @property
    def _count(self) -> int:
        return len(self._left) + len(self._noted)

    def catch_up(self, channel: Channel, session: Session) -> Task[None]:
        """Read what is new, in steps, until little is left; everything, for another channel.

        Each step reads more places than have been noted since the last one, so that it ends however
        fast others publish.
        """
        if channel is not self._channel:
            self.close()
            self._channel, self._session = channel, session
            self._said = ReportedSince(session, channel.name)
            if isinstance(channel, ConflatedChannel):
                self._left = channel.note(self._noted)
        before = self._count
        while self._count > NOTED_AT_ONCE:
            come = max(0, self._count - before)
            self._look(min(NOTED_AT_ONCE + come, self._count))
            before = self._count
            if before > NOTED_AT_ONCE:
                yield
        assert self._said is not None
        while self._said.is_behind:
            self._said.look()
            yield
        while self._unsent is not None and self._unsent.is_behind:
            self._unsent.look()
            yield

    def hear(self, records: Records, identities: Iterable[str]) -> None:
        """Records may have moved to other slots."""
        encoder = self._encoders.get(records)
        if encoder is not None:
            for identity in identities:
                for key in self._keys.get((encoder, identity), ((identity,),)):
                    self._noted[(encoder, key)] = None

    def as_of_now(
        self, unsent: Iterable[tuple[UpdateEncoder, Update]] = ()
    ) -> dict[UpdateEncoder, PendingUpdates]:
        """Everything that waits of each topic, for the caller to take out in this step; `unsent`
        was taken out of the queue."""
        self._look(self._count)
        assert self._said is not None
        self._said.look_at_all()
        self._put_before(self._said.updates)
        taken: dict[ConflationPlace, Update] = {}
        _put_by_places(taken, unsent)
        self._put_before(taken)
        return self._topics

    def _put_before(self, updates: dict[ConflationPlace, Update]) -> None:
        for (encoder, key), update in updates.items():
            rows = self._topics.setdefault(encoder, PendingUpdates())
            rows.put_before(key, update, encoder.topic.table.slots.get(update.identity, SLOTLESS))

    def _look(self, count: int) -> None:
        channel, session = self._channel, self._session
        if not isinstance(channel, ConflatedChannel) or session is None:
            return
        for _ in range(count):
            encoder, key = place = self._left.pop() if self._left else self._noted.popitem()[0]
            rows = self._topics.get(encoder)
            if rows is None:
                rows = self._topics[encoder] = PendingUpdates()
                self._encoders[encoder.topic] = encoder
            update = channel.pending_for(session, place)
            if update is None:
                rows.put(key, None)
                continue
            if encoder.conflation_key:
                self._keys.setdefault((encoder, update.identity), {})[key] = None
            slot = encoder.topic.table.slots.get(update.identity, SLOTLESS)
            rows.put(key, update, slot)

    def close(self) -> None:
        """Nothing more has to be known."""
        if isinstance(self._channel, ConflatedChannel):
            self._channel.note_no_more(self._noted)
        self._channel, self._said, self._left, self._noted = None, None, [], {}
        self._topics, self._encoders, self._keys = {}, {}, {}

    def settle(self) -> Task[None]:
        """Drop what was read, and what will not be sent any more."""
        channel, topics = self._channel, self._topics
        self.close()
        for rows in topics.values():
            yield from rows.settle()
        if isinstance(channel, ConflatedChannel) and channel.is_over:
            yield from channel.let_go()


def oldest_of(columns: Iterable[PendingColumns], newest: int) -> int:
    """The number of the first change that waits; `newest`, if none does."""
    return min((int(one.first_seqs.min()) for one in columns if len(one.rows)), default=newest)
