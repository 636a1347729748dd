"""The page of metrics: figures read off the engine, each under one name."""

import re
from dataclasses import replace

from prometheus_client.parser import text_string_to_metric_families

from sow import __version__
from sow.core.cooperative import run_to_completion
from sow.core.definitions import Configuration, ConflatedTopic, Topic, View
from sow.core.inner_loops import INNER_LOOPS
from sow.core.quota import Quota
from sow.protocol.replies import LINES
from sow.protocol.wire import read_frame
from sow.query import Query
from sow.server.api.metrics import TOPIC_METRICS, Scrape, exposing, process_exposition
from sow.server.http.connections import ConnectionLimiter
from sow.sessions.commands.consumers import ConsumerLags, Consumers
from tests.docs.metrics import exposed
from tests.executing import execute_all
from tests.server.stand_ins import ORDERS, SECOND, World, stepped

SLOW = ConflatedTopic("orders-C", "json", "orders", interval_us=SECOND)


def scrape(world, crowd, reading=None):
    reading = reading or Quota(lambda: 1)
    lags = ConsumerLags(world.engine, world.journal)
    return Scrape(world.runtime, world.executor, crowd, reading, lambda: None, dict, lags)


def exposition(scrape):
    return run_to_completion(exposing(scrape))


def figures(world, crowd=None, reading=None):
    """All samples by name and labels."""
    crowd = crowd or ConnectionLimiter(lambda: Configuration("test", ()), 100)
    page = exposition(scrape(world, crowd, reading)).decode()
    found = re.findall(r"^(\w+(?:{[^}]*})?) (\S+)$", page, re.M)
    assert len(dict(found)) == len(found), "a sample stands twice"
    return {name: float(value) for name, value in found}


@stepped
async def test_topics_and_their_copies_are_counted():
    world = World(ORDERS, SLOW)
    world.publish(b'{"id":1}', b'{"id":2}')
    world.publish(b'{"id":1,"px":5}')
    found = figures(world)
    assert found['sow_topic_records{topic="orders"}'] == 2
    assert found['sow_conflated_updates_in_total{topic="orders-C"}'] == 3
    assert found['sow_conflated_pending{topic="orders-C"}'] == 2
    assert found["sow_bookmark_total"] == 3
    assert found["sow_durable_bookmark_total"] == 0
    assert [figure for name, figure in found.items() if name.startswith("sow_event_loop")] == [1]
    await world.runtime.durable()
    assert figures(world)["sow_durable_bookmark_total"] == 3
    await world.runtime.close()


@stepped
async def test_what_views_take_in_and_tell_is_counted():
    fields = ("/side", "COUNT(1) AS /n")
    world = World(ORDERS, View("sides", "json", ("orders",), fields, ("/side",)))
    world.publish(b'{"id":1}', b'{"id":2}')
    assert figures(world)['sow_view_pending{topic="sides"}'] == 1
    await world.runtime.durable()
    found = figures(world)
    assert found['sow_view_updates_in_total{topic="sides"}'] == 2
    assert found['sow_view_updates_out_total{topic="sides"}'] == 1
    assert found['sow_view_pending{topic="sides"}'] == 0
    assert found['sow_view_left_out{topic="sides"}'] == 0
    await world.runtime.close()


@stepped
async def test_sessions_count_while_they_are_here_and_why_they_went():
    world = World()
    session = world.executor.sessions.open(LINES, world.clock.now_us())
    line = list(read_frame(b'{"c":"subscribe","t":"orders"}'))
    execute_all(world.executor, session, line, world.clock.now_us())
    world.publish(b'{"id":1}')
    await world.runtime.durable()
    found = figures(world)
    assert (found["sow_sessions"], found["sow_sessions_away"]) == (1, 0)
    assert found['sow_topic_subscriptions{topic="orders"}'] == 1
    assert found["sow_queue_bytes"] > 0
    world.executor.sessions.close(session)
    found = figures(world)
    assert found["sow_sessions"] == found["sow_queue_bytes"] == 0
    assert found['sow_sessions_closed_total{reason="disconnected"}'] == 1
    assert found['sow_queue_dropped_total{reason="disconnected"}'] > 0
    assert found['sow_queue_dropped_total{reason="given up"}'] == 0
    assert found['sow_queue_folded_total{reason="always"}'] == 0
    assert found['sow_queue_folded_total{reason="slow"}'] == 0
    await world.runtime.close()


@stepped
async def test_a_consumer_is_behind_by_the_rows_of_its_topics():
    world = World(ORDERS, replace(ORDERS, name="fills"))
    world.publish(b'{"id":1}', b'{"id":2}')
    world.publish(b'{"id":1}', topic="fills")
    Consumers(world.engine).move("mine", 1, world.clock.now_us(), topics=["orders"])
    await world.runtime.durable()
    world.clock.advance(5 * SECOND)
    found = figures(world)
    assert found['sow_consumer_behind{consumer="mine"}'] == 2
    assert found['sow_consumer_lag_rows{consumer="mine"}'] == 1
    assert found['sow_consumer_lag_seconds{consumer="mine"}'] == 5
    await world.runtime.close()


