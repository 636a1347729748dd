"""`GET /metrics`: Prometheus text, read off the engine when asked.

Nothing is counted twice and nothing is counted on the hot path for this page's sake.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from conflated_topics import FocusedConflator
from sow.budget import Budget
from sow.definitions import CONSUMERS
from sow.engine.capacity import records_max
from sow.engine.live_topics import CopyTopic, LiveTopic
from sow.requests.consumers import Consumers
from sow.requests.executor import Executor
from sow.server.crowd import Crowd
from sow.server.driver import Driver
from sow.steps import Steps, at_once
from sow.topic.conflated_copy import CopyUpdate
from sow.topic.merging import CachedMerger

Conflation = FocusedConflator[str, CopyUpdate]

TOPICS_AT_ONCE = 100
"""Topics of which one step writes a figure: a millisecond."""


class TopicMetric(NamedTuple):
    """A figure of each topic that has it; `figure` gives None for one that has not."""

    family: type[GaugeMetricFamily] | type[CounterMetricFamily]
    name: str
    says: str
    figure: Callable[[LiveTopic], float | None]


def _of_copy(figure: Callable[[Conflation], float]) -> Callable[[LiveTopic], float | None]:
    return lambda topic: figure(topic.copy.conflation) if isinstance(topic, CopyTopic) else None


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
        lambda topic: sum(len(feed.members) for feed in topic.router.feeds()),
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
)


class EngineCollector(Collector):
    """The metrics of one server but for those of topics.

    `crowd` counts its connections, `reading` what requests hold.
    """

    def __init__(self, driver: Driver, executor: Executor, crowd: Crowd, reading: Budget) -> None:
        self._crowd = crowd
        self._reading = reading
        self._driver = driver
        self._executor = executor

    def collect(self) -> Iterator[Metric]:
        """Metric families as they stand."""
        yield from self._consumers()
        yield from self._server()
        yield from self._limits()

    def _consumers(self) -> Iterator[Metric]:
        behind = GaugeMetricFamily(
            "sow_consumer_behind", "Records that a consumer has yet to read.", labels=["consumer"]
        )
        idle = GaugeMetricFamily(
            "sow_consumer_idle_seconds",
            "Time since a consumer has come forward.",
            labels=["consumer"],
        )
        engine = self._executor.engine
        if CONSUMERS.name in engine.topics:
            for one in Consumers(engine).all():
                behind.add_metric([one.name], engine.seq - one.bookmark)
                idle.add_metric([one.name], (self._driver.now_us() - one.moved_us) / 1e6)
        yield from (behind, idle)

    def _server(self) -> Iterator[Metric]:
        sessions = self._executor.sessions.values()
        yield GaugeMetricFamily(
            "sow_sessions", "Connected sessions.", sum(session.connected for session in sessions)
        )
        yield GaugeMetricFamily(
            "sow_sessions_away",
            "Sessions whose sockets have gone, kept for their clients to return.",
            sum(not session.connected for session in sessions),
        )
        closed = CounterMetricFamily(
            "sow_sessions_closed", "Sessions that are gone, by why.", labels=["reason"]
        )
        for reason, count in self._executor.closed.items():
            closed.add_metric([reason], count)
        yield closed
        yield CounterMetricFamily(
            "sow_queue_folded", "Messages that folding has saved.", self._executor.folded
        )
        yield CounterMetricFamily(
            "sow_queue_dropped",
            "Messages dropped with subscriptions that were given up.",
            self._executor.dropped,
        )
        yield GaugeMetricFamily(
            "sow_queue_messages",
            "Messages waiting in outboxes.",
            sum(session.outbox.message_count for session in sessions),
        )
        yield GaugeMetricFamily(
            "sow_queue_bytes",
            "Bytes waiting in outboxes.",
            sum(session.outbox.bytes for session in sessions),
        )
        journal = self._driver.journal
        yield CounterMetricFamily(
            "sow_bookmark", "Newest bookmark given.", self._executor.engine.seq
        )
        yield CounterMetricFamily(
            "sow_durable_bookmark", "Newest bookmark on disk.", journal.last_seq
        )
        yield GaugeMetricFamily("sow_journal_bytes", "Bytes of the journal.", journal.size_bytes)
        yield GaugeMetricFamily(
            "sow_clock_ahead_seconds",
            "How far the server's time is ahead of the machine's, which was set back.",
            self._driver.clock_ahead_s(),
        )
        yield from self._steps()
        yield GaugeMetricFamily(
            "sow_store_failing",
            "1 while messages are refused, for the disk is full or cannot be written.",
            int(self._driver.refusal is not None),
        )

    def _steps(self) -> Iterator[Metric]:
        watch = self._driver.watch
        longest = GaugeMetricFamily(
            "sow_step_longest_seconds",
            "The longest time for which a kind of work has kept all others waiting, since start.",
            labels=["step"],
        )
        long = CounterMetricFamily(
            "sow_steps_long", "How often it was over 50 ms.", labels=["step"]
        )
        for name, took_s in watch.longest_s.items():
            longest.add_metric([name], took_s)
            long.add_metric([name], watch.long[name])
        yield from (longest, long)

    def _limits(self) -> Iterator[Metric]:
        capacity, crowd = self._executor.engine.capacity, self._crowd
        limit_bytes = math.inf if capacity.limit_bytes is None else capacity.limit_bytes
        yield GaugeMetricFamily(
            "sow_memory_bytes", "Bytes that all records take.", capacity.used_bytes
        )
        yield GaugeMetricFamily("sow_memory_limit_bytes", "Bytes that they may take.", limit_bytes)
        yield GaugeMetricFamily(
            "sow_request_bytes", "Bytes held by requests that are read.", self._reading.used
        )
        yield GaugeMetricFamily("sow_connections", "Connections at this moment.", crowd.connections)
        yield GaugeMetricFamily(
            "sow_connections_max", "Connections that there may be.", crowd.connections_max
        )
        refused = CounterMetricFamily(
            "sow_connections_refused", "Who was not let in, by why.", labels=["reason"]
        )
        for reason, times in crowd.refused.items():
            refused.add_metric([reason], times)
        yield refused


class _Family(Collector):
    """One family by itself."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterator[Metric]:
        yield self._family


