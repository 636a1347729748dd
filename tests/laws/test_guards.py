"""A row-level policy acts as a filter: hidden records are out of focus, in every request."""

import pytest

from sow.core.definitions import ConflatedTopic, Topic
from tests.laws.guarding import A, B, desk, guarded, reading, regrant, rights, two_desks
from tests.laws.harness import SECOND, World, short

MINE = reading(filter="/desk = ${user.desk}")


@pytest.fixture
def world():
    return two_desks()


@pytest.fixture
def client(world):
    return guarded(world, rights(MINE, desk="a"))


def rows(lines):
    return [line["d"] for line in lines if line["c"] == "sow"]


def test_a_query_answers_with_what_may_be_seen(client):
    lines = client.say(c="sow", t="orders", a="completed", cid="1")
    assert rows(lines) == [A]
    assert (lines[-1]["matches"], lines[-1]["returned"]) == (1, 1)


def test_the_own_filter_only_narrows(client):
    assert rows(client.say(c="sow", t="orders", filter="/px = 1 OR /desk = 'b'")) == [A]
    assert rows(client.say(c="sow", t="orders", filter="/desk = 'b'")) == []


def test_a_claim_is_a_value_and_never_text(world):
    client = guarded(world, rights(MINE, desk="a' OR 1 = 1 OR 'x' = '"))
    assert rows(client.say(c="sow", t="orders")) == []


def test_a_missing_claim_gives_nothing(world):
    client = guarded(world, rights(MINE))
    assert rows(client.say(c="sow", t="orders")) == []


def test_filters_of_several_allows_are_ored_and_one_without_is_all(world):
    both = rights(MINE, reading(filter="/px = 2"), desk="a")
    assert rows(guarded(world, both).say(c="sow", t="orders")) == [A, B]
    every = rights(MINE, reading(), desk="a")
    assert every.guard("orders") is None


def test_a_pattern_names_what_may_be_seen_and_each_topic_has_its_own_guard():
    world = World(*[Topic(name, "json", keys=("/id",)) for name in ("a1", "a2", "a3")])
    for name in ("a1", "a2", "a3"):
        world.publish(name, A, B)
    client = guarded(
        world, rights(reading("a1", filter="/desk = 'a'"), reading("a2", filter="/desk = 'b'"))
    )
    lines = client.say(c="sow_and_subscribe", t="^a", opts="oof")
    assert [(line["t"], line["d"]) for line in lines if line["c"] == "sow"] == [
        ("a1", A),
        ("a2", B),
    ]
    for name in ("a1", "a2", "a3"):
        world.publish(name, A | {"px": 5}, B | {"px": 6})
    assert client.data() == [("p", A | {"px": 5}), ("p", B | {"px": 6})]


def test_a_later_topic_is_followed_only_by_clients_that_may_see_it():
    world = World(Topic("desks", "json", keys=("/id",), pattern="^/desk/"))
    client = guarded(world, rights(reading("/desk/own")))
    client.say(c="subscribe", t="^/desk/")
    world.publish("/desk/own", A)
    world.publish("/desk/other", B)
    assert client.data() == [("p", A)]
    followed = {name: [*topic.router.feeds()] for name, topic in world.engine.topics.items()}
    assert followed["/desk/own"]
    assert followed["/desk/other"] == [], "it has no cost"


def test_who_moves_out_of_sight_leaves_with_the_state_that_was_sent(world, client):
    client.say(c="sow_and_subscribe", t="orders", opts="oof")
    world.publish("orders", A | {"desk": "b", "px": 9})
    assert client.data() == [("entitlement", A)]
    world.publish("orders", A | {"px": 3})
    assert client.data() == [("p", A | {"px": 3})]


def test_who_leaves_the_own_filter_in_sight_leaves_as_ever(world, client):
    client.say(c="sow_and_subscribe", t="orders", filter="/px < 5", opts="oof")
    world.publish("orders", A | {"px": 9})
    assert client.data() == [("match", A | {"px": 9})]


@pytest.mark.parametrize("command", ["subscribe", "delta_subscribe"])
def test_without_a_snapshot_too(world, client, command):
    client.say(c=command, t="orders", opts="oof")
    world.publish("orders", A | {"px": 2})
    world.publish("orders", A | {"px": 2, "desk": "b"})
    assert client.data() == [("p", A | {"px": 2}), ("entitlement", A | {"px": 2})]


