"""Garbage: when Python's collector of cycles runs, and how much it looks through at a time.

Nearly everything here is freed as soon as nobody refers to it. What refers to itself in a circle is
found by the collector alone, which keeps everybody waiting while it looks through containers: some
microsecond for each. So it never looks through many at a time:

    young    ──> between two pieces of work (`look`), what `EVERY_US` of them have made, and once
                 more; by Python itself only when `YOUNG_OBJECTS` have been made
    old      ──> then too, when a few thousand have gathered
    settled  ──> what is left of the old stays, most likely: frozen, and looked through no more

Python by itself would wait for longer: it counts objects made less objects freed, whichever these
were, so that where old ones go as new ones come a hundred thousand are young before it looks.

One old object may be a dictionary that grows to a million entries, each of which would be looked
at: it is settled with all the others that are old then, before it is long, and unseen.

Who lives long and then goes, such as a client or a topic, leaves no circles (their tests say so:
tests/edge/test_circles.py for clients), so what is settled is freed when it goes. Should it not be,
then a million more objects than stayed before are too many to believe in, and all are looked
through once: unless topics, sessions and views hold as many, which is no reason to keep everybody
waiting for seconds. Large lists never are (`sow.core.cooperative`).
"""

import gc
from collections.abc import Callable

YOUNG_OBJECTS = 2_000
"""Objects made, and not freed yet, after which Python looks through the youngest: a millisecond."""
EVERY_US = 10_000
"""How long work goes on until what it has made is looked through: some thousand objects, in a
millisecond; of a server that has little to do, a thousandth of the time."""
YOUNG_PASSES = 2
"""Passes over the youngest after which those that were left are looked through together."""
NEVER = 1_000_000_000
"""Passes after which Python would look through everything by itself, at any moment."""
OLD_OBJECTS = 2_000
"""Old objects that are enough to be looked through, in some milliseconds with the younger ones. Of
more, each would take as long."""
MANY_OBJECTS = 10_000
"""So many have come at once, from a library that was loaded or a large answer, and stay: they are
settled unseen."""
LONG_ENTRIES = 5_000
"""Entries of an old dictionary that is not looked through any more: a tenth of a millisecond. One
that grows, such as the window of updates that wait for their release, is seen before it has many
more."""
SETTLED_OBJECTS = 1_000_000
"""More settled objects than stayed when all were looked through last, for which that is done
again: some 100 MB. It takes a second, and happens only where what has gone is not freed."""


class GcPacing:
    """The collector of this process from `begin` on; `expected` says how many objects there may
    well be beside those that stayed."""

    def __init__(self, expected: Callable[[], int] = lambda: 0) -> None:
        self._expected = expected
        self._looked_us = 0
        self._passes = 0
        self._settled = 0
        """Objects settled since `_frozen_max` was found, whether they are still there or not."""
        self._frozen_max = 0
        """So many settled ones there were at most."""
        self._stayed = 0
        """How many stayed then."""

    def begin(self) -> None:
        """All that has been made so far stays."""
        gc.set_threshold(YOUNG_OBJECTS, YOUNG_PASSES, NEVER)
        gc.freeze()
        self._stayed = self._frozen_max = gc.get_freeze_count()

    def look(self, now_us: int) -> bool:
        """Look through what is young, and through old objects if there are enough, unless that was
        done a moment ago; says that there is nothing more to do. To be called between any two
        pieces of work."""
        if abs(now_us - self._looked_us) >= EVERY_US:  # the clock may have been set back
            self._looked_us = now_us
            gc.collect(gc.get_count()[1] >= YOUNG_PASSES)
            self._look_through_old()
        return False

    def _look_through_old(self) -> None:
        passes = gc.get_count()[2]
        if passes != self._passes:  # something has become old
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
                # To count them goes through all of them.
                self._frozen_max = gc.get_freeze_count()
                if self._frozen_max > believed:
                    self._collect_all()

    def _collect_all(self) -> None:
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        self._stayed = self._frozen_max = gc.get_freeze_count()


def _old() -> tuple[int, bool]:
    """How many old objects there are, and whether there is a long dictionary among them; none of
    them is referred to any more afterwards."""
    old = gc.get_objects(generation=2)
    return len(old), any(type(one) is dict and len(one) > LONG_ENTRIES for one in old)
