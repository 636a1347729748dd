"""Bookmark subscriptions: from the log to the present, without gap or repeat.

The rule is 14 of docs/semantics.md.

Replays that are paused, and replays at a rate: nothing is missed or repeated, others go on.
"""

import json

import pytest

from sow.core.definitions import ConflatedTopic, Topic
from sow.errors import ClientError
from sow.history import snapshot_as_of
from sow.protocol.wire import read_frame
from sow.sessions.subscriptions import log_replay, subscriptions
from sow.sessions.subscriptions.log_replay import ReplayControl, not_controlled
from tests.executing import execute_all
from tests.laws.guarding import B, desk, guarded, regrant, two_desks
from tests.laws.harness import MS, ORDERS, SECOND, SLOW, SlowDisk, World

TRANSIENT = Topic("gone", "json", keys=("/id",), durability="transient")
DESKS = Topic("desks", "json", keys=("/id",), pattern="^/desk/")


@pytest.fixture
def world():
    return World(ORDERS, SLOW, TRANSIENT, DESKS)


@pytest.fixture
def client(world):
    return world.client()


def ids(lines):
    return [line["d"]["id"] for line in lines if line["c"] == "p"]


def test_from_the_beginning_and_then_live(world, client):
    world.publish("orders", {"id": 1}, {"id": 2})
    lines = client.say(c="subscribe", t="orders", bm="0", cid="1", a="processed,completed")
    world.publish("orders", {"id": 3})
    lines += client.lines()
    assert ids(lines) == [1, 2, 3]
    assert [line["bm"] for line in lines if line["c"] == "p"] == ["1", "2", "3"]
    assert [line["a"] for line in lines if line["c"] == "ack"] == ["processed", "completed"]


def test_after_a_bookmark(world, client):
    bookmark = world.publish("orders", {"id": 1}, {"id": 2})
    world.publish("orders", {"id": 3})
    assert ids(client.say(c="subscribe", t="orders", bm=str(bookmark - 1))) == [2, 3]


def test_after_the_oldest_of_several(world, client):
    world.publish("orders", {"id": 1}, {"id": 2}, {"id": 3})
    assert ids(client.say(c="subscribe", t="orders", bm="2,1,3")) == [2, 3]


@pytest.mark.parametrize("now", ["now", "0|1|"])
def test_from_now_on(world, client, now):
    world.publish("orders", {"id": 1})
    client.say(c="subscribe", t="orders", bm=now)
    world.publish("orders", {"id": 2})
    assert ids(client.lines()) == [2]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("19700101T001640Z", [1, 2, 3]),
        ("19700101T001641", [2, 3]),
        ("1970-01-01T00:16:42+00:00", [3]),
        ("19700101T001642.500000Z", []),
    ],
)
def test_from_a_time(world, client, text, found):
    for number in (1, 2, 3):
        world.publish("orders", {"id": number})
        world.advance(SECOND)
    assert ids(client.say(c="subscribe", t="orders", bm=text)) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("[2:3]", [2, 3]),
        ("(2:3]", [3]),
        ("[1:3)", [1, 2]),
        ("(0:2]", [1, 2]),
        ("[3:]", [3, 4]),
        ("[19700101T001641Z:19700101T001643Z)", [2, 3]),
    ],
)
def test_a_range_ends(world, client, text, found):
    for number in (1, 2, 3, 4):
        world.publish("orders", {"id": number})
        world.advance(SECOND)
    lines = client.say(c="subscribe", t="orders", bm=text, cid="1", a="completed")
    assert ids(lines) == found
    assert lines[-1]["a"] == "completed"
    world.publish("orders", {"id": 5})
    assert client.lines() == []
    assert client.subscriptions == {}


def test_a_range_into_the_future_is_refused(world, client):
    world.publish("orders", {"id": 1})
    assert (
        "the newest change is 1" in client.say(c="subscribe", t="orders", bm="[1:9]")[0]["detail"]
    )


def test_filters_and_select_lists_apply(world, client):
    world.publish("orders", {"id": 1, "px": 1, "q": 1}, {"id": 2, "px": 2, "q": 1})
    lines = client.say(
        c="subscribe", t="orders", bm="0", filter="/px > 1", select="/id,/px", opts="timestamp"
    )
    world.publish("orders", {"id": 3, "px": 3, "q": 1}, {"id": 4, "px": 0})
    lines += client.lines()
    assert [line["d"] for line in lines] == [{"id": 2, "px": 2}, {"id": 3, "px": 3}]
    assert all("ts" in line for line in lines)


def test_other_topics_and_deletes_are_passed_over(world, client):
    world.publish("orders", {"id": 1})
    world.publish("gone", {"id": 9})
    world.publish("/desk/1", {"id": 8})
    world.delete("orders", "1=1")
    world.publish("orders", {"id": 2})
    assert ids(client.say(c="subscribe", t="orders", bm="0")) == [1, 2]


def test_a_pattern_is_replayed_in_the_order_of_the_log(world, client):
    world.publish("/desk/1", {"id": 1})
    world.publish("/desk/2", {"id": 2})
    world.publish("/desk/1", {"id": 3})
    lines = client.say(c="subscribe", t="^/desk/", bm="0")
    world.publish("/desk/3", {"id": 4})
    assert ids(lines + client.lines()) == [1, 2, 3, 4]


