"""A conflated topic: a copy that changes at most once per key and interval.

The idea on top of a conflator is *focus*. An update that passes the topic's filter is offered
as it is. One that does not pass, a delete or an expiry is offered as a removal, but only when
the copy holds the record or has it pending: leaving is said only to those who were told. At the
end of its window a removal of a record that the copy never held vanishes without trace (it came
and went within one window, docs/semantics.md, Rule 2).

The copy itself, what records are and who hears of a release are the caller's.
"""

from collections.abc import Callable, Sequence, Set
from itertools import compress
from operator import not_, or_
from typing import Any, Generic, NamedTuple, TypeVar

from conflated_topics.conflator import Conflator
from conflated_topics.triggers import Schedule

K = TypeVar("K")
V = TypeVar("V")


MATCH = "match"
"""Why a record leaves that the filter does not let through any more."""


class Removal(NamedTuple, Generic[K, V]):
    """A record that leaves the copy: why, and the value that made it leave."""

    key: K
    value: V
    reason: str


GOES = object()
Leaving = tuple[object, V, str]
"""How a removal waits: `GOES`, the value and the reason, in a plain tuple. Of a million that wait
Python's collector soon finds out that they are in no circle, and looks at them no more; tuples of a
class of their own it would look through again and again, for tens of milliseconds."""


class Offered(Generic[K, V]):
    """Updates of the underlying topic with what a filter says of each, for all copies that have it.

    `values[i]` is the new value of `keys[i]`, and `passes[i]` says whether the filter lets it
    through; None: all of them pass. Those that do not leave for `reason`. What follows from it is
    worked out once, however many copies take it in.
    """

    __slots__ = ("_counts", "_doubtful", "_entries", "keys", "passes", "reason", "values")

    def __init__(
        self,
        keys: Sequence[K],
        values: Sequence[V],
        passes: Sequence[bool] | None,
        reason: str = MATCH,
    ) -> None:
        self.keys = keys
        self.values = values
        self.passes = None if passes is None or all(passes) else passes
        self.reason = reason
        self._counts: Sequence[bool] | None = None
        self._doubtful: Set[K] | None = None
        self._entries: Sequence[V | Leaving[V]] | None = None

    @property
    def _inside(self) -> Sequence[bool]:
        """What the filter says of each of them."""
        return [True] * len(self.keys) if self.passes is None else self.passes

    @property
    def counts(self) -> Sequence[bool]:
        """Which of them count for whoever knows nothing of their keys: those that pass, and what
        comes in the same batch after one of its key that does."""
        if self._counts is None:
            counts, passing = [], set[K]()
            for key, inside in zip(self.keys, self._inside, strict=True):
                if inside:
                    passing.add(key)
                counts.append(inside or key in passing)
            self._counts = counts
        return self._counts

    @property
    def doubtful(self) -> Set[K]:
        """The keys of those that do not count by themselves."""
        if self._doubtful is None:
            self._doubtful = set(compress(self.keys, map(not_, self.counts)))
        return self._doubtful

    @property
    def entries(self) -> Sequence[V | Leaving[V]]:
        """The values that pass; those that do not, as what leaves."""
        if self._entries is None:
            columns, why = zip(self.values, self._inside, strict=True), self.reason
            self._entries = [value if inside else (GOES, value, why) for value, inside in columns]
        return self._entries


