"""What becomes of two updates of one record that wait: operations of fields, and mergers."""

import pytest

from sow.core.definitions import ConflatedTopic, Merge, Topic
from tests.laws.harness import SECOND, World
from tests.laws.slow import FIGURES, figure, slow, topic, world_of
from tests.laws.tables import play

MERGERS = "tests.laws.mergers"


@pytest.mark.parametrize(
    ("merger", "placement", "left"),
    [
        ("current", "replace", ["A1", "B2", "C3"]),
        ("current", "append", ["A1", "B2", "C3"]),
        ("new", "replace", ["A4", "B2", "C5"]),
        ("new", "append", ["B2", "A4", "C5"]),
        ("both", "replace", ["A5", "B2", "C8"]),
        ("both", "append", ["B2", "A5", "C8"]),
    ],
)
def test_every_answer_of_a_merger_in_both_placements(merger, placement, left):
    assert figure(placement, merger=f"{MERGERS}:{merger}") == left


@pytest.mark.parametrize("merger", ["neither", "broken"])
@pytest.mark.parametrize("placement", ["replace", "append"])
def test_a_merger_that_keeps_both_leaves_everything_in_order(merger, placement):
    world = world_of(
        topic(placement=placement, merger=f"{MERGERS}:{merger}", conflation_policy="always")
    )
    client = slow(world)
    for name, value in FIGURES:
        world.publish("t", {"id": name, "v": value})
    assert [f"{d['id']}{d['v']}" for _, d in client.data()] == ["A1", "B2", "C3", "A4", "C5"]


@pytest.mark.parametrize(
    ("operation", "left"),
    [("sum", 12), ("min", 3), ("max", 5), ("first", 4), ("latest", 5), ("count", 3)],
)
def test_operations(operation, left):
    world = world_of(topic(merges=(Merge("/v", operation),)), queue_messages_max=2)
    client = slow(world)
    for value in (4, 3, 5):
        world.publish("t", {"id": 1, "v": value, "x": value})
    assert client.data() == [("p", {"id": 1, "v": left, "x": 5})]


def test_counting_counts_updates():
    world = world_of(topic(merges=(Merge("/n", "count"),)), queue_messages_max=2)
    client = slow(world)
    for _ in range(5):
        world.publish("t", {"id": 1})
    assert client.data() == [("p", {"id": 1, "n": 5})]


def test_counting_continues_in_a_later_fold_and_restarts_with_the_next_message():
    play("""
    topic  t  Key=/id  ConflationPolicy=always  \
        Merge="<Field>/n</Field><Operation>count</Operation>"

    at 0.0  subscribe
            stop
            publish  {"id":1,"n":3}
            publish  {"id":1,"n":1}
            publish  {"id":1,"n":2}
            conflate
            publish  {"id":1,"n":7} {"id":1,"n":7}
            read
            said     p {"id":1,"n":5}
            stop
            publish  {"id":1,"n":9} {"id":1,"n":"many"}
            read
            said     p {"id":1,"n":2}
            publish  {"id":1,"n":4}
            said     p {"id":1,"n":4}
    """)


def test_a_queue_of_a_copy_that_counts_adds_up_what_its_windows_counted():
    copy = ConflatedTopic("c", "json", "t", interval_us=SECOND, merges=(Merge("/n", "count"),))
    world = World(topic(), copy)
    client = slow(world, t="c")
    for updates in (3, 1, 2):
        for _ in range(updates):
            world.publish("t", {"id": 1, "n": 100})
        world.advance(2 * SECOND)
    client.session.conflate(world.now)
    assert client.data() == [("p", {"id": 1, "n": 6})]


@pytest.mark.parametrize("merger", ["in_place", "into_the_newer"])
@pytest.mark.parametrize("placement", ["replace", "append"])
def test_a_merger_may_change_what_it_was_given(merger, placement):
    left = ["A5", "B2", "C8"] if placement == "replace" else ["B2", "A5", "C8"]
    assert figure(placement, merger=f"{MERGERS}:{merger}") == left


