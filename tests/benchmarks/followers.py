"""Followers: what it costs to keep many screens current with a conflated topic.

Updates come at a steady rate, key after key; a process of readers follows the conflated topic on as
many connections as asked, and a probe among them looks at every line. *Cores* are processor time of
the server in each second. *Staleness* is how long ago the first update was published that a line
stands for: with an interval of one second it cannot be under one.

The floor is the same server and the same updates with nobody following, measured once for all
scenes with the same updates.
"""

import itertools
import json
import re
import selectors
import time
import urllib.request
from collections.abc import Iterator
from typing import NamedTuple

from tests.benchmarks.measure import Figure
from tests.benchmarks.processes import ServerProcess
from tests.benchmarks.readers import Readers
from tests.benchmarks.sizes import Sizes
from tests.benchmarks.sockets import PONG, READ_BYTES, Client, frame

FRAME = 100
NUMBER = re.compile(rb'"n":(\d+),')
NUMBER_BYTES_MAX = 32
IDLE_SESSIONS = 1000
SUBSCRIBE = '{"c":"subscribe","t":"orders-C","cid":"1"}'
BODY = (
    '{"order":{"id":%d},"n":%d,"symbol":"S%04d","side":"buy","px":101.25,"qty":%d,'
    '"account":"A-17","status":"open","text":"a record of about two hundred bytes, as orders are"}'
)


class Scene(NamedTuple):
    """A load: how many follow, how many updates come a second, of how many keys."""

    case: str
    followers: int
    rate: int
    keys: int
    interval_ms: int
    stalled: bool = False
    """One more follows every update of the original, and never reads."""


SCENES = (
    Scene("1 follows 10,000 keys at 1 s", 1, 20_000, 10_000, 1000),
    Scene("10 follow 10,000 keys at 1 s", 10, 20_000, 10_000, 1000),
    Scene("100 follow 10,000 keys at 1 s", 100, 20_000, 10_000, 1000),
    Scene("100 follow, 100,000 updates/s", 100, 100_000, 10_000, 1000),
    Scene("100 follow, one more never reads", 100, 20_000, 10_000, 1000, stalled=True),
    Scene("500 follow 10,000 keys at 1 s", 500, 20_000, 10_000, 1000),
    Scene("1,000 follow 1,000 keys at 100 ms", 1000, 2_000, 1_000, 100),
    Scene("10,000 follow 100 keys at 1 s", 10_000, 100, 100, 1000),
)


def followers(sizes: Sizes) -> Iterator[Figure]:
    """Every scene, and what a session costs that does nothing."""
    seconds = {"full": 20.0, "quick": 6.0, "tiny": 1.0}[sizes.name]
    scenes = SCENES if sizes.name != "tiny" else (Scene("3 follow", 3, 1000, 50, 100),)
    floors: dict[Scene, list[float]] = {}
    for scene in scenes:
        yield from _played(scene, seconds, 1 if sizes.name == "tiny" else 2, floors)
    yield from _idle(20 if sizes.name == "tiny" else IDLE_SESSIONS)


def xml(interval_ms: int) -> str:
    return f"""<SOWConfig><Name>bench</Name><SOW>
<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/order/id</Key></Topic>
<ConflatedTopic><Name>orders-C</Name><MessageType>json</MessageType>
<UnderlyingTopic>orders</UnderlyingTopic><Interval>{interval_ms}ms</Interval></ConflatedTopic>
</SOW></SOWConfig>"""


def _played(
    scene: Scene, seconds: float, repetitions: int, floors: dict[Scene, list[float]]
) -> Iterator[Figure]:
    """`floors` keeps those that there are: most scenes have their updates in common."""
    cores: list[float] = []
    late: list[float] = []
    lost = 0
    nobody = scene._replace(case="", followers=0, stalled=False)
    is_new = nobody not in floors
    floor = floors.setdefault(nobody, [])
    for _ in range(repetitions):
        if is_new:
            floor.append(played(nobody, seconds).cores)
        run = played(scene, seconds)
        cores.append(run.cores)
        late.append(run.staleness_p99_ms)
        lost += run.lost
    yield Figure(
        "followers",
        f"{scene.case}, cores",
        "cores",
        cores,
        floor,
        "nobody follows",
        note=f"{lost} updates not taken" if lost else "every update taken",
    )
    yield Figure(
        "followers",
        f"{scene.case}, staleness p99",
        "ms",
        late,
        [scene.interval_ms],
        "the interval",
    )


class Played(NamedTuple):
    """What one run of a scene gave."""

    cores: float
    staleness_p99_ms: float
    lost: int
    bytes_each: int = 0


def played(scene: Scene, seconds: float) -> Played:
    return played_whole(scene, seconds)[0]


def played_whole(scene: Scene, seconds: float) -> tuple[Played, list[float]]:
    """The same with the age of every line, in ms."""
    with ServerProcess(xml(scene.interval_ms)) as server:
        load = Load(server.host, server.port, scene)
        try:
            return _measured(server, load, scene, seconds), load.ages_ms
        finally:
            load.close()


