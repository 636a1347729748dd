"""Sessions of a chained server: resumed there, closed when they cannot go on."""

from tests.server.chained.chains import ALL, LOST, Pair, begin, hurry, logged_on


def test_the_log_of_a_chained_server_is_that_of_its_upstream(pair):
    with pair.chained.socket() as one, pair.upstream.socket() as other:
        assert logged_on(one)["log"] == logged_on(other)["log"]


def test_a_dropped_session_is_resumed(pair):
    with pair.chained.socket() as one:
        session = logged_on(one)["session"]
        begin(one, ALL)
        seen = len(one.seen) - 1
    pair.upstream.publish("orders", {"id": 1}, {"id": 2})
    with pair.chained.socket() as again:
        ack = logged_on(again, session=session, seen=seen)
        assert ack["resumed"] is True
        assert [again.line()["d"]["id"] for _ in range(2)] == [1, 2]
    assert pair.followed() == 1


def test_what_cannot_go_on_is_closed(pair):
    with pair.chained.socket() as one, pair.chained.socket() as other:
        begin(one, {**ALL, "t": "passing"})
        begin(other, {**ALL, "keys": "1"})
        pair.upstream.stop()
        pair.upstream.start()
        for socket in (one, other):
            # Before that, if it was noticed, that upstream is lost and back.
            assert socket.rest()[-1] == {"c": "close", "reason": "upstream lost"}


def test_who_has_waited_for_too_long_is_closed(tmp_path, monkeypatch):
    hurry(monkeypatch)
    pair = Pair(tmp_path, more="<Sessions><ReconnectTimeout>300ms</ReconnectTimeout></Sessions>")
    with pair.chained.socket() as one, pair.chained.socket() as idle:
        begin(one, ALL)
        pair.relay.cut()
        assert one.rest() == [LOST, {"c": "close", "reason": "upstream lost"}]
        assert idle.ask({"c": "heartbeat"})[0] == LOST
    pair.close()