class FocusedConflator(Generic[K, V]):
    """Conflation with focus: what enters, changes and leaves a copy (docs/semantics.md, Rule 2).

    `schedule` says when a key is let go. `holds(key)` says whether the copy holds a record at the
    moment of asking: the caller changes the copy as `take` says, and before the next call.
    `merge(current, new)` makes one update of two that fall into one window; None lets the newer one
    stand. Removals are never merged. All times are microseconds and never go back.
    """

    __slots__ = ("_conflator", "_holds", "_merge", "releases", "updates_in", "updates_out")

    def __init__(
        self,
        schedule: Schedule[K],
        holds: Callable[[K], bool],
        merge: Callable[[V, V], V] | None = None,
    ) -> None:
        # Updates, and what leaves: `_leaves` tells them apart.
        self._conflator: Conflator[K, Any] = Conflator(schedule, self._fold if merge else None)
        self._holds = holds
        self._merge = merge
        self.updates_in = 0
        self.updates_out = 0
        self.releases = 0

    def _fold(self, current: Any, new: Any) -> Any:
        if self._merge is None or _leaves(current) or _leaves(new):
            return new
        return self._merge(current, new)

    def look_in(self, holds: Callable[[K], bool]) -> None:
        """Ask `holds` from now on; what it says is the same."""
        self._holds = holds

    def copied(
        self, holds: Callable[[K], bool], merge: Callable[[V, V], V] | None
    ) -> "FocusedConflator[K, V]":
        """Another one, as this one is now, of a copy of its own; it may merge otherwise."""
        other: FocusedConflator[K, V] = FocusedConflator(
            self._conflator.schedule.copied(), holds, merge
        )
        other._conflator.begin_like(self._conflator)
        other.updates_in, other.updates_out = self.updates_in, self.updates_out
        other.releases = self.releases
        return other

    @property
    def is_idle(self) -> bool:
        """Nothing waits."""
        return self._conflator.is_idle

    @property
    def pending(self) -> int:
        """Keys that wait for their release."""
        return len(self._conflator)

    @property
    def ratio(self) -> float:
        """Updates taken in for each one let out: 1.0 saves nothing, 20.0 saves 95 %."""
        return self.updates_in / self.updates_out if self.updates_out else 1.0

    def due_us(self) -> int | None:
        """The time from which on `take` has something to give; None while nothing waits."""
        return self._conflator.due_us()

    def oldest_us(self) -> int | None:
        """Since when the longest-waiting key has been pending, or None."""
        return self._conflator.oldest_us()

    def reschedule(self, schedule: Schedule[K], now_us: int) -> None:
        """Go on under `schedule`; what waits starts a window of it at `now_us`, and what is in
        windows that have ended is released at once."""
        self._conflator.reschedule(schedule, now_us)

    def remerge(self, merge: Callable[[V, V], V] | None) -> None:
        """Merge with `merge` from now on (None: the newer stands); what waits goes on waiting."""
        self._merge = merge
        self._conflator.refold(self._fold if merge else None)

    def clear(self) -> None:
        """Let nothing wait any more; it may have failed in the middle of a merge."""
        self._conflator.clear()

    def will_hold(self, key: K) -> bool:
        """Whether the copy will hold `key` once everything that waits has been released."""
        waiting = self._conflator.newest(key)
        return self._holds(key) if waiting is None else not _leaves(waiting)

    def offer(
        self, keys: Sequence[K], values: Sequence[V], now_us: int, passes: Sequence[bool] | None
    ) -> None:
        """Take in updates of the underlying topic, in order, at the time `now_us`."""
        self.take_in(Offered(keys, values, passes), now_us)

    def take_in(self, offered: Offered[K, V], now_us: int) -> bool:
        """The same of a batch that many copies take in; True when something waits now, and did
        not.

        One that does not pass is a removal of a record that the copy holds or is about to, and
        otherwise nothing.
        """
        keys: Sequence[K] = offered.keys
        values: Sequence[Any] = offered.values
        if offered.passes is not None:
            wanted, values = self._are_wanted(offered, now_us), offered.entries
            if not all(wanted):
                keys, values = list(compress(keys, wanted)), list(compress(values, wanted))
        if not keys:
            return False
        was_idle = self._conflator.is_idle
        self.updates_in += len(keys)
        self._conflator.offer(keys, values, now_us)
        return was_idle

    def _are_wanted(self, offered: Offered[K, V], now_us: int) -> list[bool]:
        """Which updates say something: those that count, and those of records that the copy holds,
        or will when what has ended is released, or that are pending.

        What counts is what the windows say that have ended: when they are released is a matter of
        gathering, and must not change where the next window begins.
        """
        is_open = self._conflator.open_keys(now_us)
        if offered.doubtful <= is_open:
            # Of many updates to a key most find it pending: that is seen for all keys at once.
            return [True] * len(offered.keys)
        wanted = list(map(or_, offered.counts, map(is_open.__contains__, offered.keys)))
        if all(wanted):
            return wanted
        stays = self._stays if self._conflator.has_closed else self._holds
        return [is_so or stays(key) for key, is_so in zip(offered.keys, wanted, strict=True)]

    def _stays(self, key: K) -> bool:
        """The copy will hold a record when what has ended is released."""
        closed = self._conflator.closed(key)
        return self._holds(key) if closed is None else not _leaves(closed)

    def waiting_among(self, keys: Set[K]) -> set[K]:
        """Those of `keys` that wait, in whatever window."""
        return self._conflator.among(keys)

    def remove(self, keys: Sequence[K], values: Sequence[V], reason: str, now_us: int) -> None:
        """Take in that records have left the underlying topic, or its part that passes the filter.

        `values[i]` is the value to say of `keys[i]`, `reason` why all of them leave. Of records
        that the copy neither holds nor is about to, nothing is noted.
        """
        self.take_in(Offered(keys, values, [False] * len(keys), reason), now_us)

    def take(
        self, now_us: int, count_max: int | None = None
    ) -> tuple[list[tuple[K, V]], list[Removal[K, V]]]:
        """What is released by `now_us`: records that enter or change, and records that leave.

        With `count_max` it is so many keys at most; `due_us` says whether there are more.
        Both in the order in which their windows began; a key is in one of the two. A removal of
        what the copy does not hold is left out: it came and went within one window.
        """
        updates: list[tuple[K, V]] = []
        removals: list[Removal[K, V]] = []
        for key, value in self._conflator.take(now_us, count_max).items():
            if not _leaves(value):
                updates.append((key, value))
            elif self._holds(key):
                removals.append(Removal(key, value[1], value[2]))
        self.count_out(len(updates) + len(removals))
        return updates, removals

    def count_in(self, updates: int) -> None:
        """So many updates have come; for whoever conflates them elsewhere."""
        self.updates_in += updates

    def count_out(self, updates: int) -> None:
        """So many were released at once; for whoever conflates them elsewhere."""
        self.updates_out += updates
        self.releases += 1

    def check(self) -> None:
        """Assert what is always true of it, between two calls."""
        self._conflator.check()
        assert self.updates_out <= self.updates_in, "more has left than came"


def _leaves(entry: Any) -> bool:
    """Whether it is a `Leaving`, and no update."""
    return type(entry) is tuple and len(entry) == 3 and entry[0] is GOES
