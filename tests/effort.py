"""How much the laws are tried, and how much work something is.

They are tried a little by default, ``SOW_EFFORT=n`` times as much.

The default run is run before every change and has to be short; what it tries is chosen so that each
law is shown. `make laws` looks longer, and the bugs that are planted are looked for with what
`PLANTED` says. Work is counted in lines of code: it is the same on every machine.
"""

import os
import sys

from hypothesis import settings

TIMES = int(os.environ.get("SOW_EFFORT", "1"))
PLANTED = "14"
"""The effort with which planted bugs are looked for, each of which has to be caught."""


def examples(count, **more):
    """The settings of a property that tries so many examples by default."""
    return settings(max_examples=count * TIMES, **more)


def seeds(count):
    """The seeds of a test that tries so many by default."""
    return range(count * TIMES)


def lines_run(steps):
    """How many lines of code each step runs."""
    counts = []

    def counted(_frame, event, _argument):
        counts[-1] += event == "line"
        return counted

    while True:
        counts.append(0)
        sys.settrace(counted)
        try:
            next(steps)
        except StopIteration:
            return counts
        finally:
            sys.settrace(None)