def test_under_conflation_the_last_sent_state_is_that_before_the_window(world, client):
    client.say(c="sow_and_subscribe", t="orders", opts="oof,conflation=1s")
    world.publish("orders", A | {"px": 2})
    world.publish("orders", A | {"px": 3, "desk": "b"})
    world.advance(SECOND)
    assert client.data() == [("entitlement", A)]


def test_conflation_by_a_hidden_field_does_not_reveal_which_records_share_it(world):
    clients = [guarded(world, rights(reading(select=one))) for one in (("-/desk",), ("-/px",))]
    for client in clients:
        client.say(c="subscribe", t="orders", opts="conflation=1s,conflation_key=[/desk]")
    world.publish("orders", A, B | {"desk": "a"})
    world.advance(SECOND)
    assert [len(client.data()) for client in clients] == [2, 1]


def test_counts_in_groups_are_of_what_may_be_seen(world):
    client = guarded(world, rights(reading(select=("-/px",))))
    projection = "projection=[COUNT(/px) AS /n,/desk],grouping=[/desk]"
    found = rows(client.say(c="sow", t="orders", opts=projection, order_by="/desk"))
    assert found == [{"n": 0, "desk": "a"}, {"n": 0, "desk": "b"}]


def test_a_topic_that_stores_nothing_reports_nothing_of_what_it_was():
    world = World(Topic("orders", "json", keys=("/id",), retain=False))
    client = guarded(world, desk("a"))
    client.say(c="subscribe", t="orders", opts="oof")
    world.publish("orders", A)
    world.publish("orders", A | {"desk": "b"})
    assert client.data() == [("p", A), ("entitlement", {})]


def test_a_live_window_shows_what_may_be_seen(world, client):
    lines = client.say(
        c="sow_and_subscribe", t="orders", opts="live,top_n=2", order_by="/px DESC", a="completed"
    )
    assert rows(lines) == [A]
    world.publish("orders", {"id": 3, "desk": "a", "px": 3}, {"id": 4, "desk": "b", "px": 4})
    assert client.data() == [("p", {"id": 3, "desk": "a", "px": 3})]
    world.publish("orders", {"id": 3, "desk": "b", "px": 8})
    assert client.data() == [("entitlement", {"id": 3, "desk": "a", "px": 3})]


def test_an_aggregated_question_is_about_what_may_be_seen(world, client):
    world.publish("orders", {"id": 3, "desk": "a", "px": 3})
    projection = "projection=[SUM(/px) AS /px,/desk],grouping=[/desk]"
    assert rows(client.say(c="sow", t="orders", opts=projection)) == [{"px": 4, "desk": "a"}]
    client.say(c="sow_and_subscribe", t="orders", opts="oof," + projection)
    world.publish("orders", {"id": 4, "desk": "b", "px": 100})
    assert client.data() == []
    world.publish("orders", {"id": 3, "desk": "b", "px": 5})
    assert client.data() == [("p", {"px": 1, "desk": "a"})]


def test_private_views_are_shared_by_those_of_equal_guards_alone(world):
    clients = [guarded(world, rights(MINE, desk=one)) for one in ("a", "a", "b")]
    for client in clients:
        client.say(
            c="sow_and_subscribe", t="orders", opts="projection=[SUM(/px) AS /px],grouping=[/desk]"
        )
    assert len(world.executor.subscriptions.aggregations._shared) == 2


def test_a_conflated_copy_is_guarded_at_its_own_fields():
    world = World(
        Topic("orders", "json", keys=("/id",)),
        ConflatedTopic("slow", "json", "orders", interval_us=SECOND, filter="/px < 5"),
    )
    client = guarded(world, desk("a", topic="slow"))
    client.say(c="sow_and_subscribe", t="slow", opts="oof")
    world.publish("orders", A, B)
    world.advance(SECOND)
    assert client.data() == [("p", A)]
    # It leaves the copy by the copy's filter, and would not be seen any more either.
    world.publish("orders", A | {"px": 9, "desk": "b"})
    world.advance(SECOND)
    assert client.data() == [("entitlement", A)]


def test_a_replay_reports_what_may_be_seen(world, client):
    lines = client.say(c="subscribe", t="orders", bm="0", a="completed")
    assert [line["d"] for line in lines if line["c"] == "p"] == [A]


# Rights that change.


