"""`GET /metrics`: Prometheus text, read off the engine when asked.

Nothing is counted twice and nothing is counted on the hot path for this page's sake.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from prometheus_client import PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from conflated_topics import FocusedConflator
from sow import __version__
from sow.core.cooperative import Task, run_to_completion
from sow.core.definitions import CONSUMERS
from sow.core.histograms import Histogram
from sow.core.quota import Quota
from sow.engine.capacity import records_max
from sow.engine.running_topics import CopyTopic, LiveTopic, SourceTopic, ViewTopic
from sow.server.http.connection_limits import ConnectionLimiter
from sow.server.http.tls import Certificate
from sow.server.loop.event_loop import loop_name
from sow.server.loop.latency import LoopLatency
from sow.server.loop.runtime import ServerRuntime
from sow.server.loop.startup_progress import StartupProgress
from sow.sessions.consumers import Consumer, Consumers
from sow.sessions.executor import Executor
from sow.streaming.sessions import Session
from sow.topic.conflated_topic import CopyUpdate
from sow.topic.merging import CachedMerger
from sow.topic.views.view import MaterializedView

Conflation = FocusedConflator[str, CopyUpdate]

TOPICS_AT_ONCE = 100
"""Topics of which one step writes a figure: a millisecond."""


NONE: Mapping[str, Certificate] = MappingProxyType({})
"""The certificates of a server without TLS."""

Family = type[GaugeMetricFamily] | type[CounterMetricFamily]


class TopicMetric(NamedTuple):
    """A figure of each topic that has it; `figure` gives None for one that has not."""

    family: Family
    name: str
    says: str
    figure: Callable[[LiveTopic], float | None]


class Scrape(NamedTuple):
    """What one scrape looks at: `crowd` counts connections, `reading` what requests hold,
    `checkpoint_failure` says why checkpoints cannot be written, if so, and `certificates` are those
    of the server by their files."""

    driver: ServerRuntime
    executor: Executor
    crowd: ConnectionLimiter
    reading: Quota
    checkpoint_failure: Callable[[], str | None]
    certificates: Mapping[str, Certificate]


class ServerMetric(NamedTuple):
    """A figure of the server; one for each value of `label`, if it has one."""

    family: Family
    name: str
    says: str
    figure: Callable[[Scrape], float | Mapping[str, float]]
    label: str = ""


class TimesMetric(NamedTuple):
    """A histogram of the server; one for each value of `label`, if it has one."""

    name: str
    says: str
    times: Callable[[Scrape], Mapping[str, Histogram]]
    label: str = ""


def _of_copy(figure: Callable[[Conflation], float]) -> Callable[[LiveTopic], float | None]:
    return lambda topic: figure(topic.copy.conflation) if isinstance(topic, CopyTopic) else None


def _of_view(
    figure: Callable[[MaterializedView], float],
) -> Callable[[LiveTopic], float | None]:
    return lambda topic: figure(topic.view) if isinstance(topic, ViewTopic) else None


def _of_merger(figure: Callable[[CachedMerger], float]) -> Callable[[LiveTopic], float | None]:
    def found(topic: LiveTopic) -> float | None:
        merger = topic.records.folding.merger
        return None if merger is None else figure(merger)

    return found


TOPIC_METRICS = (
    TopicMetric(
        GaugeMetricFamily, "sow_topic_records", "Records held.", lambda t: len(t.records.table)
    ),
    TopicMetric(
        GaugeMetricFamily,
        "sow_topic_bytes",
        "Bytes of record bodies.",
        lambda topic: topic.records.table.bytes,
    ),
    TopicMetric(
        GaugeMetricFamily,
        "sow_topic_subscriptions",
        "Live subscriptions.",
        lambda topic: topic.router.subscription_count,
    ),
    TopicMetric(
        GaugeMetricFamily, "sow_topic_records_max", "Records that the topic may hold.", records_max
    ),
    TopicMetric(
        CounterMetricFamily,
        "sow_conflated_updates_in",
        "Updates offered to a conflated topic.",
        _of_copy(lambda conflation: conflation.updates_in),
    ),
    TopicMetric(
        CounterMetricFamily,
        "sow_conflated_updates_out",
        "Updates a conflated topic let out.",
        _of_copy(lambda conflation: conflation.updates_out),
    ),
    TopicMetric(
        GaugeMetricFamily,
        "sow_conflated_pending",
        "Keys that wait for their release.",
        _of_copy(lambda conflation: conflation.pending),
    ),
    TopicMetric(
        CounterMetricFamily,
        "sow_view_updates_in",
        "Changes of its underlying topics that a view took in.",
        _of_view(lambda view: view.updates_in),
    ),
    TopicMetric(
        CounterMetricFamily,
        "sow_view_updates_out",
        "Changes of its rows that a view told.",
        _of_view(lambda view: view.updates_out),
    ),
    TopicMetric(
        GaugeMetricFamily,
        "sow_view_pending",
        "Groups that wait for the end of a turn.",
        _of_view(lambda view: view.groups.dirty_count),
    ),
    TopicMetric(
        GaugeMetricFamily,
        "sow_view_left_out",
        "Records that are in no group, since what they are grouped by is too long.",
        _of_view(lambda view: view.groups.left_out),
    ),
    TopicMetric(
        CounterMetricFamily,
        "sow_merge_hits",
        "Merges of a pair that was merged before.",
        _of_merger(lambda merger: merger.hits),
    ),
    TopicMetric(
        CounterMetricFamily,
        "sow_merge_misses",
        "Pairs merged.",
        _of_merger(lambda merger: merger.misses),
    ),
    TopicMetric(
        CounterMetricFamily,
        "sow_merge_errors",
        "Pairs whose merge failed: the callable raised, or no message can hold the result.",
        _of_merger(lambda merger: merger.merger.errors),
    ),
    TopicMetric(
        GaugeMetricFamily,
        "sow_topic_stopped",
        "1 of a view or conflated topic that has stopped, until it is made again.",
        lambda topic: None if isinstance(topic, SourceTopic) else bool(topic.stopped),
    ),
)


def _of_sessions(figure: Callable[[Session], float]) -> Callable[[Scrape], float]:
    return lambda scrape: sum(map(figure, scrape.executor.sessions))


def _of_consumers(
    figure: Callable[[Scrape, Consumer], float],
) -> Callable[[Scrape], Mapping[str, float]]:
    def found(scrape: Scrape) -> Mapping[str, float]:
        engine = scrape.executor.engine
        there = Consumers(engine).all() if CONSUMERS.name in engine.topics else ()
        return {one.name: figure(scrape, one) for one in there}

    return found


def _steps_long(watch: LoopLatency) -> Mapping[str, float]:
    return {name: watch.long[name] for name in watch.longest_s}


def _limit_bytes(scrape: Scrape) -> float:
    limit_bytes = scrape.executor.engine.capacity.limit_bytes
    return math.inf if limit_bytes is None else limit_bytes


SERVER_METRICS = (
    ServerMetric(
        GaugeMetricFamily,
        "sow_consumer_behind",
        "Records that a consumer has yet to read.",
        _of_consumers(lambda scrape, one: scrape.executor.engine.seq - one.bookmark),
        "consumer",
    ),
    ServerMetric(
        GaugeMetricFamily,
        "sow_consumer_idle_seconds",
        "Time since a consumer has come forward.",
        _of_consumers(lambda scrape, one: (scrape.driver.now_us() - one.moved_us) / 1e6),
        "consumer",
    ),
    ServerMetric(
        GaugeMetricFamily,
        "sow_sessions",
        "Connected sessions.",
        _of_sessions(lambda session: session.connected),
    ),
    ServerMetric(
        GaugeMetricFamily,
        "sow_sessions_away",
        "Sessions whose sockets have gone, kept for their clients to return.",
        _of_sessions(lambda session: not session.connected),
    ),
    ServerMetric(
        CounterMetricFamily,
        "sow_sessions_closed",
        "Sessions that are gone, by why.",
        lambda scrape: scrape.executor.sessions.closed,
        "reason",
    ),
    ServerMetric(
        CounterMetricFamily,
        "sow_queue_folded",
        "Messages that folding has saved, by why.",
        lambda scrape: scrape.executor.sessions.folded_because,
        "reason",
    ),
    ServerMetric(
        CounterMetricFamily,
        "sow_queue_dropped",
        "Messages that waited and were dropped, by why.",
        lambda scrape: scrape.executor.sessions.dropped_because,
        "reason",
    ),
    ServerMetric(
        GaugeMetricFamily,
        "sow_queue_messages",
        "Messages waiting in outboxes.",
        _of_sessions(lambda session: session.outbox.message_count),
    ),
    ServerMetric(
        GaugeMetricFamily,
        "sow_queue_bytes",
        "Bytes waiting in outboxes.",
        _of_sessions(lambda session: session.outbox.bytes),
    ),
    ServerMetric(
        CounterMetricFamily,
        "sow_bookmark",
        "Newest bookmark given.",
        lambda scrape: scrape.executor.engine.seq,
    ),
    ServerMetric(
        CounterMetricFamily,
        "sow_durable_bookmark",
        "Newest bookmark on disk.",
        lambda scrape: scrape.driver.journal.last_seq,
    ),
    ServerMetric(
        GaugeMetricFamily,
        "sow_journal_bytes",
        "Bytes of the journal.",
        lambda scrape: scrape.driver.journal.size_bytes,
    ),
    ServerMetric(
        GaugeMetricFamily,
        "sow_clock_ahead_seconds",
        "How far the server's time is ahead of the machine's, which was set back.",
        lambda scrape: scrape.driver.clock_ahead_s(),
    ),
    ServerMetric(
        GaugeMetricFamily,
        "sow_event_loop",
        "1 by the name of the event loop that runs.",
        lambda scrape: {loop_name(scrape.driver.loop): 1},
        "loop",
    ),
    ServerMetric(
        GaugeMetricFamily,
        "sow_step_longest_seconds",
        "The longest time for which a kind of work has kept all others waiting, since start.",
        lambda scrape: scrape.driver.watch.longest_s,
        "step",
    ),
    ServerMetric(
        CounterMetricFamily,
        "sow_steps_long",
        "How often it was over 50 ms.",
        lambda scrape: _steps_long(scrape.driver.watch),
        "step",
    ),
    ServerMetric(
        GaugeMetricFamily,
        "sow_store_failing",
        "1 while messages are refused, for the disk is full or cannot be written.",
        lambda scrape: scrape.driver.refusal is not None,
    ),
    ServerMetric(
        GaugeMetricFamily,
        "sow_checkpoint_failing",
        "1 while checkpoints cannot be written, and the journal grows.",
        lambda scrape: scrape.checkpoint_failure() is not None,
    ),
    ServerMetric(
        GaugeMetricFamily,
        "sow_certificate_expiry_seconds",
        "When a certificate ends, in Unix time; of several in a file the first.",
        lambda scrape: {file: one.expires_s for file, one in scrape.certificates.items()},
        "file",
    ),
    ServerMetric(
        GaugeMetricFamily,
        "sow_due_late_seconds",
        "For how long what was due, such as conflated updates, has not been done.",
        lambda scrape: scrape.driver.late_s(),
    ),
    ServerMetric(
        CounterMetricFamily,
        "sow_requests_refused",
        "Commands and requests that were refused, by why.",
        lambda scrape: scrape.executor.refused,
        "reason",
    ),
    ServerMetric(
        GaugeMetricFamily,
        "sow_memory_bytes",
        "Bytes that all records take.",
        lambda scrape: scrape.executor.engine.capacity.used_bytes,
    ),
    ServerMetric(
        GaugeMetricFamily, "sow_memory_limit_bytes", "Bytes that they may take.", _limit_bytes
    ),
    ServerMetric(
        GaugeMetricFamily,
        "sow_request_bytes",
        "Bytes held by requests that are read.",
        lambda scrape: scrape.reading.used,
    ),
    ServerMetric(
        GaugeMetricFamily,
        "sow_connections",
        "Connections at this moment.",
        lambda scrape: scrape.crowd.connections,
    ),
    ServerMetric(
        GaugeMetricFamily,
        "sow_connections_max",
        "Connections that there may be.",
        lambda scrape: scrape.crowd.connections_max,
    ),
    ServerMetric(
        CounterMetricFamily,
        "sow_connections_refused",
        "Who was not let in, by why.",
        lambda scrape: scrape.crowd.refused,
        "reason",
    ),
)


TIMES_METRICS = (
    TimesMetric(
        "sow_commit_seconds",
        "Of each commit of the journal, from its beginning until the server knew of it.",
        lambda scrape: {"": scrape.driver.commit_times},
    ),
    TimesMetric(
        "sow_fsync_seconds",
        "Of that, what it took to write it and to have the disk keep it.",
        lambda scrape: {"": scrape.driver.fsync_times},
    ),
    TimesMetric(
        "sow_publish_durable_seconds",
        "Of each record, from the turn that carried out its publish until it was durable.",
        lambda scrape: {"": scrape.driver.durable_times},
    ),
    TimesMetric(
        "sow_publish_delivered_seconds",
        "Of each session told something in a turn, until its socket had what it would take.",
        lambda scrape: {"": scrape.driver.delivered_times},
    ),
    TimesMetric(
        "sow_query_seconds",
        "Of each query, what its own steps took, by the kind of index that it began with.",
        lambda scrape: scrape.executor.engine.queries.times,
        "index",
    ),
    TimesMetric(
        "sow_step_seconds",
        "For how long each step of work has kept all others waiting.",
        lambda scrape: {"": scrape.driver.watch.times},
    ),
)


class _Families(Collector):
    """Some families by themselves."""

    def __init__(self, *families: Metric) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        yield from self._families


def replay_exposition(replay: StartupProgress) -> bytes:
    """The part of the page that says how far the start is, or was in the end."""
    progress = replay.progress
    families = _Families(
        GaugeMetricFamily(
            "sow_replaying", "1 until all records are there.", int(not replay.is_over)
        ),
        GaugeMetricFamily(
            "sow_replay_records", "Records that the start has put back.", progress.done
        ),
        GaugeMetricFamily(
            "sow_replay_records_expected", "Records that it puts back in all.", progress.of
        ),
    )
    return generate_latest(families)


PROCESS = ProcessCollector(registry=None), PlatformCollector(registry=None)


def process_exposition() -> bytes:
    """The part of the page that says what runs and what it takes of the machine; it may take
    milliseconds, and may be asked for in a thread."""
    build = GaugeMetricFamily("sow_build_info", "1 by the version that runs.", labels=["version"])
    build.add_metric([__version__], 1)
    families = [family for collector in PROCESS for family in collector.collect()]
    return generate_latest(_Families(build, *families))


def exposition(
    driver: ServerRuntime,
    executor: Executor,
    crowd: ConnectionLimiter,
    reading: Quota,
    checkpoint_failure: Callable[[], str | None] = lambda: None,
    certificates: Mapping[str, Certificate] = NONE,
) -> bytes:
    """The page, as text for Prometheus; arguments are those of `Scrape`."""
    return run_to_completion(
        exposing(driver, executor, crowd, reading, checkpoint_failure, certificates)
    )


def exposing(
    driver: ServerRuntime,
    executor: Executor,
    crowd: ConnectionLimiter,
    reading: Quota,
    checkpoint_failure: Callable[[], str | None] = lambda: None,
    certificates: Mapping[str, Certificate] = NONE,
    reports_topics: bool = True,
) -> Task[bytes]:
    """The same in steps: topics may be a hundred thousand; without figures of single ones, if it
    does not tell topics."""
    topics = list(executor.engine.catalog.listed())
    written: list[bytes] = []
    for metric in TOPIC_METRICS if reports_topics else ():
        for start in range(0, max(1, len(topics)), TOPICS_AT_ONCE):
            text = _of_topics(metric, topics[start : start + TOPICS_AT_ONCE])
            written.append(_without_head(text) if start else text)
            yield
    scrape = Scrape(driver, executor, crowd, reading, checkpoint_failure, certificates)
    written += [_of_server(metric, scrape) for metric in SERVER_METRICS]
    written += [_of_times(metric, scrape) for metric in TIMES_METRICS]
    return b"".join(written)


def _of_topics(metric: TopicMetric, topics: Sequence[LiveTopic]) -> bytes:
    """A figure of some topics."""
    family = metric.family(metric.name, metric.says, labels=["topic"])
    for topic in topics:
        figure = metric.figure(topic)
        if figure is not None:
            family.add_metric([topic.name], figure)
    return generate_latest(_Families(family))


def _of_server(metric: ServerMetric, scrape: Scrape) -> bytes:
    """A figure of the server, or those by a label."""
    found = metric.figure(scrape)
    by_label = found if isinstance(found, Mapping) else {"": found}
    family = metric.family(metric.name, metric.says, labels=[metric.label] if metric.label else [])
    for value, figure in by_label.items():
        family.add_metric([value] if metric.label else [], figure)
    return generate_latest(_Families(family))


def _of_times(metric: TimesMetric, scrape: Scrape) -> bytes:
    """A histogram of the server, or those by a label."""
    labels = [metric.label] if metric.label else []
    family = HistogramMetricFamily(metric.name, metric.says, labels=labels)
    for value, times in metric.times(scrape).items():
        family.add_metric([value] if metric.label else [], times.cumulative(), times.sum_s)
    return generate_latest(_Families(family))


def _without_head(text: bytes) -> bytes:
    """The samples of a family whose head stands above others of it."""
    return b"".join(line for line in text.splitlines(keepends=True) if not line.startswith(b"# "))
