"""Followers and views that are late: no step is longer whoever follows, and none sees a half."""

import itertools
import sys
from collections import Counter
from dataclasses import replace

import pytest

from sow.core.cooperative import run_to_completion
from sow.core.definitions import View
from sow.engine import output
from sow.engine.views import ROWS_AT_ONCE
from sow.expressions import Filter
from sow.protocol.commands import Command
from sow.protocol.publish_batching import read_frames
from sow.sessions import subscriptions
from sow.streaming import router
from sow.streaming.feeds import ChangeFeed
from sow.topic.rendering import Renderer
from sow.topic.views.view import MaterializedView
from tests.engine.test_output import answered, steps_of
from tests.executing import execute_all
from tests.laws.harness import ORDERS, SECOND, SLOW, World

# Followers that are late.

RECORDS, LISTS = 100, 40
MANY = 250
"""More than such a filter is evaluated for in one step."""


@pytest.fixture
def processed(monkeypatch):
    """Returns how many records feeds have processed since it was last called."""
    count, real = [0], ChangeFeed._on_record

    def counted(feed, *record):
        count[0] += 1
        real(feed, *record)

    monkeypatch.setattr(ChangeFeed, "_on_record", counted)

    def taken():
        taken, count[0] = count[0], 0
        return taken

    return taken


def listeners(world, count=LISTS):
    """Clients that each follow deltas of fields of their own."""
    clients = [world.client() for _ in range(count)]
    for at, client in enumerate(clients):
        client.say(c="delta_subscribe", t="orders", opts=f"select=[/id,/px,/f{at}]")
    return clients


def prices(px, count=RECORDS):
    return [b'{"id":%d,"px":%d}' % (at, px) for at in range(count)]


def steps_until_all_is_sent(world):
    """What a server does after a change, a step at a time."""
    while world.engine.has_work:
        world.settle_once()
        world.engine.check()
        yield


def test_no_step_is_longer_however_many_follow(processed):
    longest = []
    for count in (LISTS, 3 * LISTS):
        world, steps = World(), []
        listeners(world, count)
        for px in (1, 2):
            world.engine.publish("orders", prices(px), world.now)
            steps.append(processed())
            steps += [processed() for _ in steps_until_all_is_sent(world)]
        assert sum(steps) == 2 * RECORDS * count
        longest.append(max(steps))
    assert longest[0] == longest[1] < RECORDS


MANY_TESTS = " OR ".join(f"/px < {at}" for at in range(480))


@pytest.mark.parametrize(
    "followed", [{"filter": MANY_TESTS}, {"filter": f"/px = 1 AND ({MANY_TESTS})"}]
)
def test_a_filter_of_very_many_tests_is_evaluated_for_some_records_at_a_time(monkeypatch, followed):
    evaluated, real = [0], Filter.holds

    def holds(condition, values):
        evaluated[0] += 1
        return real(condition, values)

    monkeypatch.setattr(Filter, "holds", holds)
    monkeypatch.setattr(Filter, "matches", None)  # of all records of a batch
    world = World()
    client = world.client()
    client.say(c="subscribe", t="orders", **followed)
    world.engine.publish("orders", prices(1, MANY), world.now)
    steps = [evaluated[0]]
    for _ in steps_until_all_is_sent(world):
        steps.append(evaluated[0] - sum(steps))
    assert sum(steps) == MANY
    assert max(steps) <= MANY // 5
    assert len(client.data()) == MANY


