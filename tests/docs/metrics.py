"""The table of metrics, read off what a scrape shows of a server with topics of every kind."""

import re
from dataclasses import replace
from types import SimpleNamespace

from sow.core.action_definitions import ActionDeed, ActionDefinition, ActionTrigger
from sow.core.containers import Histogram
from sow.core.cooperative import run_to_completion
from sow.core.definitions import (
    ACTION_RUNS,
    CONSUMERS,
    LEASES,
    Merge,
    QueueSettings,
    Topic,
    View,
)
from sow.core.quota import Quota
from sow.engine.recovery.redo import Progress
from sow.query import Query
from sow.server.api.metrics import Scrape, exposing, process_exposition
from sow.server.api.nodes import LOG_FIGURES, Nodes, ServerNode
from sow.server.api.status import replay_exposition
from sow.server.http.connections import Certificate, ConnectionLimiter
from sow.server.loop.scheduler import LoopLatency
from sow.sessions.commands.consumers import ConsumerLags, Consumers
from tests.laws.harness import ORDERS, SLOW, World


def exposed() -> str:
    """What a scrape shows."""
    merging = replace(ORDERS, name="sums", merges=(Merge("/qty", "sum"),))
    bounded = replace(ORDERS, name="few", records_max=10)
    sides = View("sides", "json", ("orders",), ("COUNT(1) AS /n",), ("/side",))
    jobs = Topic("jobs", "json", conflation_policy="off", queue=QueueSettings("orders"))
    greet = ActionDefinition(
        ActionTrigger("startup", name="greet"), (ActionDeed("echo-message", message="hello"),)
    )
    own = CONSUMERS, LEASES, ACTION_RUNS
    world = World(ORDERS, SLOW, merging, bounded, sides, jobs, *own, actions=(greet,))
    Consumers(world.engine).move("reader", 0, world.now)
    world.publish("orders", {"id": 1})
    world.publish("sums", {"id": 1, "qty": 1})
    journal = SimpleNamespace(last_seq=0, size_bytes=0)
    watch = LoopLatency()
    watch.note("a step", 0.001)
    world.engine.queries.measure(lambda: 0.0)
    world.engine.queries.at_once("orders", Query())
    world.executor.refused["bad filter"] += 1
    runtime = SimpleNamespace(
        commit=SimpleNamespace(commit_times=Histogram(), fsync_times=Histogram()),
        fanout=SimpleNamespace(times=Histogram()),
        durable_times=Histogram(),
        late_s=lambda: 0.0,
        journal=journal,
        refusal=None,
        clock_ahead_s=lambda: 0.0,
        now_us=lambda: world.now,
        watch=watch,
        loop=SimpleNamespace(),
    )
    crowd, budget = ConnectionLimiter(lambda: world.configuration, 10), Quota(lambda: 1)
    replay = SimpleNamespace(progress=Progress(), is_over=True)
    shown = {"certificate.pem": Certificate(0.0, b"")}
    lags = ConsumerLags(world.engine, world.journal)
    nodes = Nodes(lambda: 0.0)
    nodes.note(ServerNode("http://f:8080", "follower"))
    nodes.have_log(lambda: dict.fromkeys(LOG_FIGURES, 0.0))
    names = "connected losses reconnects subscriptions subscribers bytes lines idle_seconds"
    upstream = dict.fromkeys(names.split(), 0.0)
    scrape = Scrape(
        runtime, world.executor, crowd, budget, lambda: None, lambda: shown, lags,
        upstream=lambda: upstream, nodes=nodes,
    )  # fmt: skip
    page = run_to_completion(exposing(scrape)) + replay_exposition(replay)
    return (page + process_exposition()).decode()


def table() -> str:
    """Name, labels, type and help of each metric of the server's own that is exported: a row for
    those of one kind."""
    text = exposed()
    labels: dict[str, list[str]] = {}
    for name, found in re.findall(r"^(\w+?)(?:_bucket|_count|_sum)?\{([^}]*)\}", text, re.M):
        labels.setdefault(name, re.findall(r'(\w+)="', found))
    kinds = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.M))
    rows: dict[tuple[str, str], list[str]] = {}
    for name, about in sorted(re.findall(r"^# HELP (\w+) (.*)$", text, re.M)):
        if name.startswith("sow_"):
            by = ", ".join(f"`{label}`" for label in labels.get(name, []) if label != "le")
            row = rows.setdefault((name.split("_")[1], by), [])
            row.append(f"`{name}` ({kinds[name]}): {about.rstrip('.')}")
    lines = [f"| {by or '–'} | {'. '.join(row)}. |" for (_, by), row in rows.items()]
    return "\n".join(["| by | metrics |", "| --- | --- |", *lines])
