"""Lines come in the order of the changes, and a client can resume after any prefix of them.

The law, for any history and any cut: the lines up to the cut, followed by those after a resume at
the last bookmark of the client, are the lines without the cut.
"""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.core.definitions import ConflatedTopic, SessionSettings, Topic
from tests.effort import examples
from tests.laws.harness import MS, SECOND, SlowDisk, World

BOTH = "^(a|b)$"
DESKS = Topic("desks", "json", keys=("/id",), pattern="^/desk/")


def topics(**settings):
    return tuple(Topic(name, "json", keys=("/id",), **settings) for name in ("a", "b"))


def marks(lines):
    return [int(line["bm"]) for line in lines if line["c"] == "p"]


def state_of(lines, by, state=()):
    """What a client holds after these lines."""
    state = dict(state)
    for line in lines:
        if line["c"] in ("sow", "p"):
            state[(line["t"], line["d"]["id"]) if by == "id" else line["d"][by]] = line["d"]
    return state


def check_every_cut(world, lines, start, by="id", topic=BOTH):
    """The law, for a client that began at bookmark `start` and has got these lines."""
    whole = state_of(lines, by)
    for cut in range(len(lines) + 1):
        seen = lines[:cut]
        kinds = {line["c"] for line in seen}
        if "group_begin" in kinds and "group_end" not in kinds:
            continue  # half a snapshot is begun again
        bookmark = [line["bm"] for line in seen if "bm" in line][-1:] or [str(start)]
        later = world.client()
        rest = later.say(c="subscribe", t=topic, bm=bookmark[0])
        later.say(c="unsubscribe", s="all")
        assert state_of(rest, by, state_of(seen, by)) == whole, f"cut after {cut} of {lines}"


def test_lines_of_several_topics_come_in_the_order_of_the_changes_in_one_frame():
    world = SlowDisk(*topics())
    client = world.client()
    client.say(c="subscribe", t=BOTH)
    for number in range(5):
        world.say_later("a", {"id": number})
        world.say_later("b", {"id": number})
    world.settle()
    (frame,) = client.raw()
    lines = [json.loads(line) for line in frame.split(b"\n")]
    assert marks(lines) == list(range(1, 11))
    check_every_cut(world, lines, 0)


def test_only_topics_with_something_to_send_are_polled():
    world = World(DESKS)
    client = world.client()
    client.say(c="subscribe", t="^/desk/")
    for number in range(100):
        world.publish(f"/desk/{number}", {"id": 1})
    client.lines()
    world.engine.publish("/desk/7", [b'{"id":2}'], world.now)
    assert len(world.engine.output.waiting) == 1
    assert len(next(iter(world.engine.output.waiting)).rendered) == 1


def test_a_newcomer_of_several_topics_does_not_bring_lines_out_of_order():
    world = SlowDisk(*topics())
    first, second = world.client(), world.client()
    first.say(c="subscribe", t=BOTH)
    world.held = True
    world.say_later("b", {"id": 1})
    world.say_later("a", {"id": 2})
    second.execute(json.dumps({"c": "subscribe", "t": BOTH}).encode())
    world.say_later("b", {"id": 3})
    first.execute(json.dumps({"c": "heartbeat"}).encode())
    world.held = False
    world.settle()
    assert marks(first.lines()) == [1, 2, 3]
    assert marks(second.lines()) == [3]


@pytest.mark.parametrize("opts", ["", "conflation=1s"])
def test_what_is_on_its_way_to_the_disk_follows_a_replay_in_order(opts):
    world = SlowDisk(*topics())
    world.publish("b", {"id": 1})
    world.held = True
    for number in (2, 3):
        world.say_later("b", {"id": number})
        world.say_later("a", {"id": number})
        world.settle()
    client = world.client()
    client.execute(json.dumps({"c": "subscribe", "t": BOTH, "bm": "0", "opts": opts}).encode())
    lines = client.lines()
    world.say_later("b", {"id": 4})
    world.say_later("a", {"id": 4})
    world.held = False
    world.settle()
    lines += client.lines()
    world.advance(2 * SECOND)
    lines += client.lines()
    assert marks(lines) == list(range(1, 8))


def test_a_topic_that_comes_into_being_during_a_replay_is_sent_from_its_first_record():
    world = World(DESKS)
    world.publish("/desk/1", *({"id": number} for number in range(5000)))
    client = world.client()
    client.execute(b'{"c":"subscribe","t":"^/desk/","bm":"0"}')
    client.session.pull(world.engine.sequencer.released, world.now)
    client.session.pull(world.engine.sequencer.released, world.now)
    world.publish("/desk/2", {"id": 1})
    world.publish("/desk/1", {"id": "last"})
    told = [(line["t"], line["d"]["id"]) for line in client.lines() if line["c"] == "p"]
    assert told[-2:] == [("/desk/2", 1), ("/desk/1", "last")]


