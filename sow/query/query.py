"""Queries and their answers; plain data."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sow.core.containers import kept
from sow.core.humanize import counted
from sow.core.paths import Path
from sow.errors import ClientError
from sow.expressions import Filter, OrderTerm

SCAN = "scan"
NAMES_KEPT_MAX = 256
"""Names of indexes that are kept: each answer has one, and making its text takes microseconds."""


@kept(NAMES_KEPT_MAX)
def name_of(kind: str, paths: tuple[Path, ...]) -> str:
    """What an index is called, such as ``hash(/symbol)``."""
    return f"{kind}({', '.join(map(str, paths))})"


@dataclass(frozen=True, slots=True)
class Query:
    """A query of one topic. With both `filter` and `keys` a record must satisfy both.

    `keys` are SowKeys as text. `top_n` limits how many records are returned after the first
    `skip_n`; None is no limit. Raises ClientError for negative counts.
    """

    filter: Filter | None = None
    keys: tuple[str, ...] | None = None
    order_by: tuple[OrderTerm, ...] = ()
    top_n: int | None = None
    skip_n: int = 0

    def __post_init__(self) -> None:
        for name, count in (("top_n", self.top_n), ("skip_n", self.skip_n)):
            if count is not None and count < 0:
                raise ClientError(f"{name} is {count}; write 0 or a positive number of records")

    def at(self, now_us: int) -> "Query":
        """The query as of one moment: all records are evaluated at the same time."""
        if self.filter is None or self.filter.deterministic:
            return self
        return replace(self, filter=self.filter.at(now_us))

    @property
    def end(self) -> int | None:
        """How many records, from the first in order, the answer needs; None: all."""
        return None if self.top_n is None else self.skip_n + self.top_n


@dataclass(frozen=True, slots=True)
class PlanStep:
    """Terms of the query, what served them, and how many records were left after them."""

    terms: Sequence[object]
    index: str
    rows: int

    @property
    def expression(self) -> str:
        """The terms as text; empty for none."""
        return " AND ".join(map(str, self.terms))


@dataclass(frozen=True, slots=True)
class QueryAnswer:
    """`slots` in their final order, of `matches` records before paging.

    `read` are the slots of the records whose bodies had to be read to decide.
    """

    slots: NDArray[np.int64]
    matches: int
    steps: tuple[PlanStep, ...]
    read: NDArray[np.int64]
    advice: str

    @property
    def index(self) -> str:
        """Which indexes served the query, such as ``hash(/symbol), memo(/px)``, or ``scan``."""
        used = dict.fromkeys(step.index for step in self.steps if step.index != SCAN)
        return ", ".join(used) or SCAN

    @property
    def kind(self) -> str:
        """The kind of the query's first index, `scan`, or `all` without conditions."""
        first = self.steps[0]
        return first.index.partition("(")[0] if first.terms else "all"

    @property
    def explain(self) -> dict[str, object]:
        """How the query was answered, as `explain=true` shows it."""
        terms = [
            {"expression": step.expression, "index": step.index, "rows": step.rows}
            for step in self.steps
        ]
        touched = self._touched
        return {
            "terms": terms,
            "rows_touched": touched,
            "advice": self.advice,
            "why": [*self._sentences(touched)],
        }

    def _sentences(self, touched: int) -> Iterator[str]:
        """The same as sentences."""
        for at, step in enumerate(self.steps):
            left = counted(step.rows, "record")
            if not step.expression:
                yield f"all records match: {left}"
            elif step.index == SCAN and at == 0:
                yield f"{step.expression}: no index served it: all records were read; {left} left"
            elif step.index == SCAN:
                yield f"{step.expression}: what was left of the records was read; {left} left"
            else:
                yield f"{step.expression}: served by {step.index}; {left} left"
        yield f"read to decide or to answer: {counted(touched, 'record')}"
        if self.advice:
            yield self.advice

    @property
    def explain_guarded(self) -> dict[str, object]:
        """The same for a client that may see some records only: without counts of others that were
        read or ruled out."""
        return {
            "terms": [{"expression": "", "index": self.index, "rows": self.matches}],
            "rows_touched": self.matches,
            "advice": "",
            "why": [
                f"served by {self.index}; {counted(self.matches, 'record')} left of those that "
                "you may see"
            ],
        }

    @property
    def _touched(self) -> int:
        """How many records were read to decide or to answer, each once."""
        last = max(found.max(initial=-1) for found in (self.read, self.slots))
        last = max(found.max(initial=-1) for found in (self.read, self.slots))
        touched = np.zeros(1 + last, np.bool_)
        touched[self.read] = touched[self.slots] = True
        return int(np.count_nonzero(touched))
