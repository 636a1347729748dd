"""What conflated topics and views have sent, sent again from a place in it, and then live.

The rule is 14 of docs/semantics.md; `tests/simulation/sent.py` has it in many lives of a server.
"""

import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from sow.core.cooperative import run_to_completion
from sow.core.definitions import CONFIGURATIONS, ConflatedTopic, Join, Series, Topic, View
from sow.engine import replay
from sow.errors import NotKept
from sow.history.bookmarks import Moment
from sow.protocol.wire import read_frame
from sow.sessions.queries import replay_starts
from sow.sessions.subscriptions import sent_replay
from tests.executing import execute_all
from tests.laws.harness import MS, ORDERS, SECOND, SLOW, SlowDisk
from tests.simulation.past import NotingWorld

TOTALS = View("totals", "json", ("orders",), ("SUM(/px) AS /px", "/id"), ("/id",))


@pytest.fixture
def world():
    return NotingWorld(ORDERS, SLOW, TOTALS, CONFIGURATIONS)


@pytest.fixture
def client(world):
    return world.client()


def shown(lines):
    return [
        {name: one for name, one in line.items() if name != "s"}
        for line in lines
        if line["c"] in ("p", "oof")
    ]


def trade(world, seconds=4):
    """Some changes of two records, with windows that are open at the end."""
    for number in range(seconds * 3):
        world.publish("orders", {"id": 1, "px": number}, {"id": 2, "px": -number})
        world.advance(330 * MS)
    world.delete("orders", "/id = 2")
    world.advance(1200 * MS)
    world.publish("orders", {"id": 3, "px": 0})


@pytest.mark.parametrize("topic", ["orders-C", "totals"])
@pytest.mark.parametrize("more", [{}, {"filter": "/px > 3"}, {"c": "delta_subscribe"}])
def test_it_is_sent_again_from_any_line_on_and_then_live(world, client, topic, more):
    asked = {"c": "subscribe", "t": topic, "opts": "oof", **more}
    begun = client.say(**{**asked, "c": f"sow_and_{asked['c']}"})
    trade(world)
    lines = shown(client.lines())
    bookmarks = [begun[-1]["bm"], *(line["bm"] for line in lines)]
    later = []
    for bookmark in dict.fromkeys(bookmarks):
        other = world.client()
        rest = [line for at, line in enumerate(lines) if at >= last_of(bookmarks, bookmark)]
        later.append((other, rest, shown(other.say(**asked, bm=bookmark))))
    world.publish("orders", {"id": 1, "px": 99})
    world.advance(2 * SECOND)
    live = shown(client.lines())
    assert len(lines) > 1
    assert live
    for other, rest, found in later:
        assert found == rest, "what it has sent, no gap and no repeat"
        assert shown(other.lines()) == live
    world.check()


def last_of(bookmarks, bookmark):
    return len(bookmarks) - 1 - bookmarks[::-1].index(bookmark)


def test_bookmarks_rise_in_every_row_and_are_shared_by_a_turn(world, client):
    client.say(c="sow_and_subscribe", t="orders-C", opts="oof")
    trade(world)
    places = {}
    for line in shown(client.lines()):
        seq, time_us = map(int, line["bm"].split("."))
        assert places.get(line["k"], (0, 0)) < (seq, time_us)
        places[line["k"]] = seq, time_us


@pytest.mark.parametrize("topic", ["orders-C", "totals"])
def test_what_changed_at_the_moment_of_a_snapshot_comes_once(world, client, topic):
    world.publish("orders", {"id": 1, "px": 1})
    world.publish("orders", {"id": 1, "px": 2})
    asked = {"t": topic, "opts": "oof"}
    *_, end = client.say(**asked, c="sow_and_subscribe")
    world.publish("orders", {"id": 1, "px": 3})
    world.advance(2 * SECOND)
    later = world.client()
    assert shown(later.say(**asked, c="subscribe", bm=end["bm"])) == shown(client.lines())
    _, *then, _ = later.say(c="sow", t=topic, as_of=end["bm"])
    assert [line["d"]["px"] for line in then] == ([2] if topic == "totals" else [])
    world.check()


