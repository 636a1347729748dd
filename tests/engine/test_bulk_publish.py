"""Large publishes come a slice at a time: refused before the first, finished after it."""

import json
from dataclasses import replace

import numpy as np
import pytest

from sow.core.cooperative import run_to_completion
from sow.core.definitions import Limits
from sow.engine import bulk_publish
from sow.engine.bulk_publish import reading, slices
from sow.engine.topic_changes import TopicChanges
from sow.errors import BadMessage, DiskFull, Full, StoreFailing, TooLarge, UnknownTopic
from sow.store.memory import RECORD_BYTES
from tests.engine.test_capacity import BODY, DESKS, bodies, ids
from tests.laws.harness import ORDERS, World


@pytest.fixture(autouse=True)
def _two_at_once(monkeypatch):
    monkeypatch.setattr(bulk_publish, "SLICE_ROWS", 2)


def begin(world, *numbers, topic="orders", **more):
    """A publish of which no step has been taken yet."""
    live = world.engine.publishable(topic)
    read = run_to_completion(
        reading(bodies(*numbers), lambda part: world.engine.read(live, part, now_us=world.now))
    )
    return world.engine.publications.carry_out(topic, read, world.now, **more)


def limited(world, **limits):
    world.engine.adopt(replace(world.engine.configuration, limits=Limits(**limits)))


def left(world):
    """What the server would be told to finish."""
    found = []
    world.engine.publications.on_left(found.append)
    return found


def end(steps):
    """The result of steps that have one more to take."""
    with pytest.raises(StopIteration) as over:
        next(steps)
    return over.value.value


def test_slices_are_bounded_by_messages_and_by_bytes(monkeypatch):
    monkeypatch.setattr(bulk_publish, "SLICE_BYTES", 10)
    parts = slices([b"1", b"2", b"3", b"4" * 9, b"5" * 99, b"6", b"7"])
    assert [b",".join(part)[:4] for part in parts] == [b"1,2", b"3,44", b"5555", b"6,7"]
    assert list(slices([])) == [[]]
    assert list(slices([b"x" * 99])) == [[b"x" * 99]]


def test_a_bad_message_is_named_by_its_place_among_all():
    world = World()
    topic = world.engine.publishable("orders")
    with pytest.raises(BadMessage) as refused:
        run_to_completion(
            reading(
                [*bodies(1, 2, 3), b"x"],
                lambda part: world.engine.read(topic, part, now_us=world.now),
            )
        )
    assert refused.value.index == 3


def test_others_come_between_two_slices_and_bookmarks_are_in_order():
    world = World()
    large = begin(world, 1, 2, 3, 4, 5)
    next(large)
    assert ids(world) == ["1", "2"]
    assert begin_and_end(world, 9) == 3
    next(large)
    table = world.engine.topics["orders"].records.table
    run_to_completion(world.engine.removal("orders", np.array([table.slots["1"]]), world.now))
    assert end(large) == world.engine.seq == 7
    assert ids(world) == ["2", "3", "4", "5", "9"]
    world.settle()
    log = [(entry.seq, len(entry)) for entry in world.journal.read(0)]
    assert log == [(1, 2), (3, 1), (4, 2), (6, 1), (7, 1)]
    world.check()


def begin_and_end(world, *numbers, **more):
    return run_to_completion(begin(world, *numbers, **more))


def test_nothing_is_put_before_all_is_found_good():
    world = World(replace(ORDERS, records_max=4))
    begin_and_end(world, 1)
    with pytest.raises(Full, match="it has 1, and 4 more"):
        begin_and_end(world, 2, 3, 4, 5)
    assert ids(world) == ["1"]
    begin_and_end(world, 1, 2, 3, 1, 4)
    assert ids(world) == ["1", "2", "3", "4"]


