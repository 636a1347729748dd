"""`GET /metrics`: Prometheus text, read off the engine when asked.

Nothing is counted twice and nothing is counted on the hot path for this page's sake.
"""

import math
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from sow.budget import Budget
from sow.definitions import CONSUMERS
from sow.engine.capacity import records_max
from sow.engine.live_topics import CopyTopic, LiveTopic
from sow.requests.consumers import Consumers
from sow.requests.executor import Executor
from sow.server.crowd import Crowd
from sow.server.driver import Driver


class EngineCollector(Collector):
    """All metrics of one server; `crowd` counts its connections, `reading` what requests hold."""

    def __init__(self, driver: Driver, executor: Executor, crowd: Crowd, reading: Budget) -> None:
        self._crowd = crowd
        self._reading = reading
        self._driver = driver
        self._executor = executor

    def collect(self) -> Iterator[Metric]:
        """Metric families as they stand."""
        yield from self._topics()
        yield from self._conflated()
        yield from self._merges()
        yield from self._consumers()
        yield from self._server()
        yield from self._limits()

    def _topics_by_name(self) -> Iterator[tuple[str, LiveTopic]]:
        for topic in self._executor.engine.catalog.listed():
            yield topic.definition.name, topic

    def _topics(self) -> Iterator[Metric]:
        records = GaugeMetricFamily("sow_topic_records", "Records held.", labels=["topic"])
        size = GaugeMetricFamily("sow_topic_bytes", "Bytes of record bodies.", labels=["topic"])
        subscriptions = GaugeMetricFamily(
            "sow_topic_subscriptions", "Live subscriptions.", labels=["topic"]
        )
        for name, topic in self._topics_by_name():
            records.add_metric([name], len(topic.records.table))
            size.add_metric([name], topic.records.table.bytes)
            subscriptions.add_metric([name], sum(len(f.members) for f in topic.router.feeds()))
        yield from (records, size, subscriptions)

    def _conflated(self) -> Iterator[Metric]:
        taken = CounterMetricFamily(
            "sow_conflated_updates_in", "Updates offered to a conflated topic.", labels=["topic"]
        )
        given = CounterMetricFamily(
            "sow_conflated_updates_out", "Updates a conflated topic let out.", labels=["topic"]
        )
        pending = GaugeMetricFamily(
            "sow_conflated_pending", "Keys that wait for their release.", labels=["topic"]
        )
        for name, topic in self._topics_by_name():
            if isinstance(topic, CopyTopic):
                taken.add_metric([name], topic.copy.conflation.updates_in)
                given.add_metric([name], topic.copy.conflation.updates_out)
                pending.add_metric([name], topic.copy.conflation.pending)
        yield from (taken, given, pending)

    def _merges(self) -> Iterator[Metric]:
        hits = CounterMetricFamily(
            "sow_merge_hits", "Merges of a pair that was merged before.", labels=["topic"]
        )
        misses = CounterMetricFamily("sow_merge_misses", "Pairs merged.", labels=["topic"])
        for name, topic in self._topics_by_name():
            merger = topic.records.folding.merger
            if merger is not None:
                hits.add_metric([name], merger.hits)
                misses.add_metric([name], merger.misses)
        yield from (hits, misses)

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
        yield GaugeMetricFamily(
            "sow_store_failing",
            "1 while messages are refused, for the disk is full or cannot be written.",
            int(self._driver.refusal is not None),
        )

    def _limits(self) -> Iterator[Metric]:
        capacity, crowd = self._executor.engine.capacity, self._crowd
        limit_bytes = math.inf if capacity.limit_bytes is None else capacity.limit_bytes
        most = GaugeMetricFamily(
            "sow_topic_records_max", "Records that the topic may hold.", labels=["topic"]
        )
        for name, topic in self._topics_by_name():
            if (count := records_max(topic)) is not None:
                most.add_metric([name], count)
        yield most
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


def exposition(driver: Driver, executor: Executor, crowd: Crowd, reading: Budget) -> bytes:
    """The page, as text for Prometheus; arguments are those of `EngineCollector`."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(EngineCollector(driver, executor, crowd, reading))
    return generate_latest(registry)
