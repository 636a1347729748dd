"""What a frame and a query cost the server, in Python calls, so that it does not creep back.

Calls say the same on a busy machine as on a quiet one. They are counted on the server's own thread
from the socket to the socket: functions of Python and of C, of the server and of libraries, but
none of asyncio's and the threads', whose number depends on when the disk is done. The loop's clock
stands still meanwhile, so no slice ends early and no timer fires, and the collector waits. Of some
frames alike the cheapest counts.

A ceiling is some per cent above what was counted. Whoever exceeds one looks at the list of the
failure: mostly something is done for each record or follower that could be done once for all of
them, or not at all where nobody uses it. Whoever saves calls lowers the ceiling.
"""

import gc
import sys
from collections import Counter
from contextlib import contextmanager
from http.client import HTTPConnection
from itertools import repeat
from typing import NamedTuple
from urllib.parse import urlencode

import pytest

from sow.core.inner_loops import INNER_LOOPS
from sow.server.loop import background_work
from sow.store.memory import Table
from tests.benchmarks.records import every_order, parts, updates
from tests.benchmarks.sockets import Client, publishes
from tests.edge.serving import Running, configuration

KEYS, FOLLOWERS, TIMES = 200, 30, 5
COPIED = """<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/order/id</Key></Topic>
<ConflatedTopic><Name>orders-C</Name><MessageType>json</MessageType>
<UnderlyingTopic>orders</UnderlyingTopic><Interval>1s</Interval></ConflatedTopic>"""
INDEXED = COPIED.replace(
    "</Topic>",
    "<HashIndex><Key>/region</Key></HashIndex><HashIndex><Key>/acct</Key></HashIndex>"
    "<Index>/px</Index></Topic>",
)
NUMBERS = "sow/sessions/commands/publishers.py"
UNSTEADY = ("/asyncio/", "/selectors.py", "/threading.py", "/concurrent/", "/edge/serving.py")
"""Their calls depend on the moment."""


class Case(NamedTuple):
    """Topics, what is done with them, the most calls that it may take, and what these are for.
    Where the inner loops run in Python, they may take `looped` calls more for each record."""

    topics: str
    method: str
    size: int
    calls_max: int
    why: str
    looped: int = 0

    @property
    def most(self) -> int:
        """The most calls with the inner loops that are in use."""
        in_python = INNER_LOOPS.language == "Python"
        return self.calls_max + in_python * self.looped * self.size


CASES = {
    "a frame of one": Case(COPIED, "frames", 1, 315, "reading, a commit, the copy, an ack"),
    "a frame of 100": Case(
        COPIED, "frames", 100, 330, "what one takes: no more for each record", 1
    ),
    "a numbered frame of 100": Case(
        COPIED, "numbered", 100, 375, "what one without numbers takes, and the new highest one", 1
    ),
    "a frame of 100, indexed": Case(
        INDEXED, "frames", 100, 360, "what one takes, with three indexes", 2
    ),
    "a frame of 5 to 30": Case(COPIED, "followed", 5, 665, "some 12 for each outbox and socket"),
    "a query": Case(COPIED, "queries", 1, 1_310, "the request, a new filter, its answer"),
    "the top 10": Case(INDEXED, "tops", 1, 670, "the request, its answer, nothing read anew"),
}


class Calls:
    """Counts calls on a thread while it is `on` there."""

    def __init__(self):
        self.found = Counter()

    def __call__(self, frame, event, called):
        # Of C the caller is given.
        if event == "call":
            self.found[frame.f_code] += 1
        elif event == "c_call":
            self.found[frame.f_code, called.__name__] += 1

    @property
    def steady(self):
        """How often what was called: (file, name)."""
        named = Counter()
        for what, count in self.found.items():
            code, name = what if isinstance(what, tuple) else (what, what.co_name)
            if not any(part in code.co_filename for part in UNSTEADY):
                where = code.co_filename.rpartition("site-packages/")[2]
                named[where, code.co_name if code is what else f"{code.co_name} > {name}"] += count
        return named


@contextmanager
def counted(running):
    """The calls of the server's thread meanwhile."""
    calls = Calls()
    running.call(sys.setprofile, calls)
    try:
        yield calls
    finally:
        running.call(sys.setprofile, None)


