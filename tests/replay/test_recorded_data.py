"""Replays of recorded market data against the data's own built-in check.

Order-book levels and best quotes were recorded as independent streams of the same book, so the
best bid and ask read from the `book` topic must equal the recorded quote of the same update id.
Where the recorded data is absent (docs/recorded-data.md) an excerpt is played that the tests make
(tests/recordings.py). Of the recording the first part is played; SOW_FULL=1 plays all of it.
"""

import asyncio
import os

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from sow.cli.commands.replay import SPEED_MAX, Recording, ReplayPace, play
from sow.client import Client
from sow.core.definitions import Configuration, ConflatedTopic, Topic
from sow.server.boot.app import Server
from tests.recordings import BOOK_LEVELS, BOOK_TICKER, MARKET, POSITION, TRADE, made

KEYS = ("/market", "/symbol", "/side", "/price")
PARTS = 4
ROWS = None if os.environ.get("SOW_FULL") else 300_000
INTERVAL_US = 1_000_000

pytestmark = pytest.mark.edge

CONFIGURATION = Configuration(
    "replay",
    (
        Topic("book", "json", keys=KEYS, hash_indexes=(("/market", "/symbol"),)),
        ConflatedTopic("book-C", "json", "book", interval_us=INTERVAL_US),
    ),
    port=0,
)


async def no_wait(_seconds):
    return


def message_ends(levels):
    """Row counts after which a message is complete, `PARTS` of them, evenly spread."""
    messages = levels.column("msg_seq").to_pylist()
    total = min(ROWS or len(messages), len(messages))
    ends = []
    for part in range(1, PARTS + 1):
        end = total * part // PARTS
        while end < len(messages) and messages[end] == messages[end - 1]:
            end += 1
        ends.append(end)
    return ends


def quotes_at(levels, ticker, end):
    """The recorded quote of each instrument at the newest update id among the first rows."""
    played = levels.slice(0, end).group_by(["market", "symbol"]).aggregate([("update_id", "max")])
    expected = {}
    for row in played.to_pylist():
        of_instrument = ticker.filter(
            (pc.field("market") == row["market"])
            & (pc.field("symbol") == row["symbol"])
            & (pc.field("update_id") <= row["update_id_max"])
        )
        if len(of_instrument):
            (quote,) = of_instrument.slice(len(of_instrument) - 1).to_pylist()
            names = ("bid_price", "bid_qty", "ask_price", "ask_qty")
            expected[row["market"], row["symbol"]] = tuple(quote[name] for name in names)
    return expected


async def best_of_book(client, market, symbol):
    found = []
    for side, order in (("bid", "/price DESC"), ("ask", "/price")):
        condition = f"/market = '{market}' AND /symbol = '{symbol}' AND /side = '{side}'"
        answer = await client.query("book", filter=condition, order_by=order, top_n=1)
        found += [answer.records[0]["price"], answer.records[0]["qty"]]
    return tuple(found)


async def records_of(client, topic):
    return {tuple(r[key[1:]] for key in KEYS): r for r in (await client.query(topic)).records}


async def replay_and_compare(market, data_directory):
    places = ["market", "symbol", "update_id"]
    prices = ["bid_price", "bid_qty", "ask_price", "ask_qty"]
    levels = pq.read_table(market / "book_levels.parquet", columns=[*places, "msg_seq"])
    ticker = pq.read_table(market / "book_ticker.parquet", columns=places + prices)
    server = Server(CONFIGURATION, data_directory)
    url = await server.start()
    agreements, played = 0, 0
    try:
        async with Client(url) as client, await client.publisher("book") as publisher:
            for end in message_ends(levels):
                recording = Recording(
                    str(market / "book_levels.parquet"), "ts", "qty == 0", end
                ).after(played)
                await play(
                    recording, list(KEYS), ReplayPace(SPEED_MAX, lambda: 0.0, no_wait), publisher
                )
                await publisher.drain()
                played = end
                for instrument, quote in quotes_at(levels, ticker, end).items():
                    assert await best_of_book(client, *instrument) == quote, (end, instrument)
                    agreements += 1
            await one_interval_later(server, client)
    finally:
        await server.stop()
    assert agreements >= 2 * PARTS


async def one_interval_later(server, client):
    """The conflated topic has nothing pending, and then equals its original."""
    while (await client.topic("book-C"))["pending"]:
        await asyncio.sleep(0.05)
    original = await records_of(client, "book")
    assert await records_of(client, "book-C") == original
    assert original


def test_best_bid_and_ask_are_those_recorded_and_the_conflated_book_converges(recordings, tmp_path):
    asyncio.run(replay_and_compare(recordings / MARKET, tmp_path))


def test_an_excerpt_is_made_like_the_recordings(tmp_path):
    for name in ("one", "two"):
        made(tmp_path / name)
    for path in sorted((tmp_path / "one").rglob("*.parquet")):
        table = pq.read_table(path)
        schemas = {
            "book_levels": BOOK_LEVELS,
            "book_ticker": BOOK_TICKER,
            "trades": TRADE,
            "positions": POSITION,
        }
        assert table.schema.equals(schemas[path.stem])
        assert table.equals(pq.read_table(tmp_path / "two" / path.relative_to(tmp_path / "one")))
        times = table.column("ts")
        assert pc.all(pc.less_equal(times[:-1], times[1:])).as_py()
    levels = pq.read_table(tmp_path / "one" / MARKET / "book_levels.parquet")
    assert pc.sum(pc.equal(levels.column("qty"), 0)).as_py() > 100
