"""Which updates that wait are of one thing: matched by key or by the fields of `Match`."""

from dataclasses import replace

import pytest

from sow.protocol.replies import timestamp
from tests.laws.harness import SECOND
from tests.laws.slow import slow, topic, world_of
from tests.laws.tables import play


def test_updates_are_matched_by_other_fields_if_the_topic_says_so():
    world = world_of(topic(match=("/symbol",)), queue_messages_max=3)
    client = slow(world)
    for number, symbol in enumerate("AABA"):
        world.publish("t", {"id": number, "symbol": symbol})
    assert [document["id"] for _, document in client.data()] == [3, 2]


def test_a_field_that_is_absent_matches_nothing_of_another_record():
    world = world_of(topic(match=("/symbol",)))
    client = slow(world)
    world.publish(
        "t",
        *({"id": 1, "n": n} for n in range(3)),
        {"id": 2, "symbol": None},
        {"id": 3, "symbol": "None"},
        {"id": 4, "symbol": {"x": 1}},
        {"id": 5, "symbol": ["A", "B"]},
    )
    client.session.conflate(world.now)
    assert [document["id"] for _, document in client.data()] == [1, 2, 3, 4, 5]


def test_match_fields_are_compared_as_key_fields_are():
    world = world_of(topic(match=("/a", "/b")))
    client = slow(world)
    world.publish(
        "t",
        {"id": 1, "a": 1, "b": True},
        {"id": 2, "a": 1.0, "b": "true"},
        {"id": 3, "a": "1", "b": False},
        {"id": 4, "b": "1"},
    )
    client.session.conflate(world.now)
    assert [document["id"] for _, document in client.data()] == [2, 3, 4]


def test_a_client_with_oof_is_sent_the_removal_of_each_record():
    play("""
    topic  t  Key=/id  Match="<Key>/symbol</Key>"

    at 0.0  sow_and_subscribe  opts=oof
            stop
            publish     {"id":1,"symbol":"A"} {"id":2,"symbol":"A"}
            publish     {"id":3,"symbol":"A"}
            conflate
            sow_delete  filter="/id = 1"
            conflate
            read
            said        p {"id":2,"symbol":"A"}  p {"id":3,"symbol":"A"}
            sow_delete  filter="/id = 2"
            said        deleted {"id":2,"symbol":"A"}
    """)


@pytest.mark.parametrize("placement", ["replace", "append"])
def test_a_record_whose_match_changes_does_not_go_backwards(placement):
    world = world_of(topic(match=("/symbol",), placement=placement))
    client = slow(world)
    for n, symbol in enumerate("ABABA"):
        world.publish("t", {"id": 1, "symbol": symbol, "n": n})
    client.session.conflate(world.now)
    world.check()
    assert client.data() == [
        ("p", {"id": 1, "symbol": "B", "n": 3}),
        ("p", {"id": 1, "symbol": "A", "n": 4}),
    ]


def test_another_match_from_now_on_folds_nothing_into_what_was_matched_before():
    world = world_of(topic(match=("/symbol",), conflation_policy="always"))
    client = slow(world)
    world.publish("t", {"id": "A", "symbol": "B"})
    world.publish("t", {"id": "B", "symbol": "A"})
    changed = replace(world.configuration, topics=(topic(conflation_policy="always"),))
    world.executor.reconfigure(changed, world.now)
    world.publish("t", {"id": "A", "symbol": "C"})
    world.check()
    assert [document["id"] for _, document in client.data()] == ["A", "B", "A"]


def test_matching_by_other_fields_leaves_deltas_alone():
    world = world_of(topic(match=("/symbol",)), queue_messages_max=3)
    same = {"symbol": "A", "text": "x" * 100}
    world.publish("t", {"id": 0, "q": 0, **same}, {"id": 1, "q": 0, **same})
    client = slow(world, c="sow_and_delta_subscribe")
    client.lines()
    for q in (1, 2):
        for number in (0, 1):
            world.publish("t", {"id": number, "q": q, **same})
    lines = [line for line in client.lines() if line["c"] == "p"]
    assert [line["d"] for line in lines] == [{"id": 0, "q": 2}, {"id": 1, "q": 2}]


# One rule, wherever updates of different records are folded.


FOLDERS = {
    "a window": "conflation=1s,conflation_key=[/sym],timestamp",
    "a full queue, as the topic says": "timestamp",
}


@pytest.mark.parametrize("opts", FOLDERS.values(), ids=FOLDERS)
def test_a_line_that_stands_for_another_record_says_the_bookmark_and_time_of_the_first(opts):
    world = world_of(topic(match=("/sym",)), queue_messages_max=1000)
    client = slow(world, c="subscribe", t="t", opts=opts)
    began = world.now
    world.publish("t", {"id": "A", "sym": "S"})
    world.advance(SECOND // 2)
    world.publish("t", {"id": "B", "sym": "S"})
    world.publish("t", {"id": "C", "sym": "T"})
    world.advance(SECOND)
    client.session.conflate(world.now)
    lines = [line for line in client.lines() if line["c"] == "p"]
    assert [(line["d"]["id"], line["bm"], line["ts"]) for line in lines] == [
        ("B", "1", timestamp(began)),
        ("C", "3", timestamp(began + SECOND // 2)),
    ]
