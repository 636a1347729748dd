"""The questions of the comparison, and what their answers are by a plain look at all records."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

TOP = 10


class Question(NamedTuple):
    """A question: records of which fields lie within bounds, or the first few by a field."""

    case: str
    symbol: str | None = None
    region: str | None = None
    px: tuple[float, float] | None = None
    top: bool = False

    def holds(self, row: Mapping[str, Any]) -> bool:
        """Whether a record is asked for."""
        low, high = self.px or (float("-inf"), float("inf"))
        return (
            self.symbol in (None, row["symbol"])
            and self.region in (None, row["region"])
            and low <= row["px"] < high
        )


QUESTIONS = (
    Question("exact, 1 symbol of 5,000", symbol="S77"),
    Question("compound, 1 record in 10,000", region="A", px=(999.2, 1001.0)),
    Question("range, 1 %", px=(500.0, 510.0)),
    Question("top 10", top=True),
)


def keys_of(question: Question, records: Mapping[int, bytes]) -> list[int]:
    """The answer: keys in order, of equal ones any."""
    rows = [orjson.loads(body) for body in records.values()]
    found = [row for row in rows if question.holds(row)]
    if question.top:
        found = sorted(found, key=lambda row: -row["px"])[:TOP]
        return [row["order"]["id"] for row in found]
    return sorted(row["order"]["id"] for row in found)
