"""Those queries of Nexmark that ask for a state, over its three streams.

Events follow from their numbers: of 50 one is a person, 3 are auctions and 46 bids, as in Nexmark.
The answers are checked against SQLite over the same events.
"""

import sqlite3
from collections.abc import Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from tests.benchmarks.sowbench.load import MIX, Record

TOPICS = ("person", "auction", "bid")
SHARE = {"person": 1, "auction": 3, "bid": 46}
"""Of each 50 events."""
COLUMNS = {
    "person": {"id": "BIGINT", "name": "VARCHAR", "city": "VARCHAR", "state": "VARCHAR"},
    "auction": dict.fromkeys(("id", "seller", "category", "ts", "expires"), "BIGINT"),
    "bid": dict.fromkeys(("id", "auction", "bidder", "price", "ts"), "BIGINT"),
}
STATES = ("OR", "ID", "CA", "WA", "NV", "AZ")
OPEN_FOR = 4000
"""Events that an auction stays open for."""
HOT = 300
"""Bids are of the newest so many auctions and persons."""
DIGITS = 9
"""Of equal sums, in whatever order doubles were added up."""


class Query(NamedTuple):
    """A query: the columns of its rows, and how SQL writes it."""

    name: str
    about: str
    columns: Sequence[str]
    sql: str


QUERIES = (
    Query(
        "q1", "prices in another currency", ("id", "auction", "bidder", "price"),
        "SELECT id, auction, bidder, price * 0.908 FROM bid",
    ),
    Query(
        "q2", "bids of some auctions", ("id", "auction", "price"),
        "SELECT id, auction, price FROM bid WHERE auction % 123 = 0",
    ),
    Query(
        "q3", "who sells in a category, in three states", ("name", "city", "state", "id"),
        "SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id "
        "WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')",
    ),
    Query(
        "q4", "average of winning bids by category", ("category", "final"),
        "SELECT category, AVG(final) FROM (SELECT a.id, a.category, MAX(b.price) AS final "
        "FROM auction a JOIN bid b ON b.auction = a.id WHERE b.ts BETWEEN a.ts AND a.expires "
        "GROUP BY a.id, a.category) AS won GROUP BY category",
    ),
    Query(
        "q18", "last bid of each bidder in each auction", ("bidder", "auction", "id", "price"),
        "SELECT bidder, auction, id, price FROM (SELECT *, ROW_NUMBER() OVER "
        "(PARTITION BY bidder, auction ORDER BY id DESC) AS place FROM bid) AS b WHERE place = 1",
    ),
    Query(
        "q19", "ten highest bids of each auction", ("auction", "id", "price"),
        "SELECT auction, id, price FROM (SELECT *, ROW_NUMBER() OVER "
        "(PARTITION BY auction ORDER BY price DESC, id) AS place FROM bid) AS b WHERE place <= 10",
    ),
    Query(
        "q20", "bids with their auctions, of a category", ("id", "price", "auction", "seller"),
        "SELECT b.id, b.price, a.id, a.seller FROM bid b JOIN auction a ON b.auction = a.id "
        "WHERE a.category = 10",
    ),
)  # fmt: skip


class Events(NamedTuple):
    """So many events of one topic from the `first` on, `size` to a batch."""

    topic: str
    first: int
    count: int
    size: int

    def records(self) -> list[Record]:
        """All of them."""
        return [(n, _body(self.topic, n)) for n in range(self.first, self.first + self.count)]

    def batches(self) -> list[Sequence[Record]]:
        """The same in batches."""
        found = self.records()
        return [found[at : at + self.size] for at in range(0, self.count, self.size)]


def parts(count: int, number: int, size: int) -> list[list[Events]]:
    """`count` events in so many parts, each of the three topics one after the other."""
    found, fifties = [], max(1, count // 50 // number)
    for part in range(number):
        each = [(topic, SHARE[topic] * fifties) for topic in TOPICS]
        found.append([Events(topic, part * of, of, min(size, of)) for topic, of in each])
    return found


def _body(topic: str, n: int) -> bytes:
    mixed, ago = n * MIX % 2**32, n * MIX % 2**32 >> 8
    if topic == "person":
        state = STATES[mixed >> 9 & 3]
        row: dict[str, Any] = {"id": n, "name": f"name {n}", "city": f"city {n % 97}"}
        return orjson.dumps({**row, "state": state})
    if topic == "auction":
        # The 46 bids that are among the same events come after it.
        ts = n * 50 // 3
        seller = max(0, n // 3 - ago % HOT)
        row = {"id": n, "seller": seller, "category": mixed >> 5 & 15, "ts": ts}
        return orjson.dumps({**row, "expires": ts + OPEN_FOR, "item": "something to be sold"})
    auction = max(0, n * 3 // 46 - ago % HOT)
    bidder = max(0, n // 46 - (ago >> 9) % HOT)
    row = {"id": n, "auction": auction, "bidder": bidder, "price": 1 + mixed % 10_000}
    return orjson.dumps({**row, "ts": n * 50 // 46, "channel": "a channel", "url": "a link"})


def rows_of(query: Query, records: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Rows that came as dictionaries, or as sequences in the order of the columns, comparable."""
    rows = [
        [one.get(name) for name in query.columns] if isinstance(one, dict) else one
        for one in records
    ]
    return sorted(tuple(map(_rounded, row)) for row in rows)


def _rounded(value: Any) -> Any:
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float | Decimal) else value


def fault_of(query: Query, records: Sequence[Any], events: Sequence[Events]) -> str:
    """What is wrong with an answer after these events; nothing if it is right."""
    found, wanted = rows_of(query, records), wanted_of(query, tuple(events))
    if found == wanted:
        return ""
    return f"{len(found)} rows instead of {len(wanted)}, {len({*found} ^ {*wanted})} of them others"


@lru_cache(maxsize=16)
def wanted_of(query: Query, events: tuple[Events, ...]) -> list[tuple[Any, ...]]:
    """The rows that SQLite finds."""
    base = sqlite3.connect(":memory:")
    for topic in TOPICS:
        base.execute(f"CREATE TABLE {topic} ({', '.join(COLUMNS[topic])}, PRIMARY KEY (id))")
    for part in events:
        put(base, part.topic, part.records())
    base.execute("CREATE INDEX of_bid ON bid (auction)")
    return rows_of(query, base.execute(query.sql).fetchall())


def put(base: sqlite3.Connection, topic: str, batch: Sequence[Record]) -> None:
    """Insert events into the table of their topic."""
    marks = ", ".join("?" * len(COLUMNS[topic]))
    base.executemany(f"INSERT OR REPLACE INTO {topic} VALUES ({marks})", columns(topic, batch))


def columns(topic: str, batch: Sequence[Record]) -> list[tuple[Any, ...]]:
    """The columns of events."""
    names = COLUMNS[topic]
    return [tuple(row[name] for name in names) for row in (orjson.loads(d) for _, d in batch)]
