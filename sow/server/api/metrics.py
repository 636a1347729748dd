"""`GET /metrics`: Prometheus text, built from the state of the engine at each scrape.

Nothing is counted on the hot path only for this page.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from prometheus_client import PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily as Counter
from prometheus_client.core import GaugeMetricFamily as Gauge
from prometheus_client.core import HistogramMetricFamily as HistogramFamily
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from conflated_topics import FocusedConflator
from sow import __version__
from sow.core.containers import Histogram
from sow.core.cooperative import Task
from sow.core.definitions import CONSUMERS
from sow.core.inner_loops import INNER_LOOPS
from sow.core.quota import Quota
from sow.engine.capacity import records_max
from sow.engine.running_topics import CopyTopic, FedQueue, LiveTopic, SourceTopic, ViewTopic
from sow.server.api.nodes import LOG_FIGURES, UPSTREAM_FIGURES, Nodes
from sow.server.http.connections import Certificate, ConnectionLimiter
from sow.server.loop.runtime import ServerRuntime, loop_name
from sow.server.loop.scheduler import LoopLatency
from sow.sessions.commands.actions import ActionFigures
from sow.sessions.commands.consumers import Consumer, ConsumerLags, Consumers
from sow.sessions.commands.executor import Executor
from sow.streaming.sessions import Session
from sow.topic.conflated_topic import CopyUpdate
from sow.topic.queue_policy import CachedMerger
from sow.topic.views.view import MaterializedView

Conflation = FocusedConflator[str, CopyUpdate]

TOPICS_AT_ONCE = 100
"""Topics whose samples one step writes: a millisecond."""

Family = type[Gauge] | type[Counter]
Figure = float | Histogram
TopicFigure = Callable[[LiveTopic], float | None]


class TopicMetric(NamedTuple):
    """A metric with a sample per topic; `figure` returns None for a topic without one."""

    family: Family
    name: str
    help: str
    figure: TopicFigure


class Scrape(NamedTuple):
    """The sources of one scrape: `crowd` counts connections, `reading` is the memory that requests
    hold, `checkpoint_failure` gives the reason why checkpoints cannot be written, if so,
    `certificates` gives those of the server by their files, `lags` measures consumers, `lag_s`
    says how far a follower is behind, `upstream` what a chained server has from its upstream, and
    `nodes` are those below this one."""

    runtime: ServerRuntime
    executor: Executor
    crowd: ConnectionLimiter
    reading: Quota
    checkpoint_failure: Callable[[], str | None]
    certificates: Callable[[], Mapping[str, Certificate]]
    lags: ConsumerLags
    lag_s: Callable[[], float] = lambda: 0.0
    upstream: Callable[[], Mapping[str, float]] = dict
    nodes: Nodes | None = None


ServerFigure = Callable[[Scrape], Figure | Mapping[str, Figure]]


class ServerMetric(NamedTuple):
    """A metric of the server, with a sample per value of `label` if it has one."""

    family: Family | type[HistogramFamily]
    name: str
    help: str
    figure: ServerFigure
    label: str = ""


def _of_copy(figure: Callable[[Conflation], float]) -> TopicFigure:
    return lambda topic: figure(topic.copy.conflation) if isinstance(topic, CopyTopic) else None


def _of_view(figure: Callable[[MaterializedView], float]) -> TopicFigure:
    return lambda topic: figure(topic.view) if isinstance(topic, ViewTopic) else None


def _of_queue(figure: Callable[[FedQueue], float]) -> TopicFigure:
    def found(topic: LiveTopic) -> float | None:
        queue = topic.queue if isinstance(topic, SourceTopic) else None
        return None if queue is None else figure(queue)

    return found


def _of_merger(figure: Callable[[CachedMerger], float]) -> TopicFigure:
    def found(topic: LiveTopic) -> float | None:
        merger = topic.records.folding.merger
        return None if merger is None else figure(merger)

    return found


TOPIC_FIGURES: Mapping[Family, Mapping[str, tuple[str, TopicFigure]]] = {
    Gauge: {
        "sow_topic_records": ("Records held.", lambda t: len(t.records.table)),
        "sow_topic_bytes": ("Bytes of record bodies.", lambda t: t.records.table.bytes),
        "sow_topic_subscriptions": ("Live subscriptions.", lambda t: t.router.subscription_count),
        "sow_topic_records_max": ("Records that the topic may hold.", records_max),
        "sow_queue_leased": (
            "Messages of a queue that are leased.",
            _of_queue(lambda q: len(q.topic.records.indexes.hidden)),
        ),
        "sow_conflated_pending": (
            "Keys that wait for their release.",
            _of_copy(lambda c: c.pending),
        ),
        "sow_view_pending": (
            "Groups that wait for the end of a turn.",
            _of_view(lambda v: v.groups.dirty_count),
        ),
        "sow_view_left_out": (
            "Records in no group, because their group key is too long.",
            _of_view(lambda v: v.groups.left_out),
        ),
        "sow_topic_stopped": (
            "1 for a view or conflated topic that has stopped, until it is rebuilt.",
            lambda topic: None if isinstance(topic, SourceTopic) else bool(topic.stopped),
        ),
    },
    Counter: {
        "sow_queue_acknowledged": (
            "Messages that were acknowledged.",
            _of_queue(lambda q: q.acknowledged),
        ),
        "sow_queue_leases_ended": (
            "Leases that ended without an acknowledgement.",
            _of_queue(lambda q: q.expired),
        ),
        "sow_queue_dead": ("Messages that went to DeadLetterTopic.", _of_queue(lambda q: q.dead)),
        "sow_queue_dead_dropped": (
            "Messages that were dropped after MaxDeliveries.",
            _of_queue(lambda q: q.dropped),
        ),
        "sow_conflated_updates_in": (
            "Updates that a conflated topic received.",
            _of_copy(lambda c: c.updates_in),
        ),
        "sow_conflated_updates_out": (
            "Updates that a conflated topic sent.",
            _of_copy(lambda c: c.updates_out),
        ),
        "sow_view_updates_in": (
            "Changes of its underlying topics that a view received.",
            _of_view(lambda v: v.updates_in),
        ),
        "sow_view_updates_out": (
            "Changes of its rows that a view sent.",
            _of_view(lambda v: v.updates_out),
        ),
        "sow_merge_hits": (
            "Merges of a pair that was merged before.",
            _of_merger(lambda m: m.hits),
        ),
        "sow_merge_misses": ("Pairs merged.", _of_merger(lambda m: m.misses)),
        "sow_merge_errors": (
            "Pairs whose merge failed: the callable raised, or the result is too large for a "
            "message.",
            _of_merger(lambda m: m.merger.errors),
        ),
    },
}
"""What is read of each topic: families, and in each the names, helps and figures."""
TOPIC_METRICS = [
    TopicMetric(family, name, text, figure)
    for family, figures in TOPIC_FIGURES.items()
    for name, (text, figure) in figures.items()
]


def _of_sessions(figure: Callable[[Session], float]) -> Callable[[Scrape], float]:
    return lambda s: sum(map(figure, s.executor.sessions))


def _of_consumers(
    figure: Callable[[Scrape, Consumer], float],
) -> Callable[[Scrape], Mapping[str, float]]:
    def found(scrape: Scrape) -> Mapping[str, float]:
        engine = scrape.executor.engine
        there = Consumers(engine).all() if CONSUMERS.name in engine.topics else ()
        return {one.name: figure(scrape, one) for one in there}

    return found


def _of_actions(figure: Callable[[ActionFigures], Figure]) -> ServerFigure:
    return lambda s: {name: figure(one) for name, one in s.executor.actions.figures.items()}


def _of_role(
    all_figures: Callable[[Scrape], Mapping[str, float]], name: str
) -> Callable[[Scrape], Mapping[str, float]]:
    """A figure of servers of one role; others have none."""

    def found(scrape: Scrape) -> Mapping[str, float]:
        figures = all_figures(scrape)
        return {"": figures[name]} if figures else {}

    return found


def _log_figures(scrape: Scrape) -> Mapping[str, float]:
    return {} if scrape.nodes is None else scrape.nodes.log_figures()


def _steps_long(watch: LoopLatency) -> Mapping[str, float]:
    return {name: watch.long[name] for name in watch.longest_s}


def _limit_bytes(scrape: Scrape) -> float:
    limit_bytes = scrape.executor.engine.capacity.limit_bytes
    return math.inf if limit_bytes is None else limit_bytes


SERVER_FIGURES: Mapping[
    tuple[Family | type[HistogramFamily], str], Mapping[str, tuple[str, ServerFigure]]
] = {
    (Gauge, "consumer"): {
        "sow_consumer_behind": (
            "Records that a consumer has yet to read.",
            _of_consumers(lambda s, one: s.executor.engine.seq - one.bookmark),
        ),
        "sow_consumer_idle_seconds": (
            "Time since a consumer moved.",
            _of_consumers(lambda s, one: (s.runtime.now_us() - one.moved_us) / 1e6),
        ),
        "sow_consumer_lag_rows": (
            "Rows of its topics that a consumer has yet to read.",
            lambda s: s.lags.rows,
        ),
        "sow_consumer_lag_seconds": (
            "Age of the oldest of these rows; 0 where there is none.",
            lambda s: s.lags.seconds(s.runtime.now_us()),
        ),
    },
    (Gauge, ""): {
        "sow_sessions": ("Connected sessions.", _of_sessions(lambda one: one.connected)),
        "sow_sessions_away": (
            "Disconnected sessions, kept for their clients to reconnect.",
            _of_sessions(lambda one: not one.connected),
        ),
        "sow_queue_messages": (
            "Messages waiting in outboxes.",
            _of_sessions(lambda one: one.outbox.message_count),
        ),
        "sow_queue_bytes": (
            "Bytes waiting in outboxes.",
            _of_sessions(lambda one: one.outbox.size_bytes),
        ),
        "sow_queue_memory_bytes": (
            "Bytes that wait for sessions, or were sent and are kept; what many wait for counts "
            "once.",
            lambda s: s.executor.sessions.memory.used,
        ),
        "sow_queue_memory_limit_bytes": (
            "Bytes that may wait.",
            lambda s: s.executor.sessions.memory.limit_bytes,
        ),
        "sow_journal_bytes": ("Bytes of the journal.", lambda s: s.runtime.journal.size_bytes),
        "sow_clock_ahead_seconds": (
            "How far the server's time is ahead of the machine's, after that was set back.",
            lambda s: s.runtime.clock_ahead_s(),
        ),
        "sow_follower_lag_seconds": (
            "How far a follower is behind its primary; 0 on a primary.",
            lambda s: s.lag_s(),
        ),
        "sow_store_failing": (
            "1 while messages are refused because the disk is full or cannot be written.",
            lambda s: s.runtime.refusal is not None,
        ),
        "sow_checkpoint_failing": (
            "1 while checkpoints cannot be written, and the journal grows.",
            lambda s: s.checkpoint_failure() is not None,
        ),
        "sow_due_late_seconds": (
            "How long timed work, such as conflated updates, has been overdue.",
            lambda s: s.runtime.late_s(),
        ),
        "sow_memory_bytes": (
            "Bytes that all records take.",
            lambda s: s.executor.engine.capacity.used_bytes,
        ),
        "sow_memory_limit_bytes": ("Bytes that they may take.", _limit_bytes),
        "sow_group_memory_bytes": (
            "Bytes that groups take which clients ask for.",
            lambda s: s.executor.subscriptions.aggregations.memory.used,
        ),
        "sow_group_memory_limit_bytes": (
            "Bytes that these may take.",
            lambda s: s.executor.engine.configuration.limits.group_memory_bytes_max,
        ),
        "sow_request_bytes": (
            "Bytes held by requests that are being read.",
            lambda s: s.reading.used,
        ),
        "sow_connections": ("Open connections.", lambda s: s.crowd.connections),
        "sow_connections_max": ("Most connections allowed.", lambda s: s.crowd.connections_max),
    },
    (Counter, "reason"): {
        "sow_sessions_closed": (
            "Closed sessions, by reason.",
            lambda s: s.executor.sessions.closed,
        ),
        "sow_queue_folded": (
            "Messages saved by folding, by reason.",
            lambda s: s.executor.sessions.folded_because,
        ),
        "sow_queue_dropped": (
            "Queued messages that were dropped, by reason.",
            lambda s: s.executor.sessions.dropped_because,
        ),
        "sow_requests_refused": (
            "Commands and requests that were refused, by reason.",
            lambda s: s.executor.refused,
        ),
        "sow_connections_refused": (
            "Connections that were refused, by reason.",
            lambda s: s.crowd.refused,
        ),
    },
    (Counter, ""): {
        "sow_bookmark": ("Newest bookmark assigned.", lambda s: s.executor.engine.seq),
        "sow_durable_bookmark": ("Newest bookmark on disk.", lambda s: s.runtime.journal.last_seq),
    },
    (Gauge, "action"): {
        "sow_action_runs_waiting": (
            "Runs of an action that have not ended.",
            lambda s: s.executor.actions.waiting(),
        )
    },
    (Counter, "action"): {
        "sow_action_runs": (
            "Runs of an action that were done.",
            _of_actions(lambda one: one.done),
        ),
        "sow_action_failures": (
            "Runs of an action that have failed.",
            _of_actions(lambda one: one.failed),
        ),
        "sow_action_dropped": (
            "Runs of an action that were left out.",
            _of_actions(lambda one: one.left_out),
        ),
    },
    (HistogramFamily, "action"): {
        "sow_action_seconds": (
            "Time from what has set a run off until it was done or has failed.",
            _of_actions(lambda one: one.times),
        )
    },
    (Gauge, "role"): {
        "sow_nodes": (
            "Nodes that have reported to this one in the last half minute, by their role.",
            lambda s: {} if s.nodes is None else s.nodes.counts(),
        )
    },
    (Gauge, "node"): {
        "sow_node_lag_seconds": (
            "How far each of them is behind.",
            lambda s: {} if s.nodes is None else s.nodes.lags_s(),
        )
    },
    (Gauge, "loop"): {
        "sow_event_loop": ("1 for the event loop in use.", lambda s: {loop_name(s.runtime.loop): 1})
    },
    (Gauge, "step"): {
        "sow_step_longest_seconds": (
            "The longest time for which a kind of work blocked the event loop, since start.",
            lambda s: s.runtime.watch.longest_s,
        )
    },
    (Counter, "step"): {
        "sow_steps_long": ("Steps over 50 ms.", lambda s: _steps_long(s.runtime.watch))
    },
    (Gauge, "file"): {
        "sow_certificate_expiry_seconds": (
            "When a certificate expires, in Unix time; of several in a file the first.",
            lambda s: {file: one.expires_s for file, one in s.certificates().items()},
        )
    },
    (HistogramFamily, ""): {
        "sow_commit_seconds": (
            "Duration of each commit of the journal.",
            lambda s: s.runtime.commit.commit_times,
        ),
        "sow_fsync_seconds": (
            "Duration of the write and fsync of each commit.",
            lambda s: s.runtime.commit.fsync_times,
        ),
        "sow_publish_durable_seconds": (
            "Time from the turn that applied a publish until each of its records was durable.",
            lambda s: s.runtime.durable_times,
        ),
        "sow_publish_delivered_seconds": (
            "Time from a turn until the socket of each session had taken what it could.",
            lambda s: s.runtime.fanout.times,
        ),
        "sow_step_seconds": (
            "Duration of each step of work on the event loop.",
            lambda s: s.runtime.watch.times,
        ),
    },
    (HistogramFamily, "index"): {
        "sow_query_seconds": (
            "Time of the steps of each query, by the kind of index that it began with.",
            lambda s: s.executor.engine.queries.times,
        )
    },
}
"""What is read of the server: families with the name of their label, if they have one."""
SERVER_METRICS = [
    ServerMetric(family, name, text, figure, label)
    for (family, label), figures in SERVER_FIGURES.items()
    for name, (text, figure) in figures.items()
]
SERVER_METRICS += [
    ServerMetric(family, f"sow_upstream_{name}", text, _of_role(lambda s: s.upstream(), name))
    for family, name, text in UPSTREAM_FIGURES
]
SERVER_METRICS += [
    ServerMetric(Gauge, f"sow_log_{name}", text, _of_role(_log_figures, name))
    for name, text in LOG_FIGURES.items()
]


class _Families(Collector):
    """A registry of a few families."""

    def __init__(self, *families: Metric) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        yield from self._families


def exposition(*families: Metric) -> bytes:
    """A page of these families alone."""
    return generate_latest(_Families(*families))


BUILD = "1 for the running version and the language of its inner loops."
PROCESS = ProcessCollector(registry=None), PlatformCollector(registry=None)


def process_exposition() -> bytes:
    """The version and the resources of the process. It takes milliseconds, and may be called in a
    thread."""
    build = Gauge("sow_build_info", BUILD, labels=["version", "inner_loops"])
    build.add_metric([__version__, INNER_LOOPS.language], 1)
    families = [family for collector in PROCESS for family in collector.collect()]
    return exposition(build, *families)


def exposing(scrape: Scrape, reports_topics: bool = True) -> Task[bytes]:
    """The page as text for Prometheus, in steps, as there may be a hundred thousand topics; without
    their samples unless `reports_topics`."""
    topics = list(scrape.executor.engine.catalog.listed())
    written: list[bytes] = []
    for metric in TOPIC_METRICS if reports_topics else ():
        for start in range(0, max(1, len(topics)), TOPICS_AT_ONCE):
            text = _of_topics(metric, topics[start : start + TOPICS_AT_ONCE])
            written.append(_without_head(text) if start else text)
            yield
    if CONSUMERS.name in scrape.executor.engine.topics:
        yield from scrape.lags.measure()
    written += [_of_server(metric, scrape) for metric in SERVER_METRICS]
    return b"".join(written)


def _of_topics(metric: TopicMetric, topics: Sequence[LiveTopic]) -> bytes:
    """A metric of some topics."""
    family = metric.family(metric.name, metric.help, labels=["topic"])
    for topic in topics:
        figure = metric.figure(topic)
        if figure is not None:
            family.add_metric([topic.name], figure)
    return exposition(family)


def _of_server(metric: ServerMetric, scrape: Scrape) -> bytes:
    """A metric of the server."""
    found = metric.figure(scrape)
    by_label = found if isinstance(found, Mapping) else {"": found}
    family: Any = metric.family(
        metric.name, metric.help, labels=[metric.label] if metric.label else []
    )
    for value, figure in by_label.items():
        labels = [value] if metric.label else []
        if isinstance(figure, Histogram):
            family.add_metric(labels, figure.cumulative(), figure.sum_s)
        else:
            family.add_metric(labels, figure)
    return exposition(family)


def _without_head(text: bytes) -> bytes:
    """The samples of a family without its HELP and TYPE lines, which were written before."""
    return b"".join(line for line in text.splitlines(keepends=True) if not line.startswith(b"# "))