def exposition(driver: Driver, executor: Executor, crowd: Crowd, reading: Budget) -> bytes:
    """The page, as text for Prometheus; arguments are those of `EngineCollector`."""
    return at_once(exposing(driver, executor, crowd, reading))


def exposing(driver: Driver, executor: Executor, crowd: Crowd, reading: Budget) -> Steps[bytes]:
    """The same in steps: topics may be a hundred thousand."""
    topics = [(topic.name, topic) for topic in executor.engine.catalog.listed()]
    written: list[bytes] = []
    for metric in TOPIC_METRICS:
        for start in range(0, max(1, len(topics)), TOPICS_AT_ONCE):
            text = _text(metric, topics[start : start + TOPICS_AT_ONCE])
            written.append(_without_head(text) if start else text)
            yield
    registry = CollectorRegistry(auto_describe=False)
    registry.register(EngineCollector(driver, executor, crowd, reading))
    written.append(generate_latest(registry))
    return b"".join(written)


def _text(metric: TopicMetric, topics: Sequence[tuple[str, LiveTopic]]) -> bytes:
    """A figure of some topics."""
    family = metric.family(metric.name, metric.says, labels=["topic"])
    for name, topic in topics:
        figure = metric.figure(topic)
        if figure is not None:
            family.add_metric([name], figure)
    return generate_latest(_Family(family))


def _without_head(text: bytes) -> bytes:
    """The samples of a family whose head stands above others of it."""
    return b"".join(line for line in text.splitlines(keepends=True) if not line.startswith(b"# "))
