"""Connections of single sessions serve one after the other, and are so many at most."""

import pytest

from sow.server.chained import link_pool
from tests.server.chained.chains import ALL, Pair, begin, lines_up_to, logged_on


@pytest.fixture
def few(tmp_path, monkeypatch):
    monkeypatch.setattr(link_pool, "WAIT_S", 0.3)
    pair = Pair(tmp_path)
    pair.chained.server._source._chain._pool._links_max = 2
    yield pair
    pair.close()
    assert pair.upstream.errors == pair.chained.errors == []


def test_snapshots_of_many_sessions_need_few_connections(pair):
    pair.upstream.publish("orders", {"id": 1})
    sockets = [pair.chained.socket() for _ in range(20)]
    opened = [socket.__enter__() for socket in sockets]
    for socket in opened:
        assert begin(socket, ALL)[-1]["status"] == "success"
        socket.ask({"c": "publish", "t": "orders", "d": {"id": 2}}, cid="2")
    # One for what is shared, and one or two that have served all.
    assert len(pair.upstream.get("/v1/sessions").json) <= 4
    assert len(pair.chained.server._source._chain._pool) <= 3
    for socket in sockets:
        socket.__exit__(None, None, None)


def test_who_needs_one_too_many_waits_and_is_refused(few):
    own = {**ALL, "keys": "1"}
    with few.chained.socket() as one, few.chained.socket() as two, few.chained.socket() as three:
        name = begin(one, own)[0]["s"]
        logged_on(two, sequence=True)
        ack = three.ask({"c": "publish", "t": "orders", "d": {"id": 1}})[-1]
        assert (ack["status"], ack["reason"]) == ("failure", "too large")
        assert "2 connections to its upstream server, all of them in use" in ack["detail"]
        three.send({"c": "publish", "t": "orders", "d": {"id": 2}, "cid": "2"})
        one.ask({"c": "unsubscribe", "s": name}, cid="3")
        with few.upstream.socket() as straight:
            begin(straight, ALL)
            three.send({"c": "publish", "t": "orders", "d": {"id": 3}, "cid": "4"})
            while three.until(c="ack", cid="4")[-1]["status"] == "failure":
                three.send({"c": "publish", "t": "orders", "d": {"id": 3}, "cid": "4"})
            lines_up_to(straight, 3)