def test_rows_of_a_join_are_sent_again_in_their_order_whatever_moved_before():
    quotes = Topic("quotes", "json", ("/sym",))
    fields = ("[orders]./id AS /id", "[quotes]./px AS /px")
    join = Join("orders", "/sym", "quotes", "/sym")
    priced = View("priced", "json", ("orders", "quotes"), fields, ("[orders]./id",), joins=(join,))
    world = NotingWorld(ORDERS, quotes, priced, CONFIGURATIONS)
    world.publish("orders", *({"id": number, "sym": "A"} for number in range(9)))
    world.advance(SECOND)
    for number in (5, 2, 7):
        for sym in "BA":
            world.publish("orders", {"id": number, "sym": sym})
            world.advance(SECOND)
    client, asked = world.client(), {"t": "priced", "opts": "oof"}
    *_, end = client.say(**asked, c="sow_and_subscribe")
    world.publish("quotes", {"sym": "A", "px": 1})
    world.advance(SECOND)
    lines = shown(client.lines())
    assert len(lines) == 9
    assert shown(world.client().say(**asked, c="subscribe", bm=end["bm"])) == lines


@pytest.mark.parametrize(
    ("gone_on_max", "wanted"),
    [(replay_starts.GONE_ON_MAX, [(1, 3), (2, 1)]), (0, [(1, 2), (2, 1), (1, 3)])],
)
def test_over_a_start_windows_go_on_or_have_ended(monkeypatch, gone_on_max, wanted):
    monkeypatch.setattr(replay_starts, "GONE_ON_MAX", gone_on_max)
    world = NotingWorld(ORDERS, SLOW, CONFIGURATIONS)
    client = world.client()
    client.say(c="sow_and_subscribe", t="orders-C", opts="oof")
    world.publish("orders", {"id": 1, "px": 1})
    world.advance(1500 * MS)
    world.publish("orders", {"id": 1, "px": 2}, {"id": 2, "px": 1})
    (line,) = client.lines()
    world.advance(300 * MS)
    world = world.restart()
    world.publish("orders", {"id": 1, "px": 3})
    world.advance(2 * SECOND)
    asked = {"c": "subscribe", "t": "orders-C", "opts": "oof", "bm": line["bm"]}
    found = shown(world.client().say(**asked))
    assert [(one["d"]["id"], one["d"]["px"]) for one in found] == wanted
    assert shown(world.client().say(**asked)) == found


def test_a_place_that_is_not_reached_is_refused_until_it_is(world, client):
    """Another server of the log has sent up to there, or the one before, whose clock was ahead:
    nothing of that is sent twice."""
    client.say(c="subscribe", t="orders-C")
    begun_us = world.now
    world.publish("orders", {"id": 1, "px": 1})
    world.advance(1500 * MS)
    (line,) = shown(client.lines())
    world = world.restart(start_us=begun_us + 300 * MS)
    late = world.client()
    asked = {"c": "subscribe", "t": "orders-C", "bm": line["bm"]}
    (refused,) = late.say(**asked)
    assert (refused["status"], refused["reason"]) == ("failure", "not yet")
    world.advance(1200 * MS)
    assert shown(late.say(**asked)) == []
    world.publish("orders", {"id": 1, "px": 2})
    world.advance(1500 * MS)
    assert [line["d"]["px"] for line in shown(late.lines())] == [2]


def test_at_another_interval(world, client):
    world.publish("orders", {"id": 1, "px": 0})
    world.advance(2 * SECOND)
    for number in range(1, 40):
        world.publish("orders", {"id": 1, "px": number})
        world.advance(250 * MS)
    plain = shown(world.client().say(c="subscribe", t="orders-C", bm="0"))
    slow = client.say(c="subscribe", t="orders-C", bm="0", opts="conflation=4s")
    world.advance(5 * SECOND)
    slow = shown(slow + client.lines())
    assert len(plain) > 6
    assert 1 < len(slow) < len(plain)
    assert slow[-1]["d"] == {"id": 1, "px": 39}


def test_windows_of_a_record_are_not_joined_however_late_the_server_is(world, client):
    client.say(c="sow_and_subscribe", t="orders-C")
    for number in range(5):
        world.publish("orders", {"id": 1, "px": number})
        world.clock.advance(1100 * MS)
    world.advance(0)
    lines = client.lines()
    assert [line["d"]["px"] for line in lines] == [0, 1, 2, 3, 4]
    again = world.client().say(c="subscribe", t="orders-C", bm="0")
    assert shown(again) == shown(lines)


