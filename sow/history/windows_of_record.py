"""The windows of one record of a conflated topic, worked out again from when its updates came.

Which updates of a record are told as one follows from their times alone (docs/semantics.md, Rule
1). So the story of a window need not be kept while updates come: whoever asks has it made of the
log. Where windows touch each other nothing says where the first one began: what is worked out
begins with one that certainly opened, since nothing came for an interval before it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from sow.definitions import Schedule


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
    last_us, certain = since_us, since_us is None or schedule == "tick"
    # Of a record that was there before nobody knows whether it is held.
    held: bool | None = False if since_us is None else None
    for one in came:
        if found and one.at_us < found[-1].ends_us:
            found[-1].updates.append(one)
        else:
            if last_us is not None and one.at_us - last_us >= interval_us:
                certain = True
            if found:
                held = found[-1].updates[-1].counts
            if held is None and not one.counts:
                # Perhaps it opened one.
                certain = schedule == "tick"
            # What is not held, and does not pass, is nothing that anybody would be told of.
            elif certain and (held or one.counts):
                ends_us = one.at_us + interval_us
                if schedule == "tick":
                    ends_us = (one.at_us // interval_us + 1) * interval_us
                found.append(RecordWindow(one.at_us, ends_us, [one]))
        last_us = one.at_us
    return found
