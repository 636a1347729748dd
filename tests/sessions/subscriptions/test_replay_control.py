"""Replays that are paused, and replays at a rate: nothing is missed or repeated, others go on."""

import json

import pytest

from sow.core.definitions import Topic
from sow.errors import ClientError
from sow.sessions.subscriptions import log_replay, subscriptions
from sow.sessions.subscriptions.replay_control import ReplayControl, not_controlled
from tests.laws.guarding import B, desk, guarded, regrant, two_desks
from tests.laws.harness import ORDERS, SECOND, SLOW, SlowDisk, World

OTHER = Topic("other", "json", keys=("/id",))
DESKS = Topic("desks", "json", keys=("/id",), pattern="^/desk/")
MINUTE = 60 * SECOND


@pytest.fixture
def world():
    return World(ORDERS, SLOW, OTHER, DESKS)


@pytest.fixture
def client(world):
    return world.client()


def fill(world, count, topic="orders", begin=0):
    """Publish, some in each entry of the log."""
    for start in range(begin, begin + count, 7):
        numbers = range(start, min(start + 7, begin + count))
        world.publish(topic, *({"id": number} for number in numbers))


def ids(lines, name=None):
    return [line["d"]["id"] for line in lines if line["c"] == "p" and name in (None, line["s"])]


def begun(client, opts, **more):
    """The name of a subscription, and what it has sent at once."""
    command = {"c": "subscribe", "t": "orders", "bm": "0", "cid": "b", "a": "processed,completed"}
    ack, *lines = client.say(**{**command, "opts": opts, **more})
    assert (ack["a"], ack["status"]) == ("processed", "success"), ack
    return ack["s"], lines


def govern(client, opts, *names):
    """Pause or resume; what came behind the ack."""
    ack, *lines = client.say(c="subscribe", s=",".join(names), opts=opts, cid="g")
    assert (ack["cid"], ack["status"], ack["s"]) == ("g", "success", ",".join(names)), ack
    return lines


def refusal(client, **command):
    (ack,) = client.say(**{"c": "subscribe", "cid": "1", **command})
    assert (ack["status"], ack["reason"]) == ("failure", "invalid options"), ack
    return ack["detail"]


def read_for(world, client, by_us):
    """What comes in so long, with its times; the client reads whenever something is due."""
    found, until = [(world.now, line) for line in client.lines()], world.now + by_us
    while (due := world.due_us()) is not None and due < until:
        world.advance(max(0, due - world.now))
        found += [(world.now, line) for line in client.lines()]
    world.advance(until - world.now)
    return found


# Pauses.


def test_a_replay_that_begins_paused_sends_nothing_until_it_is_resumed(world, client):
    fill(world, 20)
    name, lines = begun(client, "pause")
    assert lines == []
    fill(world, 5, begin=20)
    world.advance(MINUTE)
    assert client.lines() == []
    world.check()
    lines = govern(client, "resume", name)
    assert ids(lines) == [*range(25)]
    assert lines[-1]["a"] == "completed"
    fill(world, 3, begin=25)
    assert ids(client.lines()) == [25, 26, 27]
    world.check()


def test_others_of_the_session_go_on_meanwhile(world, client):
    fill(world, 20)
    begun(client, "pause")
    assert ids(client.say(c="subscribe", t="orders", bm="15")) == [*range(15, 20)]
    world.publish("other", {"id": 1})
    assert [line["c"] for line in client.say(c="sow", t="other", cid="2")] == [
        "ack", "group_begin", "sow", "group_end"
    ]  # fmt: skip
    (ack,) = client.say(c="publish", t="other", d={"id": 2}, cid="3", a="persisted")
    assert (ack["a"], ack["status"]) == ("persisted", "success")
    world.check()


