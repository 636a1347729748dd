"""The best bid and ask by the view of docs/guide/recorded.xml, held against the recorded ticker.

The two were recorded as independent streams of one book (docs/recorded-data.md), so after each
message with levels the row of its instrument has to be what the ticker says of the same update id.
A message is one frame, and so one turn of the view; the rows are those that a subscriber holds, as
it was told. Everything runs in this process, since each of some thousand states is looked at, and a
server would tell of several messages at once. SOW_FULL=1 plays all levels, a minute or two.
"""

import json
import os
from bisect import bisect_right
from collections import defaultdict
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import pyarrow.parquet as pq

from sow.cli.commands.replay import documents
from sow.config import load
from tests.laws.harness import World
from tests.recordings import MARKET

ROOT = Path(__file__).parents[2]
ROWS = None if os.environ.get("SOW_FULL") else 100_000
INSTRUMENT = ("market", "symbol")
LEVEL = ("side", "price")
SHIPPED = load(str(ROOT / "docs" / "guide" / "recorded.xml"), {"SOW_DATA": "/recordings"})
TOPICS = {topic.name: topic for topic in SHIPPED.configuration.topics}
# Nothing is read again here, so that the log need not hold it.
BOOK = replace(TOPICS["book"], durability="transient")


class Ticker:
    """The recorded best bid and ask of each instrument, by update id."""

    def __init__(self, path):
        names = (*INSTRUMENT, "update_id", "bid_price", "ask_price")
        self._ids, self._prices = defaultdict(list), defaultdict(list)
        for market, symbol, update_id, *prices in rows(
            pq.read_table(path, columns=list(names)), names
        ):
            self._ids[market, symbol].append(update_id)
            self._prices[market, symbol].append(tuple(prices))

    def at(self, instrument, update_id):
        """The newest prices that are not newer, and whether they are of this very id; or None."""
        ids = self._ids[instrument]
        at = bisect_right(ids, update_id) - 1
        return None if at < 0 else (self._prices[instrument][at], ids[at] == update_id)


def rows(table, names):
    return zip(*(table.column(name).to_pylist() for name in names), strict=True)


def messages(path):
    """The recorded messages: instrument, update id, the levels that are set and those that go.

    Of a level that a message names several times, the last counts.
    """
    names = ("msg_seq", *INSTRUMENT, "update_id", *LEVEL, "qty")
    table = pq.read_table(path, columns=list(names)).slice(0, ROWS)
    bodies = [body for batch in table.to_batches() for body in documents(batch)]
    numbered = zip(rows(table, names), bodies, strict=True)
    for (_, *instrument, update_id), message in groupby(numbered, lambda pair: pair[0][:4]):
        levels = {row[4:6]: (body, row[6]) for row, body in message}
        publishes = [body for body, qty in levels.values() if qty]
        deletes = [body for body, qty in levels.values() if not qty]
        yield tuple(instrument), update_id, publishes, deletes


def command(name, bodies):
    if not bodies:
        return []
    return [json.dumps({"c": name, "t": "book", "n": len(bodies)}).encode(), *bodies]


def test_a_view_of_the_book_is_the_recorded_ticker_at_every_update_id(recordings):
    market = recordings / MARKET
    ticker = Ticker(market / "book_ticker.parquet")
    world = World(BOOK, TOPICS["best"])
    follower, publisher = world.client(), world.client()
    follower.say(c="sow_and_subscribe", t="best", opts="oof")
    held, agreed, of_one_id = {}, 0, 0
    for instrument, update_id, publishes, deletes in messages(market / "book_levels.parquet"):
        frame = b"\n".join([*command("publish", publishes), *command("sow_delete", deletes)])
        assert publisher.send(frame) == []
        told = [line["d"] for line in follower.lines()]
        assert len(told) <= 1, "a message is one turn, and changes one row"
        held |= {(row["market"], row["symbol"]): (row["bid"], row["ask"]) for row in told}
        expected = ticker.at(instrument, update_id)
        if expected is not None:
            prices, is_of_this_id = expected
            assert held[instrument] == prices, (instrument, update_id)
            agreed += 1
            of_one_id += is_of_this_id
    print(f"{agreed:,} states agree, {of_one_id:,} of them with a quote of the same update id")
    assert of_one_id > 100
