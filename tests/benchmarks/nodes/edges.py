"""Edges: what chained servers take off their upstream, what they cost, and how late they make it.

A *screen* is a connection that follows `orders`. Two sets of nodes stand beside each other, one
with many screens and one with ten, and are given the same frames in turn; what is compared is the
processor time of each process. What the primary takes is compared at one pace and over the same
time, since a server takes some when nothing happens, too, and many screens have the last frame
later. Otherwise a frame is published when the one before it is durable, and after some of them all
readers are waited for, so that no queue is ever full.
"""

import resource
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import pairwise
from typing import NamedTuple, Self

from tests.benchmarks.fan_out import Blaster, as_delivered
from tests.benchmarks.measure import Figure, in_turn
from tests.benchmarks.nodes.sizes import Sizes
from tests.benchmarks.processes import ServerProcess
from tests.benchmarks.readers import Readers
from tests.benchmarks.records import configuration, updates
from tests.benchmarks.sockets import Client, publishes
from tests.benchmarks.ticks import Run

QUIET = "<SOWConfig><ServerLog><Level>warning</Level></ServerLog>"
"""A line for each of thousands of clients would hide the progress."""
FRAME = 100
LARGE_FRAME = 1000
KEYS = 10_000
EQUAL = '{"c":"subscribe","t":"orders","cid":"1"}'
DISTINCT = '{"c":"subscribe","t":"orders","cid":"1","filter":"/qty > -1{digit}"}'
"""Ten of them, each of which takes every message, so that all get as much."""
FOLLOWERS = 10
"""Whose staleness is looked at."""
CROWD_EDGES, CROWD_FRAME = 2, 10
DIRECT_SCREENS = 1000
"""Connections of a server itself, to see what one of them takes in memory."""
SPARE_FILES = 500
"""More than a process has open beside its connections."""
MB = 1e6


def configured(index: bool = False, durable: bool = True) -> str:
    """The XML of every node."""
    return configuration(index=index, durable=durable).replace("<SOWConfig>", QUIET)


def say(words: str) -> None:
    """Report progress."""
    print(f"  {words}", file=sys.stderr, flush=True)


class Load(NamedTuple):
    """Frames to publish, and how many lines each screen gets of one round."""

    frames: Sequence[bytes]
    lines: int

    @classmethod
    def of(cls, frames: int, size: int) -> Self:
        """So many frames of `size` messages."""
        return cls(publishes(updates(frames * size, KEYS), size), frames * size)


class Used(NamedTuple):
    """Processor time of one round: of the server with the records, and of all edges together, with
    the bytes that these passed on."""

    primary_s: float
    edges_s: float
    size: int


