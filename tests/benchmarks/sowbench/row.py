"""A row: one case of one server, every round of it, with the floor of the same run beside it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

OURS = "SOW"


@dataclass(frozen=True, slots=True)
class Row:
    """A measured case: of `values` in `unit` less is better, unless it is a rate or a count of
    followers. Without values `reason` says why there are none.

    `promise` is what an acknowledgement meant, `limit` what has to be known about the figure,
    `fault` what was wrong with the answers, and `also` what else was measured, by a name that says
    its unit.
    """

    case: str
    name: str
    values: Sequence[float]
    unit: str
    promise: str
    floor: float = 0.0
    floor_name: str = ""
    limit: str = ""
    fault: str = ""
    reason: str = ""
    also: Mapping[str, Sequence[float]] = field(default_factory=dict)

    @property
    def workload(self) -> str:
        """W1 to W10."""
        return self.case.partition(" ")[0]

    @property
    def value(self) -> float:
        """The median."""
        return median(self.values)

    @property
    def counts(self) -> bool:
        """Whether there is a figure, with right answers."""
        return bool(self.values) and not self.fault

    @property
    def subject(self) -> str:
        """What is measured again as a whole, by everybody."""
        return self.case

    def rank(self) -> float:
        """The less the better."""
        is_more_better = self.unit.endswith("/s") or self.unit == "followers"
        return -self.value if is_more_better else self.value