@pytest.mark.parametrize(("topic", "ending"), [("^orders", "to this topic alone"), ("gone", "bm")])
def test_only_what_is_logged_can_be_replayed(world, client, topic, ending):
    (ack,) = client.say(c="subscribe", t=topic, bm="0")
    assert ack["reason"] == "invalid topic"
    assert ack["detail"].endswith(ending)


def test_who_left_is_said_against_the_state_at_the_start(world, client):
    world.publish("orders", {"id": 1, "px": 5}, {"id": 2, "px": 5}, {"id": 3, "px": 0})
    bookmark = world.publish("orders", {"id": 4, "px": 5})
    world.publish("orders", {"id": 1, "px": 0})
    world.delete("orders", "/id IN (2, 3)")
    world.publish("orders", {"id": 5, "px": 6})
    world.delete("orders", "/id = 5")
    lines = client.say(
        c="subscribe", t="orders", bm=str(bookmark), filter="/px > 1", opts="oof,no_sowkey"
    )
    world.publish("orders", {"id": 4, "px": 1})
    lines += client.lines()
    for line in lines:
        del line["s"], line["t"]
    assert lines == [
        {"c": "oof", "reason": "match", "d": {"id": 1, "px": 0}, "bm": "5"},
        {"c": "oof", "reason": "deleted", "d": {"id": 2, "px": 5}, "bm": "6"},
        {"c": "p", "d": {"id": 5, "px": 6}, "bm": "8"},
        {"c": "oof", "reason": "deleted", "d": {"id": 5, "px": 6}, "bm": "9"},
        {"c": "oof", "reason": "match", "d": {"id": 4, "px": 1}, "bm": "10"},
    ], "3 was not in focus; and live it goes on like that"


def test_an_expiry_is_said():
    world = World(Topic("orders", "json", keys=("/id",), expires=True))
    bookmark = world.publish("orders", {"id": 1}, expires_s=2)
    world.advance(5 * SECOND)
    client = world.client()
    (line,) = client.say(c="subscribe", t="orders", bm=str(bookmark), opts="oof")
    assert (line["c"], line["reason"], line["d"], line["bm"]) == ("oof", "expired", {"id": 1}, "2")


def test_deltas_are_those_of_the_state_at_the_start(world, client):
    bookmark = world.publish("orders", {"id": 1, "px": 5, "q": 1})
    world.publish("orders", {"id": 1, "px": 6, "q": 1}, {"id": 2, "px": 1})
    lines = client.say(c="delta_subscribe", t="orders", bm=str(bookmark))
    world.publish("orders", {"id": 1, "px": 6, "q": 2})
    lines += client.lines()
    assert [(line["d"], line.get("delta")) for line in lines] == [
        ({"id": 1, "px": 6}, True),
        ({"id": 2, "px": 1}, None),
        ({"id": 1, "q": 2}, True),
    ]


def test_a_window_over_the_log_says_who_came_and_left(world, client):
    bookmark = world.publish("orders", {"id": 1})
    world.publish("orders", {"id": 2})
    world.delete("orders", "/id IN (1, 2)")
    world.advance(3 * SECOND)
    lines = client.say(c="subscribe", t="orders", bm=str(bookmark), opts="oof,conflation=1s")
    world.advance(2 * SECOND)
    lines += client.lines()
    assert [(line["c"], line["d"]) for line in lines] == [("oof", {"id": 1})]


@pytest.mark.parametrize("after", [2, 5])
def test_a_pattern_says_who_left_of_all_its_topics(world, client, after):
    for number in (1, 2):
        world.publish(f"/desk/{number}", {"id": 1}, {"id": 2})
    world.publish("/desk/3", {"id": 1})
    for number in (1, 2, 3):
        world.delete(f"/desk/{number}", "/id = 1")
    lines = client.say(c="subscribe", t="^/desk/", bm=str(after), opts="oof")
    left = [line["t"] for line in lines if line["c"] == "oof"]
    assert left == ["/desk/1", "/desk/2", "/desk/3"]


def test_a_state_that_the_log_does_not_reach_back_to_is_refused(world, client):
    world.publish("orders", {"id": 1}, {"id": 2})
    world.publish("orders", {"id": 3})
    world.publish("orders", {"id": 1})
    world.journal.trim(world.now, 3, beyond=True)
    (ack,) = client.say(c="subscribe", t="orders", bm="3", opts="oof")
    assert ack["reason"] == "invalid bookmark"
    assert "no longer has what it was" in ack["detail"]
    assert client.subscriptions == {}
    world.check()


def test_a_filter_over_more_than_the_record_cannot_begin_in_the_past(world, client):
    world.publish("orders", {"id": 1})
    (ack,) = client.say(c="subscribe", t="orders", bm="0", opts="oof", filter="BOOKMARK() > 'a'")
    assert "reads fields only" in ack["detail"]


def test_what_is_known_for_a_replay_is_counted_and_let_go(world, client):
    bookmark = world.publish("orders", *({"id": number} for number in range(3000)))
    for number in range(3000):
        world.publish("orders", {"id": number, "px": 1})
    client.execute(b'{"c":"subscribe","t":"orders","bm":"%d","opts":"oof"}' % bookmark)
    client.session.pull(world.engine.sequencer.released, world.now)
    assert client.session.memory.share.used > 3000 * 150
    world.check()
    client.execute(b'{"c":"unsubscribe","s":"all"}')
    client.lines()
    world.advance(0)
    world.check()
    assert not client.session.memory._beside_bytes


