"""Recorded data for tests: the real recordings where they are, else an excerpt made on the spot.

What is made has the files and columns of the recordings (docs/recorded-data.md) and their built-in
check: levels and best quotes are two streams of one book, joined by `update_id`. Levels come and
go, the best one too; quotes come more often than the messages with levels, and a message may hold
many levels or one. The same seed makes the same files.
"""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq

REAL = Path(os.environ.get("SOW_DATA", Path(__file__).parents[2] / "shared" / "data"))
MARKET = "binance-l2-20240808"
BUSES = "austin-buses-201611"
START = datetime(2024, 8, 8, 23, 54, tzinfo=UTC)
INSTRUMENTS = (("spot", "ETHUSDT"), ("usdm", "ETHUSDT"), ("spot", "BTCUSDT"))
LEVELS = 40
MESSAGES = 900
TRADES = 1500
VEHICLES = 20
POSITIONS = 3000

WORD = pa.dictionary(pa.int8(), pa.string())
NUMBER = pa.dictionary(pa.int16(), pa.string())
PLACE = [
    ("ts", pa.timestamp("ns", "UTC")),
    ("exch_ts", pa.timestamp("ms", "UTC")),
    ("market", WORD),
    ("symbol", WORD),
]
BOOK_LEVELS = pa.schema(
    [
        *PLACE,
        ("side", WORD),
        ("price", pa.float64()),
        ("qty", pa.float64()),
        ("update_id", pa.int64()),
        ("msg_seq", pa.int32()),
        ("is_snapshot", pa.bool_()),
    ]
)
BOOK_TICKER = pa.schema(
    [
        *PLACE,
        *((name, pa.float64()) for name in ("bid_price", "bid_qty", "ask_price", "ask_qty")),
        ("update_id", pa.int64()),
        ("msg_seq", pa.int32()),
    ]
)
TRADE = pa.schema(
    [
        *PLACE,
        ("trade_ts", pa.timestamp("ms", "UTC")),
        ("trade_id", pa.int64()),
        ("price", pa.float64()),
        ("qty", pa.float64()),
        ("buyer_is_maker", pa.bool_()),
        ("msg_seq", pa.int32()),
    ]
)
POSITION = pa.schema(
    [
        ("ts", pa.timestamp("ms", "UTC")),
        *((name, NUMBER) for name in ("vehicle_id", "route_id", "trip_id", "trip_headsign")),
        ("latitude", pa.float64()),
        ("longitude", pa.float64()),
        ("speed", pa.float32()),
    ]
)


def recordings(directory, real=REAL):
    """The folder of the recordings: `real` if they are there, else `directory`, filled."""
    return real if (real / MARKET).exists() else made(directory)


def made(directory, seed=1):
    """An excerpt as the recordings might hold it."""
    random = Random(seed)
    market, buses = directory / MARKET, directory / BUSES
    market.mkdir(parents=True)
    buses.mkdir(parents=True)
    levels, quotes = _book(random)
    pq.write_table(pa.Table.from_pylist(levels, BOOK_LEVELS), market / "book_levels.parquet")
    pq.write_table(pa.Table.from_pylist(quotes, BOOK_TICKER), market / "book_ticker.parquet")
    pq.write_table(
        pa.Table.from_pylist(list(_positions(random)), POSITION), buses / "positions.parquet"
    )
    pq.write_table(pa.Table.from_pylist(list(_trades(random)), TRADE), market / "trades.parquet")
    return directory


