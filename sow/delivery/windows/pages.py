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
    it was first published or where it was placed. Rows that are equal stand in the same order."""

    body: bytes
    seq: int
    ts_us: int
    tie: int | tuple[int, int]


def rows_of(topic: Records, identities: Sequence[str]) -> list[PageRow]:
    """These records as they stand in their topic."""
    table = topic.table
    found = [table.slots[identity] for identity in identities]
    bodies = [table.bodies[slot] or b"" for slot in found]
    slots = np.array(found, np.int64)
    numbers = [column[slots].tolist() for column in (table.seqs, table.ts_us)]
    return list(map(PageRow, bodies, *numbers, table.ties(slots)))


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

    A record that is put stands right behind the nearest one before it that has settled: that has
    not changed, and so stands in the same order on both pages, or was put already. `anew`: what
    stays is said, too, since it is seen otherwise than before.
    """
    rows, before = now.rows, held.rows
    order: list[str] = []
    for identity, old in before.items():
        if identity in rows:
            order.append(identity)
        else:
            yield PageStep(identity, old, None, len(order))
    entering = rows.keys() - before.keys()
    same = set() if anew else {one for one in order if rows[one] == before[one]}
    last: str | None = None
    for identity, new in rows.items() if entering else ():
        if identity in entering:
            yield PageStep(identity, None, new, _put(order, identity, last))
            last = identity
        elif identity in same:
            last = identity
    if len(same) + len(entering) == len(rows):
        return
    last = None
    for identity, new in rows.items():
        if identity not in entering and identity not in same:
            stood = order.index(identity)
            del order[stood]
            at = _put(order, identity, last)
            yield PageStep(identity, before[identity], new, at, at != stood)
        last = identity


def _put(order: list[str], identity: str, last: str | None) -> int:
    """Put a record right behind another one, or first; returns where it stands."""
    at = 0 if last is None else order.index(last) + 1
    order.insert(at, identity)
    return at
