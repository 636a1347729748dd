"""A conflated topic: a copy that changes at most once per key and interval.

The idea on top of a conflator is *focus*. An update that passes the topic's filter is offered
as it is. One that does not pass, a delete or an expiry is offered as a removal, but only when
the copy holds the record or has it pending: leaving is said only to those who were told. At the
end of its window a removal of a record that the copy never held vanishes without trace (it came
and went within one window, docs/semantics.md, Rule 2).

The copy itself, what records are and who hears of a release are the caller's.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import compress, repeat
from typing import Generic, NamedTuple, TypeVar

from conflated_topics.conflator import Conflator
from conflated_topics.schedules import Schedule

K = TypeVar("K")
V = TypeVar("V")


class Removal(NamedTuple, Generic[K, V]):
    """A record that leaves the copy: why, and the value that made it leave."""

    key: K
    value: V
    reason: str


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
        self._conflator: Conflator[K, V | Removal[K, V]] = Conflator(
            schedule, self._fold if merge else None
        )
        self._holds = holds
        self._merge = merge
        self.updates_in = 0
        self.updates_out = 0
        self.releases = 0

    def _fold(self, current: V | Removal[K, V], new: V | Removal[K, V]) -> V | Removal[K, V]:
        if self._merge is None or isinstance(current, Removal) or isinstance(new, Removal):
            return new
        return self._merge(current, new)

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
        """Go on under `schedule`; what waits starts a window of it at `now_us`."""
        pending = self._conflator.pending()
        self._conflator = Conflator(schedule, self._fold if self._merge else None)
        self._conflator.offer(list(pending), pending.values(), now_us)

    def remerge(self, merge: Callable[[V, V], V] | None) -> None:
        """Merge with `merge` from now on (None: the newer stands); what waits goes on waiting."""
        self._merge = merge
        self._conflator.refold(self._fold if merge else None)

    def waiting(self) -> Mapping[K, V | Removal[K, V]]:
        """What waits for each key: an update, or the removal that it is. Only to be looked at."""
        return self._conflator.pending()

    def will_hold(self, key: K) -> bool:
        """Whether the copy will hold `key` once everything that waits has been released."""
        waiting = self._conflator.newest(key)
        return self._holds(key) if waiting is None else not isinstance(waiting, Removal)

    def offer(
        self, keys: Sequence[K], values: Sequence[V], now_us: int, passes: Sequence[bool] | None
    ) -> None:
        """Take in updates of the underlying topic, in order, at the time `now_us`.

        `values[i]` is the new value of `keys[i]`, and `passes[i]` says whether the topic's filter
        lets it through; None: there is no filter. One that does not pass is a removal of a record
        that the copy holds or is about to, with the reason ``match``, and otherwise nothing.
        """
        if passes is not None and not all(passes):
            if any(map(self._is_told, keys, passes, repeat(now_us))) or len(set(keys)) != len(keys):
                self._offer_one_by_one(keys, values, now_us, passes)
                return
            keys, values = list(compress(keys, passes)), list(compress(values, passes))
        self.updates_in += len(keys)
        self._conflator.offer(keys, values, now_us)

    def _is_told(self, key: K, inside: bool, now_us: int) -> bool:
        """Whether a record that fails the filter is one the copy holds or is about to."""
        return not inside and self._is_there(key, now_us)

    def _is_there(self, key: K, now_us: int) -> bool:
        """The copy holds a record, or will when what has ended is released, or it is pending.

        What counts is what the windows say that have ended: when they are released is a matter of
        gathering, and must not change where the next window begins.
        """
        if self._conflator.is_open(key, now_us):
            return True
        closed = self._conflator.closed(key)
        return self._holds(key) if closed is None else not isinstance(closed, Removal)

    def _are_there(self, keys: Sequence[K], now_us: int) -> list[bool]:
        """The same for many keys."""
        is_open = self._conflator.open_keys(now_us)
        if self._conflator.has_closed:
            return [key in is_open or self._is_there(key, now_us) for key in keys]
        holds = self._holds
        return [key in is_open or holds(key) for key in keys]

    def _offer_one_by_one(
        self, keys: Sequence[K], values: Sequence[V], now_us: int, passes: Sequence[bool]
    ) -> None:
        # What an update that fails the filter says depends on what stood before it in the batch.
        for key, value, inside in zip(keys, values, passes, strict=True):
            if inside:
                self.updates_in += 1
                self._conflator.offer((key,), (value,), now_us)
            else:
                self.remove((key,), (value,), "match", now_us)

    def remove(self, keys: Sequence[K], values: Sequence[V], reason: str, now_us: int) -> None:
        """Take in that records have left the underlying topic, or its part that passes the filter.

        `values[i]` is the value to say of `keys[i]`, `reason` why all of them leave. Of records
        that the copy neither holds nor is about to, nothing is noted.
        """
        # What is said of one record does not depend on the others, nor on being said twice.
        there = self._are_there(keys, now_us)
        gone = [
            Removal(key, value, reason)
            for key, value, is_there in zip(keys, values, there, strict=True)
            if is_there
        ]
        self.updates_in += len(gone)
        self._conflator.offer(list(compress(keys, there)), gone, now_us)

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
            if not isinstance(value, Removal):
                updates.append((key, value))
            elif self._holds(key):
                removals.append(value)
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
