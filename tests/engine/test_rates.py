"""Two minutes of figures, taken from what topics count anyway."""

from dataclasses import replace

import pytest

from sow.core.cooperative import run_to_completion
from sow.core.definitions import ConflatedTopic, Topic, View
from sow.engine import rates
from sow.engine.rates import RATES_KEPT, WATCHED_RECORDS_MAX, RateKeeper, totals_of
from tests.laws.harness import SECOND, World

ORDERS = Topic("orders", "json", keys=("/id",))
SLOW = ConflatedTopic("orders-C", "json", "orders", interval_us=10 * SECOND)
TOTALS = View("totals", "json", ("orders",), ("COUNT(1) AS /n", "/desk"), ("/desk",))


class Kept:
    def __init__(self, *topics):
        self.world = World(*(topics or (ORDERS, SLOW, TOTALS)))
        self.keeper = RateKeeper(self.world.engine)
        self.look()

    def look(self, after_s=0):
        self.world.advance(after_s * SECOND)
        run_to_completion(self.keeper.look(self.world.clock.now_us()))

    def publish(self, *numbers, topic="orders", second=True):
        self.world.publish(topic, *({"id": number, "desk": "a"} for number in numbers))
        if second:
            self.look(1)

    def topic(self, name="orders"):
        return [[*found] for found in self.keeper.of_topic(name)[1:]]

    def record(self, identity, name="orders"):
        topic, now_us = self.world.engine.topic(name), self.world.clock.now_us()
        return [[*found] for found in self.keeper.of_record(topic, identity, now_us)[1:]]

    def identity(self, name="orders"):
        return self.world.engine.topic(name).records.table.identities[0]


def test_each_second_has_its_figure():
    kept = Kept()
    assert kept.topic() == [[], []]
    kept.publish(1, 2, 3)
    kept.look(1)
    kept.publish(1)
    assert kept.topic() == [[3, 0, 1], [3, 0, 1]]
    assert kept.keeper.of_topic("orders").end_us == kept.world.clock.now_us()


def test_what_conflates_takes_more_than_it_gives():
    kept = Kept()
    for _ in range(3):
        kept.publish(1)
    kept.look(10)
    taken, given = kept.topic("orders-C")
    assert (sum(taken), taken[:3]) == (3, [1, 1, 1])
    assert 0 < sum(given) < 3
    assert totals_of(kept.world.engine.topic("totals"))[0] == sum(kept.topic("totals")[0]) == 3


def test_a_look_that_is_late_spreads_what_came_over_the_seconds_it_missed():
    kept = Kept()
    kept.publish(1, 2, 3, 4, 5, 6, 7, second=False)
    kept.look(3)
    assert kept.topic() == [[2, 2, 3], [2, 2, 3]]
    kept.publish(1, second=False)
    kept.look(0)  # too early: the next one has it
    assert sum(kept.topic()[0]) == 7
    kept.look(1)
    assert kept.topic()[0] == [2, 2, 3, 1]


def test_a_clock_that_is_set_forward_by_years_costs_two_minutes_of_figures():
    kept, years = Kept(), 10**12
    kept.publish(1, 2, 3, second=False)
    kept.look(years)
    assert kept.topic()[0] == [0] * (RATES_KEPT - 3) + [1, 1, 1]


def test_two_minutes_are_kept_and_a_topic_at_rest_has_no_figures_of_its_own():
    kept = Kept()
    kept.publish(1)
    for _ in range(RATES_KEPT - 1):
        kept.look(1)
    assert kept.topic()[0] == [1] + [0] * (RATES_KEPT - 1)
    kept.look(1)
    assert kept.topic()[0] == [0] * RATES_KEPT
    assert kept.keeper._topics["orders"]._figures is None
    kept.look(10 * RATES_KEPT)
    kept.publish(1)
    assert kept.topic()[0] == [0] * (RATES_KEPT - 1) + [1]


def test_a_topic_that_is_made_anew_counts_from_zero():
    kept = Kept(ORDERS)
    kept.publish(1, 2, 3)
    kept.world.engine.topic("orders").updates = 2
    kept.look(1)
    assert kept.topic()[0] == [3, 2]


def test_a_topic_that_comes_later_has_figures_from_then_on():
    kept = Kept(replace(ORDERS, pattern="^orders$"))
    kept.look(5)
    kept.publish(1)
    assert kept.topic() == [[], []], "its first look is where it begins"
    kept.publish(1, 2)
    assert kept.topic()[0] == [2]


def test_topics_are_bounded(monkeypatch):
    monkeypatch.setattr(rates, "RATED_TOPICS_MAX", 1)
    kept = Kept()
    kept.publish(1)
    assert [*kept.keeper._topics] == ["orders"]
    assert kept.topic("totals") == [[], []]


def test_a_record_is_counted_from_when_somebody_asks_for_it():
    kept = Kept()
    kept.publish(1, 2)
    one = kept.identity()
    assert kept.record(one) == [[], []]
    kept.publish(1, 2)
    kept.publish(2)
    kept.world.publish("orders", {"id": 1}, {"id": 1})
    kept.look(1)
    assert kept.record(one) == [[1, 0, 2], [1, 0, 2]]


def test_a_record_of_a_conflated_topic_takes_what_is_published_and_gives_what_is_sent():
    kept = Kept()
    kept.publish(1)
    kept.look(10)
    one = kept.identity("orders-C")
    kept.record(one, "orders-C")
    kept.record(one)
    for _ in range(3):
        kept.publish(1)
    kept.look(10)
    taken, given = kept.record(one, "orders-C")
    assert (sum(taken), sum(given)) == (3, 1)
    assert kept.record(one)[1] == taken, "another watch of the same record counts as well"


def test_nobody_who_looks_costs_nothing():
    kept = Kept()
    kept.publish(1)
    engine, one = kept.world.engine, kept.identity()
    assert engine._change_listeners == ()
    kept.record(one)
    assert len(engine._change_listeners) == 1
    for _ in range(RATES_KEPT):
        kept.look(1)
    assert len(engine._change_listeners) == 1
    kept.look(2)
    assert engine._change_listeners == ()
    assert (kept.keeper._watched, kept.keeper._counts) == ({}, {})


def test_who_asks_for_very_many_records_ends_the_oldest_watch():
    kept = Kept()
    kept.publish(*range(WATCHED_RECORDS_MAX + 1))
    identities = kept.world.engine.topic("orders").records.table.identities
    for identity in identities[:WATCHED_RECORDS_MAX]:
        kept.record(identity)
    kept.publish(*range(WATCHED_RECORDS_MAX + 1))
    assert kept.record(identities[0]) == [[1], [1]], "which makes it the newest"
    assert kept.record(identities[WATCHED_RECORDS_MAX]) == [[], []]
    assert len(kept.keeper._watched) == WATCHED_RECORDS_MAX
    assert kept.record(identities[0]) == [[1], [1]]
    assert kept.record(identities[1]) == [[], []]


@pytest.mark.parametrize("name", ["orders-C", "totals"])
def test_a_record_is_watched_anew_where_its_topic_is(name):
    kept = Kept()
    kept.publish(1)
    kept.look(10)
    one, engine = kept.identity(name), kept.world.engine
    topic = engine.topic(name)
    kept.record(one, name)
    (watched,) = kept.keeper._watched.values()
    watched.sources = ()
    assert kept.record(one, name) == [[], []]
    (anew,) = kept.keeper._watched.values()
    assert anew is not watched
    assert anew.sources[-1] is topic.records
