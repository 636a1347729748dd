"""The comparison: who does what, in interleaved rounds, and the rows that it gives."""

import sys
from collections.abc import Callable, Iterator
from statistics import median
from typing import NamedTuple

from tests.benchmarks.followers import Scene
from tests.benchmarks.peers import following
from tests.benchmarks.peers.asking import Asked, asked_of_library, asked_of_ours
from tests.benchmarks.peers.embedded import Embedded
from tests.benchmarks.peers.load import Load
from tests.benchmarks.peers.nats import Nats
from tests.benchmarks.peers.ours import Ours
from tests.benchmarks.peers.peer import Missing, Peer
from tests.benchmarks.peers.redis import Redis
from tests.benchmarks.peers.taking import Taken, killed, taken

RATE = 20_000
"""Updates a second beside queries and for followers: a busy desk's feed."""
FOLLOWERS = (1, 10, 100)
QUANTILES = (0.5, 0.99, 0.999, 1.0)


class Plan(NamedTuple):
    """How much is measured."""

    name: str
    rounds: int
    updates: int
    keys: int
    records: int
    times: int
    seconds: float


FULL = Plan("full", 5, 200_000, 10_000, 1_000_000, 300, 10.0)
QUICK = Plan("quick", 1, 20_000, 2_000, 50_000, 30, 2.0)
TINY = Plan("tiny", 1, 400, 50, 200, 2, 0.2)


class Row(NamedTuple):
    """A measured case of one of them; of `value` in `unit` less is better, unless it is a rate."""

    case: str
    name: str
    value: float
    unit: str
    notes: str = ""

    @property
    def is_rate(self) -> bool:
        """More is better."""
        return self.unit.endswith("/s")


def peers() -> list[Peer]:
    """All that keep records."""
    return [
        Ours(),
        Redis("always"),
        Redis("everysec"),
        Nats("always"),
        Nats("default"),
        *libraries(),
    ]


def libraries() -> list[Embedded]:
    """Those that do it in the process of who asks."""
    return [
        Embedded("SQLite", "SQLite, in process", "fsync before each commit returns"),
        Embedded("DuckDB", "DuckDB, in process", "fsync before each commit returns"),
        Embedded("Perspective", "Perspective, in process", "none: kept in memory"),
    ]


def compared(plan: Plan) -> Iterator[Row]:
    """Every row, as it is measured."""
    yield from _taking(plan)
    yield from _following(plan)
    yield from _asking(plan)


def _taking(plan: Plan) -> Iterator[Row]:
    load = Load(plan.keys, plan.updates, 100)
    found: dict[str, list[Taken]] = {}
    there = []
    for peer in peers():
        try:
            taken(peer, load._replace(count=100))
        except (Missing, EOFError) as missing:
            print(f"{peer.name} is left out: {missing}", file=sys.stderr)
            continue
        there.append(peer)
    for _ in range(plan.rounds):
        for peer in there:
            found.setdefault(peer.name, []).append(taken(peer, load))
    for peer in there:
        runs = found[peer.name]
        kept = "" if "memory" in peer.durability else f"; {killed(peer, load)} lost by a kill"
        cpu_s = median([run.cpu_s_per_million for run in runs])
        notes = f"{cpu_s:.1f} CPU s a million; {peer.durability}{kept}"
        rate = median([run.rate for run in runs])
        yield Row("updates in batches of 100, acknowledged", peer.name, rate, "updates/s", notes)


def _following(plan: Plan) -> Iterator[Row]:
    for followers in FOLLOWERS:
        scene = Scene(f"{followers} followers", followers, RATE, plan.keys, 1000)
        if plan.name == "tiny":
            scene = scene._replace(followers=2, rate=1000)
        rounds: dict[str, list[following.Followed]] = {}
        played: dict[str, Callable[[], following.Followed]] = {
            "this server, conflated at 1 s": lambda scene=scene: following.ours(
                scene, plan.seconds
            ),
            "Redis pub/sub, every update": lambda scene=scene: following.theirs(
                "Redis", scene, plan.seconds
            ),
            "NATS, every update": lambda scene=scene: following.theirs("NATS", scene, plan.seconds),
        }
        for _ in range(max(1, plan.rounds // 2)):
            for name, play in played.items():
                try:
                    rounds.setdefault(name, []).append(play())
                except Missing as missing:
                    print(f"{name} is left out: {missing}", file=sys.stderr)
        for name, runs in rounds.items():
            late = sorted(ms for run in runs for ms in run.late_ms)
            said = " ".join(f"{ms:,.0f}" for ms in quantiles(late))
            size = median([run.bytes_each for run in runs])
            notes = f"{size / 1e6:.1f} MB to each; ms late p50 p99 p99.9 max: {said}"
            cores = median([run.cores for run in runs])
            yield Row(f"{scene.case}, {RATE:,} updates/s", name, cores, "cores", notes)


def _asking(plan: Plan) -> Iterator[Row]:
    fill = Load(plan.records, plan.records, 100, seed=3)
    load = Load(plan.records, min(plan.updates, plan.records), 100, seed=4)
    answers: dict[str, list[Asked]] = {
        "this server, HTTP": asked_of_ours(load, fill, RATE, plan.times)
    }
    for library in libraries():
        try:
            found = asked_of_library(library, load, fill, RATE, plan.times)
        except EOFError as missing:
            print(f"{library.name} is left out: {missing}", file=sys.stderr)
            continue
        answers[library.name] = found
    for name, asked in answers.items():
        for one in asked:
            said = " ".join(f"{ms:.2f}" for ms in quantiles(sorted(one.ms)))
            notes = f"ms p50 p99 p99.9 max: {said}"
            yield Row(f"query, {one.case}", name, median(one.ms), "ms", notes)


def quantiles(ordered: list[float]) -> list[float]:
    """Those of `QUANTILES`."""
    if not ordered:
        return [0.0] * len(QUANTILES)
    return [ordered[min(len(ordered) - 1, int(len(ordered) * part))] for part in QUANTILES]
