"""Asking: what queries take on many records while updates come at a steady rate.

Ours is asked over HTTP by one client while another publishes; a library is asked and updated in one
process, without a network. The last answers are compared with a plain look at the records.
"""

import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from urllib.parse import quote

import orjson

from tests.benchmarks.peers.embedded import Embedded
from tests.benchmarks.peers.load import Load
from tests.benchmarks.peers.ours import Ours, frames
from tests.benchmarks.peers.questions import QUESTIONS, TOP, Question, keys_of
from tests.benchmarks.sockets import Client
from tests.benchmarks.steady import Publisher


class Requested(NamedTuple):
    """How long one question took each time, in ms, and how many updates a second were taken."""

    case: str
    ms: list[float]
    rate: float


def requested_of_library(
    peer: Embedded, load: Load, fill: Load, rate: int, times: int
) -> list[Requested]:
    """The questions to a library."""
    with TemporaryDirectory(prefix="peers-") as folder:
        peer.open(Path(folder))
        try:
            for _ in peer.publish(fill):
                pass
            found = peer.requested(load, rate, times)
        finally:
            peer.close()
    records = {int(key): body.encode() for key, body in found["records"].items()}
    last = QUESTIONS[-1].case
    check(QUESTIONS[-1], found["rows"][last], records)
    return [Requested(case, ms, found["rate"][case]) for case, ms in found["ms"].items()]


def requested_of_ours(load: Load, fill: Load, rate: int, times: int) -> list[Requested]:
    """The same over HTTP."""
    ours, found = Ours(), []
    with TemporaryDirectory(prefix="peers-") as folder:
        ours.open(Path(folder))
        try:
            for _ in ours.publish(fill):
                pass
            client = Client(ours.server.host, ours.server.port)
            with Publisher(client, frames(load), load.size, rate) as publisher:
                for question in QUESTIONS:
                    path = f"/v1/topics/orders/records?{written(question)}"
                    ours.get(path)
                    before = publisher.progress()
                    taken = paced(lambda path=path: ours.get(path), times, load.size / rate)
                    reached = publisher.progress().rate_since(before)
                    found.append(Requested(question.case, taken, reached))
            records = ours.current()
            for question in QUESTIONS:
                rows = orjson.loads(ours.get(f"/v1/topics/orders/records?{written(question)}"))
                check(question, [row["order"]["id"] for row in rows], records)
        finally:
            ours.close()
    return found


def paced(ask: Callable[[], object], times: int, step_s: float) -> list[float]:
    """How long each of so many takes in ms, asked `step_s` apart or when the last is answered."""
    begin, taken = time.perf_counter(), []
    for number in range(times):
        time.sleep(max(0.0, begin + number * step_s - time.perf_counter()))
        start = time.perf_counter()
        ask()
        taken.append((time.perf_counter() - start) * 1000)
    return taken


def written(question: Question) -> str:
    """A question as parameters of a query."""
    terms = []
    if question.symbol is not None:
        terms.append(f"/symbol = '{question.symbol}'")
    if question.region is not None:
        terms.append(f"/region = '{question.region}'")
    if question.px is not None:
        terms.append(f"/px >= {question.px[0]} AND /px < {question.px[1]}")
    if question.top:
        return f"order_by={quote('/px DESC')}&top_n={TOP}"
    return f"filter={quote(' AND '.join(terms))}"


def check(question: Question, rows: list[int], records: dict[int, bytes]) -> None:
    """Raise AssertionError if an answer is wrong."""
    wanted = keys_of(question, records)
    if question.top:
        # Of equal ones any may come first.
        px = {key: orjson.loads(records[key])["px"] for key in {*rows, *wanted}}
        assert [px[key] for key in rows] == [px[key] for key in wanted], question.case
    else:
        assert sorted(rows) == wanted, question.case