def test_a_merger_of_numbers_is_sent_as_one_of_documents():
    numeric = Topic("t", "int64", merger=f"{MERGERS}:numbers", conflation_policy="always")
    world = world_of(numeric)
    client = slow(world)
    for value in (1, 2, 6, 0):
        world.engine.publish("t", [b"%d" % value], world.now, key="k")
        world.settle()
    assert client.data() == [("p", "3")]


@pytest.mark.parametrize(
    "setting", [{"merges": (Merge("/q", "sum"),)}, {"merger": f"{MERGERS}:one"}]
)
def test_a_copy_that_is_kept_by_deltas_is_the_record_whatever_merges(setting):
    world = world_of(topic(conflation_policy="always", **setting))
    wide = {"text": "x" * 100}
    world.publish("t", {"id": 1, "q": 0, "px": 0, **wide})
    client, copy = slow(world, c="sow_and_delta_subscribe"), world.records("t")[0]
    for q, px in ((1, 1), (2, 2), (2, 3)):
        world.publish("t", {"id": 1, "q": q, "px": px, **wide})
    for _, document in client.data():
        copy |= document
    world.publish("t", {"id": 1, "q": 2, "px": 4, **wide})
    for _, document in client.data():
        copy |= document
    assert copy == world.records("t")[0]


def test_concatenation():
    world = world_of(
        topic(merges=(Merge("/text", "concat"), Merge("/list", "concat"))), queue_messages_max=1
    )
    client = slow(world)
    world.publish("t", {"id": 1, "text": "a", "list": [1]})
    world.publish("t", {"id": 1, "text": "b", "list": [2]})
    assert client.data() == [("p", {"id": 1, "text": "ab", "list": [1, 2]})]


def test_one_merge_serves_all_sessions():
    world = world_of(topic(merges=(Merge("/v", "sum"),)), queue_messages_max=1)
    clients = [slow(world) for _ in range(10)]
    world.publish("t", {"id": 1, "v": 1})
    world.publish("t", {"id": 1, "v": 2})
    merger = world.engine.topics["t"].records.folding.merger
    assert (merger.misses, merger.hits) == (1, 9)
    assert all(client.data() == [("p", {"id": 1, "v": 3})] for client in clients)


def test_a_merge_of_a_conflated_topic_folds_the_updates_of_a_window():
    copy = ConflatedTopic(
        "c", "json", "t", interval_us=SECOND, merges=(Merge("/v", "sum"), Merge("/n", "count"))
    )
    world = World(topic(), copy)
    for value in (1, 2, 3):
        world.publish("t", {"id": 1, "v": value, "last": value})
    world.publish("t", {"id": 2, "v": 7, "last": 7})
    world.advance(2 * SECOND)
    assert world.records("c") == [
        {"id": 1, "v": 6, "last": 3, "n": 3},
        {"id": 2, "v": 7, "last": 7, "n": 1},
    ]
    world.publish("t", {"id": 1, "v": 10, "last": 10})
    world.advance(2 * SECOND)
    assert world.records("c")[0] == {"id": 1, "v": 10, "last": 10, "n": 1}


@pytest.mark.parametrize("values", [(10**308, 17 * 10**307), (1e308, 1e308), (-1.5e308, -1e308)])
def test_a_sum_that_no_number_holds_leaves_the_newer_message(values):
    copy = ConflatedTopic("c", "json", "t", interval_us=SECOND, merges=(Merge("/v", "sum"),))
    world = World(topic(), copy)
    for value in values:
        world.publish("t", {"id": 1, "v": value})
    world.advance(2 * SECOND)
    assert world.records("c") == [{"id": 1, "v": values[-1]}]
    assert world.engine.topics["c"].records.folding.merger.merger.errors == 1
    world.check()