def test_two_are_resumed_together_each_in_the_order_of_the_log(world, client):
    for number in range(10):
        world.publish("orders", {"id": number})
        world.publish("other", {"id": number})
    first, _ = begun(client, "pause")
    second, _ = begun(client, "pause", t="other")
    lines = govern(client, "resume", first, second)
    assert ids(lines, first) == ids(lines, second) == [*range(10)]
    world.publish("other", {"id": 10})
    assert ids(client.lines(), second) == [10]


@pytest.mark.parametrize("opts", ["", "rate=100000"])
def test_a_replay_is_paused_on_its_way_and_goes_on_where_it_was(world, client, monkeypatch, opts):
    monkeypatch.setattr(log_replay, "RECORDS_AT_ONCE", 10)
    monkeypatch.setattr(log_replay, "LAST_RECORDS", 10)
    for number in range(100):
        world.publish("orders", {"id": number})
        world.advance(SECOND)
    command = {"c": "subscribe", "t": "orders", "bm": "0", "opts": opts}
    client.execute(json.dumps(command).encode())
    (name,) = client.subscriptions
    lines = pulled(client, 3)
    assert 10 <= len(ids(lines)) <= 30
    world.check()
    lines += govern(client, "pause", name)
    sent = len(ids(lines))
    assert sent < 50
    fill(world, 5, begin=100)
    assert client.lines() == []
    assert not client.subscriptions[name].replay._ahead, "entries are held while it is paused"
    world.check()
    lines += govern(client, "resume", name)
    fill(world, 5, begin=105)
    world.advance(SECOND)
    lines += client.lines()
    assert ids(lines) == [*range(110)]
    world.check()


def pulled(client, count):
    """What some frames of a client have."""
    frames = [client.pull() for _ in range(count)]
    rows = [frame[frame.index(b'{"c"') :] for frame in frames if frame]
    return [json.loads(row) for frame in rows for row in frame.split(b"\n")]


def test_many_are_resumed_in_steps(world, client, monkeypatch):
    monkeypatch.setattr(subscriptions, "GOVERNED_AT_ONCE", 2)
    fill(world, 3)
    names = [begun(client, "pause")[0] for _ in range(5)]
    steps = []
    command = {"c": "subscribe", "s": ",".join(names), "opts": "resume"}
    lines = client.say_in_steps(lambda: steps.append(client.lines()), **command)
    assert len(steps) == 4, "two to find them, and two to resume them"
    assert ids([line for some in [*steps, lines] for line in some]) == 5 * [0, 1, 2]
    world.check()


@pytest.mark.parametrize("times", [1, 2])
def test_pausing_and_resuming_twice_is_the_same(world, client, times):
    fill(world, 20)
    name, lines = begun(client, "pause")
    for _ in range(times):
        lines += govern(client, "pause", name)
    for _ in range(times):
        lines += govern(client, "resume", name)
    assert ids(lines) == [*range(20)]
    world.check()


def test_a_replay_that_is_paused_and_resumed_before_it_is_read_goes_on_once(world, client):
    fill(world, 20)
    client.execute(b'{"c":"subscribe","t":"orders","bm":"0"}')
    (name,) = client.subscriptions
    client.execute(b'{"c":"subscribe","s":"%b","opts":"pause"}' % name.encode())
    client.execute(b'{"c":"subscribe","s":"%b","opts":"resume"}' % name.encode())
    assert ids(client.lines()) == [*range(20)]
    world.check()


def test_a_replay_that_is_resumed_twice_before_it_is_read_goes_on_once(world, client):
    fill(world, 20)
    name, _ = begun(client, "pause")
    for _ in range(2):
        client.execute(b'{"c":"subscribe","s":"%b","opts":"resume"}' % name.encode())
    lines = client.lines()
    assert ids(lines) == [*range(20)]
    assert sum(line.get("a") == "completed" for line in lines) == 1
    world.check()


