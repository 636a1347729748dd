"""The status of a record before conflation: it takes part, or the reason why not.

Each record has a status number in a column beside its own. Spark sets it if the row itself is
enough to decide, the order of a stream for `LATE`.
"""

VERDICT = "__verdict"

TAKEN = 0
"""It takes part."""
LATE = 1
"""Older than the allowed lateness."""
AHEAD = 2
"""Further ahead of the clock than allowed."""
KEYLESS = 3
"""Null in a key."""
TICK = 4
"""No record: only its time counts."""

ASIDE = (LATE, AHEAD)
"""Records that may be emitted beside the result. One without a key cannot: it belongs to none."""
COUNTED = {"late": LATE, "ahead": AHEAD, "without_key": KEYLESS}
"""The names under which they are counted."""
