"""Steps: work that may touch many records, a little of it at a time.

A request of one line may concern a million records. Whatever may do so is written as a generator:
each step of it is a fraction of a millisecond of work and leaves everything whole, and between two
steps anything may happen. It holds what it needs by reference, as of the moment at which it began,
and returns its result with the last step. Who drives it takes as many steps in a turn as there is
time for (`sow.server.turns`), and may give it up between two of them by closing it.

This module knows nothing of what the steps do, nor of time.
"""

from collections.abc import Generator
from typing import TypeVar

Result = TypeVar("Result")

Steps = Generator[None, None, Result]


def at_once(steps: Steps[Result]) -> Result:
    """Take all steps, one after the other; returns and raises what they do."""
    while True:
        try:
            next(steps)
        except StopIteration as over:
            result: Result = over.value
            return result
