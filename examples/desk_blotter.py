"""A desk's blotter: the orders that are open, live in the terminal; Ctrl-C ends it.

    sow publish orders examples/orders.ndjson     (in another terminal, while this runs)

The server evaluates the filter. A filled order does not match it any more: the server sends an
out-of-focus message, the live view removes it, and this program only draws the view.
"""

import argparse
import asyncio
import contextlib

from rich.console import Group
from rich.live import Live
from rich.table import Table

from sow.client import Change, Client

OPEN = "/status = 'new'"
COLUMNS = ("order_id", "symbol", "side", "price", "qty")
LEFT_SHOWN = 5


def drawn(orders: list[dict], left: list[str]) -> Group:
    """The blotter, and below it the orders that left it last."""
    table = Table(*COLUMNS, title=f"open orders: {len(orders)}")
    for order in sorted(orders, key=lambda order: order["order_id"]):
        table.add_row(*(str(order.get(column, "")) for column in COLUMNS))
    return Group(table, *left[-LEFT_SHOWN:])


def noted(change: Change, left: list[str]) -> None:
    """Keep the name of an order that has left the view: it was there, and is not any more."""
    if change.old is not None and change.new is None:
        left.append(f"{change.old['order_id']} is not open any more")


async def main(url: str) -> None:
    """Follow the open orders."""
    left: list[str] = []
    async with Client(url, name="blotter") as client, client.live("orders", filter=OPEN) as view:
        with Live(drawn([*view.values()], left), auto_refresh=False) as screen:
            async for change in view.changes():
                noted(change, left)
                screen.update(drawn([*view.values()], left), refresh=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", default="http://127.0.0.1:8080", help="the server")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(parser.parse_args().url))