def test_rows_that_are_lost_leave_with_what_was_sent_and_rows_that_are_won_arrive(world, client):
    client.say(c="sow_and_subscribe", t="orders", opts="oof")
    assert short(regrant(client, desk("b"))) == [("entitlement", A), ("p", B)]
    world.publish("orders", A | {"px": 3}, B | {"px": 4})
    assert client.data() == [("p", B | {"px": 4})]
    world.check()


def test_of_what_waits_in_a_window_only_what_was_sent_is_sent(world, client):
    client.say(c="sow_and_subscribe", t="orders", opts="oof,conflation=1s")
    world.publish("orders", A | {"px": 7}, {"id": 3, "desk": "a", "px": 3})
    assert short(regrant(client, desk("b"))) == [("entitlement", A), ("p", B)]
    world.advance(2 * SECOND)
    assert client.data() == []
    world.check()


def test_equal_rights_change_nothing(world, client):
    client.say(c="sow_and_subscribe", t="orders", opts="oof,conflation=1s")
    feeds = list(world.engine.topics["orders"].router.feeds())
    assert regrant(client, rights(MINE, desk="a")) == []
    assert list(world.engine.topics["orders"].router.feeds()) == feeds


def test_a_topic_that_may_not_be_read_any_more_is_ended(world, client):
    client.say(c="sow_and_subscribe", t="orders", opts="oof")
    told = regrant(client, rights())
    assert short(told) == []
    assert (told[-1]["c"], told[-1]["reason"]) == ("unsubscribed", "AUTHORIZATION")
    assert not client.subscriptions


def test_a_window_goes_over_to_what_may_be_seen_now(world, client):
    client.say(c="sow_and_subscribe", t="orders", opts="live,top_n=2", order_by="/px")
    told = regrant(client, desk("b"))
    assert [(line.get("reason"), line["d"]) for line in told if "d" in line] == [
        ("entitlement", A),
        (None, B),
    ]
    world.publish("orders", A | {"px": 3}, B | {"px": 4})
    assert client.data() == [("p", B | {"px": 4})]
    world.check()


@pytest.mark.parametrize("more", ["", "live,top_n=5,"])
def test_groups_are_made_again_of_what_may_be_seen_now(world, client, more):
    options = f"oof,{more}projection=[SUM(/px) AS /px,/desk],grouping=[/desk]"
    client.say(c="sow_and_subscribe", t="orders", opts=options)
    told = regrant(client, desk("b"))
    assert [(line.get("reason"), line["d"]) for line in told if "d" in line] == [
        ("entitlement", {"px": 1, "desk": "a"}),
        (None, {"px": 2, "desk": "b"}),
    ]
    world.publish("orders", A | {"px": 3}, B | {"px": 4})
    assert client.data() == [("p", {"px": 4, "desk": "b"})]
    world.check()


def test_a_pattern_goes_over_too():
    world = World(*[Topic(name, "json", keys=("/id",)) for name in ("a1", "a2")])
    world.publish("a1", A)
    world.publish("a2", B)
    client = guarded(world, rights(reading("a1")))
    client.say(c="sow_and_subscribe", t="^a", opts="oof")
    assert short(regrant(client, rights(reading("a2")))) == [("entitlement", A), ("p", B)]
    world.publish("a1", A | {"px": 3})
    world.publish("a2", B | {"px": 3})
    assert client.data() == [("p", B | {"px": 3})]
    world.check()


# What it costs.


def test_users_of_equal_rights_share_a_feed(world):
    clients = [guarded(world, rights(MINE, name=f"u{at}", desk="a")) for at in range(100)]
    for client in clients:
        client.say(c="sow_and_subscribe", t="orders", opts="oof")
    assert len(list(world.engine.topics["orders"].router.feeds())) == 1


def test_users_of_their_own_desks_are_found_by_the_index(world):
    for at in range(100):
        client = guarded(world, rights(MINE, desk=f"d{at}"))
        client.say(c="subscribe", t="orders", filter="/px > 1")
    router = world.engine.topics["orders"].router
    assert not router._unfiled
    found, candidates = [], router._attributes.candidates

    def counted(batch):
        found.append(candidates(batch))
        return found[-1]

    router._attributes.candidates = counted
    world.publish("orders", {"id": 5, "desk": "d7", "px": 3})
    assert [len(one) for one in found] == [1]
