"""A disk that is never idle: some groups are always on their way to it, and queues conflated."""

import pytest

from sow.core.definitions import Merge, SessionSettings
from tests.laws.harness import SlowDisk
from tests.laws.slow import SMALL, slow, topic


def pipelined(*commands, sessions=None, **more):
    """A world in which each group is durable two groups later, and a client of it."""
    world = SlowDisk(topic(**more), sessions=sessions or SMALL)
    client = slow(world, *commands)
    world.lag = 2
    return world, client


@pytest.mark.parametrize("placement", ["replace", "append"])
@pytest.mark.parametrize("records", [1, 3])
def test_records_that_change_all_the_time_leave_though_the_disk_is_never_idle(placement, records):
    world, client = pipelined(conflation_policy="always", placement=placement)
    world.publish("t", {"id": "quiet"})
    told = {}
    for turn in range(40):
        world.publish("t", *({"id": number, "turn": turn} for number in range(records)))
        world.check()
        told |= {document["id"]: document.get("turn") for _, document in client.data()}
        if turn >= 6:
            assert len(told) == records + 1
            assert min(told[number] for number in range(records)) >= turn - 5
    world.catch_up()
    assert [document["turn"] for _, document in client.data()] == [39] * records


def test_a_full_queue_that_is_conflated_all_the_time_goes_on_too():
    world, client = pipelined(sessions=SessionSettings(queue_messages_max=1000))
    newest = -1
    for turn in range(40):
        world.publish("t", *({"id": number, "turn": turn} for number in range(3)))
        newest = max([newest, *(document["turn"] for _, document in client.data())])
        client.session.conflate(world.now)
        world.check()
        assert turn < 6 or newest >= turn - 5


def test_of_a_record_waits_one_message_that_is_its_newest_state_once_it_is_durable():
    world, client = pipelined(conflation_policy="always")
    for px in range(20):
        world.publish("t", {"id": 1, "px": px}, {"id": 2, "px": px})
        world.check()
        assert client.session.outbox.message_count == 2
    world.catch_up()
    assert client.data() == [("p", {"id": 1, "px": 19}), ("p", {"id": 2, "px": 19})]
    assert client.session.outbox.folded == 38


def test_what_is_folded_and_what_is_sent_adds_up_while_the_disk_is_busy():
    world, client = pipelined(conflation_policy="always")
    told = 0
    for px in range(20):
        world.publish("t", {"id": 1, "px": px}, {"id": 2, "px": px})
        if px % 3:
            told += len(client.data())
    world.catch_up()
    told += len(client.data())
    assert 2 < told < 40
    assert told + client.session.outbox.folded == 40


def test_a_delta_after_an_older_state_is_relative_to_that_state():
    world, client = pipelined(
        {"c": "sow_and_delta_subscribe", "t": "t"}, conflation_policy="always"
    )
    text = "x" * 100
    lines = []
    for turn in range(8):
        world.publish("t", {"id": 1, "text": text, "a": turn // 2, "b": turn})
        lines += client.lines()
    world.catch_up()
    first, *rest = lines + client.lines()
    assert first["d"] == {"id": 1, "text": text, "a": 0, "b": 0}
    assert 1 < len(rest) < 7
    held = first["d"]
    for line in rest:
        assert line["delta"] is True
        held = held | line["d"]
    assert held == {"id": 1, "text": text, "a": 3, "b": 7}


def test_a_record_that_comes_and_goes_behind_its_older_state_leaves_one_entry():
    world, client = pipelined(
        {"c": "sow_and_subscribe", "t": "t", "opts": "oof"}, conflation_policy="always"
    )
    world.lag = 100
    world.publish("t", {"id": 1, "n": -1})
    for n in range(10):
        world.delete("t", "/id = 1")
        world.publish("t", {"id": 1, "n": n})
        world.check()
        assert client.session.outbox.message_count == 1
    world.delete("t", "/id = 1")
    world.catch_up()
    assert client.data() == []


def test_what_matches_is_one_message_of_whichever_record_it_is():
    world, client = pipelined(conflation_policy="always", match=("/sym",))
    for n in range(20):
        world.publish("t", {"id": n % 3, "sym": "A", "n": n})
        world.check()
        assert client.session.outbox.message_count == 1
    world.catch_up()
    assert client.data()[-1] == ("p", {"id": 1, "sym": "A", "n": 19})


def test_a_merger_counts_every_message_once_however_often_the_older_part_leaves():
    world, client = pipelined(conflation_policy="always", merges=(Merge("/n", "count"),))
    for _ in range(5):
        world.publish("t", {"id": 1})
    world.catch_up()
    for _ in range(5):
        world.publish("t", {"id": 1})
    assert client.data() == [("p", {"id": 1, "n": 10})]