def test_the_room_of_a_publish_that_has_begun_is_not_taken_by_others():
    world = World(replace(ORDERS, records_max=6))
    large = begin(world, 1, 2, 3, 4, 5)
    next(large)
    with pytest.raises(Full, match="it has 5, and 2 more"):
        begin_and_end(world, 8, 9)
    begin_and_end(world, 9)
    next(large)
    end(large)
    assert ids(world) == ["1", "2", "3", "4", "5", "9"]
    with pytest.raises(Full):
        begin_and_end(world, 8)


def test_room_that_is_given_up_or_done_is_there_for_others_again():
    world = World(ORDERS)
    limited(world, memory_bytes_max=6 * (RECORD_BYTES + len(BODY)))
    large = begin(world, 1, 2, 3, 4, 5)
    next(large)
    with pytest.raises(Full, match="Limits/Memory"):
        begin_and_end(world, 8, 9)
    next(large)
    end(large)
    begin_and_end(world, 1, 2, 3)
    with pytest.raises(Full):
        begin_and_end(world, 6, 7, 8)
    begin_and_end(world, 6)
    assert not world.engine.capacity._reserved
    assert ids(world) == ["1", "2", "3", "4", "5", "6"]


def test_near_a_limit_what_replaces_is_counted_in_steps_and_nothing_may_take_it_meanwhile():
    world = World(replace(ORDERS, records_max=5))
    begin_and_end(world, 1, 2, 3)
    large = begin(world, 1, 2, 3, 4)
    next(large)
    assert world.engine.seq == 3, "the first steps only count"
    with pytest.raises(Full):
        begin_and_end(world, 8)
    next(large)
    next(large)
    end(large)
    assert ids(world) == ["1", "2", "3", "4"]


def test_one_that_goes_before_the_first_slice_puts_none_and_frees_its_room():
    world, abandoned = World(replace(ORDERS, records_max=5)), []
    world.engine.publications.on_left(abandoned.append)
    begin_and_end(world, 1, 2, 3)
    large = begin(world, 1, 2, 3, 4)
    next(large)
    large.close()
    assert not abandoned
    assert not world.engine.capacity._reserved
    begin_and_end(world, 8, 9)


def test_a_publish_that_has_begun_is_finished_without_a_waiting_client():
    world = World()
    heard = left(world)
    large = begin(world, 1, 2, 3, 4, 5)
    next(large)
    large.close()
    assert ids(world) == ["1", "2"]
    assert world.engine.publications.has_left
    (publication,) = heard
    run_to_completion(world.engine.publications.finish(publication))
    assert ids(world) == ["1", "2", "3", "4", "5"]
    assert publication.is_over
    assert not world.engine.publications.has_left
    world.check()


def test_what_a_client_sends_next_does_not_come_before_what_it_has_left():
    world = World()
    large = begin(world, 1, 2, 3, 4, 5)
    next(large)
    large.close()
    begin_and_end(world, 5)
    log = [key for entry in logged(world) for key in entry]
    assert log == [1, 2, 3, 4, 5, 5]
    assert not world.engine.publications.has_left


def test_another_topic_does_not_wait_unless_it_would_leave_as_much():
    world = World(ORDERS, DESKS)
    large = begin(world, 1, 2, 3, 4, 5)
    next(large)
    large.close()
    begin_and_end(world, 1, topic="/desk/1")
    assert world.engine.publications.has_left
    next(begin(world, 1, 1, 2, topic="/desk/2"))
    assert ids(world) == ["1", "2", "3", "4"], "a large one finishes what is left first"


def logged(world):
    world.settle()
    return [[json.loads(body)["id"] for body in entry.bodies] for entry in world.journal.read(0)]


def test_deltas_are_merged_into_what_stands_there_when_they_are_put():
    world = World()
    topic = world.engine.publishable("orders")
    deltas = [b'{"id":1,"a":1}', b'{"id":2}', b'{"id":1,"b":1}']
    read = run_to_completion(
        reading(deltas, lambda part: world.engine.read(topic, part, now_us=world.now))
    )
    steps = world.engine.publications.carry_out("orders", read, world.now, delta=True)
    while not world.engine.seq:
        next(steps)
    world.publish("orders", {"id": 1, "c": 1})
    end(steps)
    assert world.records("orders") == [{"id": 1, "c": 1, "b": 1}, {"id": 2}]


