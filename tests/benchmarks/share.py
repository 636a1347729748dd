"""A share: one part of what a path takes, as a profile has found it."""

from typing import NamedTuple

REST = "everything else"
"""The part that stands for all small ones."""


class Share(NamedTuple):
    """`part` takes `value` of what `path` takes, which is `share` of the whole."""

    path: str
    part: str
    value: float
    unit: str
    share: float

    @property
    def subject(self) -> str:
        """What is measured again as a whole."""
        return self.path
