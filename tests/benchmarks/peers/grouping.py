"""Grouping: what it costs to keep five aggregates of a few groups current, and how late they are.

Updates of orders come at a steady rate, and nearly each moves an order from one region to another.
Ours is a view that somebody follows, and is sent a batch when it is due, whether the last was taken
or not. Perspective keeps a view with the same `group_by`, SQLite and DuckDB compute the rows anew;
in their process whoever is behind takes all that is due at once, and then looks at the rows. The
last rows of each are compared with a plain look at the orders. Lateness is counted from the moment
that was meant for a batch until rows are there that have it in them.
"""

import re
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import fsum, isclose
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import orjson

from tests.benchmarks.peers.embedded import Embedded, Groups
from tests.benchmarks.peers.load import Load, final
from tests.benchmarks.peers.ours import Ours, frames
from tests.benchmarks.sockets import READ_BYTES, Client

VIEW = """<View><Name>regions</Name><MessageType>json</MessageType>
<UnderlyingTopic>orders</UnderlyingTopic><Projection><Field>/region</Field>
<Field>COUNT(1) AS /n</Field><Field>SUM(/px) AS /sum</Field><Field>AVG(/px) AS /avg</Field>
<Field>MIN(/px) AS /low</Field><Field>MAX(/px) AS /high</Field></Projection>
<Grouping><Field>/region</Field></Grouping></View>"""
BOOKMARK = re.compile(rb'"bm":"(\d+)"')
TAIL_BYTES = 64
"""A bookmark that a read has cut in two is shorter."""
PATIENCE_S = 60.0
"""For the last row: a server that does not tell of it within a minute never will."""
CLOSE = 1e-9
"""The others add doubles up in some order, which is right to about so much."""


class Grouped(NamedTuple):
    """One round: processor time of all that takes part, and how late each batch was, in ms."""

    cpu_s_per_million: float
    late_ms: Sequence[float]
    rate: float


def grouped_by_library(peer: Embedded, load: Load, fill: Load, rate: int) -> Grouped:
    """A library, in its own process. Raises AssertionError if its rows are wrong."""
    with TemporaryDirectory(prefix="peers-") as folder:
        peer.open(Path(folder))
        try:
            for _ in peer.publish(fill):
                pass
            found = peer.grouped(load, rate)
        finally:
            peer.close()
    check({region: tuple(row) for region, row in found["groups"].items()}, load, fill)
    return _round(load, found["cpu_s"], found["late_ms"], found["took_s"])


def grouped_by_ours(load: Load, fill: Load, rate: int) -> Grouped:
    """Our view, whose rows are told to a client. Raises AssertionError if they are wrong."""
    ours = Ours(beside=VIEW)
    with TemporaryDirectory(prefix="peers-") as folder:
        ours.open(Path(folder))
        try:
            for _ in ours.publish(fill):
                pass
            before_s, begin = ours.cpu_s(), time.perf_counter()
            late_ms = _late_ms(ours, load, rate)
            took_s, used_s = time.perf_counter() - begin, ours.cpu_s() - before_s
            rows = orjson.loads(ours.get("/v1/topics/regions/records"))
        finally:
            ours.close()
    check({row.pop("region"): tuple(row.values()) for row in rows}, load, fill)
    return _round(load, used_s, late_ms, took_s)


def _round(load: Load, used_s: float, late_ms: Sequence[float], took_s: float) -> Grouped:
    return Grouped(used_s / load.count * 1e6, late_ms, load.count / took_s)


def _late_ms(ours: Ours, load: Load, rate: int) -> list[float]:
    """Publish the batches when they are due; how late each was told of."""
    sent = frames(load)
    first = int(orjson.loads(ours.get("/v1/log/extent"))["newest"]) + 1
    step_s = load.size / rate
    publisher, follower = (Client(ours.server.host, ours.server.port) for _ in range(2))
    try:
        follower.socket.settimeout(PATIENCE_S)
        follower.ask(c="subscribe", t="regions", cid="1")
        with ThreadPoolExecutor(2) as beside:
            told = beside.submit(_sent, follower, first, load)
            acknowledged = beside.submit(_acknowledged, publisher, len(sent))
            begin = time.perf_counter()
            for number, frame in enumerate(sent):
                time.sleep(max(0.0, begin + number * step_s - time.perf_counter()))
                publisher.socket.sendall(frame)
            acknowledged.result()
            return [(at - begin - n * step_s) * 1000 for n, at in enumerate(told.result())]
    finally:
        publisher.close()
        follower.close()


def _acknowledged(publisher: Client, count: int) -> None:
    while publisher.read() < count:
        pass


def _sent(follower: Client, first: int, load: Load) -> list[float]:
    """When rows were read that have each batch in them: the bookmarks of its updates follow on one
    another from `first`, and that of a row is the newest of its group."""
    batches = load.count // load.size
    read_s: list[float] = []
    rest = b""
    while len(read_s) < batches:
        data = rest + follower.socket.recv(READ_BYTES)
        now = time.perf_counter()
        newest = max(map(int, BOOKMARK.findall(data)), default=0)
        done = (newest - first + 1) // load.size
        read_s += [now] * (done - len(read_s))
        rest = data[-TAIL_BYTES:]
    return read_s


def expected(records: Mapping[int, bytes]) -> Groups:
    """The rows by a plain look: count, sum, average, least and greatest price of each region."""
    prices: dict[str, list[float]] = {}
    for body in records.values():
        order = orjson.loads(body)
        prices.setdefault(order["region"], []).append(order["px"])
    return {
        region: (len(all_px), fsum(all_px), fsum(all_px) / len(all_px), min(all_px), max(all_px))
        for region, all_px in prices.items()
    }


def check(groups: Groups, load: Load, fill: Load) -> None:
    """Raise AssertionError if rows are not those of the last state of all orders."""
    wanted = expected(final(fill.batches()) | final(load.batches()))
    assert groups.keys() == wanted.keys(), f"{sorted(groups)} instead of {sorted(wanted)}"
    for region, row in wanted.items():
        found = groups[region]
        pairs = zip(found, row, strict=True)
        assert all(isclose(one, other, rel_tol=CLOSE) for one, other in pairs), (found, row)