def test_changes_on_their_way_to_the_disk_belong_to_the_state(world):
    world = SlowDisk(ORDERS)
    client = world.client()
    world.publish("orders", {"id": 1}, {"id": 2})
    world.held = True
    bookmark = world.publish("orders", {"id": 3})
    orders = world.engine.topics["orders"]
    first, _, third = orders.records.table.slots
    world.engine.remove(orders, [first, third], "delete", world.now)
    command = b'{"c":"subscribe","t":"orders","bm":"%d","opts":"oof"}' % bookmark
    execute_all(world.executor, client.session, read_frame(command), world.now)
    world.held = False
    world.settle()
    lines = client.lines()
    assert [(line["c"], line["d"]["id"]) for line in lines] == [("oof", 1), ("oof", 3)]


@pytest.mark.parametrize("sought_max", [0, 10_000])
def test_the_state_at_a_bookmark_is_found_from_either_end(world, client, monkeypatch, sought_max):
    monkeypatch.setattr(snapshot_as_of, "SOUGHT_MAX", sought_max)
    monkeypatch.setattr(snapshot_as_of, "SOUGHT_AT_ONCE", 3)
    for number in range(20):
        world.publish("orders", {"id": number % 7, "n": number})
    world.delete("orders", "/id = 3")
    bookmark = world.publish("orders", {"id": 9})
    world.publish("orders", {"id": 3})
    world.delete("orders", "1=1")
    lines = client.say(c="subscribe", t="orders", bm=str(bookmark), opts="oof")
    left = {line["d"]["id"]: line["d"].get("n") for line in lines if line["c"] == "oof"}
    assert left == {0: 14, 1: 15, 2: 16, 3: None, 4: 18, 5: 19, 6: 13, 9: None}


@pytest.mark.parametrize(("not_found", "found"), [("epoch", [1, 2]), ("now", [])])
def test_what_becomes_of_a_bookmark_that_is_not_kept_can_be_said(world, client, not_found, found):
    world.publish("orders", {"id": 1}, {"id": 2})
    (ack,) = client.say(c="subscribe", t="orders", bm="99")
    assert ack["reason"] == "invalid bookmark"
    opts = f"bookmark_not_found={not_found}"
    assert ids(client.say(c="subscribe", t="orders", bm="99", opts=opts)) == found


@pytest.mark.parametrize("not_found", ["fail", "epoch", "now"])
def test_a_bookmark_of_another_log_is_refused_whatever_is_to_become_of_it(world, client, not_found):
    world.publish("orders", {"id": 1}, {"id": 2})
    opts = f"bookmark_not_found={not_found}"
    for bookmark in ("00000000000000bb-1", "1,00000000000000bb-1", "[00000000000000bb-0:]"):
        (ack,) = client.say(c="subscribe", t="orders", bm=bookmark, opts=opts)
        assert (ack["status"], ack["reason"]) == ("failure", "another log")
    log = client.say(c="logon")[-1]["log"]
    assert ids(client.say(c="subscribe", t="orders", bm=f"{log}-1")) == [2]


def test_what_is_published_during_a_replay_comes_once_and_in_order(world, client):
    world.publish("orders", *({"id": number} for number in range(5000)))
    client.execute(b'{"c":"subscribe","t":"orders","bm":"0"}')
    session, engine = client.session, world.engine
    frame = session.pull(engine.sequencer.released, world.now)
    world.publish("orders", {"id": 5000})
    frames = [frame[4:]]
    world.publish("orders", {"id": 5001})
    assert session.outbox.message_count == 0, (
        "what is live waits in the log until the replay is there"
    )
    lines = [line for frame in frames for line in frame.split(b"\n")]
    assert len(lines) + len(ids(client.lines())) == 5002


def test_changes_that_are_on_their_way_to_the_disk_are_neither_lost_nor_early(world, client):
    world.publish("orders", {"id": 1})
    world.engine.publish("orders", [b'{"id":2}'], world.now)
    group = world.engine.flush()
    execute_all(
        world.executor,
        client.session,
        read_frame(b'{"c":"subscribe","t":"orders","bm":"0"}'),
        world.now,
    )
    second = world.engine.flush()
    session = client.session
    assert session.pull(world.engine.sequencer.released, world.now) is None
    world.journal.append(group.entries)
    world.engine.sequencer.release(group)
    world.engine.sequencer.release(second)
    world.settle()
    assert ids(client.lines()) == [1, 2]


@pytest.mark.parametrize("opts", ["", "conflation=1s", "conflation=auto"])
def test_a_replay_that_ends_in_an_open_group_loses_nothing_and_is_not_early(world, client, opts):
    world.publish("orders", {"id": 1})
    command = b'{"c":"subscribe","t":"orders","bm":"0","cid":"1","a":"completed","opts":"%b"}'
    client.execute(command % opts.encode())
    world.clock.advance(5 * SECOND)
    world.engine.publish("orders", [b'{"id":2}'], world.now)
    pulled = iter(lambda: client.session.pull(world.engine.sequencer.released, world.now), None)
    early = b"".join(frame or b"" for frame in pulled)
    assert b'"id":2' not in early, "it is not on the disk yet"
    world.settle()
    late = client.lines()
    if not opts:
        assert late[-1]["a"] == "completed", "the end is said after all that was before it"
    world.advance(2 * SECOND)
    late += client.lines()
    assert [early.count(b'"id":1') + ids(late).count(1), ids(late).count(2)] == [1, 1]


