"""The generated market: repeatable, bursty, skewed, and valid messages."""

from collections import Counter

import msgspec
import pytest

from sow.cli.market import SYMBOLS, Market

SLICE_S = 0.1


@pytest.fixture(scope="module")
def counts():
    """How many messages twenty minutes at a thousand a second have, by second."""
    market = Market(1, 1000)
    return [sum(sum(map(len, market.slice(SLICE_S, b"t"))) for _ in range(10)) for _ in range(1200)]


def test_the_same_seed_gives_the_same_market():
    assert Market(7).slice(1.0, b"t") == Market(7).slice(1.0, b"t")


def test_another_seed_gives_another_market():
    assert Market(7).slice(1.0, b"t") != Market(8).slice(1.0, b"t")


def test_the_mean_rate_is_the_rate_requested_for(counts):
    assert sum(counts) / len(counts) == pytest.approx(1000, rel=0.1)


def test_busy_seconds_are_several_times_the_median(counts):
    median, p99 = sorted(counts)[len(counts) // 2], sorted(counts)[len(counts) * 99 // 100]
    assert 3.5 < p99 / median < 8


def test_a_few_symbols_take_most_quotes():
    quotes, _ = Market(1, 20_000).slice(5.0, b"t")
    counts = Counter(msgspec.json.decode(quote)["symbol"] for quote in quotes)
    assert counts[SYMBOLS[0]] > 4 * counts[SYMBOLS[-1]]


def test_quotes_and_orders_have_the_fields_of_the_shipped_topics():
    quotes, orders = Market(1).slice(1.0, b"2025-01-02T09:30:00.000001Z")
    quote, order = msgspec.json.decode(quotes[0]), msgspec.json.decode(orders[0])
    assert list(quote) == ["symbol", "bid", "bid_qty", "ask", "ask_qty", "ts"]
    assert list(order) == [
        "order_id", "symbol", "side", "price", "qty", "last_qty", "status",
        "account", "ts",
    ]  # fmt: skip
    assert quote["bid"] < quote["ask"]


def test_orders_live_through_their_states():
    market = Market(3, 2000)
    seen = {}
    for _ in range(100):
        for body in market.slice(0.1, b"t")[1]:
            order = msgspec.json.decode(body)
            before = seen.get(order["order_id"])
            assert before not in ("filled", "cancelled")
            seen[order["order_id"]] = order["status"]
    assert set(seen.values()) == {"new", "partial", "filled", "cancelled"}
