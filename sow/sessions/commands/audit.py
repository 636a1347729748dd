"""The audit log: who logged on, was refused, administered, deleted by filter, and as which user;
and each run of an action.

It is a topic of the server's own, `/sow/audit`, queried and followed like any other by users with a
role for it. It holds the latest records of each kind of event, each in the place of a much older
one, so repeated refusals, which any client can cause, push out nothing but refusals. Events that a
client can cause at will are rate-limited, too: beyond the limit they are counted, and the next
record holds how many were left out. Without authentication nothing is recorded.
"""

from bisect import bisect_left
from typing import Literal, get_args

import orjson

from sow.core.clock import SECOND_US
from sow.core.definitions import AUDIT
from sow.engine.engine import Engine
from sow.errors import SowError, clipped
from sow.messages.json import json_text
from sow.protocol.replies import timestamp
from sow.security.authorization import Permissions
from sow.store.memory import Table

AuditEvent = Literal["logon", "refused", "admin", "delete", "action"]
KEPT_MAX = 25_000
"""Records of each event: some 30 MB of all, and weeks of what people do."""
NOTED_AT_ONCE = 100
"""Refusals of all, and logons or deletes of one user, that are noted at once: a program that errs
shows all of what it tries."""
NOTED_PER_S = 10
"""The sustained rate: more than anyone reads, and little for a disk."""
USERS_KEPT = 1_000
"""Of more, those that came longest ago have all their room again."""


def _newest(table: Table, event: AuditEvent) -> tuple[int, int]:
    """How many-th of its event the newest record is, by its place, and its number; 0 and 0 where
    there is none. Few are read: the places are a ring that has been written to in its order."""

    def number_at(place: int) -> int:
        body = table.bodies[table.slots[f"{event} {place}"]]
        return int(orjson.loads(body or b"{}")["number"])

    places = range(len(table.slots))
    there = bisect_left(places, True, key=lambda place: f"{event} {place}" not in table.slots)
    if not there:
        return 0, 0
    first = number_at(0)
    # The oldest follow the newest.
    count = bisect_left(places[:there], True, key=lambda place: number_at(place) < first)
    return count, number_at(count - 1)


class Audit:
    """Notes events in the topic of one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._number: int | None = None
        self._counts: dict[AuditEvent, int] = {}
        """The number of the next record among those of its event."""
        self._rooms: dict[tuple[str, ...], tuple[float, int]] = {}
        self._left_out = 0

    def note(self, event: AuditEvent, rights: Permissions, what: str, **more: object) -> None:
        """Record what a user with these permissions has done, or tried to; a record that the disk
        does not take is left out."""
        if rights.is_open:
            return
        if event != "admin" and not self._has_room(event, rights):
            self._left_out += 1
            return
        user = rights.user and clipped(rights.user.name)
        by = rights.by and clipped(rights.by.name)
        self._record(event, {"user": user, "by": by, "what": what}, more)

    def note_run(self, action: str, trigger: str, outcome: str) -> None:
        """Record that a run of an action has ended; the server is its user."""
        self._record("action", {}, {"action": action, "trigger": trigger, "outcome": outcome})

    def _record(self, event: AuditEvent, who: dict[str, object], more: dict[str, object]) -> None:
        engine = self._engine
        if AUDIT.name not in engine.topics:
            return
        account = engine.catalog.account(AUDIT)
        number = self._next()
        count = self._counts.get(event, 0)
        record = {
            "place": f"{event} {count % KEPT_MAX}",
            "number": number,
            "at": timestamp(engine.now_us),
            "deed": event,
            **who,
            **{name: clipped(v) if isinstance(v, str) else v for name, v in more.items() if v},
        }
        if self._left_out:
            record["left_out"] = self._left_out
        try:
            engine.disk.check_removal([str(number)])
            engine.put(account, account.records.read([json_text(record)]), engine.now_us)
        except SowError:
            self._left_out += 1
            return
        self._number, self._left_out = number, 0
        self._counts[event] = count + 1
        engine.notify_work()

    def _next(self) -> int:
        """The number of the next record; after a start, what follows the newest that there is."""
        if self._number is None:
            table = self._engine.catalog.account(AUDIT).records.table
            # Once, also where the disk takes no record.
            self._number = 0
            for event in get_args(AuditEvent):
                count, number = _newest(table, event)
                if count:
                    self._counts[event] = count
                    self._number = max(self._number, number)
        return self._number + 1

    def _has_room(self, event: AuditEvent, rights: Permissions) -> bool:
        """Whether one more of these is recorded: refusals count for all users together, since
        anyone can be refused under any name."""
        now_us = self._engine.now_us
        key = (event,) if event == "refused" else (event, *rights.owner)
        left, since_us = self._rooms.pop(key, (float(NOTED_AT_ONCE), now_us))
        left = min(NOTED_AT_ONCE, left + max(0, now_us - since_us) * NOTED_PER_S / SECOND_US)
        has_room = left >= 1
        self._rooms[key] = left - has_room, now_us
        if len(self._rooms) > USERS_KEPT:
            del self._rooms[next(iter(self._rooms))]
        return has_room
