"""A market simulator: orders and quotes as of an exchange, from a seed; and a feed of them.

Rates and skew follow six minutes of recorded crypto markets (docs/recorded-data.md): a second
of the recording holds 3,421 updates in the median and 19,948 at the 99th percentile, which a
log-normal with sigma 0.76 reproduces, median, mean and tail alike; busy moments come in bursts,
so the factor is a slow random walk; a few instruments take most updates (the busiest four times
the quietest of six), as ranks to the power of -0.8 do.

A market has no clock. The caller requests the events of the next slice of time and gets message
bodies, built by formatting bytes: a quarter of a million a second on one core.

The feed is a process of its own, ``python -m sow.cli.market URL RATE SEED``. It publishes a market
to the topics quotes and orders in real time, until it is terminated, as a client like any other: so
the server pays what a real feed would cost. If the server disconnects or refuses a message, it
reports that on stderr.
"""

import asyncio
import math
import random
import sys

from sow.client import Client
from sow.core.clock import SystemClock
from sow.errors import SowError
from sow.protocol.replies import timestamp

SIGMA = 0.76
"""Spread of the logarithm of the rate; this and the figures below come from the recording."""
MEAN_FACTOR = math.exp(SIGMA**2 / 2)
FACTOR_MAX = 7.8
"""The recording's busiest second over its median."""
PERSISTENCE_S = 2.0
"""Duration of a burst."""
SKEW = 0.8
"""The power of its rank by which an instrument takes fewer updates than the busiest."""
ORDER_SHARE = 0.25
"""Share of orders among all messages; the rest are quotes. Chosen, as are the figures below: the
recording has no orders."""
TICK_SIZE = 0.01
"""The tick size of a price."""
SYMBOLS = tuple(
    f"{stem}{suffix}"
    for stem in ("AAPL", "MSFT", "NVDA", "AMZN", "META", "GOOG", "TSLA", "JPM", "XOM", "KO")
    for suffix in ("", ".L", ".T")
)
ACCOUNTS = [b"a-%d" % number for number in range(1, 41)]
OPEN_ORDERS_AT_START = 1_000
"""Orders of the start, so that the first queries return records."""
OPEN_ORDERS_MAX = 5_000
"""Limit of open orders, so that a demo that runs for a week keeps its size."""
PROGRESS_SHARE = 0.7
"""Share of updates among order messages; the rest open new orders, about as many as close."""

QUOTE = b'{"symbol":"%b","bid":%.2f,"bid_qty":%d,"ask":%.2f,"ask_qty":%d,"ts":"%b"}'
ORDER = (
    b'{"order_id":"o-%d","symbol":"%b","side":"%b","price":%.2f,"qty":%d,"last_qty":%d,"status":"%b",'
    b'"account":"%b","ts":"%b"}'
)


class Order:
    """An order on its way from new to filled or cancelled."""

    __slots__ = ("account", "number", "price", "qty", "side", "symbol")

    def __init__(
        self, number: int, symbol: int, side: bytes, price: float, qty: int, account: bytes
    ) -> None:
        self.number = number
        self.symbol = symbol
        self.side = side
        self.price = price
        self.qty = qty
        self.account = account