COPY = ConflatedTopic("orders-CC", "json", "orders-C", interval_us=SECOND)
PLACED = View("placed", "json", ("orders-C",), ("SUM(/px) AS /px", "/id"), ("/id",))
PLACED_C = ConflatedTopic("placed-C", "json", "placed", interval_us=SECOND)


@pytest.mark.parametrize("name", ["orders-CC", "placed-C"])
@pytest.mark.parametrize("late_us", [0, 1, 300, 999 * MS, 3500 * MS])
def test_copies_of_copies_open_windows_when_their_originals_were_due(name, late_us):
    world = NotingWorld(ORDERS, SLOW, COPY, PLACED, PLACED_C, CONFIGURATIONS)
    client = world.client()
    client.say(c="sow_and_subscribe", t=name)
    for number in range(24):
        world.publish("orders", {"id": number % 2, "px": number})
        if number % 8 < 4 and late_us:
            world.clock.advance(250 * MS)
        elif number % 8 == 4 and late_us:
            world.advance(late_us)
        else:
            world.advance(250 * MS)
    world.advance(3 * SECOND)
    lines = shown(client.lines())
    assert len(lines) > 8
    assert shown(world.client().say(c="subscribe", t=name, bm="0")) == lines


@pytest.mark.parametrize("name", ["orders-C", "orders-CC", "placed", "placed-C"])
def test_who_joins_a_server_that_is_late_is_not_taken_back(name):
    world = NotingWorld(ORDERS, SLOW, COPY, PLACED, PLACED_C, CONFIGURATIONS)
    client, late = world.client(), world.client()
    client.say(c="subscribe", t=name, opts="oof")
    updates(world)
    late.execute(json.dumps({"c": "subscribe", "t": name, "bm": "0", "opts": "oof"}).encode())
    world.clock.advance(1500 * MS)
    world.engine.sequencer.moment(world.now)
    pulled = [late.pull() for _ in range(300)]
    frames = [one[one.index(b"{") :] for one in pulled if isinstance(one, bytes) and one]
    told = [json.loads(line) for one in frames for line in one.split(b"\n")]
    world.advance(3 * SECOND)
    assert shown(told + late.lines()) == shown(client.lines())


def test_a_turn_of_very_many_is_sent_again_to_who_leaves_in_it(world, client):
    client.say(c="sow_and_subscribe", t="orders-C")
    world.publish("orders", *({"id": number} for number in range(1200)))
    world.advance(2 * SECOND)
    lines = shown(client.lines())
    before, after = lines[0]["bm"], lines[-1]["bm"]
    assert before != after
    assert len(lines) == 1200
    assert len(shown(world.client().say(c="subscribe", t="orders-C", bm=before))) == 1200
    assert shown(world.client().say(c="subscribe", t="orders-C", bm=after)) == []


@pytest.mark.parametrize("topic", ["orders", "orders-C", "totals"])
@pytest.mark.parametrize("kind", ["sow_and_subscribe", "sow_and_delta_subscribe"])
def test_a_past_state_then_what_came_then_live(world, client, topic, kind):
    asked = {"c": kind, "t": topic, "opts": "oof"}
    trade(world, seconds=2)
    world.advance(1)
    before = client.say(**asked)
    moment = now_of(world)
    world.advance(1)
    trade(world, seconds=2)
    lines = before + client.lines()
    later = world.client()
    found = later.say(**asked, as_of=moment)
    world.publish("orders", {"id": 1, "px": 99})
    world.advance(2 * SECOND)
    lines += client.lines()
    found += later.lines()
    assert [line["c"] for line in found[:2]] == ["group_begin", "sow"]
    # Live lines of plain topics that leave have no bookmark.
    kept = ("c", "k", "d", "reason", "delta")
    assert [[line.get(name) for name in kept] for line in found] == [
        [line.get(name) for name in kept] for line in lines
    ]


def now_of(world):
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=world.now)).isoformat()


def test_a_past_state_is_that_of_its_filter_and_order(world, client):
    world.publish("orders", {"id": 1, "px": 5}, {"id": 2, "px": 7}, {"id": 3, "px": 0})
    world.advance(2 * SECOND)
    world.publish("orders", {"id": 2, "px": 1})
    world.advance(2 * SECOND)
    lines = client.say(
        c="sow_and_subscribe", t="orders-C", as_of="3", filter="/px > 2", order_by="/px DESC"
    )
    assert [line["c"] for line in lines] == ["group_begin", "group_end", "p", "p"], "in a window"
    lines = client.say(
        c="sow_and_subscribe", t="orders", as_of="3", filter="/px > 2", order_by="/px DESC",
        opts="oof",
    )  # fmt: skip
    assert [line["d"]["id"] for line in lines if line["c"] == "sow"] == [2, 1]
    assert [(line["reason"], line["bm"]) for line in lines if line["c"] == "oof"] == [
        ("match", "4")
    ]


