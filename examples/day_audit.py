"""Audits a recorded trading day: what did the desk's screen show when each order was filled?

The screen follows `quotes-C`, which changes once a second; orders are filled at the market's price,
which moves faster. Nothing is recorded for an audit: the server computes from its log what a
subscriber had been sent by the moment of each fill, and which updates waited. The first run makes a
little day of its own, and every later run audits the same one.
"""

import argparse
import asyncio
import json
import random
from urllib.parse import quote

from sow.client import Client
from sow.errors import SowError

SYMBOLS = ("ACME", "BETA", "CEDE")
QUOTES, FILLED_EVERY, PAUSE_S = 60, 8, 0.05


async def trade(client: Client) -> None:
    """A day in three seconds: quotes that move, and an order filled now and then."""
    chance = random.Random(7)
    asks = {symbol: 1000 + 100 * at for at, symbol in enumerate(SYMBOLS)}
    for number in range(1, QUOTES + 1):
        symbol = chance.choice(SYMBOLS)
        asks[symbol] += chance.choice((-2, -1, 1, 2))
        await client.publish("quotes", {"symbol": symbol, "ask": asks[symbol] / 100})
        if number % FILLED_EVERY == 0:
            fill = {"fill": f"f-{number // FILLED_EVERY}", "symbol": symbol}
            await client.publish("fills", fill | {"price": asks[symbol] / 100})
        await asyncio.sleep(PAUSE_S)


async def shown(client: Client, symbol: str, moment: str) -> dict:
    """What the server had sent of a quote up to a bookmark, and what waited."""
    path = f"/v1/topics/quotes-C/records/key={quote(symbol, safe='')}/why"
    return await client.http.json("GET", path, {"as_of": moment})


def report(fill: dict, screen: dict) -> str:
    """A line of the audit."""
    line, window = screen["told"], screen["window"]
    seen = "nothing yet" if line is None else f"{line['d']['ask']} of bookmark {line['bm']}"
    waited = window["updates"] if screen["waiting"] and window else 0
    dealt = f"{fill['fill']}: {fill['symbol']} at {fill['price']}"
    return f"{dealt}, the screen showed {seen}, and {waited} newer updates waited"


async def main(url: str) -> None:
    """Audit the day on the server, or a new one if there is none."""
    async with Client(url, name="day audit") as client:
        fills = await fills_of(client)
        if not fills:
            await trade(client)
            fills = await fills_of(client)
        unseen = 0
        for bookmark, fill in fills:
            screen = await shown(client, fill["symbol"], bookmark)
            unseen += screen["told"] is None or screen["told"]["d"]["ask"] != fill["price"]
            print(report(fill, screen))
        print(f"{len(fills)} fills, {unseen} of them at a price that the screen did not show")


async def fills_of(client: Client) -> list[tuple[str, dict]]:
    """The fills, each with the bookmark of its moment."""
    async with client.rows("fills", order_by="/fill", meta=True) as rows:
        found = [json.loads(row) async for row in rows]
    return [(row["bm"], row["d"]) for row in found]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", default="http://127.0.0.1:8080", help="the server")
    try:
        asyncio.run(main(parser.parse_args().url))
    except (SowError, OSError) as error:
        raise SystemExit(f"day audit: {error}") from None
