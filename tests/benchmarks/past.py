"""The past: how fast what a conflated topic has sent is sent again, and a view as of a bookmark.

Both process the log again. A replay is measured by the changes of the log a second, beside the same
updates as they come, in an engine without network and disk; how soon its first line is there,
beside a subscription's that begins now. The past of a view of all records is measured beside the
groups of the present, which a query makes of the records in memory.
"""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from itertools import count
from urllib.parse import quote

from tests.benchmarks.engines import EngineDriver
from tests.benchmarks.measure import Figure, in_turn, seconds
from tests.benchmarks.processes import ServerProcess
from tests.benchmarks.records import configuration, every_order, framed, updates
from tests.benchmarks.sizes import Sizes
from tests.benchmarks.sockets import READ_BYTES, Client, command, publishes
from tests.benchmarks.views import BY_ACCOUNT, ENDING, FIELDS

FRAME = 100
WINDOW_FRAMES = 64
"""Unacknowledged frames on their way."""
LOAD_FRAME = 1000
COMPLETED, LINE, ROW = b'"a":"completed"', b'"c":"p"', b'"c":"sow"'
MEMORY = "<SnapshotMemory>8GB</SnapshotMemory><GroupMemory>8GB</GroupMemory>"
LIMITS = f"<Limits>{MEMORY}</Limits></SOWConfig>"
"""A quarter of each is more than a past state, or the groups, of a million records take."""
PASTS = 2
"""Past states of a view: one of a million records takes minutes."""


def past(sizes: Sizes) -> Iterator[Figure]:
    """Replays of a conflated topic; then the past of a view."""
    yield from _replays(sizes)
    yield _view_as_of(sizes)


def _replays(sizes: Sizes) -> Iterator[Figure]:
    xml, keys = configuration(conflated=True), max(10, sizes.keys // 10)
    bodies = updates(sizes.messages // 2, keys)
    with ExitStack() as stack:
        server = stack.enter_context(ServerProcess(xml))
        client = stack.enter_context(closing(Client(server.host, server.port)))
        client.publish(publishes(bodies, FRAME), WINDOW_FRAMES)
        driver, frames = EngineDriver(xml), framed(bodies, FRAME)
        ours, floor = in_turn(
            sizes.repetitions,
            lambda: len(bodies) / _until(server, COMPLETED, bm="0", a="completed"),
            lambda: len(bodies) / seconds(lambda: driver.publish(frames)),
        )
        yield Figure(
            "replay",
            "a conflated topic, 1 s",
            "changes/s",
            ours,
            floor,
            "the same as they come, in the engine",
        )
        ours, floor = in_turn(
            sizes.repetitions,
            lambda: 1e3 * _until(server, LINE, bm="0"),
            lambda: 1e3 * _until(server, ROW, name="sow_and_subscribe"),
        )
        yield Figure("replay", "its first line", "ms", ours, floor, "of the present")
    yield _late_line(sizes)


def _late_line(sizes: Sizes) -> Figure:
    """The first line of a bookmark late in a log of records that change without a pause."""
    xml, keys = configuration(conflated=True), max(10, sizes.keys // 10)
    with ExitStack() as stack:
        server = stack.enter_context(ServerProcess(xml))
        client = stack.enter_context(closing(Client(server.host, server.port)))
        client.publish(publishes(updates(sizes.records, keys), FRAME), WINDOW_FRAMES)
        late = str(sizes.records - sizes.records // 20)
        ours, floor = in_turn(
            sizes.repetitions,
            lambda: 1e3 * _until(server, LINE, bm=late),
            lambda: 1e3 * _until(server, ROW, name="sow_and_subscribe"),
        )
    return Figure("replay", "its first line, late in the log", "ms", ours, floor, "of the present")


def _until(server: ServerProcess, text: bytes, name: str = "subscribe", **fields: str) -> float:
    """Seconds from a command of a new client to a line with `text`."""
    tail = b""
    with closing(Client(server.host, server.port)) as client:

        def read() -> None:
            nonlocal tail
            client.socket.sendall(command(c=name, t="orders-C", cid="1", **fields))
            while text not in tail:
                piece = client.socket.recv(READ_BYTES)
                assert piece, "the server closed the connection"
                tail = tail[-len(text) :] + piece

        return seconds(read)


def _view_as_of(sizes: Sizes) -> Figure:
    xml = configuration().replace(ENDING, BY_ACCOUNT + ENDING).replace("</SOWConfig>", LIMITS)
    with ExitStack() as stack:
        server = stack.enter_context(ServerProcess(xml))
        client = stack.enter_context(closing(Client(server.host, server.port)))
        client.publish(publishes(every_order(sizes.records), LOAD_FRAME), WINDOW_FRAMES)
        http = stack.enter_context(closing(HTTPConnection(server.host, server.port)))
        bookmarks = count(sizes.records, -LOAD_FRAME)
        fields = quote(",".join(("/acct", *FIELDS)))
        groups = f"/v1/topics/orders/records?projection={fields}&grouping=/acct"
        ours = [
            _got(http, f"/v1/topics/accounts/records?as_of={next(bookmarks)}")
            for _ in range(min(PASTS, sizes.repetitions))
        ]
        floor = [_got(http, groups) for _ in range(sizes.repetitions)]
    case = "a view of five aggregates, all records"
    return Figure("as of a bookmark", case, "s", ours, floor, "the groups of the present")


def _got(http: HTTPConnection, path: str) -> float:
    """Seconds until an answer is there."""

    def get() -> None:
        http.request("GET", path)
        answer = http.getresponse()
        body = answer.read()
        assert answer.status == 200, body

    return seconds(get)