def test_a_conflated_replay_cuts_its_windows_on_the_times_of_the_log(world, client):
    for number in range(30):
        world.publish("orders", {"id": 1, "px": number})
        world.advance(100 * MS)
    world.advance(5 * SECOND)
    lines = client.say(c="subscribe", t="orders", bm="0", opts="conflation=1s")
    world.advance(0)
    lines += client.lines()
    prices = [line["d"]["px"] for line in lines if line["c"] == "p"]
    assert prices == [9, 19, 29]
    assert [line["bm"] for line in lines] == ["1", "11", "21"], "folded lines carry the first one"
    world.publish("orders", {"id": 1, "px": 99})
    assert client.lines() == []
    world.advance(2 * SECOND)
    assert client.lines()[0]["d"]["px"] == 99


def test_what_a_conflated_replay_has_sent_is_not_counted_as_waiting(world, client):
    for number in range(3):
        world.publish("orders", {"id": number})
        world.advance(2 * SECOND)
    client.say(c="subscribe", t="orders", bm="0", opts="conflation=1s")
    world.check()


def test_a_replay_at_the_clients_pace_hands_on_what_has_gathered(world, client):
    world.publish("orders", {"id": 1, "px": 1}, {"id": 2, "px": 1}, {"id": 1, "px": 2})
    lines = client.say(c="subscribe", t="orders", bm="0", opts="conflation=auto")
    assert [(line["d"], line["bm"]) for line in lines] == [
        ({"id": 1, "px": 2}, "1"),
        ({"id": 2, "px": 1}, "2"),
    ]


def test_ending_a_subscription_ends_its_replay(world, client):
    world.publish("orders", *({"id": number} for number in range(5000)))
    client.execute(b'{"c":"subscribe","t":"orders","bm":"0","cid":"1"}')
    client.execute(b'{"c":"unsubscribe","s":"all"}')
    assert ids(client.lines()) == []


def heard_each_time(client):
    """How many records each frame of a replay tells, up to the end."""
    world, counts = client.world, []
    while (frame := client.session.pull(world.engine.sequencer.released, world.now)) is not None:
        counts.append((frame or b"").count(b'"c":"p"'))
    return counts


def test_a_frame_reports_so_many_records_at_most_however_long_the_entries_of_the_log(
    world, client, monkeypatch
):
    monkeypatch.setattr(log_replay, "RECORDS_AT_ONCE", 10)
    monkeypatch.setattr(log_replay, "LAST_RECORDS", 20)
    monkeypatch.setattr(log_replay, "READ_AHEAD", 30)
    world.publish("orders", *({"id": number} for number in range(100)))
    for number in range(100, 150):
        world.publish("orders", {"id": number})
    client.execute(b'{"c":"subscribe","t":"orders","bm":"0"}')
    counts = heard_each_time(client)
    assert (sum(counts), max(counts)) == (150, 20)
    assert counts.count(10) == 13


def test_what_is_on_its_way_to_the_disk_is_heard_in_pieces_and_sent_when_it_is_there(monkeypatch):
    monkeypatch.setattr(log_replay, "RECORDS_AT_ONCE", 10)
    monkeypatch.setattr(log_replay, "LAST_RECORDS", 20)
    world = SlowDisk(ORDERS)
    client = world.client()
    world.publish("orders", {"id": 0})
    world.held = True
    world.publish("orders", *({"id": number} for number in range(1, 101)))
    execute_all(
        world.executor,
        client.session,
        read_frame(b'{"c":"subscribe","t":"orders","bm":"0"}'),
        world.now,
    )
    world.held = False
    world.settle()
    world.held = True
    world.publish("orders", *({"id": number} for number in range(101, 201)))
    counts = heard_each_time(client)
    assert len(counts) > 10, "it came in pieces"
    assert sum(counts) <= 101, "what is not durable has not been told"
    world.held = False
    world.catch_up()
    lines = client.lines()
    assert sum(counts) + len(ids(lines)) == 201
    world.publish("orders", {"id": 201})
    assert ids(client.lines()) == [201]


def test_whoever_publishes_all_the_time_is_caught_up_with(world, client, monkeypatch):
    monkeypatch.setattr(log_replay, "RECORDS_AT_ONCE", 10)
    monkeypatch.setattr(log_replay, "LAST_RECORDS", 20)
    world.publish("orders", *({"id": number} for number in range(100)))
    client.execute(b'{"c":"subscribe","t":"orders","bm":"0"}')
    found = []
    for number in range(100, 200):
        world.publish("orders", *({"id": number, "n": n} for n in range(5)))
        frame = client.session.pull(world.engine.sequencer.released, world.now)
        found.append((frame or b"").count(b'"c":"p"'))
        if not any(s.replay for s in client.subscriptions.values()):
            break
    assert number < 150
    assert sum(found) + len(ids(client.lines())) == 100 + 5 * (number - 99)


