"""The nodes that a server knows: who is listed, for how long, and as what."""

import pytest

from sow.errors import TooLarge
from sow.server.api.nodes import HEARD_S, NODES_MAX, REMEMBERED_S, Nodes, ServerNode


def test_of_many_nodes_the_most_silent_are_forgotten():
    now_s = 0.0
    nodes = Nodes(lambda: now_s)
    with nodes.reading("http://reads", 5), nodes.reading("http://too", 7):
        for number in range(2 * NODES_MAX):
            now_s += 0.001
            nodes.note(ServerNode(f"http://{number}", "follower"))
        assert nodes.positions() == {"http://reads": 5, "http://too": 7}
        urls = [node.url for node in nodes.all()]
        assert urls[-1] == f"http://{2 * NODES_MAX - 1}"
        assert len(urls) == NODES_MAX - 2
        with pytest.raises(TooLarge):
            nodes.note(ServerNode("x" * 3_000, "follower"))
    now_s = 2 * REMEMBERED_S
    assert nodes.all() == []
    assert not nodes._heard_s


def test_a_report_of_many_nodes_is_sorted_once_and_noted_wholly_or_not_at_all():
    calls = 0

    def now_s():
        nonlocal calls
        calls += 1
        return 0.0

    nodes = Nodes(now_s)
    many = [ServerNode(f"http://{number}", "chained", pid=number) for number in range(NODES_MAX)]
    nodes.note(*many)
    assert calls <= NODES_MAX + 1, "the times are looked through once"
    assert nodes.all() == many
    with pytest.raises(TooLarge):
        nodes.note(ServerNode("http://new", "chained", pid=1), ServerNode("x" * 3_000, "chained"))
    assert nodes.all() == many


def test_the_log_is_kept_for_who_reads_and_a_while_longer():
    now_s = 0.0
    nodes = Nodes(lambda: now_s)
    with nodes.reading("one", 5) as reading:
        now_s = 2 * REMEMBERED_S
        assert nodes.positions() == {"one": 5}
        reading.reached(9)
    assert nodes.positions() == {"one": 9}
    now_s += REMEMBERED_S + 1
    assert nodes.positions() == {}


def test_chained_servers_of_one_address_are_several_and_one_that_was_replaced_is_none():
    now_s = 0.0
    nodes = Nodes(lambda: now_s)
    for pid in (1, 2):
        nodes.note(ServerNode("http://e", "chained", pid=pid))
    assert [node.pid for node in nodes.all()] == [1, 2]
    now_s = HEARD_S
    nodes.note(ServerNode("http://e", "chained", pid=3))
    now_s += 1
    assert [node.pid for node in nodes.all()] == [3]
    now_s += HEARD_S
    assert nodes.all() == [ServerNode("http://e", "chained")], "once, as not heard of"


def test_nodes_are_counted_by_role_with_the_lag_of_each():
    nodes = Nodes(lambda: 0.0)
    assert nodes.counts() == {"follower": 0, "chained": 0}
    nodes.note(ServerNode("http://f", "follower", lag_ms=1500))
    nodes.note(ServerNode("http://e", "chained", pid=1, lag_ms=20))
    nodes.note(ServerNode("http://e", "chained", pid=2, lag_ms=10))
    assert nodes.counts() == {"follower": 1, "chained": 2}
    assert nodes.lags_s() == {"http://f": 1.5, "http://e": 0.02}
