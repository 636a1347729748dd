"""Asking: what queries take on many records while updates come at a steady rate.

Ours is asked over HTTP by one client while another publishes; a library is asked and updated in one
process, without a network. The last answers are compared with a plain look at the records.
"""

import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from urllib.parse import quote

import orjson

from tests.benchmarks.peers.embedded import Embedded
from tests.benchmarks.peers.load import Load
from tests.benchmarks.peers.ours import HEAD, Ours
from tests.benchmarks.peers.questions import QUESTIONS, TOP, Question, keys_of
from tests.benchmarks.sockets import Client, frame


class Asked(NamedTuple):
    """How long one question took each time, in ms."""

    case: str
    ms: list[float]


def asked_of_library(peer: Embedded, load: Load, fill: Load, rate: int, times: int) -> list[Asked]:
    """The questions to a library."""
    with TemporaryDirectory(prefix="peers-") as folder:
        peer.open(Path(folder))
        try:
            for _ in peer.publish(fill):
                pass
            found = peer.asked(load, rate, times)
        finally:
            peer.close()
    records = {int(key): body.encode() for key, body in found["records"].items()}
    last = QUESTIONS[-1].case
    check(QUESTIONS[-1], found["rows"][last], records)
    return [Asked(case, ms) for case, ms in found["ms"].items()]


def asked_of_ours(load: Load, fill: Load, rate: int, times: int) -> list[Asked]:
    """The same over HTTP."""
    ours, found = Ours(), []
    with TemporaryDirectory(prefix="peers-") as folder:
        ours.open(Path(folder))
        try:
            for _ in ours.publish(fill):
                pass
            publisher = Publisher(ours, load, rate)
            for question in QUESTIONS:
                path = f"/v1/topics/orders/records?{written(question)}"
                ours.get(path)
                taken = []
                for _ in range(times):
                    begin = time.perf_counter()
                    ours.get(path)
                    taken.append((time.perf_counter() - begin) * 1000)
                found.append(Asked(question.case, taken))
            publisher.stop()
            records = ours.current()
            for question in QUESTIONS:
                rows = orjson.loads(ours.get(f"/v1/topics/orders/records?{written(question)}"))
                check(question, [row["order"]["id"] for row in rows], records)
        finally:
            ours.close()
    return found


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


class Publisher:
    """Publishes at a steady rate in a thread of its own, until it is stopped."""

    def __init__(self, ours: Ours, load: Load, rate: int) -> None:
        self._client = Client(ours.server.host, ours.server.port)
        self._step_s = load.size / rate
        self._frames = [
            frame(HEAD % len(batch) + b"\n".join([body for _, body in batch]))
            for batch in load.batches()
        ]
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        due, number = time.perf_counter(), 0
        while not self._stopped.wait(max(0.0, due - time.perf_counter())):
            self._client.socket.sendall(self._frames[number % len(self._frames)])
            number, due = number + 1, due + self._step_s
            while self._client.read() < number:
                pass

    def stop(self) -> None:
        """Publish no more; everything is acknowledged."""
        self._stopped.set()
        self._thread.join()
        self._client.close()
