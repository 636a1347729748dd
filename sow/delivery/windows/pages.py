"""Pages: what a live window shows at one time, and what has to be said from one to the next.

    held ──┐
           ├─ difference ─> who leaves, who enters, what has changed; at which places
    now  ──┘

A client is told in this order, so it never holds more records than the window has room for. Each
line says where its record stands once that record has been taken out: so lines that are applied
one after the other end in the page's order, whatever has moved.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from sow.changes import Reason
from sow.topic.batch import Batch
from sow.topic.records import Records


class PageRow(NamedTuple):
    """A record as a page shows it: its body, the number and the time of its last change, and when
    it was first published. Rows that are equal stand in the same order."""

    body: bytes
    seq: int
    ts_us: int
    born: int


class Parted(NamedTuple):
    """Why a record has left the topic; of one that a conflated topic's filter has removed, the
    state that no longer matches."""

    reason: Reason
    body: bytes | None


class WindowPage:
    """Records in order (`rows`, by their identities), as somebody holds them.

    `parted` are those of them that have left the topic since: nothing else says why they did.
    """

    __slots__ = ("parted", "rows")

    def __init__(self, rows: dict[str, PageRow]) -> None:
        self.rows = rows
        self.parted: dict[str, Parted] = {}

    @classmethod
    def of(cls, topic: Records, identities: Sequence[str]) -> "WindowPage":
        """These records as they stand in their topic."""
        table = topic.table
        found = [table.slots[identity] for identity in identities]
        bodies = [table.bodies[slot] or b"" for slot in found]
        slots = np.array(found, np.int64)
        numbers = [column[slots].tolist() for column in (table.seqs, table.ts_us, table.born)]
        return cls(dict(zip(identities, map(PageRow, bodies, *numbers), strict=True)))

    def part_with(self, batch: Batch) -> None:
        """Records have left the topic."""
        changes = batch.changes
        if self.rows.keys().isdisjoint(changes.identities):
            return
        reason = changes.reason or "deleted"
        for at, identity in enumerate(changes.identities):
            if identity in self.rows:
                body = batch.parting(at) if reason == "match" else None
                self.parted[identity] = Parted(reason, body)


EMPTY_PAGE = WindowPage({})


class PageStep(NamedTuple):
    """One line of a difference: a record leaves (no `new`), enters (no `old`) or has changed.

    `at` is its place once it has been taken out of what is held, `moved` whether that is another
    one than it stood at.
    """

    identity: str
    old: PageRow | None
    new: PageRow | None
    at: int
    moved: bool = True


def difference_of(held: WindowPage, now: WindowPage, anew: bool = False) -> Iterator[PageStep]:
    """What makes of one page the other, in the order in which it is to be said.

    `anew`: what stays is said, too, since it is seen otherwise than before.
    """
    before = [*held.rows]
    staying: list[str] = []
    for identity in before:
        if identity in now.rows:
            staying.append(identity)
        else:
            yield PageStep(identity, held.rows[identity], None, len(staying))
    same = () if anew else {one for one in staying if now.rows[one] == held.rows[one]}
    order = PlacesInTurn(staying, [*now.rows], same)
    for identity, new in now.rows.items():
        if identity not in held.rows:
            yield PageStep(identity, None, new, order.put(identity))
    for identity in now.rows:
        if identity in held.rows and identity not in same:
            stood = order.take(identity)
            at = order.put(identity)
            yield PageStep(identity, held.rows[identity], now.rows[identity], at, at != stood)


class PlacesInTurn:
    """Where records stand in a list while some of it is put in order, one after the other.

    `before` is the list, `after` what it becomes; what is `settled` stands in the same order in
    both. A record that is put stands right behind the nearest settled one before it. All places
    that are ever taken are known beforehand, so where a record stands is a count of those taken.
    """

    def __init__(
        self, before: Sequence[str], after: Sequence[str], settled: "set[str] | tuple[()]"
    ) -> None:
        self._old: dict[str, int] = {}
        self._new: dict[str, int] = {}
        taken: list[bool] = []
        waiting = iter(before)
        for identity in after:
            if identity in settled:
                for other in waiting:
                    if other == identity:
                        break
                    self._old[other] = len(taken)
                    taken.append(True)
            self._new[identity] = len(taken)
            taken.append(identity in settled)
        for other in waiting:
            self._old[other] = len(taken)
            taken.append(True)
        self._taken = np.array(taken, np.bool_)

    def take(self, identity: str) -> int:
        """Take out a record that has not been put yet; returns where it stood."""
        at = self._old[identity]
        self._taken[at] = False
        return int(np.count_nonzero(self._taken[:at]))

    def put(self, identity: str) -> int:
        """Put in a record that is not there; returns where it stands."""
        at = self._new[identity]
        self._taken[at] = True
        return int(np.count_nonzero(self._taken[:at]))