@stepped
async def test_the_longest_steps_are_sent_by_name():
    world = World()
    for took_s in (0.001, 0.2, 0.003):
        world.runtime.watch.note("a delete", took_s)
    found = figures(world)
    assert found['sow_step_longest_seconds{step="a delete"}'] == 0.2
    assert found['sow_steps_long_total{step="a delete"}'] == 1
    await world.runtime.close()


@stepped
async def test_what_is_refused_and_what_is_left_is_sent():
    world = World()
    crowd, reading = ConnectionLimiter(lambda: Configuration("test", ()), 1), Quota(lambda: 100)
    crowd.acquire_connection("a")
    crowd.acquire_connection("b")
    reading.holder("a").add(7)
    found = figures(world, crowd, reading)
    assert (found["sow_connections"], found["sow_connections_max"]) == (1, 1)
    assert found['sow_connections_refused_total{reason="connections"}'] == 1
    assert found["sow_request_bytes"] == 7
    assert found["sow_memory_limit_bytes"] == float("inf")
    assert found["sow_store_failing"] == 0
    world.journal.full = True
    assert figures(world)["sow_store_failing"] == 1
    world.journal.full = False
    await world.runtime.close()


def test_each_family_is_on_the_page_once_whatever_is_configured():
    names = [family.name for family in text_string_to_metric_families(exposed())]
    assert {"sow_queue_dropped", "sow_queue_dead_dropped", "sow_action_runs"} <= {*names}
    assert [name for name in {*names} if names.count(name) > 1] == []


@stepped
async def test_the_page_is_the_same_in_however_many_steps(monkeypatch):
    topics = [Topic(f"topic-{at}", "json", keys=("/id",)) for at in range(7)]
    world = World(ORDERS, SLOW, *topics)
    crowd = ConnectionLimiter(lambda: Configuration("test", ()), 100)
    page = exposition(scrape(world, crowd))
    monkeypatch.setattr("sow.server.api.metrics.TOPICS_AT_ONCE", 2)
    assert exposition(scrape(world, crowd)) == page
    steps = exposing(scrape(world, crowd))
    assert sum(1 for _ in steps) == len(TOPIC_METRICS) * 5
    await world.runtime.close()


@stepped
async def test_the_times_of_commits_publishes_and_deliveries_are_counted():
    world = World()
    session = world.executor.sessions.open(LINES, world.clock.now_us())
    line = list(read_frame(b'{"c":"subscribe","t":"orders"}'))
    execute_all(world.executor, session, line, world.clock.now_us())
    await world.runtime.durable()
    before = figures(world)
    world.publish(b'{"id":1}', b'{"id":2}', b'{"id":3}')
    await world.runtime.durable()
    after = figures(world)
    counted = {
        name: after[f"sow_{name}_seconds_count"] - before[f"sow_{name}_seconds_count"]
        for name in ("commit", "fsync", "publish_durable", "publish_delivered")
    }
    # One commit of three records, sent to one session.
    assert counted == {"commit": 1, "fsync": 1, "publish_durable": 3, "publish_delivered": 1}
    assert after['sow_publish_durable_seconds_bucket{le="+Inf"}'] == 3
    assert after["sow_step_seconds_count"] > 0
    await world.runtime.close()


@stepped
async def test_queries_are_counted_by_the_index_that_they_began_with():
    world = World(Topic("orders", "json", keys=("/id",), hash_indexes=(("/side",),)))
    world.publish(b'{"id":1,"side":"B"}')
    moments = iter(range(100))
    world.engine.queries.measure(lambda: next(moments) * 0.01)
    for condition in (None, "/side = 'B'", "/side = 'S'"):
        world.engine.queries.at_once("orders", Query(condition and world.engine.filter(condition)))
    found = figures(world)
    assert found['sow_query_seconds_count{index="all"}'] == 1
    assert found['sow_query_seconds_count{index="hash"}'] == 2
    assert found['sow_query_seconds_sum{index="hash"}'] > 0
    await world.runtime.close()


@stepped
async def test_what_is_refused_is_counted_by_the_kind_of_error_and_not_by_what_was_sent():
    world = World()
    session = world.executor.sessions.open(LINES, world.clock.now_us())
    for number in range(20):
        frame = b'{"c":"sow","t":"nothing-%d"}' % number
        execute_all(world.executor, session, list(read_frame(frame)), world.clock.now_us())
    refused = {name: n for name, n in figures(world).items() if "requests_refused" in name}
    assert refused == {'sow_requests_refused_total{reason="invalid topic"}': 20}
    await world.runtime.close()


def test_the_process_and_the_version_are_sent():
    text = process_exposition().decode()
    assert f'{{inner_loops="{INNER_LOOPS.language}",version="{__version__}"}} 1.0' in text
    assert re.search(r"^process_cpu_seconds_total \S+$", text, re.M)
    assert re.search(r"^process_resident_memory_bytes \S+$", text, re.M)
    assert re.search(r"^process_open_fds \S+$", text, re.M)
    assert "python_info{" in text
