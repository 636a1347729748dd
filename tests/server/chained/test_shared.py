"""Equal subscriptions of many sessions are one upstream; late members hold what others hold."""

import asyncio
from functools import partial
from types import SimpleNamespace

import pytest

from sow.server.api.nodes import Upstream
from sow.server.chained import shared_subscription
from sow.server.chained.link import read_line
from sow.server.chained.shared import AT_ONCE, Shares
from sow.server.chained.shared_subscription import SharedSubscription
from sow.topic.batch import Update
from tests.edge.serving import Running, configuration
from tests.server.chained.chains import (
    ALL,
    DELTAS,
    LOST,
    Pair,
    begin,
    known,
    lines_up_to,
    numbers,
    until,
)

OPTIONS = ["", "oof", "oof,timestamp", "select=[/id,/x]"]


def test_equal_subscriptions_are_one_upstream(pair):
    pair.upstream.publish("orders", {"id": 1, "x": 1})
    with pair.chained.socket() as one, pair.chained.socket() as two, pair.chained.socket() as three:
        names = [begin(socket, ALL)[0]["s"] for socket in (one, two)]
        names.append(three.ask({"c": "subscribe", "t": "orders"})[-1]["s"])
        assert len({*names}) == 1
        assert pair.followed() == 1
        sessions = pair.upstream.get("/v1/sessions").json
        # Folded lines would have the bookmark of the first change that they stand for.
        assert [one["conflated"] for one in sessions if one["subscriptions"]] == [False]
        bookmark = pair.upstream.publish("orders", {"id": 2}).json["bookmark"]
        lines = [socket.until(c="p")[-1] for socket in (one, two, three)]
        assert lines[0] == lines[1] == lines[2]
        assert lines[0]["bm"] == bookmark


@pytest.mark.parametrize(
    "command",
    [
        {"c": "sow"},
        {"c": "subscribe"},
        {"c": "sow_and_subscribe"},
        {"c": "sow_and_subscribe", "opts": "live,top_n=5", "order_by": "/id"},
        {"c": "subscribe", "t": "^orders$"},
    ],
)
def test_advice_on_fields_comes_from_upstream(pair, command):
    pair.upstream.publish("orders", {"id": 1, "symbol": "A"})
    asked = {"t": "orders", "filter": "/symbl = 1", "a": "processed,completed", **command}
    with pair.chained.socket() as socket:
        socket.send({"cid": "1", **asked})
        acks = [line for line in socket.until(a="completed") if line["c"] == "ack"]
        assert [ack.get("advice") for ack in acks] == [
            ["no record has /symbl; did you mean /symbol?"]
        ] * 2
        # Later the records may be others.
        if command["c"] != "sow":
            pair.upstream.publish("orders", {"id": 1, "symbl": "A"})
            socket.send({"cid": "2", **asked})
            acks = [line for line in socket.until(cid="2", a="completed") if line["c"] == "ack"]
            assert [ack.get("advice") for ack in acks] == [None, None]


def test_a_subscription_ends_upstream_with_its_last_member(pair):
    with pair.chained.socket() as one, pair.chained.socket() as two:
        name = begin(one, ALL)[0]["s"]
        begin(two, ALL)
        assert one.ask({"c": "unsubscribe", "s": name})[-1]["status"] == "success"
        assert pair.followed() == 1
        # The other one is ended upstream through the same connection, before this begins.
        begin(one, {**ALL, "filter": "/id = 1"})
        assert two.ask({"c": "unsubscribe", "s": "all"})[-1]["status"] == "success"
        begin(one, {**ALL, "filter": "/id = 2"}, "2")
        assert pair.followed() == 2