def test_a_replay_that_retention_overtakes_is_ended_and_says_so(world, client, monkeypatch):
    for start in range(0, 5000, 500):
        world.publish("orders", *({"id": number} for number in range(start, start + 500)))
    client.execute(b'{"c":"subscribe","t":"orders","bm":"0","cid":"1"}')
    client.session.pull(world.engine.sequencer.released, world.now)
    client.session.pull(world.engine.sequencer.released, world.now)
    monkeypatch.setattr(type(world.journal), "first_seq", property(lambda _journal: 4500))
    *_, line = client.lines()
    assert (line["c"], line["reason"]) == ("unsubscribed", "invalid bookmark")
    assert "trimmed up to 4499" in line["detail"]
    assert client.subscriptions == {}


def test_a_copy_that_comes_into_being_during_a_replay_is_followed_afterwards():
    copies = ConflatedTopic("copies", "json", "desks", interval_us=SECOND, topic_format="%n-C")
    world = World(DESKS, copies)
    client = world.client()
    client.execute(b'{"c":"subscribe","t":"^/desk/","bm":"0"}')
    world.publish("/desk/1", {"id": 1})
    assert ids(client.lines()) == [1]
    world.advance(2 * SECOND)
    assert [line["t"] for line in client.lines()] == ["/desk/1-C"]


def test_a_replacement_cannot_begin_at_a_bookmark(world, client):
    world.publish("orders", {"id": 1})
    (ack,) = client.say(c="subscribe", t="orders", cid="1")
    (refused,) = client.say(c="subscribe", t="orders", s=ack["s"], opts="replace", bm="0")
    assert refused["reason"] == "invalid bookmark"
    world.publish("orders", {"id": 2})
    assert ids(client.lines()) == [2], "it goes on as it was"


OTHER = Topic("other", "json", keys=("/id",))
MINUTE = 60 * SECOND


@pytest.fixture
def paced_world():
    return World(ORDERS, SLOW, OTHER, DESKS)


@pytest.fixture
def paced_client(paced_world):
    return paced_world.client()


def fill(paced_world, count, topic="orders", begin=0):
    """Publish, some in each entry of the log."""
    for start in range(begin, begin + count, 7):
        numbers = range(start, min(start + 7, begin + count))
        paced_world.publish(topic, *({"id": number} for number in numbers))


def ids_sent(lines, name=None):
    return [line["d"]["id"] for line in lines if line["c"] == "p" and name in (None, line["s"])]


def begun(paced_client, opts, **more):
    """The name of a subscription, and what it has sent at once."""
    command = {"c": "subscribe", "t": "orders", "bm": "0", "cid": "b", "a": "processed,completed"}
    ack, *lines = paced_client.say(**{**command, "opts": opts, **more})
    assert (ack["a"], ack["status"]) == ("processed", "success"), ack
    return ack["s"], lines


def govern(paced_client, opts, *names):
    """Pause or resume; what came behind the ack."""
    ack, *lines = paced_client.say(c="subscribe", s=",".join(names), opts=opts, cid="g")
    assert (ack["cid"], ack["status"], ack["s"]) == ("g", "success", ",".join(names)), ack
    return lines


def refusal(paced_client, **command):
    (ack,) = paced_client.say(**{"c": "subscribe", "cid": "1", **command})
    assert (ack["status"], ack["reason"]) == ("failure", "invalid options"), ack
    return ack["detail"]


def read_for(paced_world, paced_client, by_us):
    """What comes in so long, with its times; the client reads whenever something is due."""
    found, until = (
        [(paced_world.now, line) for line in paced_client.lines()],
        paced_world.now + by_us,
    )
    while (due := paced_world.due_us()) is not None and due < until:
        paced_world.advance(max(0, due - paced_world.now))
        found += [(paced_world.now, line) for line in paced_client.lines()]
    paced_world.advance(until - paced_world.now)
    return found


# Pauses.


def test_a_replay_that_begins_paused_sends_nothing_until_it_is_resumed(paced_world, paced_client):
    fill(paced_world, 20)
    name, lines = begun(paced_client, "pause")
    assert lines == []
    fill(paced_world, 5, begin=20)
    paced_world.advance(MINUTE)
    assert paced_client.lines() == []
    paced_world.check()
    lines = govern(paced_client, "resume", name)
    assert ids_sent(lines) == [*range(25)]
    assert lines[-1]["a"] == "completed"
    fill(paced_world, 3, begin=25)
    assert ids_sent(paced_client.lines()) == [25, 26, 27]
    paced_world.check()


def test_others_of_the_session_go_on_meanwhile(paced_world, paced_client):
    fill(paced_world, 20)
    begun(paced_client, "pause")
    assert ids_sent(paced_client.say(c="subscribe", t="orders", bm="15")) == [*range(15, 20)]
    paced_world.publish("other", {"id": 1})
    assert [line["c"] for line in paced_client.say(c="sow", t="other", cid="2")] == [
        "ack", "group_begin", "sow", "group_end"
    ]  # fmt: skip
    (ack,) = paced_client.say(c="publish", t="other", d={"id": 2}, cid="3", a="persisted")
    assert (ack["a"], ack["status"]) == ("persisted", "success")
    paced_world.check()


