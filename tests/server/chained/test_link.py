"""A connection that is lost and resumed: nothing is missed, nothing comes twice.

Connections of single sessions serve one after the other, and are so many at most.

Lines of an upstream server, read as far as a chained one needs them.
"""

import pytest

from sow.protocol.replies import SentPlace
from sow.server.chained import link
from sow.server.chained.link import (
    is_later,
    name_field,
    place_of,
    read_line,
    renamed,
    time_of,
    without_key,
)
from tests.server.chained.chains import ALL, Pair, begin, lines_up_to, logged_on, numbers


def test_dropped_connections_lose_and_repeat_nothing(pair):
    with pair.chained.socket() as one, pair.chained.socket() as own:
        begin(one, ALL)
        own.ask({"c": "subscribe", "t": "orders", "bm": "0"})
        for number in range(30):
            if number % 7 == 3:
                pair.upstream.call(pair.relay.drop)
            pair.upstream.publish("orders", {"id": number})
        assert numbers(lines_up_to(one, 29)) == [*range(30)]
        assert numbers(lines_up_to(own, 29)) == [*range(30)]


@pytest.fixture
def few(tmp_path, monkeypatch):
    monkeypatch.setattr(link, "WAIT_S", 0.3)
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


def test_a_place_in_what_was_sent_lies_behind_its_change_and_before_the_next():
    assert place_of("7.5") < place_of("7.6") < place_of("8")
    assert place_of("6") < place_of("7.5")
    assert isinstance(place_of("7.5"), SentPlace)


@pytest.mark.parametrize(
    ("place", "than", "later"),
    [
        ("3.20", "9.10", True),  # others had published before the snapshot
        ("9.20", "9.10", True),
        ("9.10", "9.10", False),
        ("9.10", "3.20", False),
        ("9", "9.10", False),
        ("10", "9.10", True),
    ],
)
def test_what_copies_have_sent_is_ordered_by_its_time(place, than, later):
    assert is_later(place_of(place), place_of(than)) is later


def test_the_time_of_a_line_is_read_to_the_microsecond():
    assert time_of("1970-01-02T00:00:01.000023Z") == 86_401_000_023
    assert time_of("") == 0


def test_a_line_has_another_name_and_the_same_body():
    line = b'{"c":"p","s":"f1","t":"orders","k":"1","d":{"s":"f1"},"bm":"3"}'
    found = renamed(line, name_field("f1"), name_field("x-2"))
    assert found == b'{"c":"p","s":"x-2","t":"orders","k":"1","d":{"s":"f1"},"bm":"3"}'
    assert bytes(read_line(found).d) == b'{"s":"f1"}'


def test_a_line_without_its_key_has_all_else():
    line = b'{"c":"p","s":"f1","t":"o","k":"a\\"\\\\","d":{"k":"x"},"bm":"3"}'
    assert read_line(line).k == 'a"\\'
    found = without_key(line)
    assert found == b'{"c":"p","s":"f1","t":"o","d":{"k":"x"},"bm":"3"}'
    assert without_key(found) == found