def _measured(server: ServerProcess, load: "Load", scene: Scene, seconds: float) -> Played:
    if scene.stalled:
        load.stall()
    load.run(1.0)
    if not scene.followers:
        before_s = server.cpu_s
        load.run(seconds)
        return Played((server.cpu_s - before_s) / seconds, 0.0, 0)
    with Readers(server.host, server.port, scene.followers, SUBSCRIBE) as readers:
        readers.ready()
        load.follow()
        # The first second joins windows that are open already.
        load.run(2 * scene.interval_ms / 1000)
        load.ages_ms.clear()
        load.bytes = 0
        before_s = server.cpu_s
        load.run(seconds)
        cores = (server.cpu_s - before_s) / seconds
        size = load.bytes
        readers.check()
    address = f"http://{server.host}:{server.port}/v1/topics/orders-C"
    with urllib.request.urlopen(address) as answer:
        taken = json.load(answer)["updates_in"]
    return Played(cores, load.p99_ms(), load.acknowledged - taken, size)


class Load:
    """Publishes at a steady rate; its probe measures how old each line's first update is."""

    def __init__(self, host: str, port: int, scene: Scene) -> None:
        self._scene = scene
        self._publisher = Client(host, port)
        self._address = (host, port)
        self._probe: Client | None = None
        self._stalled: Client | None = None
        self._buffer = b""
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._publisher.socket, selectors.EVENT_READ, self._acks)
        self._numbers = itertools.count()
        self._published_at: list[float] = []
        self._sent = [0] * scene.keys
        self.ages_ms: list[float] = []
        self.acknowledged = 0
        self.bytes = 0
        """What the probe has got."""

    def follow(self) -> None:
        """Let the probe follow, too."""
        self._probe = Client(*self._address)
        self._probe.socket.sendall(frame(SUBSCRIBE.encode()))
        self._probe.read()
        self._sent = [len(self._published_at)] * self._scene.keys
        self._selector.register(self._probe.socket, selectors.EVENT_READ, self._lines)

    def stall(self) -> None:
        """Connect somebody who subscribes and never reads."""
        stalled = self._stalled = Client(*self._address)
        stalled.socket.sendall(frame(b'{"c":"subscribe","t":"orders"}'))

    def close(self) -> None:
        """Give the connections back."""
        self._selector.close()
        for client in (self._publisher, self._probe, self._stalled):
            if client is not None:
                client.close()

    def run(self, seconds: float) -> None:
        """Publish for so long, and then until everything is acknowledged."""
        size = min(FRAME, self._scene.rate)
        begin, step = time.monotonic(), size / self._scene.rate
        frames = round(seconds / step)
        for number in range(frames):
            self._serve_until(begin + number * step)
            self._publish(size)
        self._serve_until(begin + seconds)
        while self.acknowledged < len(self._published_at):
            self._serve_until(time.monotonic() + 0.01)

    def _publish(self, size: int) -> None:
        now, keys = time.monotonic(), self._scene.keys
        numbers = list(itertools.islice(self._numbers, size))
        bodies = [(BODY % (n % keys, n, n % keys, n % 1000)).encode() for n in numbers]
        self._published_at += [now] * size
        head = b'{"c":"publish","t":"orders","n":%d,"cid":"%d"}' % (size, size)
        self._publisher.socket.sendall(frame(b"\n".join((head, *bodies))))

    def _serve_until(self, moment: float) -> None:
        while True:
            left = moment - time.monotonic()
            for key, _ in self._selector.select(max(0.0, left)):
                key.data()
            if left <= 0:
                return

    def _acks(self) -> None:
        data = self._publisher.socket.recv(READ_BYTES)
        for part in data.split(b'"cid":"')[1:]:
            self.acknowledged += int(part[: part.index(b'"')])
        if b"\x89\x00" in data:
            self._publisher.socket.sendall(PONG)

    def _lines(self) -> None:
        assert self._probe is not None
        piece = self._probe.socket.recv(READ_BYTES)
        if piece == b"\x89\x00":
            self._probe.socket.sendall(PONG)
            return
        now, keys = time.monotonic(), self._scene.keys
        self._buffer += piece
        self.bytes += len(piece)
        end = 0
        for found in NUMBER.finditer(self._buffer):
            number, end = int(found[1]), found.end()
            key = number % keys
            # The first update of this key that the probe had not been told of.
            first = self._sent[key] + (key - self._sent[key]) % keys
            if first <= number:
                self.ages_ms.append((now - self._published_at[first]) * 1000)
            self._sent[key] = number + 1
        self._buffer = self._buffer[max(end, len(self._buffer) - NUMBER_BYTES_MAX) :]

    def p99_ms(self) -> float:
        """The 99th percentile of what was seen."""
        ages = sorted(self.ages_ms)
        return ages[int(len(ages) * 0.99)] if ages else 0.0


def _idle(sessions: int) -> Iterator[Figure]:
    with ServerProcess(xml(1000)) as server:
        with Readers(server.host, server.port, 1, SUBSCRIBE) as readers:
            readers.ready()
        before = server.memory_bytes
        with Readers(server.host, server.port, sessions, SUBSCRIBE) as readers:
            readers.ready()
            time.sleep(0.5)
            each = (server.memory_bytes - before) / sessions
    yield Figure("followers", "an idle session, memory", "KiB", [each / 1024], [1.0], "1 KiB")