def test_two_are_resumed_together_each_in_the_order_of_the_log(paced_world, paced_client):
    for number in range(10):
        paced_world.publish("orders", {"id": number})
        paced_world.publish("other", {"id": number})
    first, _ = begun(paced_client, "pause")
    second, _ = begun(paced_client, "pause", t="other")
    lines = govern(paced_client, "resume", first, second)
    assert ids_sent(lines, first) == ids_sent(lines, second) == [*range(10)]
    paced_world.publish("other", {"id": 10})
    assert ids_sent(paced_client.lines(), second) == [10]


@pytest.mark.parametrize("opts", ["", "rate=100000"])
def test_a_replay_is_paused_on_its_way_and_goes_on_where_it_was(
    paced_world, paced_client, monkeypatch, opts
):
    monkeypatch.setattr(log_replay, "RECORDS_AT_ONCE", 10)
    monkeypatch.setattr(log_replay, "LAST_RECORDS", 10)
    for number in range(100):
        paced_world.publish("orders", {"id": number})
        paced_world.advance(SECOND)
    command = {"c": "subscribe", "t": "orders", "bm": "0", "opts": opts}
    paced_client.execute(json.dumps(command).encode())
    (name,) = paced_client.subscriptions
    lines = pulled(paced_client, 3)
    assert 10 <= len(ids_sent(lines)) <= 30
    paced_world.check()
    lines += govern(paced_client, "pause", name)
    sent = len(ids_sent(lines))
    assert sent < 50
    fill(paced_world, 5, begin=100)
    assert paced_client.lines() == []
    assert not paced_client.subscriptions[name].replay._ahead, "entries are held while it is paused"
    paced_world.check()
    lines += govern(paced_client, "resume", name)
    fill(paced_world, 5, begin=105)
    paced_world.advance(SECOND)
    lines += paced_client.lines()
    assert ids_sent(lines) == [*range(110)]
    paced_world.check()


def pulled(paced_client, count):
    """What some frames of a client have."""
    frames = [paced_client.pull() for _ in range(count)]
    rows = [frame[frame.index(b'{"c"') :] for frame in frames if frame]
    return [json.loads(row) for frame in rows for row in frame.split(b"\n")]


def test_many_are_resumed_in_steps(paced_world, paced_client, monkeypatch):
    monkeypatch.setattr(subscriptions, "GOVERNED_AT_ONCE", 2)
    fill(paced_world, 3)
    names = [begun(paced_client, "pause")[0] for _ in range(5)]
    steps = []
    command = {"c": "subscribe", "s": ",".join(names), "opts": "resume"}
    lines = paced_client.say_in_steps(lambda: steps.append(paced_client.lines()), **command)
    assert len(steps) == 4, "two to find them, and two to resume them"
    assert ids_sent([line for some in [*steps, lines] for line in some]) == 5 * [
        0,
        1,
        2,
    ]
    paced_world.check()


@pytest.mark.parametrize("times", [1, 2])
def test_pausing_and_resuming_twice_is_the_same(paced_world, paced_client, times):
    fill(paced_world, 20)
    name, lines = begun(paced_client, "pause")
    for _ in range(times):
        lines += govern(paced_client, "pause", name)
    for _ in range(times):
        lines += govern(paced_client, "resume", name)
    assert ids_sent(lines) == [*range(20)]
    paced_world.check()


def test_a_replay_that_is_paused_and_resumed_before_it_is_read_goes_on_once(
    paced_world, paced_client
):
    fill(paced_world, 20)
    paced_client.execute(b'{"c":"subscribe","t":"orders","bm":"0"}')
    (name,) = paced_client.subscriptions
    paced_client.execute(b'{"c":"subscribe","s":"%b","opts":"pause"}' % name.encode())
    paced_client.execute(b'{"c":"subscribe","s":"%b","opts":"resume"}' % name.encode())
    assert ids_sent(paced_client.lines()) == [*range(20)]
    paced_world.check()


def test_a_replay_that_is_resumed_twice_before_it_is_read_goes_on_once(paced_world, paced_client):
    fill(paced_world, 20)
    name, _ = begun(paced_client, "pause")
    for _ in range(2):
        paced_client.execute(b'{"c":"subscribe","s":"%b","opts":"resume"}' % name.encode())
    lines = paced_client.lines()
    assert ids_sent(lines) == [*range(20)]
    assert sum(line.get("a") == "completed" for line in lines) == 1
    paced_world.check()


def test_a_range_and_a_pattern_are_paused(paced_world, paced_client):
    for number in (1, 2):
        fill(paced_world, 5, f"/desk/{number}")
    ranged, _ = begun(paced_client, "pause", t="^/desk/", bm="[2:6]")
    pattern, _ = begun(paced_client, "pause", t="^/desk/")
    assert ids_sent(govern(paced_client, "resume", ranged)) == [
        1,
        2,
        3,
        4,
        0,
    ]
    assert [*paced_client.subscriptions] == [pattern]
    fill(paced_world, 1, "/desk/3")
    assert ids_sent(govern(paced_client, "resume", pattern)) == [
        *range(5),
        *range(5),
        0,
    ]
    paced_world.check()


def test_a_paused_replay_is_unsubscribed(paced_world, paced_client):
    fill(paced_world, 20)
    name, _ = begun(paced_client, "pause")
    paced_client.say(c="unsubscribe", s=name)
    paced_world.advance(SECOND)
    assert paced_client.subscriptions == {}
    assert not paced_client.session.memory._beside_bytes
    (ack,) = paced_client.say(c="subscribe", s=name, opts="resume", cid="1")
    assert ack["reason"] == "subscription does not exist"
    paced_world.check()


