"""The libraries by themselves (`embedded`): columns of what is asked for, and the whole record."""

import sqlite3
from pathlib import Path
from typing import Any

import orjson

from tests.benchmarks.peers.embedded import Groups
from tests.benchmarks.peers.load import Batch
from tests.benchmarks.peers.questions import TOP, Question

SCHEMA = {
    "id": "integer",
    "symbol": "string",
    "px": "float",
    "region": "string",
    "body": "string",
}

AGGREGATES = {"n": "count", "sum": "sum", "avg": "avg", "low": "min", "high": "max"}
"""Those of the groups, as Perspective calls them."""


def columns(batch: Batch) -> list[tuple[int, str, float, str, str]]:
    """Rows of (id, symbol, px, region, body); of equal keys the last."""
    rows = {}
    for key, body in batch:
        row = orjson.loads(body)
        rows[key] = (key, row["symbol"], row["px"], row["region"], body.decode())
    return list(rows.values())


def where(question: Question, names: str) -> str:
    """A question in SQL; `names` is how a column is written, such as ``{}``."""
    terms = []
    if question.symbol is not None:
        terms.append(f"{names.format('symbol')} = '{question.symbol}'")
    if question.region is not None:
        terms.append(f"{names.format('region')} = '{question.region}'")
    if question.px is not None:
        px = names.format("px")
        terms.append(f"{px} >= {question.px[0]} AND {px} < {question.px[1]}")
    condition = f" WHERE {' AND '.join(terms)}" if terms else ""
    if question.top:
        return f"{condition} ORDER BY {names.format('px')} DESC LIMIT {TOP}"
    return condition


def by_region(region: str, px: str) -> str:
    """The rows of regions in SQL, with the expressions of the two fields."""
    five = f"COUNT(*), SUM({px}), AVG({px}), MIN({px}), MAX({px})"
    return f"SELECT {region}, {five} FROM orders GROUP BY 1"


class SQLite:
    """A file with a write-ahead log, synchronous=FULL, and indexes on expressions of the body."""

    def __init__(self, folder: Path) -> None:
        self._base = sqlite3.connect(folder / "orders.sqlite", isolation_level=None)
        run = self._base.execute
        run("PRAGMA journal_mode=WAL")
        run("PRAGMA synchronous=FULL")
        run("CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, body TEXT)")
        for name in ("symbol", "px"):
            run(f"CREATE INDEX IF NOT EXISTS by_{name} ON orders (body ->> '$.{name}')")
        run("CREATE INDEX IF NOT EXISTS by_both ON orders (body ->> '$.region', body ->> '$.px')")

    def put(self, batch: Batch) -> None:
        """One transaction."""
        self._base.execute("BEGIN")
        self._base.executemany(
            "INSERT INTO orders VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET body = excluded.body",
            [(key, body.decode()) for key, body in batch],
        )
        self._base.execute("COMMIT")

    def current(self) -> dict[int, bytes]:
        """All records."""
        found = self._base.execute("SELECT id, body FROM orders")
        return {key: body.encode() for key, body in found}

    def ask(self, question: Question) -> list[int]:
        """Whole records are read, as ours are."""
        text = (
            f"SELECT id, body FROM orders{where(question, chr(39).join(['body ->> ', '$.{}', '']))}"
        )
        return [row[0] for row in self._base.execute(text).fetchall()]

    def groups(self) -> Groups:
        """Anew, by the index that has both fields."""
        found = self._base.execute(by_region("body ->> '$.region'", "body ->> '$.px'"))
        return {region: row for region, *row in found.fetchall()}


class DuckDB:
    """A file, and columns beside the body, with an index on the symbol."""

    def __init__(self, folder: Path) -> None:
        import duckdb  # type: ignore[import-not-found]

        self._base: Any = duckdb.connect(str(folder / "orders.duckdb"))
        self._base.execute(
            "CREATE TABLE IF NOT EXISTS orders (id BIGINT PRIMARY KEY, symbol VARCHAR, px DOUBLE, "
            "region VARCHAR, body VARCHAR)"
        )

    def put(self, batch: Batch) -> None:
        """One transaction; rows come as columns of Arrow, its quickest way in."""
        import pyarrow as pa

        rows = columns(batch)
        taken = pa.table(dict(zip(SCHEMA, map(list, zip(*rows, strict=True)), strict=True)))
        self._base.register("taken", taken)
        self._base.execute("INSERT OR REPLACE INTO orders SELECT * FROM taken")
        self._base.unregister("taken")

    def current(self) -> dict[int, bytes]:
        """All records."""
        found = self._base.execute("SELECT id, body FROM orders").fetchall()
        return {key: body.encode() for key, body in found}

    def ask(self, question: Question) -> list[int]:
        """Whole records are read, as ours are."""
        text = f"SELECT id, body FROM orders{where(question, '{}')}"
        return [row[0] for row in self._base.execute(text).fetchall()]

    def groups(self) -> Groups:
        """Anew, of the columns."""
        found = self._base.execute(by_region("region", "px"))
        return {region: row for region, *row in found.fetchall()}


class Perspective:
    """A table in memory, keyed by id; a view is made for each question, as a screen makes one, and
    one that stays for the groups."""

    def __init__(self, _folder: Path) -> None:
        import perspective  # type: ignore[import-not-found]

        client = perspective.Server().new_local_client()
        self._table: Any = client.table(SCHEMA, index="id")
        self._groups: Any = None

    def put(self, batch: Batch) -> None:
        """One update, and its effects, which come when the table is asked for something."""
        rows = [dict(zip(SCHEMA, row, strict=True)) for row in columns(batch)]
        self._table.update(rows)

    def current(self) -> dict[int, bytes]:
        """All records."""
        view = self._table.view(columns=["id", "body"])
        found = view.to_columns()
        view.delete()
        pairs = zip(found.get("id", ()), found.get("body", ()), strict=True)
        return {key: body.encode() for key, body in pairs}

    def ask(self, question: Question) -> list[int]:
        """Whole records are read, as ours are."""
        terms: list[list[object]] = []
        if question.symbol is not None:
            terms.append(["symbol", "==", question.symbol])
        if question.region is not None:
            terms.append(["region", "==", question.region])
        if question.px is not None:
            terms += [["px", ">=", question.px[0]], ["px", "<", question.px[1]]]
        sort = {"sort": [["px", "desc"]]} if question.top else {}
        view = self._table.view(columns=["id", "body"], filter=terms, **sort)
        found = view.to_columns(**({"end_row": TOP} if question.top else {}))
        view.delete()
        return list(found.get("id", ()))

    def groups(self) -> Groups:
        """Those of the view, the total above them left out; a column has one aggregate there."""
        if self._groups is None:
            self._groups = self._table.view(
                group_by=["region"],
                columns=list(AGGREGATES),
                expressions=dict.fromkeys(AGGREGATES, '"px"'),
                aggregates=AGGREGATES,
            )
        found = self._groups.to_columns()
        regions = [path[0] if path else None for path in found["__ROW_PATH__"]]
        rows = zip(*(found[name] for name in AGGREGATES), strict=True)
        return {region: row for region, row in zip(regions, rows, strict=True) if region}
