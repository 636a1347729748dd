"""The windows of one record of a conflated topic, computed from the times of its updates.

Which updates of a record share a window follows from their times alone (docs/semantics.md, Rule 1).
So the history of windows is not kept while updates come; it is computed from the log on request.
Where windows touch each other, the start of the first one is unknown: the result begins with one
that certainly opened, since no update came for an interval before it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from sow.core.definitions import Schedule


@dataclass(frozen=True, slots=True)
class RecordUpdate:
    """An update of the record; `counts`: the topic's filter passes it."""

    bookmark: int
    at_us: int
    counts: bool


@dataclass(slots=True)
class RecordWindow:
    """Updates that are conflated: the window opened at the first of them, and ends at `ends_us`."""

    opened_us: int
    ends_us: int
    updates: list[RecordUpdate] = field(default_factory=list)


def windows_of(
    came: Iterable[RecordUpdate], schedule: Schedule, interval_us: int, since_us: int | None
) -> list[RecordWindow]:
    """The windows of a record with these updates, in order, and no others since `since_us` (None:
    ever); only those whose beginning is certain."""
    found: list[RecordWindow] = []
    # Until then an unknown window may be open; one that opens meanwhile is unknown, too.
    unknown_until_us = 0 if since_us is None else _end_us(since_us, schedule, interval_us)
    # Whether a record that existed before is held is unknown.
    held: bool | None = False if since_us is None else None
    last: RecordUpdate | None = None
    for one in came:
        if found and one.at_us < found[-1].ends_us:
            found[-1].updates.append(one)
        elif one.at_us < unknown_until_us:
            unknown_until_us = _end_us(one.at_us, schedule, interval_us)
        else:
            if last is not None:
                # The window that took it in, if any, has ended with it.
                held = last.counts
            # An update that does not pass, of a record that is not held, opens no window.
            if held or one.counts:
                ends_us = _end_us(one.at_us, schedule, interval_us)
                found.append(RecordWindow(one.at_us, ends_us, [one]))
            elif held is None:
                unknown_until_us = _end_us(one.at_us, schedule, interval_us)
        last = one
    return found


def _end_us(at_us: int, schedule: Schedule, interval_us: int) -> int:
    """When a window ends that opens at this time; none that was open by then ends later."""
    if schedule == "tick":
        return (at_us // interval_us + 1) * interval_us
    return at_us + interval_us
