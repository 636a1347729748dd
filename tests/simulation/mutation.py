"""What a planted bug is: a small substitution in the source.

A text has to be there exactly once, and enough of it that it stays what it is when something else
is written beside it.
"""

from typing import NamedTuple


class Mutation(NamedTuple):
    """A bug: in which file, what is there and what stands there instead."""

    name: str
    file: str
    text: str
    instead: str
