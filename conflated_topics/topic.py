"""A conflated topic: a copy that changes at most once per key and interval.

The idea on top of a conflator is *focus*. An update that passes the topic's filter is offered
as it is. One that does not pass, a delete or an expiry is offered as a removal, but only if the
copy holds the record or has it pending: only subscribers that have a record need its removal. At
the end of its window a removal of a record that the copy never held vanishes without trace (it came
and went within one window, docs/semantics.md, Rule 2).

The copy itself, records and subscribers belong to the caller.
"""

from collections.abc import Callable, Generator, Iterator, Sequence, Set
from itertools import compress
from operator import not_, or_
from typing import Any, Generic, NamedTuple, TypeVar

from conflated_topics.conflator import Conflator
from conflated_topics.triggers import Schedule

K = TypeVar("K")
V = TypeVar("V")


UNPACKED_AT_ONCE = 1_000
"""Values that one step takes from a state: half a millisecond."""
MATCH = "match"
"""The reason of a removal: the filter no longer matches."""


class Removal(NamedTuple, Generic[K, V]):
    """A record that leaves the copy: the reason, and the value that caused it."""

    key: K
    value: V
    reason: str


GOES = object()
Leaving = tuple[object, V, str]
"""A pending removal: `GOES`, the value and the reason, in a plain tuple. Python's garbage collector
soon untracks plain tuples; it would traverse a million tuples of a class of their own again and
again, for tens of milliseconds."""


