"""Paces Python's cycle collector: when it runs, and how many objects it examines at a time.

Nearly every object here is freed as soon as its last reference goes. Reference cycles are found by
the collector alone, which blocks everything while it examines containers: about a microsecond for
each. So it never examines many at a time:

    young    ──> between two pieces of work (`look`), the objects made in the last `EVERY_US`, and
                 once more; by Python itself only after `YOUNG_OBJECTS` allocations
    old      ──> at the same moments, when a few thousand have gathered
    settled  ──> old objects that survive probably stay: they are frozen and not examined again

Python by itself would wait longer: it counts allocations less deallocations, whichever objects
these were, so where old objects go as new ones come a hundred thousand are young before it runs.

One old object may be a dictionary that grows to a million entries, all to be examined: it is frozen
with all other old objects before it is long.

Long-lived objects that go away, such as a client or a topic, leave no cycles
(tests/edge/test_circles.py checks this for clients), so frozen objects are freed when they go. If
they are not, the number of frozen objects exceeds by a million what is plausible, and all are
examined once; unless topics, sessions and views account for them, which would block for seconds for
nothing. Large lists are never tracked (`sow.core.cooperative`).
"""

import gc
from collections.abc import Callable

YOUNG_OBJECTS = 2_000
"""Live allocations after which Python examines the youngest generation: a millisecond."""
EVERY_US = 10_000
"""Time between two collections of the young generation: some thousand objects, in a millisecond; on
an idle server a thousandth of the time."""
YOUNG_PASSES = 2
"""Young collections after which their survivors are examined together."""
NEVER = 1_000_000_000
"""Collections after which Python would run a full one by itself, at any moment."""
OLD_OBJECTS = 2_000
"""Old objects that are enough for a collection, some milliseconds with the younger ones."""
MANY_OBJECTS = 10_000
"""More old objects than this came at once, from an import or a large answer, and stay: they are
frozen without being examined."""
LONG_ENTRIES = 5_000
"""An old dictionary with more entries is not examined again: a tenth of a millisecond. A growing
one, such as a window of pending updates, is found before it has many more."""
SETTLED_OBJECTS = 1_000_000
"""Frozen objects beyond those that survived the last full collection, after which another one is
made: some 100 MB. It takes a second, and happens only where garbage is not freed."""


class GcPacing:
    """Controls the collector of this process from `begin` on; `expected` returns how many objects
    are plausible beside those that survived."""

    def __init__(self, expected: Callable[[], int]) -> None:
        self._expected = expected
        self._looked_us = 0
        self._passes = 0
        self._settled = 0
        """Objects frozen since `_frozen_max` was determined, freed ones included."""
        self._frozen_max = 0
        """Upper bound of the number of frozen objects."""
        self._stayed = 0
        """Survivors of the last full collection."""

    def begin(self) -> None:
        """Freeze everything allocated so far."""
        gc.set_threshold(YOUNG_OBJECTS, YOUNG_PASSES, NEVER)
        gc.freeze()
        self._stayed = self._frozen_max = gc.get_freeze_count()

    def look(self, now_us: int) -> bool:
        """Collect young objects, and old ones if there are enough, unless that was done a moment
        ago; returns False: there is no more work. Call it between any two pieces of work."""
        if abs(now_us - self._looked_us) >= EVERY_US:  # the clock may have been set back
            self._looked_us = now_us
            gc.collect(gc.get_count()[1] >= YOUNG_PASSES)
            self._look_through_old()
        return False

    def _look_through_old(self) -> None:
        passes = gc.get_count()[2]
        if passes != self._passes:  # objects have become old
            self._passes = passes
            count, has_long = _old()
            if has_long or count > MANY_OBJECTS:
                self._settled += count
                gc.freeze()
            elif count >= OLD_OBJECTS:
                self._collect()

    def _collect(self) -> None:
        gc.collect()
        self._settled += len(gc.get_objects(generation=2))
        gc.freeze()
        self._passes = 0
        if self._settled > SETTLED_OBJECTS:
            self._frozen_max, self._settled = self._frozen_max + self._settled, 0
            believed = 2 * self._stayed + SETTLED_OBJECTS + self._expected()
            if self._frozen_max > believed:
                # Counting visits all of them.
                self._frozen_max = gc.get_freeze_count()
                if self._frozen_max > believed:
                    self._collect_all()

    def _collect_all(self) -> None:
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        self._stayed = self._frozen_max = gc.get_freeze_count()


def _old() -> tuple[int, bool]:
    """The number of old objects, and whether a long dictionary is among them; holds no reference to
    them afterwards."""
    old = gc.get_objects(generation=2)
    # A list and `map`, and no generator: nothing of Python's is called for each of them.
    longest = max(map(len, [one for one in old if type(one) is dict]), default=0)
    return len(old), longest > LONG_ENTRIES
