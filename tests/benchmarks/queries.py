"""Queries on a large topic: in the engine against numpy on the same columns, and over HTTP.

An answer counts as made when its records stand in one piece of JSON. numpy is given ready columns
of plain numbers and nothing to keep up to date; it joins the same records.
"""

import gc
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.client import HTTPConnection
from typing import NamedTuple
from urllib.parse import urlencode

import numpy as np
import orjson
from numpy.typing import NDArray

from sow.expressions import parse_order_by
from sow.query import Query
from tests.benchmarks.engines import EngineDriver
from tests.benchmarks.measure import Figure, in_turn, seconds_each
from tests.benchmarks.processes import ServerProcess
from tests.benchmarks.records import configuration, every_order, framed, updates
from tests.benchmarks.sizes import Sizes
from tests.benchmarks.sockets import Client, publishes
from tests.benchmarks.steady import Publisher

WAY = "/v1/topics/orders/records?"
DIRTY = 10_000
LOAD_FRAME = 1000
UPDATES, UPDATE_FRAME, UPDATES_A_SECOND = 200_000, 100, 20_000
LONG_S = 0.5
"""Some of what updates cost comes in bursts: a repetition has to hold many."""


class Columns:
    """The same records as numpy would like them."""

    def __init__(self, bodies: list[bytes]) -> None:
        rows = [orjson.loads(body) for body in bodies]
        self.bodies = bodies
        self.symbol = np.array([int(row["symbol"][1:]) for row in rows], np.int32)
        self.region = np.array([ord(row["region"]) for row in rows], np.int8)
        self.px = np.array([row["px"] for row in rows])
        self.slot_of = {row["order"]["id"]: slot for slot, row in enumerate(rows)}

    def joined(self, slots: NDArray[np.int64]) -> bytes:
        """These records as a JSON array."""
        return b"[%b]" % b",".join([self.bodies[slot] for slot in slots.tolist()])


class Question(NamedTuple):
    """A query as a client writes it, and as numpy is told."""

    case: str
    requested: dict[str, str]
    by_numpy: Callable[[Columns], NDArray[np.int64]]


QUESTIONS = (
    Question(
        "primary key",
        {"filter": "/order/id = 321"},
        lambda columns: np.array([columns.slot_of[321]]),
    ),
    Question(
        "hash index, 1 symbol of 5000",
        {"filter": "/symbol = 'S77'"},
        lambda columns: np.flatnonzero(columns.symbol == 77),
    ),
    Question(
        "compound, 1 record in 10,000",
        {"filter": "/region = 'A' AND /px > 999.2"},
        lambda columns: np.flatnonzero((columns.region == ord("A")) & (columns.px > 999.2)),
    ),
    Question(
        "range, 1 %",
        {"filter": "/px >= 500 AND /px < 510"},
        lambda columns: np.flatnonzero((columns.px >= 500) & (columns.px < 510)),
    ),
    Question(
        "top 10",
        {"order_by": "/px DESC", "top_n": "10"},
        lambda columns: _top(columns.px, 10),
    ),
)


