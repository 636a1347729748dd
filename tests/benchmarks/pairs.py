"""`python -m tests.benchmarks.pairs BEFORE [NOW] [--pairs N]`: what a change of the tree costs.

What does not change behaviour is not to cost anything either. Both trees serve in turn, the one
first that was second before, and are given the same work over sockets; what is compared is the
processor time of the server, pair by pair, so that a machine whose speed drifts says nothing. Only
the protocol is spoken, so that a tree may be a checkout of any commit that speaks it
(`git worktree add TREE COMMIT`), however it looks inside; all run with the libraries of this one,
which is NOW unless another one is named.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, urlencode
from urllib.request import urlopen

from tests.benchmarks.processes import ROOT, ServerProcess
from tests.benchmarks.readers import Readers
from tests.benchmarks.records import ACCOUNTS, HASH_INDEX, configuration, updates
from tests.benchmarks.sockets import Client, publishes
from tests.benchmarks.steady import Publisher

PAIRS = 10
WINDOW = 10
"""Frames on their way: the server always has work, and no queue is ever full."""
SINGLES_WINDOW = 500
"""The same of frames of one."""
FRAME = 100
FILTER = "/px > {} AND /side = 'buy' AND /qty < 20"
RECORDS = "/v1/topics/{}/records?"
INDEXED = f"""<Topic><Name>indexed</Name><MessageType>json</MessageType><Key>/order/id</Key>
{HASH_INDEX}<HashIndex><Key>/acct</Key></HashIndex><Index>/px</Index></Topic></SOW>"""
"""One hash index that nearly every update changes, one that none does, and a field in order."""
XML = configuration(conflated=True).replace("</SOW>", INDEXED)


class Size(NamedTuple):
    """How much is done: some tenths of a second of processor time for each work."""

    keys: int = 20_000
    frames: int = 1_000
    queries: int = 200
    followers: int = 30
    seconds: float = 5.0


SMALL = Size(keys=50, frames=3, queries=2, followers=2, seconds=0.01)
"""Enough to see that it runs."""


class Runs:
    """The work, on one server that has just been started."""

    def __init__(self, server: ServerProcess, client: Client, size: Size) -> None:
        self._server, self._client, self._size = server, client, size

    def ingest(self) -> None:
        """Publish frames of 100."""
        bodies = updates(self._size.frames * FRAME, self._size.keys)
        self._client.publish(publishes(bodies, FRAME), WINDOW)

    def query(self) -> None:
        """Ask for what no index knows."""
        where = f"http://{self._server.host}:{self._server.port}{RECORDS.format('orders')}"
        for number in range(self._size.queries):
            with urlopen(f"{where}filter={quote(FILTER.format(number))}") as answer:
                answer.read()

    def fan_out(self) -> None:
        """Publish frames of 5 to many who follow the topic."""
        bodies = updates(self._size.frames * 5, self._size.keys)
        with self._readers("orders") as readers:
            readers.expect(len(bodies))
            self._client.publish(publishes(bodies, 5), 1)
            readers.wait()

    def release(self) -> None:
        """Publish 3,000 updates a second to many who follow a conflated copy."""
        frames = publishes(updates(20 * FRAME, self._size.keys), 20)
        client = Client(self._server.host, self._server.port)
        with self._readers("orders-C"), Publisher(client, frames, 20, 3_000):
            time.sleep(self._size.seconds)

    def singles(self) -> None:
        """Publish frames of one."""
        bodies = updates(self._size.frames * 10, self._size.keys)
        self._client.publish(publishes(bodies, 1), SINGLES_WINDOW)

    def indexed(self) -> None:
        """Publish frames of 100 to two hash indexes and a field in order."""
        bodies = updates(self._size.frames * FRAME, self._size.keys)
        self._client.publish(publishes(bodies, FRAME, "indexed"), WINDOW)

    def exact(self) -> None:
        """Ask for what a hash index knows."""
        self._ask(lambda number: {"filter": f"/acct = 'acct-{number % ACCOUNTS}'"})

    def top(self) -> None:
        """Ask for the top 10."""
        self._ask(lambda _: {"order_by": "/px DESC", "top_n": "10"})

    def _ask(self, question: Callable[[int], dict[str, str]]) -> None:
        """Over one connection, so that no question pays for opening it."""
        with closing(HTTPConnection(self._server.host, self._server.port)) as connection:
            for number in range(self._size.queries * 5):
                connection.request("GET", RECORDS.format("indexed") + urlencode(question(number)))
                answer = connection.getresponse()
                answer.read()
                if answer.status != HTTPStatus.OK:
                    raise ConnectionError(f"the server answered {answer.status}")

    def _readers(self, topic: str) -> Readers:
        command = f'{{"c":"subscribe","t":"{topic}","cid":"1"}}'
        readers = Readers(self._server.host, self._server.port, self._size.followers, command)
        readers.ready()
        return readers


def costs(tree: Path, size: Size) -> dict[str, float]:
    """Processor time of the server of a tree for each kind of work, in seconds."""
    found = {}
    with (
        ServerProcess(XML, tree=tree) as server,
        closing(Client(server.host, server.port)) as client,
    ):
        runs = Runs(server, client, size)
        kinds: list[Callable[[], None]] = [runs.ingest, runs.query, runs.fan_out, runs.release]
        kinds += [runs.singles, runs.indexed, runs.exact, runs.top]
        for kind in kinds:
            before_s = server.cpu_s
            kind()
            found[str(kind.__doc__).rstrip(".")] = server.cpu_s - before_s
    return found


def ratios(before: Path, now: Path, pairs: int, size: Size) -> Iterator[tuple[str, list[float]]]:
    """For each kind of work what it costs now, in what it cost before, in each pair."""
    news: list[dict[str, float]] = []
    olds: list[dict[str, float]] = []
    for number in range(pairs):
        for tree, taken in [(before, olds), (now, news)][:: 1 if number % 2 else -1]:
            taken.append(costs(tree, size))
    for kind in news[0]:
        yield kind, [new[kind] / old[kind] for new, old in zip(news, olds, strict=True)]


def main() -> None:
    """Measure, and show the middle, the least and the most of all pairs."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.pairs")
    parser.add_argument("before", type=Path)
    parser.add_argument("now", type=Path, nargs="?", default=ROOT)
    parser.add_argument("--pairs", type=int, default=PAIRS)
    requested = parser.parse_args()
    print("| work | median | from | to |\n| --- | --- | --- | --- |")
    trees = requested.before.resolve(), requested.now.resolve()
    for kind, found in ratios(*trees, requested.pairs, Size()):
        print(f"| {kind} | {statistics.median(found):.3f} | {min(found):.3f} | {max(found):.3f} |")


if __name__ == "__main__":
    main()