@pytest.mark.parametrize(
    ("command", "options"),
    [
        *[("sow_and_subscribe", options) for options in OPTIONS],
        *[("sow_and_delta_subscribe", options) for options in [*OPTIONS, "oof,no_empties"]],
    ],
)
def test_a_client_that_joins_late_holds_what_others_hold(pair, command, options):
    wanted = {**ALL, "c": command, "opts": options, "filter": "/x > 0"}
    pair.upstream.publish("orders", {"id": 1, "x": 1}, {"id": 2, "x": 1}, {"id": 3, "x": 1})
    with pair.chained.socket() as one:
        held = known(begin(one, wanted))
        for step in range(4):
            pair.upstream.publish("orders", {"id": step, "x": step - 2, "y": step})
            pair.upstream.publish("orders", {"id": 10 + step, "x": 1})
            with pair.chained.socket() as late, pair.upstream.socket() as straight:
                at = [begin(socket, wanted) for socket in (late, straight)]
                more = {"id": 2, "x": step, "y": 7}, {"id": 99, "x": 1 + step}
                pair.upstream.publish("orders", *more)
                pair.upstream.publish("orders", {"id": "last", "x": 1, "step": step})
                for socket, lines in zip((late, straight), at, strict=True):
                    lines += lines_up_to(socket, "last")
                assert known(at[0]) == known(at[1])
                assert [one["c"] for one in at[0]] == [one["c"] for one in at[1]]
            known(lines_up_to(one, "last"), held)
            if "oof" in options:
                assert held == known(at[1])


def read_until(socket, held, now, exactly):
    """Take lines until a client holds what there is now."""
    while not (held == now if exactly else now.items() <= held.items()):
        known([socket.line()], held)


@pytest.mark.parametrize("command", ["sow_and_subscribe", "sow_and_delta_subscribe"])
@pytest.mark.parametrize("options", ["conflation=auto", "conflation=auto,oof"])
def test_a_client_that_joins_late_at_a_pace_of_its_own_holds_what_others_hold(
    pair, command, options
):
    wanted = {**ALL, "c": command, "opts": options, "filter": "/x > 0"}
    pair.upstream.publish("orders", {"id": 1, "x": 1}, {"id": 2, "x": 1}, {"id": 3, "x": 1})
    with pair.chained.socket() as one, pair.upstream.socket() as straight:
        held = known(begin(one, wanted))
        for step in range(6):
            pair.upstream.publish("orders", {"id": step, "x": step - 2, "y": step})
            with pair.chained.socket() as late:
                more = {"id": 2, "x": step, "y": 7}, {"id": 99, "x": 1 + step}
                pair.upstream.publish("orders", *more)
                found = known(begin(late, wanted))
                for at in range(5):
                    pair.upstream.publish("orders", {"id": 3, "x": at - 1, "step": step})
                snapshot = {**wanted, "c": "sow", "opts": ""}
                now = known(begin(straight, snapshot, cid=f"{step}"))
                read_until(late, found, now, "oof" in options)
                read_until(one, held, now, "oof" in options)
                assert pair.followed() == 1


def test_a_record_that_leaves_after_the_snapshot_is_reported_at_once(pair):
    """Such a line has no bookmark, so that it does not make the session a member of the channel."""
    pair.upstream.publish("orders", {"id": 1})
    with pair.chained.socket() as socket:
        begin(socket, {**ALL, "opts": "oof"})
        socket.ask({"c": "flush"}, cid="all that came with the snapshot")
        pair.upstream.request("DELETE", "/v1/topics/orders/records?filter=/id=1")
        assert socket.until(c="oof")[-1]["reason"] == "deleted"


def test_a_snapshot_is_not_older_than_what_follows_it_in_a_chain(pair, tmp_path):
    """What is late on its way to the server in between is not news to a client of the last one."""
    wanted = {**ALL, "opts": "oof"}
    pair.upstream.publish("orders", {"id": 1})
    last = Running(configuration(""), tmp_path / "last", upstream=Upstream(pair.chained.url, ""))
    with last.socket() as one, last.socket() as two:
        begin(one, wanted)
        passes = hold_back(pair.chained)
        pair.upstream.request("DELETE", "/v1/topics/orders/records?filter=/id=1")
        pair.upstream.publish("orders", {"id": 1, "x": 2})
        lines = begin(two, wanted)
        for at in range(10):
            two.ask({"c": "sow", "t": "passing"}, cid=f"{at}")
        pair.chained.call(passes.set)
        pair.upstream.publish("orders", {"id": "last"})
        lines += lines_up_to(two, "last")
        assert [line["c"] for line in lines if line["c"] in ("sow", "p", "oof")] == ["sow", "p"]
    last.close()
    assert last.errors == []