def test_windows_of_several_topics_end_in_the_order_in_which_they_began():
    world = World(*topics())
    client = world.client()
    client.say(c="subscribe", t=BOTH, opts="conflation=1s")
    for topic, number in (("b", 1), ("a", 1), ("b", 2), ("b", 1), ("a", 2), ("a", 1)):
        world.publish(topic, {"id": number})
        world.advance(MS)
    world.advance(2 * SECOND)
    lines = client.lines()
    assert [(line["t"], line["d"]["id"], line["bm"]) for line in lines] == [
        ("b", 1, "1"),
        ("a", 1, "2"),
        ("b", 2, "3"),
        ("a", 2, "5"),
    ]


def test_at_the_clients_own_pace_all_topics_come_together():
    world = World(*topics())
    client = world.client()
    client.say(c="subscribe", t=BOTH, opts="conflation=auto")
    world.publish("a", {"id": 0})
    for topic, number in (("b", 1), ("a", 1), ("b", 2), ("b", 1)):
        world.publish(topic, {"id": number})
    lines = client.lines()
    assert marks(lines) == [1, 2, 3, 4]


def test_a_newcomers_bookmarks_do_not_go_back_behind_its_snapshot():
    world = World(*topics())
    first, late = world.client(), world.client()
    first.say(c="subscribe", t="a", opts="conflation=1s")
    world.publish("a", {"id": 1, "n": 1})
    world.publish("a", {"id": 2, "n": 2})
    lines = late.say(c="sow_and_subscribe", t="a", opts="conflation=1s")
    assert lines[-1]["bm"] == "2"
    world.publish("a", {"id": 1, "n": 3})
    world.publish("a", {"id": 3, "n": 4})
    world.advance(2 * SECOND)
    lines += late.lines()
    assert marks(lines) == [2, 4]
    check_every_cut(world, lines, 0, topic="a")


FOLDINGS = {
    "replace": ({}, "id"),
    "append": ({"placement": "append"}, "id"),
    "match": ({"match": ("/sym",)}, "sym"),
    "match append": ({"match": ("/sym",), "placement": "append"}, "sym"),
    "always": ({"conflation_policy": "always"}, "id"),
    "always append": ({"conflation_policy": "always", "placement": "append"}, "id"),
    "off": ({"conflation_policy": "off"}, "id"),
    "mixed": (None, "id"),
}

changes = st.tuples(st.just("publish"), st.sampled_from("ab"), st.integers(0, 3), st.booleans())
history = st.lists(
    st.one_of(
        changes,
        changes,
        changes,
        st.sampled_from(
            [
                ("settle",),
                ("conflate",),
                ("read",),
                ("wait", 100),
                ("wait", 700),
                ("wait", 1500),
                ("lag", 0),
                ("lag", 2),
            ]
        ),
    ),
    max_size=40,
)


def play(world, client, steps):
    """Carry out a history; returns the lines that the client got."""
    lines = []
    for number, (kind, *more) in enumerate(steps):
        if kind == "publish":
            topic, record, other = more
            # A symbol belongs to one topic, a record to either of its symbols.
            document = {"id": record, "sym": f"{topic}{(record + other) % 2}", "n": number}
            world.say_later(topic, document)
        elif kind == "settle":
            world.settle()
        elif kind == "conflate":
            world.settle()
            client.session.conflate(world.now)
            client.session.outbox.check()
        elif kind == "read":
            world.settle()
            lines += client.lines()
        elif kind == "lag":
            world.lag = more[0]
        else:
            world.advance(more[0] * MS)
    world.catch_up()
    lines += client.lines()
    world.advance(5 * SECOND)
    return lines + client.lines()


@pytest.mark.parametrize("kind", FOLDINGS)
@given(steps=history)
@examples(18)
def test_a_folded_queue_can_be_left_anywhere(kind, steps):
    options, by = FOLDINGS[kind]
    if options is None:
        policies = ("off", "always")
        made = tuple(
            Topic(name, "json", keys=("/id",), conflation_policy=policy)
            for name, policy in zip("ab", policies, strict=True)
        )
    else:
        made = topics(**options)
    world = SlowDisk(*made)
    client = world.client()
    client.say(c="subscribe", t=BOTH)
    lines = play(world, client, steps)
    found = marks(lines)
    assert all(one < other for one, other in pairwise(found)), found
    check_every_cut(world, lines, 0, by)


