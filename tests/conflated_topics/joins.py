"""Logs of trades and of quotes, and what looking one by one finds in them."""

import random

import pyarrow as pa

from conflated_topics.asof import AsOf

US = pa.timestamp("us", tz="UTC")
TRADES = pa.schema([("sym", pa.string()), ("ts", US), ("id", pa.int64())])
QUOTES = pa.schema(
    [("sym", pa.string()), ("ts", US), ("n", pa.int64()), ("leg", pa.struct([("px", pa.int64())]))]
)
JOIN = AsOf(("sym",), "ts", 10, ("n",))


def trades(*rows):
    return pa.Table.from_pylist([dict(zip(TRADES.names, row, strict=True)) for row in rows], TRADES)


def quotes(*rows):
    """(sym, time, number); the number is the price, too."""
    rows = [{"sym": sym, "ts": ts, "n": n, "leg": {"px": n}} for sym, ts, n in rows]
    return pa.Table.from_pylist(rows, QUOTES)


def found(table):
    """The number of the quote of each trade."""
    return dict(zip(table["id"].to_pylist(), table["n"].to_pylist(), strict=True))


def naive(left, right, tolerance_us=10):
    """For each trade the last quote, looked for one by one."""
    result = {}
    for sym, ts, number in left:
        fitting = [
            (quote_ts, n)
            for quote_sym, quote_ts, n in right
            if sym is not None and quote_sym == sym and 0 <= ts - quote_ts <= tolerance_us
        ]
        result[number] = max(fitting)[1] if fitting else None
    return result


def logs(seed, count=120):
    """A random log of trades and one of quotes, in the order of their times."""
    chance = random.Random(seed)
    left, right, now_us = [], [], 1_000_000
    for number in range(count):
        now_us += chance.choice([0, 0, 1, 4, 9, 25])
        sym = chance.choice(["a", "b", "c", None])
        (left if chance.random() < 0.5 else right).append((sym, now_us, number))
    return left, right