class Work:
    """One server, and the work that it is given."""

    def __init__(self, running):
        self._running = running
        self._client = Client(*running.address)
        self._followers = []
        self._client.publish(publishes(every_order(KEYS), KEYS), 1)

    def of(self, case):
        """The calls of the cheapest time."""
        taken = []
        for once in getattr(self, case.method)(case.size):
            with counted(self._running) as calls:
                once()
            taken.append(calls.steady)
        return min(taken[1:], key=Counter.total)  # the first time fills caches

    def frames(self, size):
        """Publish a frame, again and again."""
        for part in parts(updates(size * (TIMES + 1), KEYS), size):
            frames = publishes(part, size)
            yield lambda frames=frames: self._client.publish(frames, 1)

    def numbered(self, size):
        """The same with numbers."""
        self._client.ask(c="logon", client="feed", sequence=True, cid="1")
        for at, part in enumerate(parts(updates(size * (TIMES + 1), KEYS), size)):
            frames = publishes(part, size, seq=at * size + 1)
            yield lambda frames=frames: self._client.publish(frames, 1)

    def followed(self, size):
        """The same to followers."""
        followers = self._followers = [Client(*self._running.address) for _ in range(FOLLOWERS)]
        lines = [0] * FOLLOWERS
        for at, client in enumerate(followers):
            client.ask(c="subscribe", t="orders", cid="1")
            lines[at] = 1
        for once in self.frames(size):

            def told(once=once):
                once()
                for at, client in enumerate(followers):
                    lines[at] += size
                    while client.read() < lines[at]:
                        pass

            yield told

    def queries(self, _size):
        """Ask, each time something else that no index knows."""
        wanted = [f"/px > {number} AND /side = 'buy' AND /qty < 20" for number in range(TIMES + 1)]
        return self._asked([{"filter": text} for text in wanted])

    def tops(self, _size):
        """Ask for the first ones, again and again."""
        return self._asked([{"order_by": "/px DESC", "top_n": 10}] * (TIMES + 1))

    def _asked(self, wanted):
        connection = HTTPConnection(*self._running.address)
        self._followers.append(connection)
        for where in wanted:

            def asked(where=where):
                connection.request("GET", f"/v1/topics/orders/records?{urlencode(where)}")
                answer = connection.getresponse()
                assert (answer.status, bool(answer.read())) == (200, True)

            yield asked

    def close(self):
        for client in (self._client, *self._followers):
            client.close()


@contextmanager
def working(topics, directory, monkeypatch):
    """A server whose time stands still, without the collector."""
    monkeypatch.setenv("SOW_LOOP", "asyncio")
    # On a busy machine each request takes longer than the collector's interval.
    monkeypatch.setattr(background_work, "EVERY_US", sys.maxsize)
    running = Running(configuration(topics), directory)
    work = Work(running)
    gc.disable()
    running.loop.time = repeat(running.loop.time()).__next__
    try:
        yield work
    finally:
        del running.loop.time
        gc.enable()
        work.close()
        running.close()


@pytest.mark.parametrize("name", CASES)
def test_a_piece_of_work_takes_no_more_calls_than_it_may(name, tmp_path, monkeypatch):
    case = CASES[name]
    with working(case.topics, tmp_path, monkeypatch) as work:
        calls = work.of(case)
    listed = "\n".join(f"{count:5} {file} {what}" for (file, what), count in calls.most_common(60))
    assert calls.total() <= case.most, f"{name} takes {calls.total()} calls:\n{listed}"


def test_who_does_not_number_messages_pays_nothing_for_those_who_do(tmp_path, monkeypatch):
    taken = []
    with working(COPIED, tmp_path, monkeypatch) as work:
        for name in ("a numbered frame of 100", "a frame of 100"):
            calls = work.of(CASES[name])
            taken.append(sum(n for (file, _), n in calls.items() if file.endswith(NUMBERS)))
    assert taken[0] > 0 == taken[1], "no function of numbers is called"


def test_a_call_more_for_each_record_is_noticed(tmp_path, monkeypatch):
    put, case = Table.put, CASES["a frame of 100"]

    def dearer(table, identities, *more):
        return [len(one) for one in identities] and put(table, identities, *more)

    with working(COPIED, tmp_path, monkeypatch) as work:
        monkeypatch.setattr(Table, "put", dearer)
        assert work.of(case).total() > case.most