def _top(values: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    # Of equal values the first ones, as a query gives them.
    bar = np.partition(values, -count)[-count]
    top = np.flatnonzero(values >= bar)
    return top[np.argsort(-values[top], kind="stable")][:count].astype(np.int64)


def in_engine(sizes: Sizes) -> Iterator[Figure]:
    """Each question once its columns exist, and one range again after many updates."""
    bodies = every_order(sizes.records)
    driver = EngineDriver(configuration(index=True))
    driver.load(bodies)
    columns = Columns(bodies)
    gc.collect()
    gc.freeze()  # as the server does: the records are no garbage
    try:
        for question in QUESTIONS:
            yield _requested(sizes, driver, columns, question)
        yield _requested_after_updates(sizes, driver, columns, QUESTIONS[3])
    finally:
        gc.unfreeze()


def answer(driver: EngineDriver, requested: dict[str, str]) -> bytes:
    """A query as the engine answers it, as a JSON array."""
    query = Query(
        filter=driver.engine.filter(requested["filter"]) if "filter" in requested else None,
        order_by=parse_order_by(requested["order_by"]) if "order_by" in requested else (),
        top_n=int(requested["top_n"]) if "top_n" in requested else None,
    )
    slots = driver.engine.queries.at_once("orders", query).slots.tolist()
    bodies = driver.engine.topic("orders").records.table.bodies
    return b"[%b]" % b",".join([bodies[slot] or b"" for slot in slots])


def _requested(sizes: Sizes, driver: EngineDriver, columns: Columns, question: Question) -> Figure:
    ours_bytes = answer(driver, question.requested)
    assert ours_bytes == columns.joined(question.by_numpy(columns)), question.case
    ours, floor = in_turn(
        sizes.repetitions,
        lambda: 1e3 * seconds_each(lambda: answer(driver, question.requested)),
        lambda: 1e3 * seconds_each(lambda: columns.joined(question.by_numpy(columns))),
    )
    note = f"{len(orjson.loads(ours_bytes))} rows"
    return Figure("query in the engine", question.case, "ms", ours, floor, "numpy", note=note)


def _requested_after_updates(
    sizes: Sizes, driver: EngineDriver, columns: Columns, question: Question
) -> Figure:
    dirty = min(DIRTY, sizes.records)
    frames = framed(updates(dirty, sizes.records), 100)

    def ours() -> float:
        driver.publish(frames)
        return 1e3 * seconds_each(lambda: answer(driver, question.requested), 0.0)

    taken = in_turn(
        sizes.repetitions,
        ours,
        lambda: 1e3 * seconds_each(lambda: columns.joined(question.by_numpy(columns))),
    )
    case = f"{question.case}, right after {dirty} updates"
    return Figure("query in the engine", case, "ms", taken[0], taken[1], "numpy, no updates")


def over_http(sizes: Sizes) -> Iterator[Figure]:
    """The same questions one after the other on a kept connection."""
    with ServerProcess(configuration(index=True)) as server:
        load(server, sizes.records)
        connection = HTTPConnection(server.host, server.port)
        for question in QUESTIONS:
            yield _got(sizes, connection, question)
        connection.close()


def under_updates(sizes: Sizes) -> Iterator[Figure]:
    """The same while others publish at a steady rate, each in a frame that is acknowledged."""
    with ServerProcess(configuration(index=True)) as server:
        load(server, sizes.records)
        connection = HTTPConnection(server.host, server.port)
        with _publisher(server, sizes) as publisher:
            for question in QUESTIONS:
                before = publisher.progress()
                figure = _got(sizes, connection, question, _long_s(sizes))
                reached = publisher.progress().rate_since(before)
                note = f"{reached:,.0f} updates/s were taken"
                yield replace(figure, benchmark="query over HTTP, 20,000 updates/s", note=note)
        connection.close()


def beside_updates(
    server: ServerProcess, sizes: Sizes, question: Question
) -> tuple[Figure, Figure]:
    """One question to a server that has all records, without updates and beside them."""
    connection = HTTPConnection(server.host, server.port)
    alone = _got(sizes, connection, question, _long_s(sizes))
    with _publisher(server, sizes):
        beside = _got(sizes, connection, question, _long_s(sizes))
    connection.close()
    return alone, beside


def _publisher(server: ServerProcess, sizes: Sizes) -> Publisher:
    frames = publishes(updates(min(UPDATES, sizes.records), sizes.records), UPDATE_FRAME)
    client = Client(server.host, server.port)
    return Publisher(client, frames, UPDATE_FRAME, UPDATES_A_SECOND)


def _long_s(sizes: Sizes) -> float:
    return LONG_S if sizes.repetitions > 1 else 0


def _got(
    sizes: Sizes, connection: HTTPConnection, question: Question, at_least_s: float = 0.02
) -> Figure:
    path = WAY + urlencode(question.requested)
    ours, floor = in_turn(
        sizes.repetitions,
        lambda: 1e3 * seconds_each(lambda: get(connection, path), at_least_s),
        lambda: 1e3 * seconds_each(lambda: get(connection, "/healthz"), at_least_s),
    )
    return Figure("query over HTTP", question.case, "ms", ours, floor, "GET /healthz, 3 bytes")


def load(server: ServerProcess, records: int) -> int:
    """Fill `orders`; returns how many bytes of bodies were published."""
    bodies = every_order(records)
    client = Client(server.host, server.port)
    client.publish(publishes(bodies, LOAD_FRAME), 8)
    client.close()
    return sum(map(len, bodies))


def get(connection: HTTPConnection, path: str) -> bytes:
    """The body of an answer that must be good."""
    connection.request("GET", path)
    response = connection.getresponse()
    body = response.read()
    assert response.status == 200, body
    return body
