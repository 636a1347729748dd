"""What becomes of a record before it is conflated: it takes part, or the reason why not.

Each record has a number that says so, in a column beside its own. It is given where enough is
known to give it: by Spark for what a row says itself, and by the order of a stream for `LATE`.
"""

VERDICT = "__verdict"

TAKEN = 0
"""It takes part."""
LATE = 1
"""Older than what was allowed to be late."""
AHEAD = 2
"""Further ahead of the clock than clocks may differ."""
KEYLESS = 3
"""Null in a key."""
TICK = 4
"""No record: only its time counts."""

ASIDE = (LATE, AHEAD)
"""Records that may be asked for beside the result. One without a key cannot be: whose is it?"""
COUNTED = {"late": LATE, "ahead": AHEAD, "without_key": KEYLESS}
"""Under which names they are counted."""