@pytest.mark.parametrize(
    "more",
    [
        {"c": "subscribe"},
        {"opts": "live", "top_n": 2},
        {"projection": "SUM(/px) AS /px,/id", "grouping": "/id"},
        {"t": "^ord"},
        {"opts": "oof", "top_n": 1},
        {"opts": "last=2", "t": "prices"},
        {"as_of": "99"},
        {"bm": "0"},
    ],
)
def test_what_does_not_begin_in_the_past_is_refused(more):
    world = NotingWorld(ORDERS, SLOW, Topic("prices", "json", keys=("/id",), series=Series()))
    client = world.client()
    world.publish("orders", {"id": 1, "px": 5})
    asked = {"c": "sow_and_subscribe", "t": "orders", "as_of": "1", **more}
    (ack,) = client.say(**asked)
    assert ack["status"] == "failure"
    assert client.subscriptions == {}


@pytest.mark.parametrize(
    ("bookmark", "found"),
    [
        ("0", [1, 2]),
        ("1", [1, 2]),
        ("2.1002000000", [2]),
        ("00000000000000aa-2.1002000000", [2]),
        ("2.1002000000,0", [1, 2]),
        ("19700101T001641Z", [1, 2]),
        ("19700101T001641.000001Z", [2]),
        ("9", "invalid bookmark"),
        ("[0:2]", "invalid bookmark"),
        ("00000000000000bb-2.1002000000", "another log"),
    ],
)
def test_where_it_begins(world, client, bookmark, found):
    for number in (1, 2):
        world.publish("orders", {"id": number})
        world.advance(2 * SECOND)
    lines = client.say(c="subscribe", t="orders-C", bm=bookmark)
    if isinstance(found, str):
        assert [line["reason"] for line in lines] == [found]
    else:
        assert [line["d"]["id"] for line in lines] == found


def test_elsewhere_a_place_is_the_change_that_it_names(world, client):
    world.publish("orders", {"id": 1}, {"id": 2}, {"id": 3})
    lines = client.say(c="subscribe", t="orders", bm="2.1000000000")
    assert [line["d"]["id"] for line in lines] == [3]


def test_what_is_on_its_way_to_the_disk_is_not_early(world):
    world = SlowDisk(ORDERS, SLOW)
    client = world.client()
    world.publish("orders", {"id": 1})
    world.advance(2 * SECOND)
    world.held = True
    world.publish("orders", {"id": 2})
    world.clock.advance(2 * SECOND)
    world.engine.advance(world.now)
    command = read_frame(b'{"c":"subscribe","t":"orders-C","bm":"0"}')
    execute_all(world.executor, client.session, command, world.now)
    pulled = iter(lambda: client.session.pull(world.engine.sequencer.released, world.now), None)
    early = b"".join(frame or b"" for frame in pulled)
    assert b'"id":2' not in early
    world.held = False
    world.settle()
    late = client.lines()
    assert early.count(b'"id":1') + len([one for one in late if one["d"]["id"] == 1]) == 1
    assert [one["d"]["id"] for one in late if one["d"]["id"] == 2] == [2]


def test_a_view_that_has_not_taken_in_the_log_yet_is_not_the_present(world, client):
    """A replay that ends in the middle of a turn is not sent back to before it."""
    for number in range(3):
        world.publish("orders", {"id": 1, "px": number})
        world.advance(SECOND)
    client.execute(b'{"c":"subscribe","t":"totals","bm":"0"}')
    world.engine.publish("orders", [b'{"id":1,"px":3}'], world.now)
    assert world.engine.views.is_dirty
    released = world.engine.sequencer.released
    frames = [client.session.pull(released, world.now) or b"" for _ in range(50)]
    found = re.findall(rb'"px":(\d)', b"".join(frames))
    world.settle()
    found += [b"%d" % line["d"]["px"] for line in shown(client.lines())]
    assert found == [b"0", b"1", b"2", b"3"]


