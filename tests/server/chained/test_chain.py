"""Sessions of a chained server: resumed there, closed when they cannot go on, and no cost of its
upstream."""

import sys
from contextlib import ExitStack

from tests.server.chained.chains import ALL, LOST, Pair, begin, logged_on

TELLING = tuple(
    f"/sow/{module}.py"
    for module in (
        "streaming/router",
        "streaming/feeds",
        "streaming/channel",
        "streaming/update_encoder",
        "streaming/outbox/outbox",
        "server/net/session_writer",
    )
)
"""What a message passes on its way to sessions; other modules look around now and then, and so the
more often the longer it takes."""
FEW, MANY, DISTINCT, MESSAGES = 10, 200, 5, 10
MORE_MAX = 1.1
"""A frame or two may be written in parts; a call for each screen would be twenty times as many."""


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


def test_who_has_waited_for_too_long_is_closed(tmp_path):
    pair = Pair(tmp_path, more="<Sessions><ReconnectTimeout>300ms</ReconnectTimeout></Sessions>")
    with pair.chained.socket() as one, pair.chained.socket() as idle:
        begin(one, ALL)
        pair.relay.cut()
        assert one.rest() == [LOST, {"c": "close", "reason": "upstream lost"}]
        assert idle.ask({"c": "heartbeat"})[0] == LOST
    pair.close()


def calls_for_messages(pair, screens):
    """How many calls upstream makes to tell its sessions of some messages."""
    calls = [0]

    def count(frame, event, _argument):
        calls[0] += event == "call" and frame.f_code.co_filename.endswith(TELLING)

    pair.upstream.call(sys.setprofile, count)
    try:
        for at in range(MESSAGES):
            pair.upstream.publish("orders", {"id": at})
            for screen in screens:
                assert screen.line()["d"] == {"id": at}
    finally:
        pair.upstream.call(sys.setprofile, None)
    return calls[0]


def test_what_many_screens_cost_is_paid_by_the_chained_server_alone(pair):
    with ExitStack() as stack:
        screens, held, calls = [], [], []
        for count in FEW, MANY:
            while len(screens) < count:
                screen = stack.enter_context(pair.chained.socket())
                begin(screen, {**ALL, "filter": f"/id > -{1 + len(screens) % DISTINCT}"})
                screens.append(screen)
            held.append((len(pair.upstream.get("/v1/sessions").json), pair.followed()))
            calls.append(calls_for_messages(pair, screens))
            pair.upstream.request("DELETE", "/v1/topics/orders/records?filter=1=1")
        assert held[0] == held[1] == (held[0][0], DISTINCT)
        assert calls[1] <= MORE_MAX * calls[0]
