"""DuckDB: a file, and columns beside the body."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from tests.benchmarks.sowbench import nexmark
from tests.benchmarks.sowbench.embedded import Embedded
from tests.benchmarks.sowbench.load import Record
from tests.benchmarks.sowbench.questions import Question

ORDERS = {"id": "BIGINT", "symbol": "VARCHAR", "px": "DOUBLE", "region": "VARCHAR"}
COLUMNS = {"orders": {**ORDERS, "body": "VARCHAR"}, **nexmark.COLUMNS}


class Adapter(Embedded):
    """In a process of its own."""

    VARIANTS = ("file",)
    name = "DuckDB, in process"
    promise = "fsync before each commit returns"


class Library:
    """One connection."""

    def __init__(self, folder: Path, view: str) -> None:
        import duckdb  # type: ignore[import-not-found]

        self._base: Any = duckdb.connect(str(folder / "orders.duckdb"))
        for topic in nexmark.TOPICS if view else ("orders",):
            columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS[topic].items())
            self._base.execute(f"CREATE TABLE IF NOT EXISTS {topic} ({columns}, PRIMARY KEY (id))")

    def put(self, topic: str, batch: Sequence[Record]) -> None:
        """One transaction; rows come as columns of Arrow, its quickest way in."""
        rows = columns(batch) if topic == "orders" else nexmark.columns(topic, batch)
        by_name = zip(COLUMNS[topic], map(list, zip(*rows, strict=True)), strict=True)
        self._base.register("taken", pa.table(dict(by_name)))
        self._base.execute(f"INSERT OR REPLACE INTO {topic} SELECT * FROM taken")
        self._base.unregister("taken")

    def ask(self, question: Question | nexmark.Query) -> Sequence[Any]:
        """Rows anew; whole records, as ours are."""
        if isinstance(question, nexmark.Query):
            return list(self._base.execute(question.sql).fetchall())
        found = self._base.execute(f"SELECT body FROM orders{question.sql()}").fetchall()
        return [body for (body,) in found]

    def state(self) -> dict[int, bytes]:
        """All records."""
        found = self._base.execute("SELECT id, body FROM orders").fetchall()
        return {key: body.encode() for key, body in found}


def columns(batch: Sequence[Record]) -> list[tuple[Any, ...]]:
    """Rows of orders; of equal keys the last."""
    rows = {}
    for key, body in batch:
        row = orjson.loads(body)
        rows[key] = (*(row[name] for name in ORDERS), body.decode())
    return list(rows.values())