def test_a_range_and_a_pattern_are_paused(world, client):
    for number in (1, 2):
        fill(world, 5, f"/desk/{number}")
    ranged, _ = begun(client, "pause", t="^/desk/", bm="[2:6]")
    pattern, _ = begun(client, "pause", t="^/desk/")
    assert ids(govern(client, "resume", ranged)) == [1, 2, 3, 4, 0]
    assert [*client.subscriptions] == [pattern]
    fill(world, 1, "/desk/3")
    assert ids(govern(client, "resume", pattern)) == [*range(5), *range(5), 0]
    world.check()


def test_a_paused_replay_is_unsubscribed(world, client):
    fill(world, 20)
    name, _ = begun(client, "pause")
    client.say(c="unsubscribe", s=name)
    world.advance(SECOND)
    assert client.subscriptions == {}
    assert not client.session.memory._beside_bytes
    (ack,) = client.say(c="subscribe", s=name, opts="resume", cid="1")
    assert ack["reason"] == "subscription does not exist"
    world.check()


def test_a_session_that_ends_takes_its_paused_replays_along(world, client):
    fill(world, 20)
    begun(client, "pause")
    begun(client, "rate=5")
    world.executor.sessions.close(client.session)
    world.advance(MINUTE)
    assert client.subscriptions == {}
    assert not client.session.memory._beside_bytes
    world.check()


def test_a_session_without_a_socket_keeps_its_pause(world, client):
    logged_on = client.say(c="logon", client="me", cid="1")[0]
    fill(world, 20)
    paused, _ = begun(client, "pause")
    slow, lines = begun(client, "rate=10")
    world.executor.sessions.drop(client.session, world.now)
    world.advance(SECOND)
    other, seen = world.client(), 2 + len(lines)
    ack, *more = other.say(c="logon", client="me", session=logged_on["session"], seen=seen, cid="1")
    assert ack["resumed"] is True
    more += [line for _, line in read_for(world, other, MINUTE)]
    assert ids(lines + more, slow) == [*range(20)]
    assert ids(govern(other, "resume", paused)) == [*range(20)]
    world.check()


def test_a_paused_replay_that_retention_overtakes_is_ended_and_says_so(world, client):
    fill(world, 70)
    name, _ = begun(client, "pause")
    world.journal.trim(world.now, 30, beyond=True)
    (line,) = govern(client, "resume", name)
    assert (line["c"], line["reason"]) == ("unsubscribed", "invalid bookmark")
    assert "this replay had come to 0" in line["detail"]
    assert client.subscriptions == {}
    world.check()


def test_what_is_on_its_way_to_the_disk_is_sent_after_a_pause():
    world = SlowDisk(ORDERS)
    client = world.client()
    fill(world, 10)
    name, _ = begun(client, "pause")
    world.held = True
    world.publish("orders", {"id": 10})
    client.execute(b'{"c":"subscribe","s":"%b","opts":"resume"}' % name.encode())
    world.held = False
    world.settle()
    world.publish("orders", {"id": 11})
    assert ids(client.lines()) == [*range(12)]


def test_rights_that_change_during_a_pause_hold_for_what_comes():
    world = two_desks()
    client = guarded(world, desk("a"))
    name, _ = begun(client, "pause")
    assert regrant(client, desk("b")) == []
    lines = govern(client, "resume", name)
    assert [line["d"] for line in lines if line["c"] == "p"] == [B]
    world.check()


# Rates.


@pytest.mark.parametrize("rate", [1, 7, 15, 250])
def test_a_rate_is_kept_to_over_a_minute(world, client, monkeypatch, rate):
    monkeypatch.setattr(log_replay, "READ_AHEAD", 500)
    count = 60 * rate + 100
    for start in range(0, count, 500):
        world.publish(
            "orders", *({"id": number} for number in range(start, min(start + 500, count)))
        )
    begin = world.now
    name, lines = begun(client, f"rate={rate}")
    found = [(begin, line) for line in lines] + read_for(world, client, MINUTE)
    times = [time for time, line in found if line["c"] == "p"]
    assert ids(line for _, line in found) == [*range(60 * rate)]
    for second in range(60):
        start = begin + second * SECOND
        # Behind a turn the time of its messages is rounded up.
        assert sum(start <= time < start + SECOND for time in times) in (rate - 1, rate)
    assert len(client.subscriptions[name].replay._ahead) <= 500
    world.check()