TOTALS_C = ConflatedTopic("totals-C", "json", "totals", interval_us=SECOND)


def publish(world, px):
    """Publish without ending the turn."""
    world.engine.publish("orders", [b'{"id":1,"px":%d}' % px], world.now)
    world.clock.advance(MS)


def sent_again(world, topic, bookmark="0", topics=("totals", "totals-C"), opts="oof,timestamp"):
    return {
        name: shown(world.client().say(c="subscribe", t=name, opts=opts, bm=bookmark))
        for name in topics
    }[topic]


@pytest.fixture
def live():
    """A world with a copy of a view, and clients of both."""
    world = NotingWorld(ORDERS, TOTALS, TOTALS_C, CONFIGURATIONS)
    clients = {name: world.client() for name in ("totals", "totals-C")}
    for name, one in clients.items():
        one.say(c="subscribe", t=name, opts="oof,timestamp")
    return world, clients


def test_what_a_view_released_together_is_sent_again_together(live):
    """Publishes of several clients between two flushes are one change of a row."""
    world, clients = live
    for px in range(3):
        publish(world, px)
    world.settle()
    publish(world, 3)
    world.settle()
    world.advance(2 * SECOND)
    told = {name: shown(one.lines()) for name, one in clients.items()}
    assert [line["d"]["px"] for line in told["totals"]] == [2, 3]
    assert {name: sent_again(world, name) for name in told} == told
    world = world.restart()
    assert {name: sent_again(world, name) for name in told} == told


def test_a_view_that_a_request_held_back_is_sent_again_as_late(live):
    """Its copy waits for it: what belongs into a window is in that, whenever it is released."""
    world, clients = live

    def request():
        publish(world, 1)
        yield
        publish(world, 5)

    publish(world, 0)
    world.settle()
    world.advance(950 * MS)
    steps = world.engine.requests.together(request())
    next(steps)
    publish(world, 2)
    world.settle()
    world.advance(100 * MS)
    assert clients["totals-C"].lines() == [], "the window has ended, and its view is held back"
    publish(world, 3)
    assert next(steps, None) is None
    world.settle()
    world.advance(2 * SECOND)
    told = {name: shown(one.lines()) for name, one in clients.items()}
    assert [line["d"]["px"] for line in told["totals"]] == [0, 5]
    assert [line["d"]["px"] for line in told["totals-C"]] == [0, 5]
    assert {name: sent_again(world, name) for name in told} == told


def test_a_copy_of_a_view_begins_its_window_with_the_change(live):
    """And not with the flush, which comes some microseconds later."""
    world, clients = live
    world.engine.publish("orders", [b'{"id":1,"px":1}'], world.now)
    due_us = world.now + SECOND
    world.clock.advance(8)
    world.engine.sequencer.moment(world.now)  # as the runtime does
    world.settle()
    world.advance(2 * SECOND)
    (line,) = shown(clients["totals-C"].lines())
    assert line["bm"] == f"1.{due_us}"
    assert sent_again(world, "totals-C") == [line]


def test_a_reload_gives_rows_the_time_of_the_reload(live):
    """A copy of a view would go back else, and repeat lines to who goes on behind them."""
    world, clients = live
    world.publish("orders", {"id": 1, "px": 1})
    world.advance(3 * SECOND)
    before = shown(clients["totals-C"].lines())
    other = View("totals", "json", ("orders",), ("SUM(/px) + 1 AS /px", "/id"), ("/id",))
    configuration = type(world.configuration)(
        world.configuration.name, (ORDERS, other, TOTALS_C, CONFIGURATIONS)
    )
    world.executor.reconfigure(configuration, world.now)
    reloaded_us = world.now
    world.settle()
    world.advance(3 * SECOND)
    (line,) = shown(clients["totals-C"].lines())
    assert line["bm"] == f"1.{reloaded_us + SECOND}"
    assert sent_again(world, "totals-C") == [*before, line]


