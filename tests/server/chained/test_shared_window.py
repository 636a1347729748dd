"""Live windows that sessions share: they scroll, and one is upstream for equal ones."""

from sow.server.chained.shared_window import SharedWindow
from tests.server.chained.chains import ALL, begin
from tests.server.chained.test_shared import until
from tests.server.chained.test_shared_subscription import without_names

WINDOW = {**ALL, "order_by": "/x DESC", "top_n": 3, "opts": "positions"}


def publish(pair, step):
    pair.upstream.publish("orders", *({"id": at, "x": (at * step) % 11} for at in range(10)))


def test_a_window_scrolls_as_upstream_scrolls_it(pair):
    publish(pair, 3)
    with pair.chained.socket() as one, pair.upstream.socket() as straight:
        found, names = [], []
        for socket in (one, straight):
            found.append(begin(socket, {**WINDOW, "skip_n": 0}))
            names.append(found[-1][0]["s"])
        for step, skip_n in enumerate((2, 1, 5, 0)):
            for socket, name, mine in zip((one, straight), names, found, strict=True):
                command = {**WINDOW, "skip_n": skip_n, "opts": "positions,replace", "s": name}
                mine += begin(socket, command, f"{step}")
            publish(pair, 4 + step)
            for socket, mine in zip((one, straight), found, strict=True):
                mine += socket.until(c="turn_end")
        assert without_names(found[0]) == without_names(found[1])
        wrong = {**ALL, "opts": "replace", "s": names[0], "cid": "9"}
        one.send(wrong)
        assert one.until(c="ack", cid="9")[-1]["status"] == "failure"
        # One of this session, and one of the other.
        until(lambda: pair.followed() == 2)


def test_windows_that_look_otherwise_are_one_upstream(pair):
    publish(pair, 3)
    with pair.chained.socket() as one, pair.chained.socket() as two, pair.chained.socket() as three:
        begin(one, {**WINDOW, "opts": "live"})
        begin(two, {**WINDOW, "c": "sow_and_delta_subscribe", "skip_n": 0})
        begin(three, {**WINDOW, "opts": "live,conflation=20ms,no_sowkey"})
        assert pair.followed() == 1
        pair.upstream.publish("orders", {"id": 3, "x": 99})
        lines = [socket.until(c="turn_end") for socket in (one, two, three)]
        assert {line["c"] for mine in lines for line in mine} <= {"p", "oof", "turn_end"}
        assert [mine[-2]["d"] for mine in lines] == [{"id": 3, "x": 99}] * 3
        ((shares,),) = pair.chained.server._source._chain._shares.values()
        assert shares.subscriber_count == 3
        one.ask({"c": "unsubscribe", "s": "all"}, cid="2")
    until(lambda: pair.followed() == 0)


def test_a_planted_disorder_is_found(pair, monkeypatch):
    """Records are put at the end of the page."""
    put = SharedWindow._put_row

    def at_the_end(window, line):
        line.at = None
        put(window, line)

    monkeypatch.setattr(SharedWindow, "_put_row", at_the_end)
    publish(pair, 3)
    with pair.chained.socket() as one, pair.upstream.socket() as straight:
        found = [begin(socket, {**WINDOW, "skip_n": 0}) for socket in (one, straight)]
        pair.upstream.publish("orders", {"id": 3, "x": 99})
        for socket, mine in zip((one, straight), found, strict=True):
            mine += socket.until(c="turn_end")
        assert without_names(found[0]) != without_names(found[1])