def test_behind_a_replay_at_a_rate_comes_the_present_without_gap_or_repeat(world, client):
    fill(world, 50)
    name, lines = begun(client, "rate=20")
    for number in range(50, 60):
        world.publish("orders", {"id": number})
        lines += [line for _, line in read_for(world, client, SECOND)]
    assert ids(lines) == [*range(60)]
    assert client.subscriptions[name].replay is None
    world.publish("orders", *({"id": number} for number in range(60, 200)))
    assert ids(client.lines()) == [*range(60, 200)], "what is live has no rate"
    world.check()


def test_what_does_not_match_takes_no_time(world, client):
    fill(world, 5_000)
    _, lines = begun(client, "rate=10", filter="/id >= 4990")
    lines += [line for _, line in read_for(world, client, SECOND)]
    assert ids(lines) == [*range(4_990, 5_000)]


def test_who_left_is_said_at_the_rate_too(world, client):
    bookmark = world.publish("orders", *({"id": number} for number in range(10)))
    world.delete("orders", "/id < 8")
    _, lines = begun(client, "rate=4,oof", bm=str(bookmark))
    lines += [line for _, line in read_for(world, client, SECOND)]
    assert [line["d"]["id"] for line in lines if line["c"] == "oof"] == [*range(4)]
    lines += [line for _, line in read_for(world, client, SECOND)]
    assert [line["d"]["id"] for line in lines if line["c"] == "oof"] == [*range(8)]
    world.check()


def test_others_of_the_session_go_on_beside_a_rate(world, client):
    fill(world, 20)
    begun(client, "rate=1")
    assert ids(client.say(c="subscribe", t="orders", bm="15")) == [*range(15, 20)]


def test_a_replay_at_a_rate_is_paused_while_it_waits(world, client):
    fill(world, 30)
    name, lines = begun(client, "rate=10")
    govern(client, "pause", name)
    assert read_for(world, client, MINUTE) == []
    lines += govern(client, "resume", name)
    lines += [line for _, line in read_for(world, client, SECOND)]
    assert len(ids(lines)) < 15
    lines += [line for _, line in read_for(world, client, MINUTE)]
    assert ids(lines) == [*range(30)]
    world.check()


def test_a_replay_at_a_rate_is_unsubscribed_while_it_waits():
    world = World(ORDERS)
    client = world.client()
    fill(world, 20)
    name, _ = begun(client, "rate=1")
    assert world.due_us() is not None
    client.say(c="unsubscribe", s=name)
    assert not client.session.memory._beside_bytes
    assert world.due_us() is None
    assert read_for(world, client, MINUTE) == []
    world.check()


def test_a_client_that_does_not_read_is_sent_one_turn_when_it_does(world, client):
    fill(world, 100)
    begun(client, "rate=10")
    world.advance(MINUTE)
    assert len(ids(client.lines())) == 1


def test_slow_replays_hold_no_more_of_the_log_than_they_soon_send(world, client):
    fill(world, 2_000)
    for rate in (1, 500):
        name, _ = begun(client, f"rate={rate}")
        ahead = client.subscriptions[name].replay._ahead
        assert sum(map(len, ahead)) <= max(100, rate) + 7, "an entry is read whole"


# Refusals.


