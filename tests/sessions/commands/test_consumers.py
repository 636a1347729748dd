"""Consumers of the log: whoever comes forward is waited for, and nobody for ever."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.core.cooperative import run_to_completion
from sow.core.definitions import CONSUMERS, JournalSettings
from sow.errors import ClientError, TooLarge
from sow.sessions.commands import consumers as module
from sow.sessions.commands.consumers import (
    CHANCE_US,
    ConsumerLags,
    ConsumerPatience,
    Consumers,
    Overtaken,
)
from tests.laws.harness import ORDERS, SECOND, World

LASTS_US = JournalSettings().consumer_expiration_us
MINUTE = 60 * SECOND


class Life:
    """One life of a server, and what it says about its consumers."""

    def __init__(self, world):
        self.world = world
        self.notices = []
        self.patience = ConsumerPatience(world.engine, world.now, self.notices.append)
        self.consumers = Consumers(world.engine)

    def move(self, name="reader", bookmark=1, oldest=0):
        self.consumers.move(name, bookmark, self.world.now, oldest)
        self.world.settle()

    def waited_for(self, stepped_us=0):
        return self.patience.waited_for(self.world.now, stepped_us)

    def again(self):
        return Life(self.world.restart())


@pytest.fixture
def life():
    world = World(ORDERS, CONSUMERS)
    for number in range(3):
        world.publish("orders", {"id": number})
    return Life(world)


def test_a_consumer_is_waited_for_as_long_as_it_comes_forward(life):
    life.move()
    for _ in range(3):
        life.world.clock.advance(LASTS_US)
        assert life.waited_for() == {"reader": 1}
        life.move()  # it says the same again
    life.world.clock.advance(LASTS_US + 1)
    assert life.waited_for() == {}
    life.move()
    assert life.waited_for() == {"reader": 1}


def test_of_readers_who_share_a_name_the_one_furthest_behind_counts(life):
    consumers, world = life.consumers, life.world
    assert consumers.move("shared", 3, world.now, reader="a") == 3
    assert consumers.move("shared", 1, world.now, reader="b") == 1
    assert consumers.move("shared", 3, world.now, reader="a") == 1
    world.settle()
    again = Life(world.restart())
    assert again.consumers.positions() == {"shared": 1}
    assert again.consumers.move("shared", 2, again.world.now, reader="b") == 2
    assert again.consumers.move("shared", 3, again.world.now) == 3  # who has no name speaks for all


def test_a_reader_who_never_comes_back_holds_nobody_up_for_ever(life):
    life.consumers.move("shared", 1, life.world.now, reader="gone")
    life.world.clock.advance(LASTS_US + MINUTE)
    assert life.consumers.move("shared", 3, life.world.now, reader="here") == 3


def test_only_so_many_readers_share_a_name(life):
    for number in range(module.READERS_MAX + 5):
        life.world.clock.advance(MINUTE)
        life.consumers.move("shared", 1 if number < 5 else 2, life.world.now, reader=f"r{number}")
    assert life.consumers.positions() == {"shared": 2}


def test_what_is_about_to_happen_is_said_once_and_so_is_that_it_has(life):
    life.move()
    life.move("up to date", 3)
    for _ in range(6 * 24 * 60 // 10):
        life.world.clock.advance(10 * MINUTE)
        life.waited_for()
    (soon,) = life.notices
    assert "reader, which is 2 records behind" in soon
    assert "will not be kept" in soon
    life.world.clock.advance(LASTS_US)
    for _ in range(3):
        life.waited_for()
    assert len(life.notices) == 2
    assert "is not kept any more" in life.notices[1]


def test_time_in_which_nobody_could_come_forward_does_not_count(life):
    life.move()
    life.world.clock.advance(10 * LASTS_US)
    again = life.again()
    assert again.waited_for() == {"reader": 1}
    again.world.clock.advance(CHANCE_US)
    assert again.waited_for() == {"reader": 1}
    again.world.clock.advance(1)
    assert again.waited_for() == {}


def test_a_clock_that_is_set_forward_ends_no_patience_at_once(life):
    life.move()
    life.world.clock.advance(2 * CHANCE_US)
    assert life.waited_for() == {"reader": 1}
    life.world.clock.advance(10 * LASTS_US)
    assert life.waited_for(stepped_us=10 * LASTS_US) == {"reader": 1}
    life.world.clock.advance(CHANCE_US + 1)
    assert life.waited_for(stepped_us=10 * LASTS_US) == {}


def test_when_it_came_forward_is_known_after_a_restart(life):
    life.move()
    life.world.clock.advance(LASTS_US // 2)
    again = life.again()
    again.world.clock.advance(LASTS_US // 2 + 1)
    assert again.waited_for() == {}


def test_patience_may_be_unlimited_or_short(life):
    life.move()
    engine = life.world.engine
    for lasts_us, found in ((None, {"reader": 1}), (SECOND, {})):
        journal = replace(engine.configuration.journal, consumer_expiration_us=lasts_us)
        engine.configuration = replace(engine.configuration, journal=journal)
        life.world.clock.advance(10 * LASTS_US)
        assert life.waited_for() == found


def test_one_that_was_overtaken_is_sent_when_it_comes_back(life):
    life.move()
    with pytest.raises(Overtaken, match="oldest to go on from is 2") as caught:
        life.move(bookmark=1, oldest=2)
    assert caught.value.status == 409
    assert life.waited_for() == {"reader": 1}
    life.move(bookmark=2, oldest=2)  # it has read on, and missed nothing
    with pytest.raises(ClientError, match="is not kept") as caught:
        life.move("new", bookmark=1, oldest=2)
    assert caught.value.reason == "invalid bookmark"
    life.move("new", bookmark=0, oldest=2)


@pytest.mark.parametrize("name", ["", "n" * 256, "a\nb", "\0"])
def test_names_are_bounded_and_printable(life, name):
    with pytest.raises(ClientError, match="255 printable") as caught:
        life.move(name)
    assert len(caught.value.detail) < 250


def test_consumers_are_bounded_in_number(life, monkeypatch):
    monkeypatch.setattr(module, "CONSUMERS_MAX", 2)
    life.move("a")
    life.move("b")
    with pytest.raises(TooLarge, match="2 consumers"):
        life.move("c")
    life.move("a", 2)
    life.consumers.remove("b", life.world.now)
    life.move("c")


class Counted(Consumers):
    """Consumers of a world, and what a scrape says of how far they are behind."""

    def __init__(self, world):
        super().__init__(world.engine)
        self.world = world
        self.lags = ConsumerLags(world.engine, world.journal)

    def look(self):
        self.world.settle()
        run_to_completion(self.lags.measure())
        seconds = self.lags.seconds(self.world.now)
        return {name: (rows, seconds[name]) for name, rows in self.lags.rows.items()}

    def at(self, name, bookmark, *topics):
        self.move(name, bookmark, self.world.now, topics=topics)


FILLS = replace(ORDERS, name="fills")


@pytest.fixture
def counted():
    world = World(ORDERS, FILLS, CONSUMERS)
    for number in range(3):
        world.publish("orders", {"id": number})
        world.publish("fills", {"id": number})
        world.clock.advance(SECOND)
    return Counted(world)


def test_a_lag_is_the_rows_of_its_topics_and_the_age_of_the_first(counted):
    counted.at("of orders", 1, "orders")
    counted.at("of both", 1, "orders", "fills")
    counted.at("of all", 1)
    counted.at("at the end", 5, "orders")
    counted.at("of nothing yet", 1, "later")
    assert counted.look() == {
        "of orders": (2, 2.0),
        "of both": (5, 3.0),
        "of all": (5, 3.0),
        "at the end": (0, 0.0),
        "of nothing yet": (0, 0.0),
    }


def test_a_lag_follows_what_comes_what_is_read_and_who_goes(counted):
    counted.at("one", 1, "orders")
    assert counted.look() == {"one": (2, 2.0)}
    counted.world.publish("orders", {"id": 9})
    counted.world.publish("fills", {"id": 9})
    assert counted.look() == {"one": (3, 2.0)}
    counted.at("one", 3)  # whose topics stay
    assert counted.look() == {"one": (2, 1.0)}
    counted.at("one", 3, "fills")
    assert counted.look() == {"one": (3, 2.0)}
    counted.at("one", 8)
    assert counted.look() == {"one": (0, 0.0)}
    counted.remove("one", counted.world.now)
    assert counted.look() == {}


@given(steps=st.lists(st.tuples(st.sampled_from("ofmt"), st.integers(0, 40)), max_size=40))
def test_a_lag_is_what_a_count_of_the_whole_log_says(steps):
    world = World(ORDERS, FILLS, CONSUMERS)
    counted, log, at = Counted(world), [], 0
    counted.at("one", 0, "orders")
    for what, number in steps:
        if what == "m":
            at = min(number, len(log))
            counted.at("one", at)
        elif what == "t":
            world.journal.trim(world.now, min(number, len(log)) + 1, beyond=True)
        else:
            name = {"o": "orders", "f": "fills"}[what]
            world.publish(name, {"id": number})
            log.append((name, world.now))
        world.clock.advance(SECOND)
        found = counted.look()
        begin = max(at, world.journal.first_seq - 1)
        left = [ts for name, ts in log[begin:] if name == "orders"]
        assert found == {"one": (len(left), (world.now - left[0]) / SECOND if left else 0.0)}


def test_one_look_measures_so_many_and_the_next_one_the_others(counted, monkeypatch):
    monkeypatch.setattr(module, "LAGS_AT_ONCE", 2)
    for name in "abc":
        counted.at(name, 1, "orders")
    assert [len(counted.look()) for _ in range(2)] == [2, 3]
    counted.world.publish("orders", {"id": 9})
    seen = [[rows for rows, _ in counted.look().values()] for _ in range(2)]
    assert sorted(seen[0]) == [2, 3, 3]
    assert seen[1] == [3, 3, 3]