class Book:
    """One instrument's book; prices are counted in steps of a cent."""

    def __init__(self, random, market, symbol, middle):
        self.random = random
        self.place = {"market": market, "symbol": symbol}
        self.middle = middle
        self.sides = {"bid": {}, "ask": {}}
        self.update_id = random.randrange(10**10)

    def opened(self):
        """The snapshot at the beginning: every level there is."""
        for at in range(1, LEVELS + 1):
            yield self._set("bid", self.middle - at)
            yield self._set("ask", self.middle + at)

    def moved(self):
        """One update: some levels change, come or go; the middle wanders a little."""
        self.update_id += self.random.randrange(1, 4)
        self.middle += self.random.choice((-2, -1, 0, 0, 0, 1, 2))
        sides = self.sides.items()
        crossed = [(side, at) for side, levels in sides for at in levels if self._crosses(side, at)]
        for side, price in crossed:
            yield self._set(side, price, 0.0)
        for _ in range(self.random.choice((1, 1, 2, 5, 30))):
            side = self.random.choice(("bid", "ask"))
            away = min(int(self.random.expovariate(0.3)) + 1, LEVELS)
            price = self.middle + (away if side == "ask" else -away)
            there = price in self.sides[side] and len(self.sides[side]) > LEVELS // 2
            gone = there and self.random.random() < 0.4
            yield self._set(side, price, 0.0 if gone else None)

    def _crosses(self, side, price):
        return price >= self.middle if side == "bid" else price <= self.middle

    def _set(self, side, price, qty=None):
        qty = round(self.random.uniform(0.001, 50), 4) if qty is None else qty
        if qty:
            self.sides[side][price] = qty
        else:
            self.sides[side].pop(price, None)
        return {**self.place, "side": side, "price": price / 100, "qty": qty}

    def quote(self):
        """The best levels now."""
        bid, ask = max(self.sides["bid"]), min(self.sides["ask"])
        return {
            **self.place,
            "bid_price": bid / 100,
            "bid_qty": self.sides["bid"][bid],
            "ask_price": ask / 100,
            "ask_qty": self.sides["ask"][ask],
            "update_id": self.update_id,
        }


def _book(random):
    books = [Book(random, *name, random.randrange(10**5, 10**6)) for name in INSTRUMENTS]
    now, levels, quotes, number = START, [], [], 0
    pending = {book: list(book.opened()) for book in books}

    def message(book, snapshot):
        nonlocal number
        for row in pending[book]:
            more = {"update_id": book.update_id, "msg_seq": number, "is_snapshot": snapshot}
            levels.append({**row, **more, "ts": now, "exch_ts": None if snapshot else now})
        number += bool(pending[book])
        pending[book] = []

    for book in books:
        message(book, True)
    while number < MESSAGES:
        book = random.choice(books)
        now += timedelta(milliseconds=random.choice((0, 1, 3, 20, 150)))
        pending[book] += book.moved()
        quotes.append({**book.quote(), "ts": now, "exch_ts": now, "msg_seq": number})
        number += 1
        # Levels are sent in batches of several updates; a quote, at each.
        if random.random() < 0.4:
            message(book, False)
    return levels, quotes


def _positions(random):
    now = START
    for _ in range(POSITIONS):
        now += timedelta(seconds=random.choice((0, 1, 2, 30)))
        vehicle = random.randrange(VEHICLES)
        yield {
            "ts": now,
            "vehicle_id": str(2000 + vehicle),
            "route_id": str(vehicle % 7),
            "trip_id": str(random.randrange(10**6)),
            "trip_headsign": f"{vehicle % 7}-Downtown",
            "latitude": round(random.uniform(30, 31), 6),
            "longitude": round(random.uniform(-98, -97), 6),
            "speed": random.uniform(0, 20),
        }


def _trades(random):
    """Trades of each instrument, whose ids count up; those of one moment have one time."""
    now = START
    ids = {name: random.randrange(10**9) for name in INSTRUMENTS}
    prices = {name: random.randrange(10**5, 10**6) for name in INSTRUMENTS}
    for number in range(TRADES):
        now += timedelta(milliseconds=random.choice((0, 0, 3, 150, 900)))
        name = random.choice(INSTRUMENTS)
        ids[name] += 1
        prices[name] += random.choice((-2, -1, 0, 0, 1, 2))
        yield {
            **dict(zip(("market", "symbol"), name, strict=True)),
            **dict.fromkeys(("ts", "exch_ts", "trade_ts"), now),
            "trade_id": ids[name],
            "price": prices[name] / 100,
            "qty": round(random.uniform(0.001, 5), 4),
            "buyer_is_maker": random.random() < 0.5,
            "msg_seq": number,
        }