def test_a_session_that_ends_takes_its_paused_replays_along(paced_world, paced_client):
    fill(paced_world, 20)
    begun(paced_client, "pause")
    begun(paced_client, "rate=5")
    paced_world.executor.sessions.close(paced_client.session)
    paced_world.advance(MINUTE)
    assert paced_client.subscriptions == {}
    assert not paced_client.session.memory._beside_bytes
    paced_world.check()


def test_a_session_without_a_socket_keeps_its_pause(paced_world, paced_client):
    logged_on = paced_client.say(c="logon", client="me", cid="1")[0]
    fill(paced_world, 20)
    paused, _ = begun(paced_client, "pause")
    slow, lines = begun(paced_client, "rate=10")
    paced_world.executor.sessions.drop(paced_client.session, paced_world.now)
    paced_world.advance(SECOND)
    other, seen = paced_world.client(), 2 + len(lines)
    ack, *more = other.say(c="logon", client="me", session=logged_on["session"], seen=seen, cid="1")
    assert ack["resumed"] is True
    more += [line for _, line in read_for(paced_world, other, MINUTE)]
    assert ids_sent(lines + more, slow) == [*range(20)]
    assert ids_sent(govern(other, "resume", paused)) == [*range(20)]
    paced_world.check()


def test_a_paused_replay_that_retention_overtakes_is_ended_and_says_so(paced_world, paced_client):
    fill(paced_world, 70)
    name, _ = begun(paced_client, "pause")
    paced_world.journal.trim(paced_world.now, 30, beyond=True)
    (line,) = govern(paced_client, "resume", name)
    assert (line["c"], line["reason"]) == ("unsubscribed", "invalid bookmark")
    assert "this replay had come to 0" in line["detail"]
    assert paced_client.subscriptions == {}
    paced_world.check()


def test_what_is_on_its_way_to_the_disk_is_sent_after_a_pause():
    paced_world = SlowDisk(ORDERS)
    paced_client = paced_world.client()
    fill(paced_world, 10)
    name, _ = begun(paced_client, "pause")
    paced_world.held = True
    paced_world.publish("orders", {"id": 10})
    paced_client.execute(b'{"c":"subscribe","s":"%b","opts":"resume"}' % name.encode())
    paced_world.held = False
    paced_world.settle()
    paced_world.publish("orders", {"id": 11})
    assert ids_sent(paced_client.lines()) == [*range(12)]


def test_rights_that_change_during_a_pause_hold_for_what_comes():
    paced_world = two_desks()
    paced_client = guarded(paced_world, desk("a"))
    name, _ = begun(paced_client, "pause")
    assert regrant(paced_client, desk("b")) == []
    lines = govern(paced_client, "resume", name)
    assert [line["d"] for line in lines if line["c"] == "p"] == [B]
    paced_world.check()


# Rates.


@pytest.mark.parametrize("rate", [1, 7, 15, 250])
def test_a_rate_is_kept_to_over_a_minute(paced_world, paced_client, monkeypatch, rate):
    monkeypatch.setattr(log_replay, "READ_AHEAD", 500)
    count = 60 * rate + 100
    for start in range(0, count, 500):
        paced_world.publish(
            "orders", *({"id": number} for number in range(start, min(start + 500, count)))
        )
    begin = paced_world.now
    name, lines = begun(paced_client, f"rate={rate}")
    found = [(begin, line) for line in lines] + read_for(paced_world, paced_client, MINUTE)
    times = [time for time, line in found if line["c"] == "p"]
    assert ids_sent(line for _, line in found) == [*range(60 * rate)]
    for second in range(60):
        start = begin + second * SECOND
        # Behind a turn the time of its messages is rounded up.
        assert sum(start <= time < start + SECOND for time in times) in (rate - 1, rate)
    assert len(paced_client.subscriptions[name].replay._ahead) <= 500
    paced_world.check()


def test_behind_a_replay_at_a_rate_comes_the_present_without_gap_or_repeat(
    paced_world, paced_client
):
    fill(paced_world, 50)
    name, lines = begun(paced_client, "rate=20")
    for number in range(50, 60):
        paced_world.publish("orders", {"id": number})
        lines += [line for _, line in read_for(paced_world, paced_client, SECOND)]
    assert ids_sent(lines) == [*range(60)]
    assert paced_client.subscriptions[name].replay is None
    paced_world.publish("orders", *({"id": number} for number in range(60, 200)))
    assert ids_sent(paced_client.lines()) == [*range(60, 200)], "what is live has no rate"
    paced_world.check()


def test_what_does_not_match_takes_no_time(paced_world, paced_client):
    fill(paced_world, 5_000)
    _, lines = begun(paced_client, "rate=10", filter="/id >= 4990")
    lines += [line for _, line in read_for(paced_world, paced_client, SECOND)]
    assert ids_sent(lines) == [*range(4_990, 5_000)]


