"""Bookmark subscriptions: from the log to the present, without gap or repeat.

The rule is 14 of docs/semantics.md.
"""

import pytest

from sow.core.definitions import ConflatedTopic, Topic
from sow.history import snapshot_as_of
from sow.protocol.wire import read_frame
from sow.sessions.subscriptions import log_replay
from tests.executing import execute_all
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
    for desk in (1, 2):
        world.publish(f"/desk/{desk}", {"id": 1}, {"id": 2})
    world.publish("/desk/3", {"id": 1})
    for desk in (1, 2, 3):
        world.delete(f"/desk/{desk}", "/id = 1")
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
