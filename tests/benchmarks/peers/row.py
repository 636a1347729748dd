"""A row of the comparison: one case of one of them, every round of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

OURS = "this server"
"""What our own name begins with."""


@dataclass(frozen=True, slots=True)
class Row:
    """A measured case: of `values` in `unit` less is better, unless it is a rate.

    `durability` is what an acknowledgement promised meanwhile, `also` what else was measured, by a
    name that says its unit.
    """

    case: str
    name: str
    values: Sequence[float]
    unit: str
    durability: str
    also: Mapping[str, Sequence[float]] = field(default_factory=dict)

    @property
    def value(self) -> float:
        """The median."""
        return median(self.values)

    @property
    def subject(self) -> str:
        """What is measured again as a whole, by everybody."""
        return self.case

    def rank(self) -> float:
        """The less the better."""
        return -self.value if self.unit.endswith("/s") else self.value
