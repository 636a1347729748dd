"""A conflated topic's filter, interval or merges are changed while updates wait in its windows."""

from dataclasses import replace
from random import Random

import pytest

from sow.core.definitions import ConflatedTopic, Merge, Topic
from tests.cases import all_cases
from tests.laws.harness import MS, SECOND, World, short

T = Topic("t", "json", keys=("/id",), expires=True)
HIGH = ConflatedTopic("c", "json", "t", interval_us=SECOND, filter="/v > 5")
LOW = replace(HIGH, filter="/v < 5")
CHAIN = ConflatedTopic("cc", "json", "c", interval_us=SECOND)


def world_of(*copies):
    world = World(T, *copies)
    world.publish("t", {"id": "B", "v": 8})
    world.advance(2 * SECOND)
    return world


def reconfigure(world, *copies):
    world.configuration = replace(world.configuration, topics=(T, *copies))
    world.executor.reconfigure(world.configuration, world.now)
    world.settle()


def test_what_waits_is_held_against_the_new_filter():
    world = world_of(HIGH)
    world.publish("t", {"id": "A", "v": 7}, {"id": "B", "v": 2})
    reconfigure(world, LOW)
    world.advance(1100 * MS)
    assert world.records("c") == [{"id": "B", "v": 2}]


def test_a_record_that_was_leaving_and_matches_now_is_an_update():
    world = world_of(HIGH)
    client = world.client()
    client.say(c="sow_and_subscribe", t="c", opts="oof")
    world.publish("t", {"id": "B", "v": 2})
    reconfigure(world, LOW)
    world.advance(2 * SECOND)
    assert client.data() == [("p", {"id": "B", "v": 2})]


def test_a_record_that_was_about_to_enter_and_does_not_match_is_never_mentioned():
    world = world_of(HIGH)
    client = world.client()
    client.say(c="subscribe", t="c", opts="oof")
    world.publish("t", {"id": "A", "v": 7})
    reconfigure(world, LOW)
    world.advance(2 * SECOND)
    assert client.data() == []


def test_a_window_that_has_ended_keeps_what_it_says():
    world = world_of(replace(HIGH, interval_us=SECOND))
    world.clock.advance(7 * MS)
    world.publish("t", {"id": "A", "v": 7})
    world.clock.advance(SECOND)
    reconfigure(world, LOW)
    world.advance(20 * MS)
    assert {"id": "A", "v": 7} in world.records("c")
    world.advance(1100 * MS)
    assert world.records("c") == []


def test_twice_within_a_window_leaves_everything_in_its_place():
    world = world_of(HIGH)
    client = world.client()
    client.say(c="sow_and_subscribe", t="c", opts="oof")
    reconfigure(world, LOW)
    reconfigure(world, HIGH)
    world.advance(2 * SECOND)
    assert world.records("c") == [{"id": "B", "v": 8}]
    assert client.data() == [("p", {"id": "B", "v": 8})]


def test_updates_that_wait_are_not_merged_with_themselves():
    merged = replace(HIGH, merges=(Merge("/v", "sum"), Merge("/n", "count")))
    world = world_of(merged)
    world.publish("t", {"id": "A", "v": 7})
    world.publish("t", {"id": "A", "v": 9})
    reconfigure(world, replace(merged, filter="/v > 4"))
    world.advance(2 * SECOND)
    assert {"id": "A", "v": 16, "n": 2} in world.records("c")


def test_a_new_interval_releases_at_once_what_windows_held_that_have_ended():
    merged = replace(HIGH, interval_us=SECOND, merges=(Merge("/v", "sum"),))
    world = world_of(merged)
    world.clock.advance(7 * MS)
    world.publish("t", {"id": "A", "v": 7})
    world.clock.advance(SECOND)
    world.publish("t", {"id": "A", "v": 9})
    reconfigure(world, replace(merged, interval_us=2 * SECOND))
    world.advance(0)
    assert {"id": "A", "v": 7} in world.records("c")
    world.advance(3 * SECOND)
    assert {"id": "A", "v": 9} in world.records("c")


