"""Bars of recorded trades by views, and by Spark from the same file.

The views are those of docs/guide/recorded.xml: what a minute's trades come to, and joined with it
the trades that opened and closed it. Then most trades are cancelled, some of which had opened or
closed a minute or were its highest. SOW_FULL=1 plays all trades.
"""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from sow.cli.commands.replay import SPEED_MAX, Recording, ReplayPace, play
from sow.client import Client
from sow.config import load
from sow.spark.pipelines import NANOSECONDS
from tests.edge.serving import Running, records
from tests.recordings import MARKET

pytestmark = [pytest.mark.spark, pytest.mark.edge]

SHIPPED = load(
    str(Path(__file__).parents[2] / "docs" / "guide" / "recorded.xml"), {"SOW_DATA": "/recordings"}
)
TRADES = None if os.environ.get("SOW_FULL") else 15_000
KEYS = ["/market", "/symbol", "/trade_id"]
BARS = """
    SELECT market, symbol,
           date_format(timestamp_micros(ts div 1000), "yyyy-MM-dd'T'HH:mm") AS minute,
           min_by(price, trade_id) AS open, max(price) AS high,
           min(price) AS low, max_by(price, trade_id) AS close,
           CAST(sum(CAST(qty AS decimal(28, 10))) AS double) AS volume, count(*) AS trades
    FROM recorded_trades WHERE {}
    GROUP BY ALL
"""


@pytest.fixture
def server(tmp_path):
    configuration = replace(SHIPPED.configuration, port=0, pipelines=())
    running = Running(configuration, tmp_path / "data")
    yield running
    running.close()


@pytest.fixture
def by_spark(spark, recordings):
    """The bars of those trades for which a condition holds."""
    for name, value in NANOSECONDS.items():
        spark.conf.set(name, value)
    trades = spark.read.parquet(str(recordings / MARKET / "trades.parquet"))
    trades.limit(TRADES or trades.count()).createOrReplaceTempView("recorded_trades")
    yield lambda condition: in_order(
        [row.asDict() for row in spark.sql(BARS.format(condition)).collect()]
    )
    spark.catalog.dropTempView("recorded_trades")
    for name in NANOSECONDS:
        spark.conf.unset(name)


async def no_wait(_seconds):
    return


async def replayed(url, path):
    recording = Recording(str(path), "ts", limit=TRADES)
    async with Client(url) as client, await client.publisher("trades") as publisher:
        await play(recording, KEYS, ReplayPace(SPEED_MAX, lambda: 0.0, no_wait), publisher)


def bars_of(server):
    """The bars, when nothing is on its way to them any more."""
    for view in ("minutes", "opens", "bars"):
        while server.get(f"/v1/topics/{view}").json["pending"]:
            pass
    return in_order(server.records("bars"))


def in_order(bars):
    return sorted(bars, key=lambda bar: (bar["market"], bar["symbol"], bar["minute"]))


def agree(ours, theirs):
    """All is equal, and sums as nearly as doubles can say what Spark has added up in decimals."""
    assert [bar | {"volume": 0} for bar in ours] == [bar | {"volume": 0} for bar in theirs]
    volumes = pytest.approx([bar["volume"] for bar in theirs], rel=1e-12)
    assert [bar["volume"] for bar in ours] == volumes


def test_bars_by_views_are_those_by_spark(server, by_spark, recordings):
    server.wait(replayed(server.url, recordings / MARKET / "trades.parquet"), 600)
    bars = bars_of(server)
    agree(bars, by_spark("true"))
    assert len({bar["minute"] for bar in bars}) > 2
    print(f"{len(bars)} bars of {sum(bar['trades'] for bar in bars):,} trades agree")

    server.request("DELETE", records("trades", filter="/trade_id % 5 > 0"))
    fewer = bars_of(server)
    agree(fewer, by_spark("trade_id % 5 = 0"))
    assert all(
        any(was[name] != now[name] for was, now in zip(bars, fewer, strict=True))
        for name in ("open", "high", "low", "close", "volume", "trades")
    )
