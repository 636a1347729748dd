"""Carried windows: what a conflated topic in one engine hands to that of another.

The windows that are open at a moment, and the records that wait in them, are pinned there, to be
kept or sent (`pinned`). Elsewhere a copy has them (`begin_from`), and the copy of an engine that
begins goes on with the windows of one that the same changes have reached (`go_on_with`). Fifty
thousand records may wait, so both take steps.

What a window is, and when it ends, is not known here (`sow.topic.conflated_topic`).
"""

from collections.abc import Callable, Sequence
from typing import Any

from sow.core.containers import get_all
from sow.core.cooperative import Task
from sow.topic.conflated_topic import ConflatedCopy
from sow.topic.records import Records

RECORDS_AT_ONCE = 250
"""Records that are put back in one step: a millisecond or so."""


def count_carried(copy: ConflatedCopy) -> int:
    """How many records, about, are `pinned`; a copy that has none takes time, too."""
    is_all = copy.copy.folding.merger is not None
    return 1 + copy.conflation.pending + (len(copy.copy.table) if is_all else 0)


def pinned(copy: ConflatedCopy) -> Callable[[], list[Any]]:
    """The windows of a copy as of now, and the records that wait in them as they are in the copy:
    with merging all records, since these are more than the newest messages. Made later and in any
    thread: all of it is pinned, which takes far less time."""
    table, windows = copy.copy.table, copy.conflation.copied(copy.copy.table.__contains__, None)
    waiting = windows.waiting()
    names = waiting if copy.copy.folding.merger is None else [*table.slots]
    slots = [slot for slot in map(table.slots.get, names) if slot is not None]
    part = table.part(slots)
    places = table.places_of(slots, part.born)
    reached = copy.reached

    def state() -> list[Any]:
        stamps = [[*part.seqs], [*part.ts_us], [*part.born], places]
        return [*reached, windows.state(), [part.identities, part.bodies, *stamps]]

    return state


def begin_from(copy: ConflatedCopy, state: list[Any]) -> Task[None]:
    """Let a copy have the windows that were pinned, and the records, for one that goes on with
    it."""
    *reached, windows, (names, *columns, places) = state
    yield from copy.begin_at(reached, windows, names)
    for start in range(0, len(names), RECORDS_AT_ONCE):
        stop = start + RECORDS_AT_ONCE
        _put_back(copy.copy, [one[start:stop] for one in (names, *columns)])
        yield
    if places != columns[-1]:
        copy.copy.table.arrange(names, places)


def go_on_with(copy: ConflatedCopy, other: ConflatedCopy, records: Records) -> Task[None]:
    """Let a copy have the windows of one in another engine that the same changes have reached, and
    let the records that wait in them be in `records` as they are there, with merging all; while
    nothing changes."""
    copy.go_on(other)
    table = other.copy.table
    more = other.given if other.copy.folding.merger is None else table.slots
    waiting = [*dict.fromkeys([*other.conflation.waiting(), *more])]
    # Also those that are there: they stand where they were born, which may be otherwise below.
    for start in range(0, len(waiting), RECORDS_AT_ONCE):
        records.discard(waiting[start : start + RECORDS_AT_ONCE])
        yield
    held, slots, born, seqs = list[str](), list[int](), list[int](), list[int]()
    for start in range(0, len(waiting), RECORDS_AT_ONCE):
        found = get_all(table.slots, waiting[start : start + RECORDS_AT_ONCE])
        part = table.part(some := [slot for slot in found if slot is not None])
        _put_back(records, (part.identities, part.bodies, part.seqs, part.ts_us, part.born))
        slots += some
        held += part.identities
        born += part.born
        seqs += part.seqs
        yield
    if held:
        there, places = copy.underlying.table, table.places_of(slots, born)
        below = [*get_all(there.slots, held)]
        if there.places_of(below, [-1] * len(below)) != places:
            # They have been removed there since, though this engine has not seen it.
            there.has_removed()
        if there.shares_places or born != places:
            records.table.arrange(held, places, there.newest_of(below, seqs))


def _put_back(records: Records, columns: Sequence[Sequence[Any]]) -> None:
    """Put records as they were: their names, bodies, stamps and births."""
    names, bodies, seqs, ts_us, born = columns
    if names:
        records.put(names, bodies, {}, seqs, ts_us, births=lambda: born)
