"""What a server did between two looks at it."""

import pytest

from sow.cli.measuring import SORTS, Look, activity, node_row, ordered, tree


def topic(name, updates, **more):
    return {"name": name, "kind": "topic", "records": 1, "updates": updates, **more}


def copy(name, taken, given, **more):
    return topic(name, given, kind="conflated", updates_in=taken, updates_out=given, **more)


def session(lag_ms, queue, **more):
    known = {"lag_ms": lag_ms, "queue_messages": queue, "connected": True, "reason": None}
    return {**known, **more}


def between(before, now, sessions=(), steps_s=None, elapsed_s=2.0):
    return activity(Look(10.0, before, (), None), Look(10.0 + elapsed_s, now, sessions, steps_s))


def rates(found):
    return {one.name: (one.in_per_s, one.out_per_s) for one in found.topics}


def test_rates_are_differences_over_the_time_between():
    found = between(
        [topic("orders", 100), copy("orders-C", 100, 10)],
        [topic("orders", 300), copy("orders-C", 300, 20, pending=7, oldest_pending_ms=40.0)],
    )
    assert rates(found) == {"orders": (100.0, 100.0), "orders-C": (100.0, 5.0)}
    assert found.in_per_s == 100.0, "what is made of topics is no traffic of its own"
    made = found.topics[1]
    assert (made.ratio, made.pending, made.oldest_ms) == (15.0, 7, 40.0)


def test_a_new_topic_and_a_server_started_anew_begin_at_nothing():
    assert rates(between([], [topic("orders", 10)])) == {"orders": (5.0, 5.0)}
    assert rates(between([topic("orders", 900)], [topic("orders", 10)])) == {"orders": (5.0, 5.0)}


def test_two_looks_at_the_same_time_are_no_division_by_nothing():
    assert between([topic("a", 1)], [topic("a", 1)], elapsed_s=0.0).in_per_s == 0.0


def test_a_pattern_is_a_line_of_what_its_topics_do():
    pattern = {"name": "desks", "kind": "pattern", "records": 5, "updates": 10}
    copies = pattern | {"name": "desks-C", "updates_in": 10, "updates_out": 4, "pending": 2}
    found = between([], [pattern, copies])
    assert rates(found) == {"desks": (5.0, 5.0), "desks-C": (5.0, 2.0)}
    assert [one.kind for one in found.topics] == ["pattern", "conflated pattern"]
    assert found.in_per_s == 5.0, "what is made of topics is no traffic of its own"
    unknown = copies | {"updates": None, "updates_in": None, "updates_out": None}
    assert rates(between([], [unknown])) == {"desks-C": (0.0, 0.0)}


def test_what_may_not_be_counted_is_nothing():
    assert rates(between([], [topic("orders", None)])) == {"orders": (0.0, 0.0)}


def test_sessions_that_are_behind_are_named_the_slowest_first():
    all_of_them = [session(0, 0), session(5, 9), session(80, 1), session(0, 0, connected=False)]
    found = between([], [], all_of_them)
    assert [one["lag_ms"] for one in found.slow] == [80, 5]
    assert (found.sessions, found.away, found.lag_ms, found.queued) == (4, 1, 80, 10)


def test_the_longest_step_is_named():
    assert between([], [], steps_s={"a query": 0.2, "a stream": 0.5}).longest == ("a stream", 0.5)
    assert between([], [], steps_s=None).longest is None


@pytest.mark.parametrize("sort", SORTS)
def test_topics_are_sorted_by_every_key(sort):
    found = between(
        [], [copy("b", 10, 2, pending=1, oldest_pending_ms=1.0), copy("c", 90, 3, pending=9,
             oldest_pending_ms=9.0) | {"records": 7}, topic("a", 1)],
    )  # fmt: skip
    names = [one.name for one in ordered(found.topics, sort)]
    assert names == (["a", "b", "c"] if sort == "name" else names)
    assert (names[0] == "c") != (sort == "name")


def test_for_programs():
    found = between([], [topic("orders", 3)], steps_s={"a query": 0.25}).document()
    assert found["longest_step"] == {"step": "a query", "ms": 250.0}
    assert found["topics"][0]["in_per_s"] == 1.5
    assert between([], []).document()["longest_step"] is None


def node(url, role, upstream=None, **more):
    known = {"bookmark": "7", "state_hash": "ab", "lag_ms": 3, "pid": 1, "sessions": 1200}
    return {"url": url, "role": role, "upstream": upstream, **known, **more}


def test_each_node_stands_below_the_one_that_it_has_its_records_from():
    nodes = [
        node("http://p", "primary"),
        node("http://e", "chained", "http://f"),
        node("http://f", "follower", "http://p"),
        node("http://e2", "chained", "http://a-name-of-the-primary"),
    ]
    found = [(one["url"], one["depth"]) for one in tree(nodes)]
    assert found == [("http://p", 0), ("http://f", 1), ("http://e", 2), ("http://e2", 1)]


def test_nodes_in_a_circle_or_without_a_primary_are_all_there():
    circle = [node("a", "chained", "b"), node("b", "chained", "a"), node("c", "chained", "c")]
    assert sorted((one["url"], one["depth"]) for one in tree(circle)) == [
        ("a", 0), ("b", 0), ("c", 0),
    ]  # fmt: skip
    assert tree([]) == []


def test_nodes_may_be_as_deep_as_a_report_says():
    chain = [node(f"n{at}", "chained", f"n{at - 1}") for at in range(1, 2_000)]
    found = tree([node("n0", "primary"), *reversed(chain)])
    assert [(one["url"], one["depth"]) for one in found] == [(f"n{at}", at) for at in range(2_000)]


def test_a_node_that_was_not_heard_is_a_row_that_says_so():
    silent = node("f", "follower", bookmark=None, state_hash=None, lag_ms=None, pid=None,
                  sessions=None)  # fmt: skip
    (shown,) = tree([silent])
    assert node_row(shown) == {
        "node": "f", "role": "follower", "bookmark": "", "lag": "not heard", "sessions": "",
        "state hash": "",
    }  # fmt: skip
    assert node_row(tree([node("p", "primary")])[0])["sessions"] == "1,200"


def test_one_server_alone_is_no_tree():
    look = Look(1, [], (), None, status={"nodes": [node("p", "primary")]})
    assert activity(look, look).nodes == []