CONFLATIONS = {
    "conflation=1s": "id",
    "conflation=auto": "id",
    "conflation=1s,conflation_key=[/sym]": "sym",
    "conflation=auto,conflation_key=[/sym]": "sym",
}


@pytest.mark.parametrize("opts", CONFLATIONS)
@given(steps=history)
@examples(18)
def test_a_conflated_subscription_can_be_left_anywhere(opts, steps):
    world = SlowDisk(*topics())
    client = world.client()
    client.say(c="subscribe", t=BOTH, opts=opts)
    lines = play(world, client, steps)
    found = marks(lines)
    assert all(one < other for one, other in pairwise(found)), found
    check_every_cut(world, lines, 0, CONFLATIONS[opts])


@given(before=history, after=history, from_bookmark=st.booleans())
@examples(18)
def test_a_late_conflated_subscription_can_be_left_anywhere(before, after, from_bookmark):
    world = SlowDisk(*topics())
    first, late = world.client(), world.client()
    first.say(c="subscribe", t=BOTH, opts="conflation=1s")
    play_some(world, before)
    command = {"c": "subscribe", "bm": "0"} if from_bookmark else {"c": "sow_and_subscribe"}
    late.execute(json.dumps(command | {"t": BOTH, "opts": "conflation=1s"}).encode())
    lines = play(world, late, after)
    found = [int(line["bm"]) for line in lines if "bm" in line]
    assert found == sorted(found)
    check_every_cut(world, lines, 0)


def play_some(world, steps):
    for number, (kind, *more) in enumerate(steps):
        if kind == "publish":
            world.say_later(more[0], {"id": more[1], "n": -number})
        elif kind == "wait":
            world.advance(more[0] * MS)


def test_a_subscription_that_is_given_up_leaves_no_gap_before_its_end():
    made = (
        Topic("a", "json", keys=("/id",), conflation_policy="unsubscribe"),
        Topic("b", "json", keys=("/id",), conflation_policy="off"),
    )
    world = SlowDisk(*made, sessions=SessionSettings(queue_messages_max=4))
    client = world.client()
    client.say(c="subscribe", t=BOTH)
    for number in range(3):
        world.publish("a", {"id": number})
        world.publish("b", {"id": number})
    lines = client.lines()
    assert [line["reason"] for line in lines if line["c"] == "unsubscribed"] == ["BACK_PRESSURE"]
    found = marks(lines)
    assert found == list(range(1, len(found) + 1))


def test_a_copy_among_the_topics_keeps_to_the_time_at_which_it_changed():
    copy = ConflatedTopic("a-C", "json", "a", interval_us=SECOND)
    world = World(*topics(), copy)
    client = world.client()
    client.say(c="subscribe", t="^(a-C|b)$")
    world.publish("a", {"id": 1})
    world.publish("b", {"id": 2})
    world.advance(2 * SECOND)
    assert [(line["t"], line["bm"]) for line in client.lines()] == [
        ("b", "2"),
        ("a-C", "1.1001000000"),
    ]


def test_a_window_that_is_moved_to_the_end_claims_no_more_than_what_stood_there():
    world = World(Topic("t", "json", keys=("/id",), conflation_policy="always", placement="append"))
    client = world.client()
    client.say(c="subscribe", t="t", opts="conflation=1s")
    world.publish("t", {"id": 1})
    world.advance(2 * SECOND)
    world.publish("t", {"id": 1}, {"id": 2}, {"id": 1})
    world.advance(2 * SECOND)
    lines = [(line["d"]["id"], line["bm"]) for line in client.lines()]
    assert lines == [(1, "2"), (2, "3")], "a client that stops after the first resumes at 2"


def test_what_a_replacement_says_before_its_group_claims_nothing_that_is_in_the_group():
    world = World(Topic("t", "json", keys=("/id",)))
    client, opts = world.client(), "conflation=1s,oof"
    *_, end = client.say(c="sow_and_subscribe", t="t", opts=opts)
    world.publish("t", {"id": 2}, {"id": 1})
    command = {"c": "sow_and_subscribe", "t": "t", "s": end["s"], "opts": "replace,oof"}
    lines = client.say(**command, order_by="/id DESC", top_n=1)
    said = [(line["c"], line["d"]["id"], line.get("bm")) for line in lines if "d" in line]
    assert said == [("p", 1, "1"), ("sow", 2, None)], "after 1 there is 2, which is sent last"
