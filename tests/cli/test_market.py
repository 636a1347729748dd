"""The generated market: repeatable, bursty, skewed, and valid messages."""

import asyncio
from collections import Counter

import msgspec
import pytest

from sow.cli import market as module
from sow.cli.market import SYMBOLS, Market
from sow.errors import SowError
from sow.protocol.replies import timestamp
from tests.virtual_clock import VirtualClock

SLICE_S = 0.1
RATE = 200


@pytest.fixture(scope="module")
def counts():
    """How many messages twenty minutes at two hundred a second have, by second."""
    market = Market(1, RATE)
    return [sum(sum(map(len, market.slice(SLICE_S, b"t"))) for _ in range(10)) for _ in range(1200)]


def test_the_same_seed_gives_the_same_market():
    assert Market(7).slice(1.0, b"t") == Market(7).slice(1.0, b"t")


def test_another_seed_gives_another_market():
    assert Market(7).slice(1.0, b"t") != Market(8).slice(1.0, b"t")


def test_the_mean_rate_is_the_rate_requested_for(counts):
    assert sum(counts) / len(counts) == pytest.approx(RATE, rel=0.1)


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


START_US = 1_700_000_000_000_000


class Enough(Exception):
    """Ends a feed, which never ends by itself."""


class Publisher:
    """Keeps what it is sent."""

    def __init__(self):
        self.frames = []

    async def send(self, bodies):
        self.frames.append(bodies)


class Client:
    """A client whose publishers a test can read."""

    made = None

    def __init__(self, url, name):
        self.url, self.name, self.publishers = url, name, {}
        Client.made = self

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_error):
        return None

    async def publisher(self, topic):
        self.publishers[topic] = Publisher()
        return self.publishers[topic]


@pytest.fixture
def slices(monkeypatch):
    """Runs a feed for so many slices, of as many seconds each, on a clock of its own."""
    clock = VirtualClock(START_US)
    monkeypatch.setattr(module, "Client", Client)
    monkeypatch.setattr(module, "SystemClock", lambda: clock)

    def run(seconds, seed=1, rate=2000.0):
        left = list(seconds)

        async def sleep(_seconds):
            if not left:
                raise Enough
            clock.advance(round(left.pop(0) * 1e6))

        monkeypatch.setattr(module.asyncio, "sleep", sleep)
        with pytest.raises(Enough):
            asyncio.run(module.publish("http://there", rate, seed))
        return Client.made

    return run


def test_each_slice_is_the_time_that_has_really_passed(slices):
    client = slices([0.01, 0.25], seed=7)
    market = Market(7, 2000.0)
    expected = [
        market.slice(seconds, timestamp(START_US + after).encode())
        for seconds, after in [(0.01, 10_000), (0.25, 260_000)]
    ]
    assert client.publishers["quotes"].frames == [quotes for quotes, _ in expected]
    assert client.publishers["orders"].frames == [orders for _, orders in expected]


def test_what_the_server_refuses_is_said_in_a_sentence(monkeypatch, capsys):
    async def refused(url, rate, seed):
        raise SowError(f"no server answers at {url} ({rate:g}, {seed})")

    monkeypatch.setattr(module, "publish", refused)
    monkeypatch.setattr("sys.argv", ["feed", "http://there", "4000", "1"])
    assert module.main() == 1
    assert capsys.readouterr().err == "no server answers at http://there (4000, 1)\n"


def test_ctrl_c_is_no_failure(monkeypatch):
    async def interrupted(_url, _rate, _seed):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "publish", interrupted)
    monkeypatch.setattr("sys.argv", ["feed", "http://there", "4000", "1"])
    assert module.main() == 0
