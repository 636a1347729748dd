"""SQLite: a file with a write-ahead log, synchronous=FULL, and indexes on fields of the body."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.sowbench import nexmark
from tests.benchmarks.sowbench.embedded import Embedded
from tests.benchmarks.sowbench.load import Record
from tests.benchmarks.sowbench.questions import Question

FIELD = "body ->> '$.{}'"
"""A column, for SQL."""


class Adapter(Embedded):
    """In a process of its own."""

    VARIANTS = ("full",)
    name = "SQLite, in process"
    promise = "fsync before each commit returns"


class Library:
    """One connection."""

    def __init__(self, folder: Path, view: str) -> None:
        self._base = sqlite3.connect(
            folder / "orders.sqlite", isolation_level=None, check_same_thread=False
        )
        run = self._base.execute
        run("PRAGMA journal_mode=WAL")
        run("PRAGMA synchronous=FULL")
        run("CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, body TEXT)")
        for name in ("symbol", "px"):
            run(f"CREATE INDEX IF NOT EXISTS by_{name} ON orders (body ->> '$.{name}')")
        run("CREATE INDEX IF NOT EXISTS by_both ON orders (body ->> '$.region', body ->> '$.px')")
        for topic in nexmark.TOPICS if view else ():
            names = ", ".join(nexmark.COLUMNS[topic])
            run(f"CREATE TABLE IF NOT EXISTS {topic} ({names}, PRIMARY KEY (id))")
        if view:
            run("CREATE INDEX IF NOT EXISTS of_bid ON bid (auction)")

    def put(self, topic: str, batch: Sequence[Record]) -> None:
        """One transaction."""
        self._base.execute("BEGIN")
        if topic == "orders":
            self._base.executemany(
                "INSERT INTO orders VALUES (?, ?) "
                "ON CONFLICT (id) DO UPDATE SET body = excluded.body",
                [(key, body.decode()) for key, body in batch],
            )
        else:
            nexmark.put(self._base, topic, batch)
        self._base.execute("COMMIT")

    def ask(self, question: Question | nexmark.Query) -> Sequence[Any]:
        """Rows anew; whole records, as ours are."""
        if isinstance(question, nexmark.Query):
            return self._base.execute(question.sql).fetchall()
        text = f"SELECT body FROM orders{question.sql(FIELD)}"
        return [body for (body,) in self._base.execute(text).fetchall()]

    def state(self) -> dict[int, bytes]:
        """All records."""
        found = self._base.execute("SELECT id, body FROM orders")
        return {key: body.encode() for key, body in found}
