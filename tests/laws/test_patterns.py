"""Topics by pattern: regular expressions in subscriptions, Pattern topics and their copies."""

from dataclasses import replace

import pytest

from sow.core.definitions import ConflatedTopic, Topic
from sow.engine.recovery.redo import stored_slices
from sow.errors import ClientError, InvalidTopic, UnknownTopic
from tests.laws.harness import ORDERS, SECOND, SLOW, World, short

DESKS = Topic("desks", "json", keys=("/id",), pattern="^/desk/")
COPIES = ConflatedTopic("copies", "json", "desks", interval_us=SECOND, topic_format="%n-C")
SLOWER = ConflatedTopic("slower", "json", "copies", interval_us=SECOND, topic_format="%n-slow")


@pytest.fixture
def world():
    return World(ORDERS, SLOW, DESKS, COPIES)


@pytest.fixture
def client(world):
    return world.client()


def test_a_topic_comes_into_being_when_it_is_first_published_to(world):
    with pytest.raises(UnknownTopic):
        world.engine.topic("/desk/1")
    world.publish("/desk/1", {"id": 1})
    assert world.records("/desk/1") == [{"id": 1}]


def test_the_same_key_in_two_topics_of_a_pattern_is_two_records(world):
    world.publish("/desk/1", {"id": 1, "a": 1})
    world.publish("/desk/2", {"id": 1, "a": 2})
    assert world.records("/desk/1") + world.records("/desk/2") == [
        {"id": 1, "a": 1},
        {"id": 1, "a": 2},
    ]
    assert world.sow_key("/desk/1", "1") != world.sow_key("/desk/2", "1")


def test_a_message_that_is_refused_leaves_no_topic_behind(world):
    with pytest.raises(ClientError):
        world.publish("/desk/1", {"no": "key"})
    assert "/desk/1" not in world.engine.topics
    assert "/desk/1-C" not in world.engine.topics


def test_exact_names_go_first():
    world = World(Topic("/desk/x", "json", keys=("/other",)), DESKS)
    world.publish("/desk/x", {"other": 7})
    assert world.records("/desk/x") == [{"other": 7}]


def test_conflated_topics_appear_with_what_they_copy(world, client):
    world.publish("/desk/1", {"id": 1, "a": 1})
    world.publish("/desk/1", {"id": 1, "a": 2})
    assert world.records("/desk/1-C") == []
    world.advance(2 * SECOND)
    assert world.records("/desk/1-C") == [{"id": 1, "a": 2}]


def test_copies_of_copies_are_named_by_both_formats():
    world = World(DESKS, COPIES, SLOWER)
    world.publish("/desk/1", {"id": 1})
    world.advance(3 * SECOND)
    assert world.records("/desk/1-C-slow") == [{"id": 1}]


def test_a_copy_cannot_take_the_name_of_a_topic():
    world = World(Topic("/desk/1-C", "json", keys=("/id",)), DESKS, COPIES)
    with pytest.raises(InvalidTopic, match="would have a copy /desk/1-C") as refused:
        world.publish("/desk/1", {"id": 1})
    assert refused.value.others == ("/desk/1-C",)
    assert "/desk/1-C" not in refused.value.alone


@pytest.mark.parametrize("name", ["/desk/1-C", "/desk/1-C-slow", "/desk/x-C-C", "/desk/-slow-C"])
def test_names_of_copies_belong_to_the_copies(name):
    world = World(DESKS, COPIES, SLOWER)
    with pytest.raises(
        InvalidTopic, match=f"{name} is what the conflated topic .* calls its copy"
    ) as refused:
        world.publish(name, {"id": 1})
    for other in refused.value.others:
        assert other in refused.value.detail
        assert other not in refused.value.alone.replace(name, ""), (
            "its name is hidden, and not sent"
        )
    for underlying in ("/desk/1", "/desk/1-slow"):
        world.publish(underlying, {"id": 1})
    world.advance(3 * SECOND)
    assert world.records("/desk/1-C-slow") == [{"id": 1}]


def test_names_of_copies_belong_to_them_whichever_pattern_takes_them_in():
    other = Topic("all", "json", keys=("/id",), pattern="-C$")
    world = World(other, DESKS, COPIES)
    with pytest.raises(InvalidTopic, match="publish to /desk/1, or under another name"):
        world.publish("/desk/1-C", {"id": 1})
    world.publish("/other/1-C", {"id": 1})


def test_a_format_may_name_the_topic_more_than_once():
    world = World(DESKS, replace(COPIES, topic_format="/desk/%n%n"))
    with pytest.raises(InvalidTopic, match="copy of /desk/ab"):
        world.publish("/desk//desk/ab/desk/ab", {"id": 1})
    world.publish("/desk//desk/ab/desk/ac", {"id": 1})


def test_a_copy_cannot_be_called_as_a_pattern_is():
    named = Topic("/desk/1-C", "json", keys=("/id",), pattern="^/other/")
    world = World(named, DESKS, COPIES)
    with pytest.raises(InvalidTopic, match="would have a copy /desk/1-C"):
        world.publish("/desk/1", {"id": 1})


