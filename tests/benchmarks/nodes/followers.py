"""Followers: how fast one copies, applies the log and answers, beside the server that it follows.

A follower catches up after it has been stopped for a while (SIGSTOP), so that all of the log is
there and it waits for nothing. The floor is to split and decode each record once, which no server
can do without. A first copy is watched by a pinger of the primary, which serves others meanwhile.
"""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPConnection
from urllib.parse import urlencode
from urllib.request import urlopen

from tests.benchmarks.ingest import FLOOR, decoding
from tests.benchmarks.measure import Figure, in_turn, seconds_each
from tests.benchmarks.nodes.edges import configured, say
from tests.benchmarks.nodes.sizes import Sizes
from tests.benchmarks.pinger import Pinger
from tests.benchmarks.processes import ServerProcess
from tests.benchmarks.queries import QUESTIONS, WAY, get, load
from tests.benchmarks.records import framed, updates
from tests.benchmarks.sockets import Client, publishes

FRAME = 100
WINDOW = 64
ASKED = 9
"""Rounds of each query, ours and the primary's in turn: an answer takes a millisecond."""
PATIENCE_S = 60
"""A server waits for a bookmark no longer; a million records take a quarter of it."""


def followers(sizes: Sizes) -> Iterator[Figure]:
    """One primary with all records, and a follower that begins with nothing."""
    xml = configured(index=True)
    with ExitStack() as stack:
        primary = stack.enter_context(ServerProcess(xml))
        say(f"publishing {sizes.records:,} records")
        load(primary, sizes.records)
        follower = ServerProcess(xml, options=("--follow", primary.url))
        yield from _copied(sizes, primary, follower, stack)
        yield from _asked(sizes, primary, follower)
        yield from _caught_up(sizes, primary, follower)


def _copied(
    sizes: Sizes, primary: ServerProcess, follower: ServerProcess, stack: ExitStack
) -> Iterator[Figure]:
    """The first copy: how long it takes, and what others wait for the primary meanwhile."""
    with Pinger(primary.host, primary.port) as pinger:
        time.sleep(1.0)
        alone_ms, _ = pinger.longest_ms()
        begun_s, used_s = time.monotonic(), primary.cpu_s
        stack.enter_context(follower)
        reach(follower, bookmark(primary))
        took_s, used_s = time.monotonic() - begun_s, primary.cpu_s - used_s
        longest_ms, count = pinger.longest_ms()
    case = f"of {sizes.records:,} records"
    say(f"first copy {case}")
    yield Figure(
        "first copy", f"{case}, until it serves", "s", [took_s],
        [used_s], "processor time of the primary",
    )  # fmt: skip
    yield Figure(
        "first copy", f"{case}, longest wait for the primary", "ms", [longest_ms],
        [alone_ms], "a second before", note=f"of {count:,} pings",
    )  # fmt: skip


def _asked(sizes: Sizes, primary: ServerProcess, follower: ServerProcess) -> Iterator[Figure]:
    """The queries of `make bench`; the floor is the primary's answer."""
    with (
        closing(HTTPConnection(follower.host, follower.port)) as there,
        closing(HTTPConnection(primary.host, primary.port)) as here,
    ):
        for question in QUESTIONS:
            path = WAY + urlencode(question.requested)
            assert get(there, path) == get(here, path), question.case
            rounds = ASKED if sizes.ask_s else 1
            ours, floor = in_turn(rounds, answer(there, path, sizes), answer(here, path, sizes))
            say(f"query of a follower, {question.case}")
            yield Figure("query of a follower", question.case, "ms", ours, floor, "the primary")


def answer(connection: HTTPConnection, path: str, sizes: Sizes) -> Callable[[], float]:
    """How many milliseconds an answer takes."""
    return lambda: 1e3 * seconds_each(lambda: get(connection, path), sizes.ask_s)


def _caught_up(sizes: Sizes, primary: ServerProcess, follower: ServerProcess) -> Iterator[Figure]:
    """What was published while it stood still, and while it was not there."""
    bodies = updates(sizes.updates, sizes.records)
    floor = decoding(framed(bodies, FRAME))
    with closing(Client(primary.host, primary.port)) as client:
        frames = publishes(bodies, FRAME)
        wall, cpu, floors = [], [], []
        for _ in range(sizes.repetitions):
            with stopped(follower):
                client.publish(frames, WINDOW)
            begun_s, used_s = time.monotonic(), follower.cpu_s
            reach(follower, bookmark(primary))
            wall.append(sizes.updates / (time.monotonic() - begun_s))
            cpu.append(sizes.updates / (follower.cpu_s - used_s))
            floors.append(floor())
            say(f"caught up with {sizes.updates:,} records")
    for name, taken in (("by processor time", cpu), ("by the wall clock", wall)):
        yield Figure("catch-up", f"while it runs, {name}", "records/s", taken, floors, FLOOR)


@contextmanager
def stopped(server: ServerProcess) -> Iterator[None]:
    """It does nothing meanwhile."""
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


def bookmark(server: ServerProcess) -> str:
    """The newest of a server."""
    with urlopen(f"{server.url}/v1/status") as answer:
        return str(json.load(answer)["bookmark"])


def reach(server: ServerProcess, newest: str) -> None:
    """Wait until a server is as far; raises HTTPError if it takes too long."""
    with urlopen(f"{server.url}/v1/topics?min_bookmark={newest}&wait={PATIENCE_S}") as answer:
        answer.read()
