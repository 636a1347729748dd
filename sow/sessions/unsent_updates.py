"""Unsent updates: the queue of a session whose permissions have changed, filtered by them.

From that moment on no line of an invisible record may be sent. So first the queued lines of each
subscription are gone through. Most of them stay in place, without hidden fields. A line with a
state that is now invisible is folded into the next line of its record; if there is none, or the
record is invisible now, it waits like what is in a window (`sow.sessions.pending_updates`): a
client that held the record before is sent its removal, others are sent nothing.

To look at an update may mean to read it, so many are looked at in steps before the moment in which
all has to be known. What is said of a group of records was made for one client, of what he could
see then: nothing of it stays.
"""

from collections.abc import Callable

from sow.engine.hidden_topics import is_hidden
from sow.security.authorization import Permissions
from sow.sessions.row_policy_rewrite import row_policy_for
from sow.streaming.outbox.entries import Foldable
from sow.streaming.sessions import Session
from sow.streaming.update_encoder import UpdateEncoder
from sow.topic.records import Records
from sow.topic.rendering import Shape
from sow.topic.updates import Update, compose

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
        """What was looked at: to find that out no frame is taken apart, which may say much."""
        self._seen: dict[int, tuple[Update, bool]] = {}
        """By the updates that were looked at: whether they say a state that may be seen."""
        self._instead: dict[int, Update | None] = {}
        """By updates: what is said in their place; None: nothing."""

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
        for lines, update in entry.said():
            self._seen[id(update)] = update, self._may_see(lines, update)

    def _may_see(self, lines: UpdateEncoder, update: Update) -> bool:
        """Whether the state that an update says may be seen; that something has gone may be."""
        state = update.new if update.new is not None else update.parting
        guard = row_policy_for(self._rights, lines.topic)
        if state is None or guard is None or guard.rows is None:
            return True
        columns = lines.topic.decoder(guard.rows.paths).columns([state])
        return guard.rows.matches(columns, 1)[0]

    def taken(self, sees: Sees) -> list[Said]:
        """Split the queue into what stays and what does not; returns the latter as one update a
        record, in the order of the queue."""
        entries = self._waiting()
        for entry in self._not_looked_at():
            self._look_at(entry)
        self._instead.clear()
        left: dict[tuple[Records, str], Said] = {}
        for lines, update in (one for entry in entries for one in entry.said()):
            record = lines.topic, update.identity
            before = left.pop(record, None)
            whole = update if before is None else compose(before[1], update)
            if not self._stays(lines, update, sees):
                self._instead[id(update)] = None
                left[record] = lines, whole
            elif before is not None:
                # In the place of the newer one, and so with its bookmark.
                placed = whole._replace(first_seq=update.first_seq, first_ts_us=update.first_ts_us)
                self._instead[id(update)] = None if placed.is_void else placed
        return [*left.values()]

    def _stays(self, lines: UpdateEncoder, update: Update, sees: Sees) -> bool:
        if is_hidden(lines.topic.name):
            return False
        if lines.key.delta and lines.shape != self._shape_of(lines.topic):
            # A delta is of what was seen before.
            return False
        slot = lines.topic.table.slots.get(update.identity)
        return self._seen[id(update)][1] and (slot is None or sees(lines.topic, slot))

    def leave_rest(self, lines_of: Callable[[Records], UpdateEncoder]) -> None:
        """Encode what stays with its visible fields; what was taken out is sent by the caller. The
        state that the client holds, which the next oof may repeat, is the one that was visible when
        it was sent."""
        said: set[tuple[Records, str]] = set()

        def encoded(lines: UpdateEncoder, update: Update) -> Said | None:
            left = self._instead.get(id(update), update)
            if left is None:
                return None
            if lines.shape == self._shape_of(lines.topic):
                return lines, left
            record = lines.topic, update.identity
            if record in said:
                return lines_of(lines.topic), left
            said.add(record)
            return lines_of(lines.topic), lines.as_sent(left)

        self._session.outbox.retell(self._name, encoded)