def test_who_left_is_said_at_the_rate_too(paced_world, paced_client):
    bookmark = paced_world.publish("orders", *({"id": number} for number in range(10)))
    paced_world.delete("orders", "/id < 8")
    _, lines = begun(paced_client, "rate=4,oof", bm=str(bookmark))
    lines += [line for _, line in read_for(paced_world, paced_client, SECOND)]
    assert [line["d"]["id"] for line in lines if line["c"] == "oof"] == [*range(4)]
    lines += [line for _, line in read_for(paced_world, paced_client, SECOND)]
    assert [line["d"]["id"] for line in lines if line["c"] == "oof"] == [*range(8)]
    paced_world.check()


def test_others_of_the_session_go_on_beside_a_rate(paced_world, paced_client):
    fill(paced_world, 20)
    begun(paced_client, "rate=1")
    assert ids_sent(paced_client.say(c="subscribe", t="orders", bm="15")) == [*range(15, 20)]


def test_a_replay_at_a_rate_is_paused_while_it_waits(paced_world, paced_client):
    fill(paced_world, 30)
    name, lines = begun(paced_client, "rate=10")
    govern(paced_client, "pause", name)
    assert read_for(paced_world, paced_client, MINUTE) == []
    lines += govern(paced_client, "resume", name)
    lines += [line for _, line in read_for(paced_world, paced_client, SECOND)]
    assert len(ids_sent(lines)) < 15
    lines += [line for _, line in read_for(paced_world, paced_client, MINUTE)]
    assert ids_sent(lines) == [*range(30)]
    paced_world.check()


def test_a_replay_at_a_rate_is_unsubscribed_while_it_waits():
    paced_world = World(ORDERS)
    paced_client = paced_world.client()
    fill(paced_world, 20)
    name, _ = begun(paced_client, "rate=1")
    assert paced_world.due_us() is not None
    paced_client.say(c="unsubscribe", s=name)
    assert not paced_client.session.memory._beside_bytes
    assert paced_world.due_us() is None
    assert read_for(paced_world, paced_client, MINUTE) == []
    paced_world.check()


def test_a_client_that_does_not_read_is_sent_one_turn_when_it_does(paced_world, paced_client):
    fill(paced_world, 100)
    begun(paced_client, "rate=10")
    paced_world.advance(MINUTE)
    assert len(ids_sent(paced_client.lines())) == 1


def test_slow_replays_hold_no_more_of_the_log_than_they_soon_send(paced_world, paced_client):
    fill(paced_world, 2_000)
    for rate in (1, 500):
        name, _ = begun(paced_client, f"rate={rate}")
        ahead = paced_client.subscriptions[name].replay._ahead
        assert sum(map(len, ahead)) <= max(100, rate) + 7, "an entry is read whole"


# Refusals.


@pytest.mark.parametrize("text", ["rate=0", "rate=-1", "rate=abc", "rate=", "rate=1.5X", "rate"])
def test_a_rate_is_a_number_of_messages(paced_client, text):
    assert "rate=1" in refusal(paced_client, t="orders", bm="0", opts=text)


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
def test_what_is_no_replay_is_neither_paused_nor_held_to_a_rate(
    paced_world, paced_client, command, said
):
    paced_world.publish("orders", {"id": 1})
    assert said in refusal(paced_client, **command)
    assert paced_client.subscriptions == {}
    paced_world.check()


def test_of_several_none_is_paused_if_one_cannot_be(paced_world, paced_client):
    fill(paced_world, 10)
    paused, _ = begun(paced_client, "pause")
    live, lines = begun(paced_client, "")
    assert ids_sent(lines) == [*range(10)]
    plain = paced_client.say(c="subscribe", t="orders", cid="1")[0]["s"]
    assert f"'{live}' is live" in refusal(paced_client, s=f"{paused},{live}", opts="pause")
    assert f"'{plain}' has not begun at a bookmark" in refusal(paced_client, s=plain, opts="resume")
    for opts in ("pause", "resume"):
        (ack,) = paced_client.say(c="subscribe", s=f"{paused},f99", opts=opts, cid="1")
        assert ack["reason"] == "subscription does not exist"
    assert paced_client.lines() == []
    assert govern(paced_client, "resume", live) == []
    assert ids_sent(govern(paced_client, "resume", paused), paused) == [*range(10)]


@pytest.mark.parametrize(
    "command",
    [
        {"t": "orders-C"},
        {"t": "orders", "opts": "oof"},
        {"t": "orders", "opts": "conflation=1s"},
        {"t": "orders", "c": "delta_subscribe"},
    ],
)
def test_a_replay_that_holds_records_is_not_paused_on_its_way(paced_world, paced_client, command):
    fill(paced_world, 10)
    paced_client.execute(json.dumps({"c": "subscribe", "bm": "0", **command}).encode())
    (name,) = paced_client.subscriptions
    paced_client.execute(b'{"c":"subscribe","s":"%b","opts":"pause","cid":"1"}' % name.encode())
    lines = paced_client.lines()
    paced_world.advance(2 * SECOND)
    lines += paced_client.lines()
    assert {line["reason"] for line in lines if line["c"] == "ack"} == {"invalid options"}
    assert sorted(ids_sent(lines)) == [*range(10)]


def test_who_is_not_paused_and_has_no_rate_does_not_wait():
    paced_world = World()
    control, again = ReplayControl(paced_world.engine), []
    assert not control.waits(lambda: again.append(1))
    assert control.room(9) == 9
    control.resume()
    assert again == []
    assert isinstance(not_controlled("views"), ClientError)