class Nodes:
    """A server, so many edges of it, and `screens` that follow over the edges in equal parts; at
    the server itself where there are none."""

    def __init__(self, edges: int, screens: int, subscribe: str) -> None:
        self.screens = screens
        self.took_s = 0.0
        """How long the last load took."""
        self._stack = ExitStack()
        enter = self._stack.enter_context
        xml = configured(durable=False)
        self.primary = enter(ServerProcess(xml))
        options = ("--upstream", self.primary.url)
        self.edges = [enter(ServerProcess(xml, options=options)) for _ in range(edges)]
        doors = self.edges or [self.primary]
        parts = [screens * at // len(doors) for at in range(len(doors) + 1)]
        before = self._memory()
        self._readers = [
            enter(Readers(door.host, door.port, until - since, subscribe))
            for door, (since, until) in zip(doors, pairwise(parts), strict=True)
        ]
        for readers in self._readers:
            readers.ready()
        self.memory_kib = (self._memory() - before) / screens / 1024
        """What each screen takes in the server that it is connected to."""
        self._client = Client(self.primary.host, self.primary.port)
        self._stack.callback(self._client.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _memory(self) -> int:
        return sum(one.memory_bytes for one in self.edges or [self.primary])

    def play(self, load: Load, step_s: float = 0.0, least_s: float = 0.0) -> Used:
        """Publish a load, a frame each `step_s`, and wait until every screen has all of it, and
        `least_s` have passed."""
        begun_s = time.monotonic()
        primary_s, edges_s = self.primary.cpu_s, [one.cpu_s for one in self.edges]
        for readers in self._readers:
            readers.expect(load.lines)
        due_s = time.monotonic()
        for frame in load.frames:
            time.sleep(max(0.0, due_s - time.monotonic()))
            self._client.publish([frame], 1)
            due_s += step_s
        sizes = [readers.wait()[0] for readers in self._readers]
        self.took_s = time.monotonic() - begun_s
        time.sleep(max(0.0, least_s - self.took_s))
        each = self.screens / len(sizes)
        spent = [one.cpu_s - before for one, before in zip(self.edges, edges_s, strict=True)]
        return Used(self.primary.cpu_s - primary_s, sum(spent), int(sum(sizes) * each))


# What the primary is spared.


def primary(sizes: Sizes) -> Iterator[Figure]:
    """Its processor time for each message, with more and more screens."""
    for name, subscribe in (("equal", EQUAL), ("10 distinct", DISTINCT)):
        for edges in (1, 2, 0):
            yield from _primary(sizes, edges, name, subscribe)


def _primary(sizes: Sizes, edges: int, name: str, subscribe: str) -> Iterator[Figure]:
    load, (least, *others) = Load.of(sizes.frames, FRAME), sizes.screens
    if subscribe is DISTINCT:
        least *= max(1, edges)  # so that each edge follows what it follows with more of them
    where = f"behind {edges} edge{'s' * (edges > 1)}" if edges else "on the primary"
    with Nodes(edges, least, subscribe) as few:
        for screens in others:
            with Nodes(edges, screens, subscribe) as many:
                ours, floor = in_turn(
                    sizes.repetitions,
                    lambda: many.play(load, sizes.step_s).primary_s * 1e6 / load.lines,
                    lambda: few.play(load, sizes.step_s, many.took_s).primary_s * 1e6 / load.lines,
                )
            case = f"{screens:,} screens {where}, {name}"
            say(case)
            yield Figure(
                "primary's CPU", case, "µs/message", ours, floor, f"{least} screens {where}"
            )


# What an edge costs.


def passing(sizes: Sizes) -> Iterator[Figure]:
    """Processor time of one edge for each megabyte that it passes on; the floor is this process
    sending the same bytes to as many sockets."""
    for screens in sizes.screens[1:]:
        for size in (FRAME, LARGE_FRAME):
            frames = max(1, sizes.frames * FRAME // size)
            yield _passing(sizes, screens, Load.of(frames, size), size)


def _passing(sizes: Sizes, screens: int, load: Load, size: int) -> Figure:
    frame = as_delivered(updates(size, KEYS))
    with Nodes(1, screens, EQUAL) as nodes, Blaster(screens) as blaster:

        def ours() -> float:
            used = nodes.play(load)
            return used.edges_s * 1000 / (used.size / MB)

        def floor() -> float:
            before_s = time.process_time()
            blaster.send(frame, len(load.frames))
            whole = len(frame) * len(load.frames) * screens / MB
            return (time.process_time() - before_s) * 1000 / whole

        taken = in_turn(sizes.repetitions, ours, floor)
    case = f"{screens:,} screens, frames of {size}"
    say(case)
    note = f"{len(frame) / 1000:.0f} kB a frame"
    return Figure("an edge", case, "ms/MB", *taken, "send() of the same bytes", note=note)


# How late it makes what it passes on.


def staleness(sizes: Sizes) -> Iterator[Figure]:
    """From the moment meant for a record until a subscriber over an edge has it, in an open loop;
    the floor is a subscriber at the server itself."""
    xml = configured()
    with (
        ServerProcess(xml) as server,
        ServerProcess(xml, options=("--upstream", server.url)) as edge,
    ):
        for rate in sizes.rates:
            run = Run(rate, FOLLOWERS)
            over, direct = [], []
            for _ in range(sizes.repetitions):
                over.append(run.ours(server, sizes.seconds, edge))
                direct.append(run.ours(server, sizes.seconds))
            for name, at in (("p50", 0), ("p99", 1)):
                ours, floor = ([one[at] for one in each] for each in (over, direct))
                case = f"{rate:,}/s, {FOLLOWERS} follow over an edge, {name}"
                say(case)
                yield Figure("staleness", case, "ms", ours, floor, "directly")


# How many one can have.


def crowd(sizes: Sizes) -> Iterator[Figure]:
    """Very many connections over two edges, each of which gets all; the floor is what was to be
    connected. What a connection takes in memory; the floor is one of the server itself."""
    screens, note = allowed(sizes.crowd)
    load = Load.of(sizes.crowd_frames, CROWD_FRAME)
    with Nodes(0, min(DIRECT_SCREENS, screens), EQUAL) as direct:
        floor = direct.memory_kib
    say(f"connecting {screens:,}")
    with Nodes(CROWD_EDGES, screens, EQUAL) as nodes:
        used, memory = nodes.play(load), nodes.memory_kib
    case = f"{sizes.crowd:,} over {CROWD_EDGES} edges"
    cores = f"{used.primary_s * 1e6 / load.lines:.3g} µs of the primary for each message"
    notes = ", ".join(filter(None, (note, cores)))
    all_of = [screens], [sizes.crowd], "all"
    yield Figure("connections", f"{case}, complete", "followers", *all_of, note=notes)
    each = [memory], [floor], "of the server itself"
    yield Figure("connections", f"{case}, memory of each", "KiB", *each)


def allowed(screens: int) -> tuple[int, str]:
    """How many of so many screens this system lets two edges have, and what it says if it does
    not: the limit of open files is raised as far as that is allowed."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = min(screens, CROWD_EDGES * (most - SPARE_FILES))
    if found == screens:
        return screens, ""
    return found, f"a process may open {most:,} files here (ulimit -Hn), so no more were tried"
