"""Pattern followers: who is met when, and who waits to be."""

import pytest

from sow.streaming.pattern_subscriptions import PatternSubscriptions


class Place:
    def __init__(self):
        self.met = 0
        self.met_by = []


class Follower:
    def __init__(self, name):
        self.name = name

    def meet(self, place):
        place.met_by.append(self.name)

    def awaits(self, place):
        return self.name != "b"


@pytest.fixture
def followers():
    return PatternSubscriptions()


def test_a_place_meets_each_once_in_the_order_in_which_they_came(followers):
    place = Place()
    a, b, c = map(Follower, "abc")
    followers.add(a)
    followers.add(b)
    followers.meet(place)
    followers.add(c)
    assert place.met < followers.newest
    followers.meet(place)
    followers.meet(place)
    assert place.met_by == ["a", "b", "c"]
    assert place.met == followers.newest
    followers.check()


def test_who_has_gone_is_not_met(followers):
    place, one = Place(), Follower("a")
    followers.add(one)
    followers.add(Follower("c"))
    followers.remove(one)
    followers.remove(one)
    followers.meet(place)
    assert place.met_by == ["c"]


def test_who_waits_to_be_met_is_counted(followers):
    place = Place()
    for name in "abc":
        followers.add(Follower(name))
    assert followers.awaiting(place) == 2
    followers.meet(place)
    assert followers.awaiting(place) == 0


def test_check_finds_another_order(followers):
    followers.add(Follower("a"))
    followers.newest = -5
    followers.add(Follower("b"))
    with pytest.raises(AssertionError, match="out of the order"):
        followers.check()