QUICK = replace(SLOW, interval_us=SECOND // 4)


def reconfigured(world, *topics):
    """Its configuration with other topics."""
    return replace(world.configuration, topics=(*topics, CONFIGURATIONS))


def again(world):
    return sent_again(world, "orders-C", topics=["orders-C"], opts="oof")


def updates(world, count=6):
    for number in range(count):
        world.publish("orders", {"id": 1, "px": number}, {"id": 2, "px": number})
        world.advance(330 * MS)


def test_a_reload_is_sent_again_by_who_was_under_way_when_it_came(world, client):
    client.say(c="subscribe", t="orders-C", opts="oof")
    updates(world)
    world.advance(2 * SECOND)
    late = world.client()
    late.execute(b'{"c":"subscribe","t":"orders-C","bm":"0","opts":"oof"}')
    world.executor.reconfigure(reconfigured(world, ORDERS, QUICK, TOTALS), world.now)
    world.settle()
    updates(world)
    world.advance(2 * SECOND)
    told = shown(client.lines())
    assert shown(late.lines()) == told
    assert again(world) == told


def test_a_reload_in_the_middle_of_a_turn_of_views_counts_from_its_place_on(world, client):
    client.say(c="subscribe", t="orders-C", opts="oof")

    def request():
        publish(world, 1)
        yield
        publish(world, 5)

    publish(world, 0)
    world.settle()
    world.advance(2 * SECOND)
    steps = world.engine.requests.together(request())
    next(steps)
    publish(world, 2)
    world.settle()
    world.executor.reconfigure(reconfigured(world, ORDERS, QUICK, TOTALS), world.now)
    for px in (3, 4):
        world.advance(300 * MS)
        publish(world, px)
        world.settle()
    assert next(steps, None) is None
    world.settle()
    world.advance(2 * SECOND)
    assert again(world) == shown(client.lines())


def test_a_reload_that_takes_long_changes_intervals_at_its_end(world, client):
    """The log says of it when it has ended."""
    client.say(c="subscribe", t="orders-C", opts="oof")
    updates(world)
    more = View("more", "json", ("orders",), ("COUNT(/id) AS /n", "/px"), ("/px",))
    new = reconfigured(world, ORDERS, QUICK, TOTALS, more)
    for _ in world.executor.reconfiguration(new, world.now):
        updates(world, 1)
    updates(world)
    world.advance(2 * SECOND)
    assert again(world) == shown(client.lines())


def test_it_comes_in_slices_and_what_it_takes_is_counted_and_let_go(world, client):
    for number in range(30):
        world.publish("orders", *({"id": one, "px": number} for one in range(100)))
        world.advance(500 * MS)
    client.execute(b'{"c":"subscribe","t":"orders-C","bm":"0"}')
    session, counts = client.session, []
    while (frame := session.pull(world.engine.sequencer.released, world.now)) is not None:
        counts.append((frame or b"").count(b'"c":"p"'))
        if len(counts) == 20:
            assert session.memory._beside_bytes > 100
            world.check()
    assert max(counts) <= 500
    assert len(counts) > 20
    assert session.memory._beside_bytes == 0
    other = world.client()
    other.execute(b'{"c":"subscribe","t":"orders-C","bm":"0"}')
    other.session.pull(world.engine.sequencer.released, world.now)
    other.execute(b'{"c":"unsubscribe","s":"all"}')
    assert shown(other.lines()) == []
    world.check()


def test_what_came_while_a_client_did_not_read_is_not_left_for_the_last_step(
    world, client, monkeypatch
):
    monkeypatch.setattr(sent_replay, "FEW", 20)
    monkeypatch.setattr(replay, "RECORDS_AT_ONCE", 20)
    for number in range(10):
        world.publish("orders", {"id": 1, "px": number})
        world.advance(1100 * MS)
    client.execute(b'{"c":"subscribe","t":"orders-C","bm":"0"}')
    session, found, pulls = client.session, [], 0
    while (frame := session.pull(world.engine.sequencer.released, world.now)) is not None:
        found.append((frame or b"").count(b'"c":"p"'))
        pulls += 1
        if pulls in (3, 8, 15):
            for number in range(100):
                world.publish("orders", {"id": 1, "px": number})
                world.advance(1100 * MS)
    assert sum(found) == 310
    assert max(found) <= 21, "in the step that joins, too"


@pytest.mark.parametrize("topic", ["orders-C", "totals"])
@pytest.mark.parametrize("more", [{"c": "subscribe", "bm": "0"}, {"c": "sow_and_subscribe"}])
def test_what_a_replacement_takes_back_has_a_place_to_go_on_from(world, client, topic, more):
    world.publish("orders", {"id": 1, "px": 1}, {"id": 2, "px": 9})
    world.advance(2 * SECOND)
    lines = client.say(t=topic, opts="oof", **more)
    name = next(line["s"] for line in lines if "s" in line)
    asked = {"c": "subscribe", "t": topic, "filter": "/px > 5"}
    (lost,) = shown(client.say(**asked, s=name, opts="oof,replace"))
    world.publish("orders", {"id": 2, "px": 3})
    world.advance(2 * SECOND)
    (live,) = shown(client.lines())
    assert (lost["c"], live["c"], lost["bm"].count(".")) == ("oof", "oof", 1)
    again = shown(world.client().say(**asked, opts="oof", bm=lost["bm"]))
    assert again[-1] == live


@pytest.mark.parametrize("topic", ["orders-C", "totals"])
class TestRetention:
    """What is removed while it is read is refused by its name, with what there is."""

    def lived(self, world):
        for number in range(20):
            world.publish("orders", {"id": number % 3, "px": number})
            world.advance(1100 * MS)

    def test_before_the_beginning(self, world, client, topic):
        self.lived(world)
        world.journal.trim(0, 12, beyond=True)
        (refused,) = client.say(c="subscribe", t=topic, bm="3", opts="oof")
        assert refused["reason"] == "invalid bookmark"
        assert (refused["oldest"]["bookmark"], refused["newest"]["bookmark"]) == ("11", "20")

    @pytest.mark.parametrize("few", [0, replay_starts.FEW])
    def test_at_each_step_of_it(self, monkeypatch, world, topic, few):
        monkeypatch.setattr(replay_starts, "FEW", few)
        self.lived(world)
        past, journal = world.executor.subscriptions.past, world.journal
        entries, base = [*journal._entries], journal._base_seq
        asked = world.engine.topics[topic], Moment(8, 1_007_700_000), lambda _replay: None
        whole = run_to_completion(past.replay_to(*asked))
        wanted = shown_records(whole, topic)
        at = number = 0
        while number >= at:
            at += 3
            journal._entries, journal._base_seq, number = [*entries], base, 0
            steps = past.replay_to(*asked)
            try:
                while True:
                    if number == at:
                        journal.trim(0, 6, beyond=True)
                    next(steps)
                    number += 1
            except StopIteration as over:
                assert shown_records(over.value, topic) == wanted  # noqa: PT017
            except NotKept as error:
                assert error.bounds["oldest"]["bookmark"] == "5"  # noqa: PT017

    def test_before_it_is_read(self, world, client, topic):
        self.lived(world)
        line = {"c": "subscribe", "t": topic, "bm": "3"}
        client.execute(json.dumps(line).encode())
        world.journal.trim(0, 12, beyond=True)
        (ended,) = client.lines()
        assert (ended["c"], ended["reason"]) == ("unsubscribed", "invalid bookmark")
        assert "trimmed up to 11 and this replay had come to 3" in ended["detail"]
        world.check()


def shown_records(again, name):
    table = again.topic(name).records.table
    return [(table.identities[slot], table.bodies[slot]) for slot in table.live().tolist()]


def test_what_is_otherwise_than_it_should_be_is_sent_at_the_end(world, client, monkeypatch):
    monkeypatch.setattr(sent_replay, "COMPARED_AT_ONCE", 1)
    world.publish("orders", {"id": 1, "px": 1}, {"id": 2, "px": 1})
    world.advance(2 * SECOND)
    records = world.engine.topics["orders-C"].records
    first, second = records.table.slots
    records.put([first], [b'{"id":1,"px":7}'], {}, [1], [1])
    records.drop([second], "deleted", lambda _count: ([2], [2]))
    found = shown(client.say(c="subscribe", t="orders-C", bm="0", opts="oof"))
    assert [(line["c"], line["d"]["id"], line["d"]["px"]) for line in found] == [
        ("p", 1, 1),
        ("p", 2, 1),
        ("p", 1, 7),
        ("oof", 2, 1),
    ]


def test_a_topic_of_topics_without_a_log_has_no_past(client):
    topics = (
        Topic("gone", "json", keys=("/id",), durability="transient"),
        ConflatedTopic("gone-C", "json", "gone", interval_us=SECOND),
    )
    world = NotingWorld(*topics, CONFIGURATIONS)
    client = world.client()
    (ack,) = client.say(c="subscribe", t="gone-C", bm="0")
    assert "is made of gone, which has no log" in ack["detail"]
