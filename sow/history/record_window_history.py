"""The windows of one record of a conflated topic, worked out again from when its updates came.

Which updates of a record are told as one follows from their times alone (docs/semantics.md, Rule
1). So the story of a window need not be kept while updates come: whoever asks has it made of the
log. Where windows touch each other nothing says where the first one began: what is worked out
begins with one that certainly opened, since nothing came for an interval before it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from sow.core.definitions import Schedule


@dataclass(frozen=True, slots=True)
class RecordUpdate:
    """An update of the record; `counts`: the topic's filter lets it through."""

    bookmark: int
    at_us: int
    counts: bool


@dataclass(slots=True)
class RecordWindow:
    """Updates that are told as one: it opened at the first of them, and ends at `ends_us`."""

    opened_us: int
    ends_us: int
    updates: list[RecordUpdate] = field(default_factory=list)


def windows_of(
    came: Iterable[RecordUpdate], schedule: Schedule, interval_us: int, since_us: int | None
) -> list[RecordWindow]:
    """The windows of a record of which these updates came, in order, and no others since `since_us`
    (None: ever); those of which it is certain where they begin."""
    found: list[RecordWindow] = []
    # Until then one may be open of which nobody knows; one that opens meanwhile, neither.
    unknown_until_us = 0 if since_us is None else _end_us(since_us, schedule, interval_us)
    # Of a record that was there before nobody knows whether it is held.
    held: bool | None = False if since_us is None else None
    last: RecordUpdate | None = None
    for one in came:
        if found and one.at_us < found[-1].ends_us:
            found[-1].updates.append(one)
        elif one.at_us < unknown_until_us:
            unknown_until_us = _end_us(one.at_us, schedule, interval_us)
        else:
            if last is not None:
                # What took it in, if anything did, has ended with it.
                held = last.counts
            # What is not held, and does not pass, is nothing that anybody would be told of.
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
