"""Perspective: a table in memory, keyed by id, and a view for each question, as screens make."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.sowbench import nexmark
from tests.benchmarks.sowbench.adapter import Cannot
from tests.benchmarks.sowbench.adapters.duckdb import columns
from tests.benchmarks.sowbench.embedded import Embedded
from tests.benchmarks.sowbench.load import Record
from tests.benchmarks.sowbench.questions import TOP, Question

ORDERS = {"id": "integer", "symbol": "string", "px": "float", "region": "string", "body": "string"}
BIDS = dict.fromkeys(nexmark.COLUMNS["bid"], "integer")
VIEWS: dict[str, dict[str, Any]] = {
    "q1": {
        "columns": ["id", "auction", "bidder", "converted"],
        "expressions": {"converted": '"price" * 0.908'},
    },
    "q2": {
        "columns": ["id", "auction", "price"],
        "expressions": {"rest": '"auction" % 123'},
        "filter": [["rest", "==", 0]],
    },
}


class Adapter(Embedded):
    """In a process of its own."""

    VARIANTS = ("memory",)
    name = "Perspective, in process"
    promise = "none: kept in memory"


class Library:
    """One table; for Nexmark that of the bids."""

    def __init__(self, _folder: Path, view: str) -> None:
        import perspective  # type: ignore[import-not-found]

        if view and view not in VIEWS:
            raise Cannot("a view is of one table, and has no first rows of a group")
        client = perspective.Server().new_local_client()
        self._schema = BIDS if view else ORDERS
        self._table: Any = client.table(self._schema, index="id")
        self._view = self._table.view(**VIEWS[view]) if view else None

    def put(self, topic: str, batch: Sequence[Record]) -> None:
        """One update, and its effects, which come when the table is asked for something."""
        if topic in ("person", "auction"):
            return
        rows = columns(batch) if topic == "orders" else nexmark.columns(topic, batch)
        self._table.update([dict(zip(self._schema, row, strict=True)) for row in rows])

    def ask(self, question: Question | nexmark.Query) -> Sequence[Any]:
        """A view of its own, or the one that is kept."""
        if isinstance(question, nexmark.Query):
            assert self._view is not None
            found = self._view.to_columns()
            names = VIEWS[question.name]["columns"]
            return list(zip(*(found[name] for name in names), strict=True))
        terms: list[list[object]] = []
        if question.key is not None:
            terms.append(["id", "==", question.key])
        if question.symbol is not None:
            terms.append(["symbol", "==", question.symbol])
        if question.region is not None:
            terms.append(["region", "==", question.region])
        if question.px is not None:
            terms += [["px", ">=", question.px[0]], ["px", "<", question.px[1]]]
        sort = {"sort": [["px", "desc"]]} if question.top else {}
        view = self._table.view(columns=["body"], filter=terms, **sort)
        rows = view.to_columns(**({"end_row": TOP} if question.top else {}))
        view.delete()
        return list(rows.get("body", ()))

    def state(self) -> dict[int, bytes]:
        """All records."""
        view = self._table.view(columns=["id", "body"])
        found = view.to_columns()
        view.delete()
        pairs = zip(found.get("id", ()), found.get("body", ()), strict=True)
        return {key: body.encode() for key, body in pairs}