def hold_back(running):
    """Have a chained server read nothing of its shared subscriptions until this event is set."""
    ((shares,),) = running.server._source._chain._shares.values()
    passes, take = asyncio.Event(), shares.take

    async def held(lines):
        await passes.wait()
        await take(lines)

    shares.take = held
    return passes


class Channels:
    """A shared subscription with so many channels."""

    def __init__(self, count):
        self.channels = range(count)
        self.taken = []

    def take(self, changes, _now_us):
        self.taken += changes
        yield len(changes) * len(self.channels)


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_lines_for_many_channels_are_taken_in_turns_with_others(is_cancelled):
    """All are taken and handed out together, also where the connection is lost meanwhile."""
    one, handed_out, seen = Channels(AT_ONCE // 10), [], set()
    shares = SimpleNamespace(
        _now_us=lambda: 0, _by_upstream={"u": one}, _schedule=lambda _: handed_out.append(100)
    )
    shares._runs = partial(Shares._runs, shares)

    async def run():
        taking = asyncio.create_task(Shares.take(shares, 100 * [b'{"c":"p","s":"u"}']))
        while not taking.done():
            await asyncio.sleep(0)
            seen.add(len(one.taken))
            if is_cancelled and one.taken:
                taking.cancel()
        await asyncio.wait((taking,))
        return taking.cancelled()

    assert asyncio.run(run()) == is_cancelled
    assert {*range(10, 100, 10)} <= seen or is_cancelled, "others have their turns"
    assert len(one.taken) == 100
    assert handed_out == [100]


def test_one_line_is_put_into_very_many_channels_in_parts(monkeypatch):
    monkeypatch.setattr(shared_subscription, "PUT_AT_ONCE", 10)
    put = []

    def channel(at):
        return SimpleNamespace(put_all=lambda _passed, _now_us: put.append(at))

    one = SimpleNamespace(
        channels=[*map(channel, range(25))],
        place=None,
        _field=b"",
        _update=lambda *_: Update("1", True, b"{}", 1, 1, 1, 1),
    )
    line = read_line(b'{"c":"p","s":"u","k":"1"}')
    steps = SharedSubscription.take(one, [(line, b"{}")], 0)
    assert [(count, len(put)) for count in steps] == [(10, 10), (10, 20), (5, 25)]
    assert put == [*range(25)]


def test_what_changes_in_a_row_is_taken_together_and_all_else_in_its_place():
    one, other, done = Channels(1), Channels(1), []
    shares = SimpleNamespace(
        _by_upstream={"u": one, "v": other},
        _take_other=lambda line, _raw, about: done.append((line.c, about)),
    )
    lines = [
        b'{"c":"%b","s":"%b"}' % (kind, name)
        for kind, name in (
            *((b"p", b"u"), (b"oof", b"u"), (b"p", b"v"), (b"turn_end", b"v"), (b"p", b"v")),
            *((b"p", b"gone"), (b"p", b"u"), (b"ack", b"")),
        )
    ]
    for about, run in Shares._runs(shares, lines):
        done.append((about, [line.c for line, _ in run]))
    assert done == [
        (one, ["p", "oof"]),
        (other, ["p"]),
        ("turn_end", other),
        (other, ["p"]),
        ("p", None),
        (one, ["p"]),
        ("ack", None),
    ]


def test_a_flush_is_answered_behind_the_lines_before_it(pair):
    with pair.chained.socket() as one, pair.chained.socket() as other:
        begin(one, ALL)
        passes = hold_back(pair.chained)
        pair.upstream.publish("orders", {"id": 1})
        one.send({"c": "flush", "cid": "flush"})
        for at in range(10):
            other.ask({"c": "sow", "t": "passing"}, cid=f"{at}")
        pair.chained.call(passes.set)
        lines = one.until(c="ack", cid="flush")
        assert [line["d"]["id"] for line in lines if line["c"] == "p"] == [1]


def test_who_subscribes_without_a_snapshot_gets_nothing_older(pair):
    with pair.chained.socket() as one, pair.chained.socket() as two:
        begin(one, ALL)
        passes = hold_back(pair.chained)
        pair.upstream.publish("orders", {"id": 1})
        two.send({"c": "subscribe", "t": "orders", "cid": "1"})
        for at in range(10):
            one.ask({"c": "sow", "t": "passing"}, cid=f"{at}")
        pair.chained.call(passes.set)
        two.until(c="ack", cid="1")
        pair.upstream.publish("orders", {"id": 2})
        assert numbers(lines_up_to(two, 2)) == [2]


def test_what_nobody_waits_for_any_more_does_not_stay_upstream(pair):
    with pair.chained.socket() as stays:
        begin(stays, ALL)
        for number in range(20):
            with pair.chained.socket() as one:
                one.send({**ALL, "filter": f"/id = {number}"})
                one.send({**DELTAS, "filter": f"/x = {number}"})
        pair.upstream.publish("orders", {"id": 99})
        lines_up_to(stays, 99)
        until(lambda: pair.followed() == 1)


def test_who_comes_while_the_last_one_leaves_is_served(pair):
    with pair.chained.socket() as one, pair.chained.socket() as two:
        for number in range(30):
            for cid, socket in ((f"a{number}", one), (f"b{number}", two)):
                socket.send({"c": "unsubscribe", "s": "all"} if number else {"c": "flush"})
                filtered = f"/id > -{number + 1}"
                socket.send({**ALL, "cid": cid, "filter": filtered})
            for cid, socket in ((f"b{number}", two), (f"a{number}", one)):
                lines = socket.until(c="ack", a="completed", cid=cid)
                assert lines[-1]["status"] == "success"
            pair.upstream.publish("orders", {"id": number})
            for socket in (one, two):
                lines_up_to(socket, number)


def test_nothing_is_kept_for_who_has_nothing(pair):
    with pair.chained.socket() as one:
        one.ask({"c": "subscribe", "t": "nix"})
        one.ask({"c": "subscribe", "t": "orders", "filter": "("}, cid="2")
        chain = pair.chained.server._source._chain
        until(lambda: not chain._shares)


def test_a_client_with_all_the_subscriptions_leaves_others_theirs(tmp_path):
    pair = Pair(
        tmp_path, more="<Limits><SubscriptionsPerSession>20</SubscriptionsPerSession></Limits>"
    )
    try:
        with pair.chained.socket() as one, pair.chained.socket() as two:
            acks = [
                one.ask({"c": "subscribe", "t": "orders", "filter": f"/id = {n}"}, cid=str(n))[-1]
                for n in range(21)
            ]
            assert [ack["status"] for ack in acks] == ["success"] * 20 + ["failure"]
            assert acks[-1]["detail"] == "the session has 20 subscriptions, as many as one may have"
            assert begin(two, {**ALL, "filter": "/id > 5"})[-1]["status"] == "success"
            pair.upstream.publish("orders", {"id": 6})
            lines_up_to(two, 6)
        assert pair.upstream.errors == pair.chained.errors == []
    finally:
        pair.close()


def test_an_upstream_that_starts_again_is_followed_from_the_bookmark(pair):
    pair.upstream.publish("orders", *({"id": number, "x": 1, "y": 0} for number in range(5)))
    with pair.chained.socket() as one, pair.chained.socket() as other:
        plain = begin(one, ALL)
        held = known(begin(other, DELTAS))
        begin(other, {**ALL, "t": "orders-C"}, "2")
        pair.upstream.publish("orders", {"id": 5, "x": 1})
        plain += lines_up_to(one, 5)
        pair.upstream.stop()
        assert one.line() == LOST
        pair.upstream.start()
        for number in range(5):
            pair.upstream.publish("orders", {"id": number, "x": number - 2, "y": 1})
        pair.upstream.publish("orders", {"id": 9, "x": 1})
        plain += lines_up_to(one, 9)
        assert numbers(plain) == [5, 0, 1, 2, 3, 4, 9]
        lines = lines_up_to(other, 9)
        while lines[-1].get("t") != "orders" or lines[-1]["d"]["id"] != 9:
            lines.append(other.line())
        known([line for line in lines if line.get("t") == "orders"], held)
        assert sorted(one["id"] for one in held.values()) == [3, 4, 5, 9]
        assert all(one.get("y", 1) == 1 for one in held.values())


def test_what_is_wanted_while_upstream_is_lost_begins_by_itself():
    """It has no bookmark to go on behind when the connection is back in another session."""
    sent, unnamed = [], []

    class Link:
        async def send(self, frame):
            sent.append(frame)

    async def run():
        def subscription(cid):
            opened = asyncio.get_running_loop().create_future()
            return SimpleNamespace(
                cid=cid,
                opened=opened,
                be_unnamed=lambda: unnamed.append(cid),
                next_frame=lambda: f"{cid} goes on",
            )

        begun, wanted = subscription("begun"), subscription("wanted")
        begun.opened.set_result(None)
        shares = SimpleNamespace(
            _marks={},
            _pass=lambda *_: None,
            _by_upstream={},
            _by_cid={"begun": begun, "wanted": wanted},
            _link=Link(),
        )
        await Shares.on_back(shares, resumed=False)

    asyncio.run(run())
    assert (sent, unnamed) == (["begun goes on"], ["begun"])


def test_names_of_an_upstream_that_starts_again_are_new(pair):
    """Upstream gives them in another order than before, since there was another client."""
    wanted = [{**ALL, "filter": f"/x > {number}"} for number in range(4)]
    sockets = pair.chained.socket(), pair.upstream.socket()
    with sockets[0] as one, sockets[1] as straight:
        for command in reversed(wanted):
            begin(straight, command, command["filter"])
        for command in wanted:
            begin(one, command, command["filter"])
        pair.upstream.stop()
        assert one.line() == LOST
        pair.upstream.start()
        for number in range(3):
            pair.upstream.publish("orders", {"id": number, "x": 9})
            lines = [one.until(c="p")[-1] for _ in wanted]
            assert numbers(lines) == [number] * 4
            assert len({line["s"] for line in lines}) == 4


def test_an_upstream_with_another_log_is_not_followed_from_the_bookmark(pair, tmp_path):
    with pair.chained.socket() as one:
        begin(one, ALL)
        pair.upstream.publish("orders", {"id": 1, "x": 1})
        lines_up_to(one, 1)
        pair.upstream.stop()
        pair.upstream._directory = tmp_path / "another"
        pair.upstream.start()
        pair.upstream.publish("orders", *({"id": number, "x": 1} for number in range(5)))
        assert one.until(c="close")[-1] == {"c": "close", "reason": "upstream lost"}


def test_text_frames_have_what_is_shared_with_others(pair):
    with pair.chained.socket(protocols=["sow.text"]) as one, pair.chained.socket() as two:
        assert one._ws.protocol == "sow.text"
        for ws in (one, two):
            ws.ask({"c": "sow_and_subscribe", "t": "orders"})
            ws.until(c="group_end")
        pair.upstream.publish("orders", {"id": 1})
        kinds = [pair.chained.wait(ws._ws.receive()).type.name for ws in (one, two)]
        assert kinds == ["TEXT", "BINARY"]
