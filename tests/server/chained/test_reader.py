"""Commands of a chained server's clients: passed on in order, and refused in upstream's words."""

from sow.server.chained.reader import pieces
from tests.edge.serving import records
from tests.server.chained.chains import ALL, begin


def test_a_frame_is_cut_into_commands_with_their_bodies():
    frame = b'{"c":"publish","n":2}\n{"n":9}\nbody\n\n{"c":"flush"}\nnonsense'
    found = [(head.get("c"), piece) for head, piece in pieces(frame)]
    assert found == [
        ("publish", b'{"c":"publish","n":2}\n{"n":9}\nbody'),
        ("flush", b'{"c":"flush"}'),
        (None, b"nonsense"),
    ]


def test_commands_that_are_not_shared_pass_through(pair):
    pair.upstream.publish("orders", {"id": 1, "x": 1}, {"id": 2, "x": 2})
    with pair.chained.socket() as one:
        top = {**ALL, "order_by": "/x DESC", "top_n": 1, "opts": "live"}
        assert [line["d"]["id"] for line in begin(one, top) if line["c"] == "sow"] == [2]
        pair.upstream.publish("orders", {"id": 3, "x": 3})
        assert [line["c"] for line in one.until(c="p")] == ["oof", "p"]
        groups = {**ALL, "opts": "projection=[COUNT(/id) AS /n],grouping=[/none]"}
        assert [line["d"] for line in begin(one, groups, "2") if line["c"] == "sow"] == [{"n": 3}]
        past = one.ask({"c": "subscribe", "t": "orders", "bm": "0"}, cid="3")
        assert past[-1]["status"] == "success"
        assert [one.until(c="p")[-1]["d"]["id"] for _ in range(3)] == [1, 2, 3]
        copies = begin(one, {**ALL, "t": "orders-C"}, "4")
        assert copies[-1]["status"] == "success"
        assert one.ask({"c": "unsubscribe", "s": "all"}, cid="5")[-1]["status"] == "success"


def test_what_upstream_refuses_is_refused_in_its_words(pair):
    commands = [
        {"c": "sow_and_subscribe", "t": "orders", "filter": "/id >"},
        {"c": "subscribe", "t": "nix"},
        {"c": "publish", "t": "orders", "d": {"x": 1}},
        {"c": "sow", "t": "orders", "filter": "("},
        {"c": "unsubscribe", "s": "nothing"},
        {"c": "nonsense"},
    ]
    with pair.chained.socket() as one, pair.upstream.socket() as other:
        for command in commands:
            found = [socket.ask(command)[-1] for socket in (one, other)]
            assert found[0] == found[1]


def test_what_was_published_is_seen_by_what_follows(pair):
    with pair.chained.socket() as one:
        for number in range(20):
            one.send({"c": "publish", "t": "orders", "d": {"id": number}, "cid": f"p{number}"})
            lines = one.ask({"c": "sow", "t": "orders", "filter": f"/id = {number}"})
            lines += one.until(c="group_end")
            assert [line["d"]["id"] for line in lines if line["c"] == "sow"] == [number]


def test_many_bodies_are_passed_on_with_one_ack(pair):
    bodies = [f'{{"id": {number},  "x": 1.50}}' for number in range(500)]
    with pair.chained.socket() as one:
        ack = one.ask({"c": "publish", "t": "orders", "n": 500}, *bodies)[-1]
        assert ack["status"] == "success"
    assert pair.chained.get(records("orders", filter="/id = 7")).body == b'[{"id": 7,  "x": 1.50}]'