@pytest.mark.parametrize("text", ["rate=0", "rate=-1", "rate=abc", "rate=", "rate=1.5X", "rate"])
def test_a_rate_is_a_number_of_messages(client, text):
    assert "rate=1" in refusal(client, t="orders", bm="0", opts=text)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ({"t": "orders", "opts": "pause"}, "give bm"),
        ({"t": "orders", "bm": "now", "opts": "rate=1"}, "give bm"),
        ({"t": "orders", "s": "f1", "opts": "replace,rate=1"}, "give bm"),
        ({"t": "orders", "bm": "0", "opts": "resume"}, "resume needs s"),
        ({"s": "", "opts": "resume"}, "resume needs s"),
        ({"s": "", "opts": "pause"}, "pause needs s"),
        ({"s": "f1", "opts": "pause,resume"}, "takes s, the subscriptions, and nothing beside"),
        ({"s": "f1", "opts": "pause,rate=1"}, "and nothing beside"),
        ({"s": "f1", "t": "orders", "opts": "resume"}, "and nothing beside"),
        ({"s": "f1", "bm": "0", "opts": "pause"}, "and nothing beside"),
        ({"c": "sow", "t": "orders", "opts": "pause"}, "leave it out here"),
        ({"c": "sow_and_subscribe", "t": "orders", "opts": "rate=1"}, "leave it out here"),
        ({"c": "publish", "t": "orders", "d": {"id": 1}, "opts": "resume"}, "leave it out here"),
        ({"t": "orders", "bm": "0", "opts": "rate=1,conflation=1s"}, "leave out rate"),
        ({"t": "orders", "bm": "0", "opts": "pause,conflation=1s"}, "leave out pause"),
        ({"t": "orders", "bm": "0", "opts": "pause,oof"}, "that a pause would hold"),
        ({"c": "delta_subscribe", "t": "orders", "bm": "0", "opts": "pause"}, "a pause would hold"),
        ({"t": "orders-C", "bm": "0", "opts": "pause"}, "to the topic that it is made of"),
        ({"t": "orders-C", "bm": "0", "opts": "rate=1"}, "to the topic that it is made of"),
    ],
)
def test_what_is_no_replay_is_neither_paused_nor_held_to_a_rate(world, client, command, said):
    world.publish("orders", {"id": 1})
    assert said in refusal(client, **command)
    assert client.subscriptions == {}
    world.check()


def test_of_several_none_is_paused_if_one_cannot_be(world, client):
    fill(world, 10)
    paused, _ = begun(client, "pause")
    live, lines = begun(client, "")
    assert ids(lines) == [*range(10)]
    plain = client.say(c="subscribe", t="orders", cid="1")[0]["s"]
    assert f"'{live}' is live" in refusal(client, s=f"{paused},{live}", opts="pause")
    assert f"'{plain}' has not begun at a bookmark" in refusal(client, s=plain, opts="resume")
    for opts in ("pause", "resume"):
        (ack,) = client.say(c="subscribe", s=f"{paused},f99", opts=opts, cid="1")
        assert ack["reason"] == "subscription does not exist"
    assert client.lines() == []
    assert govern(client, "resume", live) == []
    assert ids(govern(client, "resume", paused), paused) == [*range(10)]


@pytest.mark.parametrize(
    "command",
    [
        {"t": "orders-C"},
        {"t": "orders", "opts": "oof"},
        {"t": "orders", "opts": "conflation=1s"},
        {"t": "orders", "c": "delta_subscribe"},
    ],
)
def test_a_replay_that_holds_records_is_not_paused_on_its_way(world, client, command):
    fill(world, 10)
    client.execute(json.dumps({"c": "subscribe", "bm": "0", **command}).encode())
    (name,) = client.subscriptions
    client.execute(b'{"c":"subscribe","s":"%b","opts":"pause","cid":"1"}' % name.encode())
    lines = client.lines()
    world.advance(2 * SECOND)
    lines += client.lines()
    assert {line["reason"] for line in lines if line["c"] == "ack"} == {"invalid options"}
    assert sorted(ids(lines)) == [*range(10)]


def test_who_is_not_paused_and_has_no_rate_does_not_wait():
    world = World()
    control, again = ReplayControl(world.engine), []
    assert not control.waits(lambda: again.append(1))
    assert control.room(9) == 9
    control.resume()
    assert again == []
    assert isinstance(not_controlled("views"), ClientError)