def test_a_regular_expression_queries_all_topics_that_match(world, client):
    world.publish("/desk/1", {"id": 1})
    world.publish("/desk/2", {"id": 2})
    lines = client.say(c="sow", t="^/desk/[12]$")
    assert [(line["t"], line["d"]["id"]) for line in lines if line["c"] == "sow"] == [
        ("/desk/1", 1),
        ("/desk/2", 2),
    ]
    assert [line["c"] for line in lines][0::3] == ["group_begin", "group_end"]
    assert len({line["s"] for line in lines}) == 1


def test_a_regular_expression_follows_topics_that_come_later(world, client):
    name = client.say(c="sow_and_subscribe", t="^/desk/[12]$", cid="1", opts="oof")[0]["s"]
    world.publish("/desk/1", {"id": 1})
    world.publish("/desk/3", {"id": 3})
    world.publish("/desk/2", {"id": 2})
    world.delete("/desk/1", "1=1")
    lines = client.lines()
    assert [(line["c"], line["t"]) for line in lines] == [
        ("p", "/desk/1"),
        ("p", "/desk/2"),
        ("oof", "/desk/1"),
    ]
    assert {line["s"] for line in lines} == {name}


def test_an_exact_name_is_no_pattern_whatever_it_looks_like():
    world = World(Topic("a.b", "json", keys=("/id",)), Topic("aXb", "json", keys=("/id",)))
    client = world.client()
    client.say(c="subscribe", t="a.b")
    world.publish("aXb", {"id": 1})
    assert client.data() == []


def test_a_pattern_that_nothing_can_ever_match_is_refused():
    client = World(ORDERS).client()
    (ack,) = client.say(c="subscribe", t="ordr.*")
    assert "no topic matches the pattern 'ordr.*'" in ack["detail"]


def test_a_name_is_literal_when_the_command_says_so(world, client):
    (ack,) = client.say(c="subscribe", t="/desk/.", opts="non_regex_topic", cid="1")
    assert ack["reason"] == "invalid topic"


def test_equal_patterns_share_their_feeds_also_of_topics_that_come_later(world):
    one, other = world.client(), world.client()
    names = {c.say(c="subscribe", t="^/desk/", cid="1")[0]["s"] for c in (one, other)}
    world.publish("/desk/1", {"id": 1})
    assert len(names) == 1
    assert len(list(world.engine.topics["/desk/1"].router.feeds())) == 1
    assert one.data() == other.data() == [("p", {"id": 1})]


def test_unsubscribing_from_a_pattern_ends_all_of_it(world, client):
    name = client.say(c="subscribe", t="^/desk/", cid="1")[0]["s"]
    world.publish("/desk/1", {"id": 1})
    client.lines()
    client.say(c="unsubscribe", s=name)
    world.publish("/desk/1", {"id": 2})
    world.publish("/desk/2", {"id": 2})
    assert client.lines() == []


def test_a_restart_brings_the_topics_of_a_pattern_back(world):
    world.publish("/desk/1", {"id": 1})
    world.publish("/desk/2", {"id": 2}, {"id": 3})
    again = world.restart()
    assert again.records("/desk/2") == [{"id": 2}, {"id": 3}]
    assert again.records("/desk/1-C") == [{"id": 1}]


def test_a_checkpoint_holds_all_topics_of_a_pattern(world):
    world.publish("/desk/1", {"id": 1})
    world.publish("/desk/2", {"id": 2}, {"id": 3})
    checkpoint = world.checkpoints["desks"]
    checkpoint.write(world.engine.seq, stored_slices(world.engine.catalog, "desks", 1))
    world.publish("/desk/2", {"id": 2, "a": 1})
    again = world.restart()
    assert again.records("/desk/1") == [{"id": 1}]
    assert again.records("/desk/2") == [{"id": 2, "a": 1}, {"id": 3}]
    again.check()


def test_a_filter_over_a_pattern_is_applied_in_every_topic(world, client):
    client.say(c="subscribe", t="^/desk/[12]$", filter="/a = 1", opts="conflation=1s")
    world.publish("/desk/1", {"id": 1, "a": 1}, {"id": 2, "a": 2})
    world.publish("/desk/2", {"id": 1, "a": 1})
    world.advance(2 * SECOND)
    assert len(client.data()) == 2


def test_a_topic_that_retains_nothing_only_passes_on():
    world = World(Topic("t", "json", keys=("/id",), retain=False))
    client = world.client()
    assert short(client.say(c="sow_and_subscribe", t="t", opts="oof")) == []
    world.publish("t", {"id": 1}, {"id": 1, "a": 2})
    (first, second) = client.lines()
    assert (first["d"], second["d"]) == ({"id": 1}, {"id": 1, "a": 2})
    assert first["k"] == second["k"]
    assert world.records("t") == []
    assert world.restart().records("t") == []
