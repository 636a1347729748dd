"""A server to be killed (`tests.crash.victim`).

Serves the topics of the crash tests on a port (0: a free one) and says its address. Checkpoints
are written after `growth_bytes` of messages, so that kills fall into them too. The configuration is
one of `ALLOWED` or `REFUSED`: others than the one that the data was written for.
"""

import asyncio
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

from sow.core.definitions import Configuration, ConflatedTopic, Join, QueueSettings, Topic, View
from sow.errors import SowError
from sow.server.boot import app, checkpointer

ORDERS = Topic("orders", "json", keys=("/id",), hash_indexes=(("/batch",),))
TRADES = Topic("trades", "json", keys=("/id",))
DESKS = Topic("desks", "json", keys=("/id",), pattern="^/desk/")
COPY = ConflatedTopic("orders-C", "json", "orders", interval_us=100_000)

VIEWS = (
    View(
        "batches", "json", ("orders",), ("/batch", "COUNT(1) AS /n", "SUM(/id) AS /ids"),
        ("/batch",), filter="/id > 2",
    ),
    ConflatedTopic("batches-C", "json", "batches", interval_us=100_000),
    View(
        "newest", "json", ("batches",),
        ("/batch AS /batch", "MAX(/n) AS /most", "COUNT(1) AS /batches"), ("/none",),
    ),
    View(
        "traded", "json", ("orders", "trades"),
        ("[trades]./id AS /trade", "COUNT([orders]./id) AS /orders"), ("[trades]./id",),
        joins=(Join("orders", "/batch", "trades", "/id"),),
    ),
)  # fmt: skip
"""Of a topic, of a view, of two topics: none of them is stored."""
ALLOWED = {
    "as it was": (ORDERS, TRADES, DESKS, COPY),
    "indexes": (replace(ORDERS, hash_indexes=(), indexes=("/of",)), TRADES, DESKS, COPY),
    "a topic more": (Topic("new", "json", keys=("/id",)), ORDERS, TRADES, DESKS, COPY),
    "a wider pattern": (ORDERS, TRADES, replace(DESKS, pattern="^/d"), COPY),
    "another interval": (ORDERS, TRADES, DESKS, replace(COPY, interval_us=200_000)),
    "copies of desks": (
        ORDERS,
        TRADES,
        DESKS,
        COPY,
        ConflatedTopic("copies", "json", "desks", interval_us=100_000, topic_format="%n-C"),
    ),
}
REFUSED = {
    "no trades": (ORDERS, DESKS, COPY),
    "another key": (replace(ORDERS, keys=("/batch",)), TRADES, DESKS, COPY),
    "another file": (ORDERS, replace(TRADES, file_name="t.sow"), DESKS, COPY),
    "transient": (ORDERS, replace(TRADES, durability="transient"), DESKS, COPY),
    "a narrower pattern": (ORDERS, TRADES, replace(DESKS, pattern="^/desk/1"), COPY),
}
LEASE_US = 500_000
JOBS = Topic(
    "jobs",
    "json",
    conflation_policy="off",
    queue=QueueSettings("orders", lease_us=LEASE_US, subscription_backlog_max=5),
)
OF_QUEUES = {"queues": (ORDERS, JOBS)}
CONFIGURATION = Configuration("crash", ALLOWED["as it was"])


async def serve(data, growth_bytes, port, configuration, say):
    checkpointer.GROWTH_BYTES_MIN = growth_bytes
    checkpointer.CHECK_S = 0.02
    app.Checkpointer = partial(checkpointer.Checkpointer, growth_bytes_min=growth_bytes)
    topics = (ALLOWED | REFUSED | OF_QUEUES)[configuration]
    if configuration in ALLOWED:
        topics += VIEWS
    server = app.Server(replace(CONFIGURATION, topics=topics, port=port), Path(data))
    try:
        say(await server.start())
    except SowError as error:
        sys.exit(error.detail)
    await asyncio.Event().wait()


def run(data, growth_bytes, port, configuration, say):
    """Serve until the process ends; `say` is given the address."""
    asyncio.run(serve(data, growth_bytes, port, configuration, say))
