"""A shared subscription is replaced by another one: what differs is sent, and nothing else."""

import pytest

from sow.server.chained.link import place_of
from sow.server.chained.own_link import StandIn
from tests.server.chained.chains import ALL, BACK, begin, known, lines_up_to
from tests.server.chained.test_shared import until
from tests.server.chained.test_shared_subscription import without_names

DELTAS = {**ALL, "c": "sow_and_delta_subscribe"}
CHANGES = {
    "filter": ({**ALL, "filter": "/x > 1", "opts": "oof"}, {"filter": "/x < 3", "opts": "oof"}),
    "without oof": ({**ALL, "filter": "/x > 1"}, {"filter": "/x < 3"}),
    "oof": ({**ALL, "filter": "/x > 1"}, {"filter": "/x < 3", "opts": "oof"}),
    "deltas": (
        {**DELTAS, "filter": "/x > 1", "opts": "oof"},
        {"filter": "/x < 3", "opts": "oof"},
    ),
    "select": (ALL, {"opts": "select=[/id,/x]"}),
    "to deltas": (ALL, {"c": "sow_and_delta_subscribe", "opts": "oof", "filter": "/x = 2"}),
    "the same": ({**ALL, "opts": "oof"}, {"opts": "oof"}),
    "from changes": ({"c": "subscribe", "t": "orders", "a": ALL["a"]}, {**ALL, "filter": "/x > 1"}),
    "changes": (ALL, {"c": "subscribe", "filter": "/x > 1"}),
    "topic": ({**ALL, "opts": "oof"}, {"t": "passing", "opts": "oof"}),
    "keys": (ALL, {"opts": "no_sowkey", "filter": "/x > 1"}),
}


def publish(pair, step):
    pair.upstream.publish("orders", *({"id": at, "x": (at * step) % 5} for at in range(6)))


@pytest.mark.parametrize("change", CHANGES)
def test_what_differs_is_sent_and_nothing_else(pair, change):
    old, more = CHANGES[change]
    publish(pair, 1)
    with (
        pair.chained.socket() as one,
        pair.upstream.socket() as straight,
        pair.chained.socket() as other,
    ):
        begin(other, old)
        names, found = [], []
        for socket in (one, straight):
            lines = begin(socket, old)
            names.append(lines[0]["s"])
            found.append(lines)
        publish(pair, 2)
        for step, wanted in enumerate((more, {**old, "opts": old.get("opts", "")}, more)):
            for socket, name, mine in zip((one, straight), names, found, strict=True):
                options = ",".join(filter(None, ("replace", wanted.get("opts"))))
                command = {**{k: v for k, v in old.items() if k != "filter"}, **wanted}
                mine += begin(socket, {**command, "opts": options, "s": name}, f"r{step}")
                assert mine[-1]["s"] == name
            publish(pair, 3 + step)
        publish(pair, 9)
        pair.upstream.publish("passing", {"id": "last", "x": 2})
        pair.upstream.publish("orders", {"id": "last", "x": 2})
        for socket, mine in zip((one, straight), found, strict=True):
            mine += lines_up_to(socket, "last")
        assert without_names(found[0]) == without_names(found[1])
        pair.upstream.publish("orders", {"id": "more", "x": 2})
        # The other one goes on with what it had.
        lines_up_to(other, "more")
        until(lambda: pair.followed() <= 3)


def test_a_refused_replacement_leaves_what_there_was(pair):
    publish(pair, 1)
    with pair.chained.socket() as one, pair.upstream.socket() as straight:
        for socket in (one, straight):
            name = begin(socket, {**ALL, "opts": "oof"})[0]["s"]
            wrong = {**ALL, "opts": "replace,oof", "s": name, "filter": "(", "cid": "2"}
            socket.send(wrong)
            assert socket.until(c="ack", cid="2")[-1]["status"] == "failure"
        window = {**ALL, "order_by": "/x", "top_n": 2, "opts": "live,replace", "cid": "3"}
        one.send({**window, "s": begin(one, ALL, "4")[0]["s"]})
        ack = one.until(c="ack", cid="3")[-1]
        assert ack["status"] == "failure"
        assert "unsubscribe, and subscribe again" in ack["detail"]
        publish(pair, 2)
        pair.upstream.publish("orders", {"id": "last", "x": 2})
        lines_up_to(one, "last")


def test_replacing_while_much_changes_loses_and_repeats_nothing(pair):
    wanted = [{**ALL, "opts": "oof", "filter": f"/x > {at}"} for at in range(4)]
    publish(pair, 1)
    with pair.chained.socket() as one, pair.chained.socket() as two:
        lines = [begin(socket, wanted[0]) for socket in (one, two)]
        names = [mine[0]["s"] for mine in lines]
        for step in range(12):
            for socket, name in zip((one, two), names, strict=True):
                command = {**wanted[step % 4], "s": name, "opts": "oof,replace"}
                socket.send({**command, "cid": f"{step}"})
            for at in range(5):
                publish(pair, step + at)
                path = f"/v1/topics/orders/records?filter=/id%20=%20{at}"
                pair.upstream.request("DELETE", path)
            for socket, mine in zip((one, two), lines, strict=True):
                mine += socket.until(c="ack", a="completed", cid=f"{step}")
                assert mine[-1]["status"] == "success"
        pair.upstream.publish("orders", {"id": "last", "x": 9})
        for socket, mine in zip((one, two), lines, strict=True):
            mine += lines_up_to(socket, "last")
            live = [int(line["bm"]) for line in mine if line["c"] == "p"]
            assert live == sorted({*live})
        found = pair.upstream.records("orders", filter=wanted[11 % 4]["filter"])
        for mine in lines:
            held = known(mine)
            assert sorted(map(str, held.values())) == sorted(map(str, found))


def test_a_loss_meanwhile_leaves_what_there_was(pair):
    publish(pair, 1)
    with pair.chained.socket() as one:
        lines = begin(one, {**ALL, "opts": "oof"})
        name = lines[0]["s"]
        command = {**ALL, "s": name, "opts": "oof,replace", "filter": "/x > 1"}
        pair.relay.be_lost()
        one.send({**command, "cid": "2"})
        ack = one.until(c="ack", cid="2")[-1]
        assert (ack["status"], ack["reason"]) == ("failure", "upstream lost")
        pair.relay.be_silent(False)
        one.until(**BACK)
        pair.upstream.publish("orders", {"id": 7, "x": 0})
        assert one.until(c="p")[-1]["s"] == name
        lines = begin(one, command, "3")
        assert lines[-1]["status"] == "success"
        assert 7 in [line["d"]["id"] for line in lines if line["c"] == "oof"]


def test_a_planted_loss_is_found(pair, monkeypatch):
    """What the session holds when its subscription is replaced is forgotten."""

    def take(stand_in, line):
        stand_in.state.note("", True, place_of(line.bm) if line.bm else None)

    publish(pair, 1)
    for planted in (False, True):
        if planted:
            monkeypatch.setattr(StandIn, "take", take)
        with pair.chained.socket() as one:
            name = begin(one, {**ALL, "opts": "oof"})[0]["s"]
            wanted = {**ALL, "s": name, "opts": "oof,replace", "filter": "/x < 9"}
            begin(one, wanted, "2")
            pair.upstream.publish("orders", {"id": 4, "x": 9}, {"id": "last", "x": 1})
            said = [line["c"] for line in lines_up_to(one, "last")]
            assert ("oof" in said) is not planted
        publish(pair, 1)
