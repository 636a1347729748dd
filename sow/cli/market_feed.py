"""A market feed as a process of its own: ``python -m sow.cli.market_feed URL RATE SEED``.

It publishes a generated market (`sow.cli.market`) to the topics quotes and orders in real time,
until it is terminated. If the server disconnects or refuses a message, it reports that on stderr.
It is a client like any other, so the server pays what a real feed would cost.
"""

import asyncio
import sys

from sow.cli.market import Market
from sow.client import Client
from sow.core.clock import SystemClock
from sow.errors import SowError
from sow.protocol.encodings import timestamp

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