class Market:
    """Events at a mean of `rate` messages a second, the same for the same `seed`."""

    def __init__(self, seed: int = 1, rate: float = 4000.0) -> None:
        self._random = random.Random(seed)
        self._rate = rate
        self._mood = 0.0
        self._names = [symbol.encode() for symbol in SYMBOLS]
        weights = [(rank + 1) ** -SKEW for rank in range(len(SYMBOLS))]
        self._weights = weights
        self._prices = [self._random.uniform(20, 900) for _ in SYMBOLS]
        self._orders: list[Order] = []
        self._numbers = 0
        self._owed = 0.0
        for _ in range(OPEN_ORDERS_AT_START):
            self._open_order(self._random.randrange(len(SYMBOLS)))

    def slice(self, seconds: float, ts: bytes) -> tuple[list[bytes], list[bytes]]:
        """Quotes and orders of the next `seconds`, stamped `ts`."""
        count = self._count(seconds)
        orders = sum(self._random.random() < ORDER_SHARE for _ in range(count))
        chosen = self._random.choices(range(len(SYMBOLS)), self._weights, k=count)
        return (
            [self._quote(symbol, ts) for symbol in chosen[orders:]],
            [self._order(symbol, ts) for symbol in chosen[:orders]],
        )

    def _count(self, seconds: float) -> int:
        """The number of events of a slice: random and bursty, with the mean rate x seconds."""
        keep = math.exp(-seconds / PERSISTENCE_S)
        self._mood = self._mood * keep + self._random.gauss(0, SIGMA) * math.sqrt(1 - keep**2)
        factor = min(math.exp(self._mood), FACTOR_MAX) / MEAN_FACTOR
        self._owed += self._rate * seconds * factor
        count = int(self._owed)
        self._owed -= count
        return count

    def _quote(self, symbol: int, ts: bytes) -> bytes:
        draw = self._random.random
        step = TICK_SIZE * (1 if draw() < 0.5 else -1)
        price = self._prices[symbol] = max(1.0, self._prices[symbol] + step)
        spread = TICK_SIZE * (1 + int(draw() * 3))
        return QUOTE % (
            self._names[symbol],
            price,
            100 * (1 + int(draw() * 20)),
            price + spread,
            100 * (1 + int(draw() * 20)),
            ts,
        )

    def _order(self, symbol: int, ts: bytes) -> bytes:
        draw = self._random.random
        progresses = draw() < PROGRESS_SHARE or len(self._orders) >= OPEN_ORDERS_MAX
        if self._orders and progresses:
            return self._progress(int(draw() * len(self._orders)), ts)
        return self._body(self._open_order(symbol), b"new", ts)

    def _open_order(self, symbol: int) -> Order:
        draw = self._random.random
        self._numbers += 1
        order = Order(
            self._numbers,
            symbol,
            b"buy" if draw() < 0.5 else b"sell",
            self._prices[symbol],
            100 * (1 + int(draw() * 20)),
            ACCOUNTS[int(draw() * len(ACCOUNTS))],
        )
        self._orders.append(order)
        return order

    def _progress(self, at: int, ts: bytes) -> bytes:
        """Fill an open order in part or in full, or cancel it."""
        order, draw = self._orders[at], self._random.random()
        if draw < 0.7 and order.qty > 100:
            order.qty -= 100
            return self._body(order, b"partial", ts, 100)
        self._orders[at] = self._orders[-1]
        self._orders.pop()
        if draw < 0.9:
            last_qty, order.qty = order.qty, 0
            return self._body(order, b"filled", ts, last_qty)
        return self._body(order, b"cancelled", ts)

    def _body(self, order: Order, status: bytes, ts: bytes, last_qty: int = 0) -> bytes:
        return ORDER % (
            order.number,
            self._names[order.symbol],
            order.side,
            order.price,
            order.qty,
            last_qty,
            status,
            order.account,
            ts,
        )


PIECE_S = 0.01
"""The slice of the market per publish: too short to be visible."""


async def publish(url: str, rate: float, seed: int) -> None:
    """Publish a mean of `rate` messages a second of the market of `seed` to the server at `url`
    until the connection ends; raises SowError with the reason."""
    market, clock = Market(seed, rate), SystemClock()
    async with Client(url, name="market feed") as client:
        quotes, orders = await client.publisher("quotes"), await client.publisher("orders")
        now_us = clock.now_us()
        while True:
            await asyncio.sleep(PIECE_S)
            before_us, now_us = now_us, clock.now_us()
            stamp = timestamp(now_us).encode()
            new_quotes, new_orders = market.slice((now_us - before_us) / 1e6, stamp)
            await quotes.send(new_quotes)
            await orders.send(new_orders)


def main() -> int:
    """Run a feed from the command line."""
    url, rate, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    try:
        asyncio.run(publish(url, rate, seed))
    except SowError as error:
        print(error.detail, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