class Offered(Generic[K, V]):
    """Updates of the source topic with the result of a filter for each, for all copies that use it.

    `values[i]` is the new value of `keys[i]`, and `passes[i]` whether the filter matches; None: all
    pass. The others leave for `reason`. Derived data is computed once, however many copies use it.
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
        """The result of the filter for each of them."""
        return [True] * len(self.keys) if self.passes is None else self.passes

    @property
    def counts(self) -> Sequence[bool]:
        """Which updates count without knowledge of their keys: those that pass, and later ones of
        the same keys in the batch."""
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
        """The values that pass; the others as removals."""
        if self._entries is None:
            columns, why = zip(self.values, self._inside, strict=True), self.reason
            self._entries = [value if inside else (GOES, value, why) for value, inside in columns]
        return self._entries


class FocusedConflator(Generic[K, V]):
    """Conflation with focus: what enters, changes and leaves a copy (docs/semantics.md, Rule 2).

    `schedule` decides when a key is released. `holds(key)` returns whether the copy holds a record
    now: the caller applies the result of `take` to the copy before the next call.
    `merge(current, new)` combines two updates of one window; None keeps the newer one. Removals are
    never merged. All times are microseconds and never go back.
    """

    __slots__ = (
        "_conflator", "_holds", "_may_leave", "_merge", "releases", "updates_in", "updates_out",
    )  # fmt: skip

    def __init__(
        self,
        schedule: Schedule[K],
        holds: Callable[[K], bool],
        merge: Callable[[V, V], V] | None = None,
    ) -> None:
        # Updates and removals: `_leaves` distinguishes them.
        self._conflator: Conflator[K, Any] = Conflator(schedule, self._fold if merge else None)
        self._holds = holds
        self._merge = merge
        self._may_leave = False
        """Something pending may be a removal; without a filter and deletes nothing is."""
        self.updates_in = 0
        self.updates_out = 0
        self.releases = 0

    def _fold(self, current: Any, new: Any) -> Any:
        if self._merge is None or _leaves(current) or _leaves(new):
            return new
        return self._merge(current, new)

    def look_in(self, holds: Callable[[K], bool]) -> None:
        """Use another `holds` with the same results from now on."""
        self._holds = holds

    def copied(
        self, holds: Callable[[K], bool], merge: Callable[[V, V], V] | None
    ) -> "FocusedConflator[K, V]":
        """A clone for a copy of its own; it may merge otherwise."""
        other: FocusedConflator[K, V] = FocusedConflator(
            self._conflator.schedule.copied(), holds, merge
        )
        other._conflator.begin_like(self._conflator)
        other.updates_in, other.updates_out = self.updates_in, self.updates_out
        other.releases, other._may_leave = self.releases, self._may_leave
        return other

    def state(self) -> list[Any]:
        """All that it is beside what it was made with, in lists; removals are lists that begin with
        None."""
        windows, pending, closed = self._conflator.state()
        packed = [[key, _packed(value)] for key, value in pending]
        ended = [[at_us, [[key, _packed(value)] for key, value in some]] for at_us, some in closed]
        counts = [self.updates_in, self.updates_out, self.releases, self._may_leave]
        return [counts, [windows, packed, ended]]

    def go_on_from(self, state: list[Any]) -> Iterator[None]:
        """Be as another one of the same kind was by its `state`, from the last step on; values are
        tuples."""
        counts, (windows, packed, ended) = state
        pending = yield from _unpacking(packed)
        closed = list[Any]()
        for at_us, some in ended:
            closed.append([at_us, (yield from _unpacking(some))])
        self.updates_in, self.updates_out, self.releases, self._may_leave = counts
        self._conflator.go_on_from([windows, pending, closed])

    @property
    def is_idle(self) -> bool:
        """Nothing waits."""
        return self._conflator.is_idle

    @property
    def pending(self) -> int:
        """Pending keys."""
        return len(self._conflator)

    @property
    def ratio(self) -> float:
        """Updates in for each one out: 1.0 saves nothing, 20.0 saves 95 %."""
        return self.updates_in / self.updates_out if self.updates_out else 1.0

    def due_us(self) -> int | None:
        """The time from which on `take` returns something; None while nothing is pending."""
        return self._conflator.due_us()

    def oldest_us(self) -> int | None:
        """Since when the longest-waiting key has been pending, or None."""
        return self._conflator.oldest_us()

    def reschedule(self, schedule: Schedule[K], now_us: int) -> None:
        """Switch to `schedule`; pending keys start a window at `now_us`, and windows that have
        ended are released at once."""
        self._conflator.reschedule(schedule, now_us)

    def remerge(self, merge: Callable[[V, V], V] | None) -> None:
        """Use `merge` from now on (None: the newer stands); pending updates stay."""
        self._merge = merge
        self._conflator.refold(self._fold if merge else None)

    def clear(self) -> None:
        """Drop everything pending, even after a merge that failed midway."""
        self._conflator.clear()

    def will_hold(self, key: K) -> bool:
        """Whether the copy will hold `key` once everything pending has been released."""
        waiting = self._conflator.newest(key)
        return self._holds(key) if waiting is None else not _leaves(waiting)

    def offer(
        self, keys: Sequence[K], values: Sequence[V], now_us: int, passes: Sequence[bool] | None
    ) -> None:
        """Process updates of the source topic, in order, at the time `now_us`."""
        self.take_in(Offered(keys, values, passes), now_us)

    def take_in(self, offered: Offered[K, V], now_us: int) -> bool:
        """The same for a batch shared by many copies; returns True if something is pending now, and
        was not before.

        An update that does not pass is a removal of a record that the copy holds or is about to
        hold, and otherwise nothing.
        """
        keys: Sequence[K] = offered.keys
        values: Sequence[Any] = offered.values
        if offered.passes is not None:
            self._may_leave = True
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
        """Which updates have an effect: those that count, and those of records that the copy holds
        or will hold when ended windows are released, or that are pending.

        Ended windows count as released: the time of their release depends on the grid, and must not
        change where the next window begins.
        """
        is_open = self._conflator.open_keys(now_us)
        if offered.doubtful <= is_open:
            # Of many updates to a key most find it pending: one check covers all keys.
            return [True] * len(offered.keys)
        wanted = list(map(or_, offered.counts, map(is_open.__contains__, offered.keys)))
        if all(wanted):
            return wanted
        stays = self._stays if self._conflator.has_closed else self._holds
        return [is_so or stays(key) for key, is_so in zip(offered.keys, wanted, strict=True)]

    def _stays(self, key: K) -> bool:
        """Whether the copy will hold the record when ended windows are released."""
        closed = self._conflator.closed(key)
        return self._holds(key) if closed is None else not _leaves(closed)

    def is_open(self, key: K, now_us: int) -> bool:
        """Whether `key` is in a window that has not ended by `now_us`."""
        return key in self._conflator.open_keys(now_us)

    def waiting(self) -> list[K]:
        """The keys that are pending, each once, in the order of their windows."""
        return list(dict.fromkeys(self._conflator.keys()))

    def waiting_among(self, keys: Set[K]) -> set[K]:
        """Those of `keys` that are pending, in any window."""
        return self._conflator.among(keys)

    def remove(self, keys: Sequence[K], values: Sequence[V], reason: str, now_us: int) -> None:
        """Process removals from the source topic, or from its part that passes the filter.

        `values[i]` is the last value of `keys[i]`, `reason` applies to all. Records that the copy
        neither holds nor is about to hold are ignored.
        """
        self.take_in(Offered(keys, values, [False] * len(keys), reason), now_us)

    def take(
        self, now_us: int, count_max: int | None = None
    ) -> tuple[list[tuple[K, V]], list[Removal[K, V]]]:
        """Release what is due by `now_us`: records that enter or change, and records that leave.

        `count_max` limits the number of keys, and what is taken to the oldest window; `due_us`
        shows whether there are more. Both results are in the order in which their windows began; a
        key is in one of the two. A removal of a record that the copy does not hold is left out: it
        came and went within one window.
        """
        return self._left(self._conflator.take(now_us, count_max))

    def turn_us(self, now_us: int) -> int | None:
        """When the oldest window that has ended by `now_us` is to be released; None: none has."""
        return self._conflator.turn_us(now_us)

    def _left(self, taken: dict[K, Any]) -> tuple[list[tuple[K, V]], list[Removal[K, V]]]:
        removals: list[Removal[K, V]] = []
        if self._may_leave:
            leaving = {key: value for key, value in taken.items() if _leaves(value)}
            taken = {key: value for key, value in taken.items() if key not in leaving}
            removals = [Removal(key, *why[1:]) for key, why in leaving.items() if self._holds(key)]
            self._may_leave = not self._conflator.is_idle
        updates: list[tuple[K, V]] = list(taken.items())
        self.count_out(len(updates) + len(removals))
        return updates, removals

    def count_in(self, updates: int) -> None:
        """Count updates that are conflated elsewhere."""
        self.updates_in += updates

    def count_out(self, updates: int) -> None:
        """Count releases of updates that are conflated elsewhere."""
        self.updates_out += updates
        self.releases += 1

    def check(self) -> None:
        """Assert the invariants between two calls."""
        self._conflator.check()
        assert self.updates_out <= self.updates_in, "more has left than came"


def _packed(entry: Any) -> list[Any]:
    """A pending value as a list; of a removal it begins with None."""
    return [None, list(entry[1]), entry[2]] if _leaves(entry) else list(entry)


def _unpacking(packed: list[Any]) -> Generator[None, None, list[Any]]:
    """Pending keys with their values; some are unpacked in each step."""
    found = list[Any]()
    for start in range(0, len(packed), UNPACKED_AT_ONCE):
        some = packed[start : start + UNPACKED_AT_ONCE]
        found += [(key, _unpacked(value)) for key, value in some]
        yield
    return found


def _unpacked(entry: list[Any]) -> Any:
    """The pending value that was packed."""
    return (GOES, tuple(entry[1]), entry[2]) if entry[0] is None else tuple(entry)


def _leaves(entry: Any) -> bool:
    """Whether this is a `Leaving`, and no update."""
    return type(entry) is tuple and len(entry) == 3 and entry[0] is GOES