@pytest.mark.parametrize(("merges", "sums"), [((), 9), ((Merge("/v", "sum"),), 16)])
def test_merges_that_come_or_go_hold_for_what_comes_from_now_on(merges, sums):
    other = () if merges else (Merge("/v", "sum"),)
    world = world_of(replace(HIGH, merges=other))
    world.publish("t", {"id": "A", "v": 7})
    reconfigure(world, replace(HIGH, merges=merges))
    world.publish("t", {"id": "A", "v": 9})
    world.advance(2 * SECOND)
    assert {"id": "A", "v": sums} in world.records("c")


def test_an_oof_shows_the_computed_fields_too():
    enriched = replace(HIGH, enrichment=("/v * 2 AS /double",))
    world = world_of(enriched)
    client = world.client()
    client.say(c="sow_and_subscribe", t="c", opts="oof")
    world.publish("t", {"id": "B", "v": 2})
    world.advance(2 * SECOND)
    assert client.data() == [("match", {"id": "B", "v": 2, "double": 4})]


FILTERS = (None, "/v > 5", "/v < 5", "/v = 3", "/w > 0")


def passes(document, condition):
    if condition is None:
        return True
    name, operator, bound = condition.split()
    value = document.get(name[1:])
    if value is None:
        return False
    return {">": value > int(bound), "<": value < int(bound), "=": value == int(bound)}[operator]


class Run:
    """Random traffic beside random reloads of the copy's filter and interval."""

    def __init__(self, seed):
        self.random = Random(seed)
        self.copy = replace(HIGH, schedule=self.random.choice(("per-key", "tick")))
        self.world = World(T, self.copy, CHAIN)
        self.client = self.world.client()
        self.client.say(c="sow_and_subscribe", t="^c", opts="oof")

    def step(self, number):
        random, world = self.random, self.world
        act = random.choices(
            (self._publish, self._delete, self._reload, self._pass), (50, 10, 15, 25)
        )[0]
        act(random, world, number)

    def _publish(self, random, world, number):
        document = {"id": random.randrange(4), "v": random.randrange(9), "n": number}
        if random.random() < 0.5:
            document["w"] = random.randrange(2)
        world.publish("t", document, expires_s=random.choice((None, None, 1, 3)))

    def _delete(self, random, world, _number):
        world.delete("t", f"/id = {random.randrange(4)}")

    def _reload(self, random, world, _number):
        interval_us = random.choice((SECOND, SECOND, SECOND // 2))
        self.copy = replace(self.copy, filter=random.choice(FILTERS), interval_us=interval_us)
        reconfigure(world, self.copy, CHAIN)

    def _pass(self, random, world, _number):
        """Time passes; now and then the server is late, and windows end that are not released."""
        by_us = random.randrange(700) * MS
        if random.random() < 0.5:
            world.advance(by_us)
        else:
            world.clock.advance(by_us)


@all_cases("seed", range(30))
def test_after_one_interval_the_copy_is_the_topic_through_the_filter(seed):
    run = Run(seed)
    for number in range(60):
        run.step(number)
    run.world.advance(9 * SECOND)
    expected = {d["id"]: d for d in run.world.records("t") if passes(d, run.copy.filter)}
    held = {}
    for line in run.client.lines():
        place = line["t"], line.get("k")
        if line["c"] == "oof":
            del held[place]
        elif line["c"] in ("sow", "p"):
            held[place] = line["d"]
    again = run.world.restart()
    for name in ("c", "cc"):
        assert {d["id"]: d for d in run.world.records(name)} == expected
        assert {d["id"]: d for (topic, _), d in held.items() if topic == name} == expected
        assert {d["id"]: d for d in again.records(name)} == expected
    run.world.check()


def test_the_helpers_of_this_test_agree_with_filters():
    world = World(T)
    documents = [{"id": v, "v": v, "w": v % 2} for v in range(9)]
    world.publish("t", *documents)
    for condition in FILTERS:
        more = {} if condition is None else {"filter": condition}
        found = short(world.client().say(c="sow", t="t", **more))
        assert [d for _, d in found] == [d for d in documents if passes(d, condition)]
