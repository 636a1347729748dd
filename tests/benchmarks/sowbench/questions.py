"""The questions of W8, and what their answers are by a plain look at all records."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import orjson

TOP = 10


class Answer(NamedTuple):
    """How long one took in ms, until all rows were there, and the rows: records, parsed or not."""

    ms: float
    rows: Sequence[Any]


class Question(NamedTuple):
    """A question: records of which fields lie within bounds, or the first few by a field."""

    case: str
    key: int | None = None
    symbol: str | None = None
    region: str | None = None
    px: tuple[float, float] | None = None
    top: bool = False

    def holds(self, row: Mapping[str, Any]) -> bool:
        """Whether a record is asked for."""
        low, high = self.px or (float("-inf"), float("inf"))
        return (
            self.key in (None, row["id"])
            and self.symbol in (None, row["symbol"])
            and self.region in (None, row["region"])
            and low <= row["px"] < high
        )

    def sql(self, column: str = "{}") -> str:
        """The part of a query after the table; `column` is how a field is written."""
        terms = []
        if self.key is not None:
            terms.append(f"id = {self.key}")
        if self.symbol is not None:
            terms.append(f"{column.format('symbol')} = '{self.symbol}'")
        if self.region is not None:
            terms.append(f"{column.format('region')} = '{self.region}'")
        if self.px is not None:
            px = column.format("px")
            terms.append(f"{px} >= {self.px[0]} AND {px} < {self.px[1]}")
        condition = f" WHERE {' AND '.join(terms)}" if terms else ""
        top = f" ORDER BY {column.format('px')} DESC LIMIT {TOP}" if self.top else ""
        return condition + top


QUESTIONS = (
    Question("1 record by its key", key=7),
    Question("exact, 1 symbol of 5,000", symbol="S77"),
    Question("compound, 1 record in 10,000", region="A", px=(999.2, 1001.0)),
    Question("range, 1 %", px=(500.0, 510.0)),
    Question("top 10", top=True),
)


def fault_of(question: Question, rows: Sequence[Any], held: Mapping[int, bytes]) -> str:
    """What is wrong with an answer, given all records at that moment; nothing if it is right."""
    records = [orjson.loads(body) for body in held.values()]
    rows = [row if isinstance(row, dict) else orjson.loads(row) for row in rows]
    wanted = [row for row in records if question.holds(row)]
    if question.top:
        # Of equal ones any may come first.
        wanted = sorted(wanted, key=lambda row: -row["px"])[:TOP]
        right = [row["px"] for row in wanted] == [row["px"] for row in rows]
    else:
        right = sorted(row["n"] for row in wanted) == sorted(row["n"] for row in rows)
    return "" if right else f"{len(rows)} rows instead of {len(wanted)}, or others"
