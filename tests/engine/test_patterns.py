"""PatternTopic: which names a pattern claims, and which of its topics are too many."""

from types import SimpleNamespace

import pytest

from sow.core.definitions import ConflatedTopic, Topic
from sow.engine.patterns import PatternTopic, copied_from, copy_name
from sow.expressions.patterns import topic_search

DESKS = PatternTopic(Topic("desks", "json", pattern="^/desk/"), topic_search("^/desk/"))
COPIES = ConflatedTopic("copies", "json", "desks", topic_format="%n-C")
SLOWER = ConflatedTopic("slower", "json", "copies", topic_format="slow%n")


@pytest.fixture
def family():
    """A pattern, its copies, and their copies."""
    desks = PatternTopic(DESKS.definition, DESKS.matches)
    copies = PatternTopic(COPIES, None, desks)
    slower = PatternTopic(SLOWER, None, copies)
    desks.followers.append(copies)
    copies.followers.append(slower)
    return desks, copies, slower


def test_a_pattern_claims_what_it_matches_and_copies_what_they_would_be_called(family):
    claimed = [[one.may_hold(name) for one in family] for name in
               ("/desk/1", "/desk/1-C", "slow/desk/1-C", "/other", "/other-C")]  # fmt: skip
    assert claimed == [
        [True, False, False],
        [True, True, False],
        [False, False, True],
        [False, False, False],
        [False, False, False],
    ]


def test_of_very_many_names_only_those_are_searched_that_may_be_copies(family, monkeypatch):
    names = ["/desk/1", "/desk/1-C", "slow/desk/1-C", "/other", "/other-C", "slow/desk/2"]
    assert [one.held_among(names) for one in family] == [
        [name for name in names if one.may_hold(name)] for one in family
    ]
    requested = []
    monkeypatch.setattr(PatternTopic, "may_hold", lambda _one, name: requested.append(name))
    family[1].held_among([*names, *(f"/desk/{at}" for at in range(1000))])
    assert requested == ["/desk/1-C", "slow/desk/1-C", "/other-C"]


def test_a_topic_has_copies_and_copies_of_copies(family):
    assert list(family[0].copies_of("/desk/1")) == ["/desk/1-C", "slow/desk/1-C"]


def test_the_name_of_a_copy_names_its_underlying_topic():
    assert copied_from(COPIES, copy_name(COPIES, "/desk/7")) == "/desk/7"
    assert copied_from(COPIES, "/desk/7") is None


def test_empty_topics_are_too_many_first_and_then_those_that_came_last(family):
    desks = family[0]
    for name, held in (("a", 1), ("b", 0), ("c", 2), ("d", 0)):
        table = SimpleNamespace(slots=range(held))
        desks.members[name] = SimpleNamespace(name=name, records=SimpleNamespace(table=table))

    def over(limit):
        return [topic.name for topic in desks.over(limit)[0]]

    assert [over(limit) for limit in (4, 3, 2, 1, 0)] == [
        [],
        ["d"],
        ["b", "d"],
        ["c", "b", "d"],
        ["a", "c", "b", "d"],
    ]
    assert desks.over(1)[1] == "Limits/PatternTopics of 1 is less than the 2 there are"