def test_deltas_that_come_to_too_much_are_found_before_the_first_is_put():
    world = World()
    limited(world, message_bytes_max=30)
    topic = world.engine.publishable("orders")
    deltas = [b'{"id":1,"a":"xxxxxxx"}', b'{"id":2}', b'{"id":1,"b":"xxxxxxx"}']
    read = run_to_completion(
        reading(deltas, lambda part: world.engine.read(topic, part, now_us=world.now))
    )
    with pytest.raises(TooLarge):
        run_to_completion(
            world.engine.publications.carry_out("orders", read, world.now, delta=True)
        )
    assert ids(world) == []


def test_more_than_the_disk_has_room_for_is_refused_before_it_begins():
    world = World()
    world.journal.has_room = lambda size_bytes: size_bytes < 30
    begin_and_end(world, 1, 2, 3)
    with pytest.raises(DiskFull, match="nothing was stored; send less at once"):
        begin_and_end(world, 4, 5, 6, 7)
    assert ids(world) == ["1", "2", "3"]


def test_a_disk_that_fails_meanwhile_ends_in_no_acknowledgement_but_in_all_records():
    world = World()
    large = begin(world, 1, 2, 3)
    next(large)
    world.engine.disk.fail(StoreFailing("it fails"))
    with pytest.raises(StoreFailing):
        next(large)
    assert ids(world) == ["1", "2", "3"]
    world.engine.disk.recover()
    assert logged(world) == [[1, 2], [3]]


def test_a_topic_that_goes_between_reading_and_putting_is_refused():
    world = World(ORDERS, replace(DESKS, records_max=1))
    begin_and_end(world, 1, topic="/desk/1")
    large = begin(world, 1, 1, 1, topic="/desk/1")
    next(large)
    run_to_completion(
        TopicChanges(world.engine).give_up(world.engine.topics["/desk/1"], lambda _topic: None)
    )
    world.engine.adopt(replace(world.engine.configuration, limits=Limits(pattern_topics_max=0)))
    with pytest.raises(TooLarge, match="was not made"):
        run_to_completion(large)
    with pytest.raises(UnknownTopic):
        world.engine.topic("/desk/1")


def test_all_that_is_under_way_to_a_topic_can_be_finished_by_who_has_to_wait_for_it():
    world = World()
    first, second = begin(world, 1, 2, 3), begin(world, 4, 5, 6)
    next(first)
    next(second)
    run_to_completion(world.engine.publications.finish_all("orders"))
    assert ids(world) == ["1", "2", "3", "4", "5", "6"]
    assert end(first) == 5
    assert end(second) == 6


@pytest.mark.parametrize("taken", range(4))
def test_a_second_life_has_what_was_stored_of_a_publish_and_can_be_sent_it_again(taken):
    world = World()
    large = begin(world, 1, 2, 3, 4, 5, 6)
    for _ in range(taken):
        next(large, None)
    world.settle()
    again = world.restart()
    assert ids(again) == ["1", "2", "3", "4", "5", "6"][: 2 * taken]
    begin_and_end(again, 1, 2, 3, 4, 5, 6)
    assert ids(again) == ["1", "2", "3", "4", "5", "6"]
    again.check()


def test_each_slice_is_enriched_by_what_has_become_of_the_records_meanwhile():
    counting = replace(ORDERS, enrichment=("COALESCE(/n OF PREVIOUS, 0) + 1 AS /n",))
    world = World(counting)
    steps = begin(world, 1, 2, 3, 4, 1)
    while not world.records("orders"):
        next(steps)
    for _ in range(9):
        world.publish("orders", {"id": 4})
    run_to_completion(steps)
    counted = {record["id"]: record["n"] for record in world.records("orders")}
    assert counted == {1: 2, 2: 1, 3: 1, 4: 10}
    world.check()