@pytest.mark.parametrize("fails_at", [0, RECORDS // 2])
def test_who_fails_in_a_step_is_late_no_more_and_others_get_all(monkeypatch, fails_at):
    """In the first step too, of which nothing was processed before."""
    world = World()
    world.failures = []
    clients, real = listeners(world), ChangeFeed._on_record
    broken, counts = [*world.engine.topics["orders"].router.feeds()][LISTS // 2], itertools.count()

    def failing(feed, *record):
        if feed is broken and next(counts) == fails_at:
            raise ValueError("no such line")
        real(feed, *record)

    monkeypatch.setattr(ChangeFeed, "_on_record", failing)
    world.engine.publish("orders", prices(1), world.now)
    for _ in steps_until_all_is_sent(world):
        pass
    world.advance(0)
    topic = world.engine.topics["orders"]
    assert (topic.records.late, [*world.engine.output.late]) == (0, [])
    assert broken not in [*topic.router.feeds()]
    (line,) = world.failures
    assert "no such line" in line
    ends = [[one for one in client.lines() if one["c"] == "unsubscribed"] for client in clients]
    assert sorted(map(len, ends)) == [0] * (LISTS - 1) + [1]
    world.publish("orders", {"id": 1, "px": 7})
    assert sum(bool(client.lines()) for client in clients) == LISTS - 1


def test_the_lines_of_a_batch_leave_together_and_in_order(processed):
    world = World()
    clients, writer = listeners(world), world.client()
    frame = b"\n".join([b'{"c":"publish","t":"orders","n":%d}' % RECORDS, *prices(2)])
    got = {client: [] for client in clients}

    def read():
        for client, prices_of in got.items():
            pieces = [line["d"]["px"] for line in client.sent()]
            assert not len(pieces) % RECORDS, "a part of a batch has left"
            prices_of += pieces

    world.engine.publish("orders", prices(1), world.now)
    for _ in world.executor.carry_out(writer.session, read_frames([frame]), lambda: world.now):
        assert world.engine.topics["orders"].records.late <= LISTS, "more than a change waits"
        world.settle_once()
        read()
    for _ in steps_until_all_is_sent(world):
        read()
    assert set(map(tuple, got.values())) == {(1,) * RECORDS + (2,) * RECORDS}


def test_a_publisher_waits_for_its_own_followers_and_no_others():
    world = World(ORDERS, replace(ORDERS, name="trades"))
    listeners(world)
    other = world.client()
    other.say(c="subscribe", t="trades")
    world.engine.publish("orders", prices(1), world.now)
    assert not world.engine.is_free("orders")
    assert world.engine.is_free("trades")
    publish = read_frames([b'{"c":"publish","t":"trades","d":{"id":1}}'])
    execute_all(world.executor, other.session, publish, world.now)
    world.settle_once()
    assert not world.engine.is_free("orders")
    assert [line["d"] for line in other.sent()] == [{"id": 1}]
    for _ in steps_until_all_is_sent(world):
        pass
    assert world.engine.is_free("orders")


def test_who_joins_or_leaves_meanwhile_gets_each_change_once():
    world = World()
    clients = [world.client() for _ in range(LISTS)]
    for at, client in enumerate(clients):
        client.say(c="subscribe", t="orders", opts=f"select=[/id,/f{at}]")
    world.engine.publish("orders", prices(1), world.now)
    assert world.engine.output.late
    last, newcomer = clients[-1], world.client()
    frame = b'{"c":"sow_and_subscribe","t":"orders","opts":"select=[/id,/f%d]"}' % (LISTS - 1)
    execute_all(world.executor, newcomer.session, read_frames([frame]), world.now)
    frame = b'{"c":"unsubscribe","s":"%s"}' % next(iter(clients[-2].subscriptions)).encode()
    execute_all(world.executor, clients[-2].session, read_frames([frame]), world.now)
    assert world.engine.output.late
    world.engine.publish("orders", prices(2), world.now)
    for _ in steps_until_all_is_sent(world):
        pass
    kinds = Counter(line["c"] for line in newcomer.lines())
    assert (kinds["sow"], kinds["p"]) == (RECORDS, RECORDS)
    assert Counter(line["c"] for line in last.lines())["p"] == 2 * RECORDS
    assert Counter(line["c"] for line in clients[-2].lines())["p"] == RECORDS


def test_what_falls_due_waits_for_those_who_follow_it():
    world = World()
    clients = [world.client() for _ in range(LISTS)]
    for at, client in enumerate(clients):
        client.say(c="delta_subscribe", t="orders-C", opts=f"select=[/id,/px,/f{at}]")
    for px in (1, 2, 3):
        world.engine.publish("orders", prices(px), world.now)
        world.clock.advance(SECOND)
        world.engine.advance(world.now)
        world.settle_once()
        assert world.engine.output.late
    world.settle()
    world.advance(2 * SECOND)
    for client in clients:
        lines = client.lines()
        assert [line["d"]["px"] for line in lines if line["d"]["id"] == 7] == [1, 2, 3]


def test_a_pattern_gets_the_changes_of_its_topics_in_order_whichever_is_late():
    world = World(ORDERS, replace(ORDERS, name="other"))
    clients = [world.client() for _ in range(LISTS)]
    for at, client in enumerate(clients):
        client.say(c="delta_subscribe", t="^o.*r", opts=f"select=[/id,/px,/f{at}]")
    world.engine.publish("orders", prices(1), world.now)
    world.engine.publish("other", prices(2, 1), world.now)
    assert world.engine.output.late
    for _ in steps_until_all_is_sent(world):
        pass
    for client in clients:
        assert [line["t"] for line in client.lines()] == [*["orders"] * RECORDS, "other"]


@pytest.fixture
def late(monkeypatch):
    """A world in which each change is late for its followers."""
    monkeypatch.setattr(router, "AT_ONCE_US", 1)
    monkeypatch.setattr(output, "CAUGHT_UP_US", 1)
    return World(ORDERS, SLOW)


@pytest.mark.parametrize("leaves", ["unsubscribes", "goes"])
def test_a_window_that_opens_late_ends_also_when_another_member_leaves(late, leaves):
    stays, other = late.client(), late.client()
    for client in (stays, other):
        client.say(c="subscribe", t="orders", opts="conflation=1s")
    late.engine.publish("orders", [b'{"id":%d}' % at for at in range(20)], late.now)
    if leaves == "goes":
        late.executor.sessions.close(other.session)
    else:
        name = next(iter(other.subscriptions))
        command = b'{"c":"unsubscribe","s":"%s"}' % name.encode()
        execute_all(late.executor, other.session, read_frames([command]), late.now)
    late.settle()
    late.check()
    late.advance(5 * SECOND)
    assert len(stays.data()) == 20


@pytest.mark.parametrize("leaves", ["goes", "unsubscribes"])
def test_no_step_is_longer_when_one_that_is_late_leaves(processed, monkeypatch, leaves):
    """What it alone was to get is not made any more where it is gone."""
    monkeypatch.setattr(router, "AT_ONCE_US", 200)
    monkeypatch.setattr(output, "CAUGHT_UP_US", 200)
    world = World()
    (client,) = listeners(world, 1)
    for at in range(4):
        client.say(c="delta_subscribe", t="orders", opts=f"select=[/id,/g{at}]")
    world.engine.publish("orders", prices(1), world.now)
    assert len(world.engine.output.late) == 5
    steps = [processed()]
    if leaves == "goes":
        world.executor.sessions.close(client.session)
    else:
        command = Command("unsubscribe", subscription="all")
        for _ in world.executor.subscriptions.unsubscribe(client.session, command):
            steps.append(processed())
    steps.append(processed())
    assert max(steps) <= RECORDS // 5
    world.settle()
    world.advance(0)
    assert (sum(steps) + processed() < RECORDS) == (leaves == "goes")
    world.check()
    assert (world.engine.topics["orders"].records.late, world.engine.output.late) == (0, {})


def test_nothing_is_made_for_who_has_gone_while_the_rest_of_its_end_waits(late, monkeypatch):
    """Its end goes on once for all else that is due, and it may have followed ten thousand."""
    monkeypatch.setattr(subscriptions, "ENDED_AT_ONCE", 1)
    client = late.client()
    for number in range(10):
        client.say(c="subscribe", t="orders", opts=f"conflation={number + 1}s")
    late.engine.publish("orders", prices(1), late.now)
    feeds = [*late.engine.topics["orders"].router.feeds()]
    offered = [feed.channel.updates_in for feed in feeds]
    late.executor.sessions.close(client.session)
    late.engine.publish("orders", prices(2), late.now)
    left = [feed.channel for feed in late.engine.topics["orders"].router.feeds()]
    assert len(left) == 9
    while any(channel.late for channel in left):
        late.engine.output.catch_up()
    assert [feed.channel.updates_in for feed in feeds] == offered
    late.settle()
    late.advance(0)
    assert not [*late.engine.topics["orders"].router.feeds()]
    late.check()


def test_it_costs_next_to_nothing_that_one_more_is_late():
    """In the step that stores a batch: there may be ten thousand."""
    counts = []
    for count in (50, 250):
        world = World()
        client = world.client()
        for at in range(count):
            client.execute(b'{"c":"subscribe","t":"orders","filter":"/px + %d < 0"}' % at)
        bodies, calls = prices(1), [0]

        def counted(_frame, event, _argument, calls=calls):
            calls[0] += event == "call" or event == "c_call"

        sys.setprofile(counted)
        try:
            world.engine.publish("orders", bodies, world.now)
        finally:
            sys.setprofile(None)
        assert len(world.engine.output.late) >= count // 2
        counts.append(calls[0])
    assert (counts[1] - counts[0]) / 200 < 6


def test_a_topic_is_empty_when_it_ends_whatever_its_windows_give_back_meanwhile(late):
    client, held = late.client(), set()

    def read():
        for line in client.sent():
            if line.get("t") == "orders-C":
                (held.discard if line["c"] == "oof" else held.add)(line["d"]["id"])

    client.execute(b'{"c":"sow_and_subscribe","t":"^orders.*$","opts":"oof"}')
    late.publish("orders", {"id": 1}, {"id": 2})
    late.advance(2 * SECOND)
    late.publish("orders", {"id": 3})
    table = late.engine.topics["orders-C"].records.table
    for _ in late.executor.reconfiguration(replace(late.configuration, topics=(ORDERS,)), late.now):
        if not len(table):
            late.clock.advance(SECOND)
        late.engine.advance(late.now)
        read()
    late.settle()
    read()
    assert (held, "orders-C" in late.engine.topics) == (set(), False)


@pytest.mark.parametrize("followers", range(1, 9))
def test_two_publishers_of_a_topic_whose_followers_are_late_take_turns(monkeypatch, followers):
    monkeypatch.setattr(router, "AT_ONCE_US", 20)
    monkeypatch.setattr(output, "CAUGHT_UP_US", 20)
    world, published = World(), Counter()
    for at in range(followers):
        world.client().say(c="subscribe", t="orders", opts=f"select=[-/*,+/id,+/f{at}]")
    publishers = {}
    for turn in range(500):
        name = "AB"[turn % 2]
        steps = publishers.setdefault(name, steps_of(world, (turn, 1)))
        if next(steps, "ended") == "ended":
            published[name] += 1
            del publishers[name]
        world.settle_once()
    assert abs(published["A"] - published["B"]) <= 2


def test_a_publisher_that_takes_no_turns_delays_others_only_for_some(late):
    late.client().say(c="subscribe", t="orders", opts="select=[-/*,+/id]")
    late.engine.publish("orders", [b'{"id":%d}' % at for at in range(9)], late.now)
    first = late.engine.followers.caught_up("orders")
    next(first)
    assert not late.engine.is_free("orders")
    late.engine.publish("orders", [b'{"id":1,"px":2}'], late.now)
    assert b'{"id":1,"px":2}' in late.engine.topics["orders"].records.table.bodies
    first.close()


def test_a_session_that_goes_while_its_permissions_change_leaves_no_memory_counted(late):
    client = late.client()
    client.say(c="subscribe", t="orders")
    client.session.hold_back()
    late.publish("orders", {"id": 1})
    late.executor.sessions.close(client.session)
    run_to_completion(late.executor.settle(client.session))
    late.check()


def test_a_long_record_is_read_in_steps(monkeypatch):
    parsed, real = [0], Renderer.document

    def counted(renderer, body):
        parsed[-1] += 1
        return real(renderer, body)

    monkeypatch.setattr(Renderer, "document", counted)
    world = World()
    clients = [world.client() for _ in range(2)]
    for client in clients:
        client.say(c="delta_subscribe", t="orders")
    text = "x" * 2_000_000
    for px in (1, 2):
        body = b'{"id":1,"px":%d,"text":"%b"}' % (px, text.encode())
        world.engine.publish("orders", [body], world.now)
        for _ in steps_until_all_is_sent(world):
            parsed.append(0)
    assert (max(parsed), sum(parsed)) == (1, 2)
    assert [client.sent()[-1]["d"] for client in clients] == [{"id": 1, "px": 2}] * 2


# Views that are late.


@pytest.fixture
def grouped(monkeypatch):
    """Returns how many batches views have processed since it was last called."""
    count, real = [0], MaterializedView.on_batch

    def counted(view, *batch):
        count[0] += 1
        return real(view, *batch)

    monkeypatch.setattr(MaterializedView, "on_batch", counted)

    def taken():
        taken, count[0] = count[0], 0
        return taken

    return taken


def groupers(world, count):
    """Clients that each follow groups of their own."""
    clients = [world.client() for _ in range(count)]
    for at, client in enumerate(clients):
        made = f"projection=[/px,COUNT(1) AS /n{at},SUM(/id) AS /sum],grouping=[/px]"
        client.say(c="sow_and_subscribe", t="orders", opts=f"oof,{made}")
        world.settle()
        client.sent()
    return clients


def sums(px):
    """What the groups are when the prices are these."""
    found = {}
    for at in range(RECORDS):
        found[at % px] = found.get(at % px, 0) + at
    return found


def changed_prices(px):
    return [b'{"id":%d,"px":%d}' % (at, at % px) for at in range(RECORDS)]


def test_no_step_is_longer_however_many_views_a_topic_has(grouped):
    longest = []
    for count in (20, 60):
        world, steps = World(), []
        clients = groupers(world, count)
        grouped()
        for px in (3, 2):
            world.engine.publish("orders", changed_prices(px), world.now)
            steps.append(grouped())
            steps += [grouped() for _ in steps_until_all_is_sent(world)]
            for at, client in enumerate(clients):
                seen = {line["d"]["px"]: line["d"] for line in client.sent() if line["c"] == "p"}
                assert {key: row["sum"] for key, row in seen.items()} == sums(px)
                assert sum(row[f"n{at}"] for row in seen.values()) == RECORDS
        assert sum(steps) == 2 * count
        longest.append(max(steps))
    assert longest[0] == longest[1] < 20


def test_views_that_are_late_show_a_change_together(grouped):
    world, sent = World(), []
    clients = groupers(world, 20)
    world.engine.publish("orders", changed_prices(3), world.now)
    for _ in steps_until_all_is_sent(world):
        sent.append(sum(map(len, (client.sent() for client in clients))))
    assert sum(1 for count in sent if count) == 1, "some are told before others have processed it"


def test_a_view_that_goes_while_it_is_late_is_not_told(grouped):
    world = World()
    clients = groupers(world, 20)
    world.engine.publish("orders", changed_prices(3), world.now)
    world.executor.sessions.close(clients[-1].session)
    grouped()
    for _ in steps_until_all_is_sent(world):
        pass
    assert grouped() < 20
    assert all({line["d"]["px"] for line in client.sent()} == {0, 1, 2} for client in clients[:-1])
    world.check()


def test_a_view_whose_rows_are_made_anew_while_it_is_late_has_those_of_now(grouped):
    views = [
        View(f"v{at}", "json", ("orders",), ("/px", "SUM(/id) AS /sum"), ("/px",))
        for at in range(20)
    ]
    world = World(ORDERS, *views)
    world.engine.publish("orders", changed_prices(3), world.now)
    other = replace(views[-1], projection=("/px", "SUM(/id) AS /other"))
    topics = (ORDERS, *views[:-1], other)
    world.executor.reconfigure(replace(world.configuration, topics=topics), world.now)
    world.engine.check()
    for _ in steps_until_all_is_sent(world):
        pass
    assert {row["px"]: row["other"] for row in world.records("v19")} == sums(3)
    assert {row["px"]: row["sum"] for row in world.records("v18")} == sums(3)


def test_a_query_of_a_view_that_is_late_has_what_was_published_before():
    views = [
        View(f"v{at}", "json", ("orders",), ("/px", "SUM(/id) AS /sum"), ("/px",))
        for at in range(20)
    ]
    above = View("above", "json", ("v19",), ("/px", "MAX(/sum) AS /most"), ("/px",))
    world = World(ORDERS, *views, above)

    for px in (3, 2):
        world.engine.publish("orders", changed_prices(px), world.now)
        assert world.engine.topics["orders"].router.is_behind
        expected = sums(px)
        assert {row["px"]: row["most"] for row in answered(world, "above")} == expected
        assert {row["px"]: row["sum"] for row in answered(world, "v18")} == expected
        world.check()


def test_a_query_of_a_view_has_rows_that_are_released_some_at_a_time():
    view = View("each", "json", ("orders",), ("/id", "MAX(/px) AS /px"), ("/id",))
    above = View("above", "json", ("each",), ("COUNT(/id) AS /n", "/px"), ("/px",))
    world = World(ORDERS, view, above)
    count = 3 * ROWS_AT_ONCE
    world.engine.publish("orders", [b'{"id":%d,"px":1}' % at for at in range(count)], world.now)
    world.settle()
    assert len(world.engine.topics["each"].records.table) < count, "the rest is left to a timer"
    assert answered(world, "above") == [{"px": 1, "n": count}]
    assert len(answered(world, "each")) == count
    world.check()
