"""Out of focus, exactly: under filters, deletes, expiry, replacement and late joining."""

import pytest

from sow.core.definitions import Topic
from tests.laws.harness import SECOND, World, short


@pytest.fixture
def world():
    return World()


@pytest.fixture
def client(world):
    return world.client()


def test_a_subscription_without_snapshot_loses_only_what_it_was_given(world, client):
    world.publish("orders", {"id": 1, "px": 5}, {"id": 2, "px": 5})
    client.say(c="subscribe", t="orders", filter="/px > 1", opts="oof")
    world.publish("orders", {"id": 2, "px": 6})
    world.publish("orders", {"id": 1, "px": 0}, {"id": 2, "px": 0})
    assert client.data() == [("p", {"id": 2, "px": 6}), ("match", {"id": 2, "px": 0})]


def test_a_snapshot_cut_short_loses_only_what_it_held(world, client):
    world.publish("orders", {"id": 1}, {"id": 2}, {"id": 3})
    client.say(c="sow_and_subscribe", t="orders", opts="oof,top_n=1", order_by="/id")
    world.delete("orders", "1=1")
    assert client.data() == [("deleted", {"id": 1})]


def test_a_late_session_is_sent_of_no_record_that_it_was_not_given(world):
    early, late = world.client(), world.client()
    early.say(c="subscribe", t="orders", opts="oof")
    world.publish("orders", {"id": 1})
    late.say(c="subscribe", t="orders", opts="oof")
    world.delete("orders", "1=1")
    assert early.data() == [("p", {"id": 1}), ("deleted", {"id": 1})]
    assert late.data() == []


def test_sessions_that_begin_together_share_a_feed_that_keeps_account(world):
    clients = [world.client() for _ in range(3)]
    for client in clients:
        client.say(c="subscribe", t="orders", opts="oof")
    assert len(list(world.engine.topics["orders"].router.feeds())) == 1
    world.publish("orders", {"id": 1})
    frames = [client.first_frame for client in clients]
    assert frames[0] is frames[1] is frames[2]


def test_expiry_says_the_last_state():
    world = World(Topic("t", "json", keys=("/id",), expires=True, expiration_us=SECOND))
    client = world.client()
    client.say(c="sow_and_subscribe", t="t", opts="oof")
    world.publish("t", {"id": 1, "px": 5})
    world.advance(2 * SECOND)
    assert client.data() == [("p", {"id": 1, "px": 5}), ("expired", {"id": 1, "px": 5})]


def test_select_shows_only_some_fields_everywhere(world, client):
    world.publish("orders", {"id": 1, "px": 5, "q": 1})
    first = client.say(c="sow_and_subscribe", t="orders", opts="oof,select=[/id,/px]")
    world.publish("orders", {"id": 1, "px": 6, "q": 1})
    world.delete("orders", "1=1")
    assert short(first) + client.data() == [
        ("sow", {"id": 1, "px": 5}),
        ("p", {"id": 1, "px": 6}),
        ("deleted", {"id": 1, "px": 6}),
    ]


# Replacing.


def replace(client, name, command="sow_and_subscribe", **more):
    opts = ",".join(["replace", *more.pop("opts", "").split(",")]).rstrip(",")
    return client.say(c=command, t=more.pop("t", "orders"), s=name, opts=opts, cid="r", **more)


def test_replacing_a_filter_sends_what_is_new_and_takes_back_what_is_lost(world, client):
    world.publish("orders", *({"id": i, "px": i} for i in range(1, 5)))
    (ack, *_) = client.say(c="sow_and_subscribe", t="orders", filter="/px < 4", opts="oof", cid="1")
    lines = replace(client, ack["s"], filter="/px > 1", opts="oof")
    assert lines[0]["s"] == ack["s"]
    assert short(lines) == [("match", {"id": 1, "px": 1}), ("sow", {"id": 4, "px": 4})]
    world.publish("orders", {"id": 1, "px": 0}, {"id": 2, "px": 9})
    assert client.data() == [("p", {"id": 2, "px": 9})]


def test_nothing_is_lost_or_repeated_around_a_replacement(world, client):
    name = client.say(c="subscribe", t="orders", filter="/px < 4", cid="1")[0]["s"]
    client.execute(
        b'{"c":"publish","t":"orders","d":{"id":1,"px":1}}\n'
        b'{"c":"subscribe","t":"orders","s":"%b","opts":"replace","filter":"/px > 1"}\n'
        b'{"c":"publish","t":"orders","d":{"id":2,"px":2}}' % name.encode()
    )
    assert client.data() == [("p", {"id": 1, "px": 1}), ("p", {"id": 2, "px": 2})]


def test_a_replaced_conflated_subscription_catches_up_with_what_waited(world, client):
    world.publish("orders", {"id": 1, "px": 1}, {"id": 2, "px": 2})
    name = client.say(
        c="sow_and_subscribe", t="orders", opts="conflation=1s,oof", filter="/px < 5", cid="1"
    )[0]["s"]
    world.publish("orders", {"id": 1, "px": 3})
    world.delete("orders", "/id = 2")
    lines = replace(client, name, opts="conflation=1s,oof", filter="/px < 9")
    assert sorted(short(lines), key=str) == [
        ("deleted", {"id": 2, "px": 2}),
        ("sow", {"id": 1, "px": 3}),
    ]
    world.advance(2 * SECOND)
    assert client.data() == []


CONFLATED = ("conflation=1s", "conflation=auto")
FOLLOWS = ("sow_and_subscribe", "sow_and_delta_subscribe")


def busy(world, client):
    """Something that the client has not read, so that `auto` holds back what follows."""
    world.publish("orders", {"id": 99, "px": 3})
    world.advance(2 * SECOND)


@pytest.mark.parametrize("opts", ["", "oof"])
@pytest.mark.parametrize("pace", CONFLATED)
@pytest.mark.parametrize("follows", FOLLOWS)
@pytest.mark.parametrize("command", [*FOLLOWS, "subscribe", "delta_subscribe"])
def test_a_replacement_knows_what_a_conflated_client_holds(
    world, client, opts, pace, follows, command
):
    world.publish("orders", {"id": 1, "px": 3}, {"id": 2, "px": 3}, {"id": 3, "px": 3})
    requested = {"c": follows, "t": "orders", "filter": "/px < 9", "cid": "1"}
    name = client.say(opts=f"{opts},{pace}".strip(","), **requested)[0]["s"]
    busy(world, client)
    # One changes out of the new filter, one within it, one leaves, one comes, one comes and goes.
    world.publish("orders", {"id": 1, "px": 8}, {"id": 2, "px": 4}, {"id": 4, "px": 4})
    world.publish("orders", {"id": 5, "px": 4})
    world.publish("orders", {"id": 5, "px": 8})
    world.delete("orders", "/id = 3")
    client.lines() if pace == "conflation=1s" else None
    lines = replace(client, name, command, opts="oof", filter="/px < 5")
    behind = [line for line in lines if line["c"] in ("sow", "p", "oof")]
    if pace == "conflation=auto":
        assert behind.pop(0)["d"]["id"] == 99
    oofs = [one for one in short(behind) if one[0] in ("match", "deleted")]
    assert oofs == [("match", {"id": 1, "px": 8}), ("deleted", {"id": 3, "px": 3})]
    new = [document for kind, document in short(behind) if kind in ("sow", "p")]
    assert sorted(document["id"] for document in new) == [2, 4]
    assert not any("delta" in line for line in behind)
    world.publish("orders", {"id": 2, "px": 1, "q": 1}, {"id": 5, "px": 9})
    assert client.data()[-1][1]["q"] == 1


def test_a_replacement_knows_what_a_newcomers_snapshot_held(world):
    early, late = world.client(), world.client()
    requested = {"c": "sow_and_subscribe", "t": "orders", "opts": "conflation=1s", "cid": "1"}
    early.say(**requested)
    world.publish("orders", {"id": 1, "px": 1}, {"id": 2, "px": 1})
    name = late.say(**requested)[0]["s"]
    world.publish("orders", {"id": 1, "px": 7}, {"id": 3, "px": 7})
    world.delete("orders", "/id = 2")
    said = {client: short(replace(client, name, opts="oof", filter="/px < 5"))
            for client in (early, late)}  # fmt: skip
    assert said[early] == []
    assert said[late] == [("match", {"id": 1, "px": 7}), ("deleted", {"id": 2, "px": 1})]


def test_a_replacement_by_another_topic_takes_back_the_records_of_the_first(world, client):
    world.publish("orders", {"id": 1, "px": 1})
    world.advance(2 * SECOND)
    name = client.say(c="sow_and_subscribe", t="orders", opts="oof", cid="1")[0]["s"]
    lines = replace(client, name, t="orders-C", opts="oof")
    assert [(line["c"], line["t"]) for line in lines if "t" in line] == [
        ("oof", "orders"),
        ("sow", "orders-C"),
    ]


def test_a_replacement_with_another_select_list_never_merges_into_the_old_one(world, client):
    world.publish("orders", {"id": 1, "px": 1, "q": 1})
    requested = {"c": "sow_and_delta_subscribe", "t": "orders", "cid": "1"}
    name = client.say(select="/id,/px", **requested)[0]["s"]
    lines = replace(client, name, "delta_subscribe", select="/id,/q")
    assert short(lines) == [("p", {"id": 1, "q": 1})]
    world.publish("orders", {"id": 1, "px": 2, "q": 2})
    assert [line["delta"] for line in client.lines()] == [True]


def test_a_replacement_of_what_is_not_stored_keeps_what_was_sent():
    world = World(Topic("t", "json", keys=("/id",), retain=False))
    client = world.client()
    requested = {"c": "subscribe", "t": "t", "cid": "1"}
    name = client.say(opts="oof,conflation=1s", **requested)[0]["s"]
    world.publish("t", {"id": 1, "px": 1})
    world.advance(2 * SECOND)
    world.publish("t", {"id": 1, "px": 2}, {"id": 2, "px": 2}, {"id": 3, "px": 9})
    client.lines()
    lines = replace(client, name, "subscribe", t="t", opts="oof", filter="/px < 5")
    assert short(lines) == [("p", {"id": 1, "px": 2}), ("p", {"id": 2, "px": 2})]
    world.publish("t", {"id": 1, "px": 9})
    assert client.data() == [("match", {"id": 1, "px": 9})]


@pytest.mark.parametrize(("part", "left"), [("top_n=2", [5, 4]), ("skip_n=3", [2, 1])])
def test_a_replacement_has_its_own_order_and_limit(world, client, part, left):
    world.publish("orders", *({"id": i, "px": -i} for i in range(1, 6)))
    name = client.say(c="subscribe", t="orders", cid="1")[0]["s"]
    lines = replace(client, name, opts=f"oof,{part}", order_by="/px")
    assert [document["id"] for _, document in short(lines)] == left
    world.delete("orders", "1=1")
    assert sorted(document["id"] for _, document in client.data()) == sorted(left)


def test_a_snapshot_of_some_keys_loses_only_what_it_held(world, client):
    world.publish("orders", {"id": 1}, {"id": 2})
    client.say(c="sow_and_subscribe", t="orders", opts="oof", keys=world.sow_key("orders", "1"))
    world.delete("orders", "1=1")
    assert client.data() == [("deleted", {"id": 1})]


def test_a_bad_replacement_changes_nothing(world, client):
    name = client.say(c="subscribe", t="orders", cid="1")[0]["s"]
    for wrong in ({"filter": "/a >"}, {"t": "nope"}, {"opts": "no_empties"}, {"order_by": "/"}):
        (ack,) = replace(client, name, "subscribe", **wrong)
        assert ack["status"] == "failure"
    world.publish("orders", {"id": 1})
    assert client.data() == [("p", {"id": 1})]


def test_another_session_in_the_same_feed_is_not_touched(world):
    one, other = world.client(), world.client()
    name = one.say(c="sow_and_subscribe", t="orders", cid="1")[0]["s"]
    assert other.say(c="sow_and_subscribe", t="orders", cid="1")[0]["s"] == name
    replace(one, name, filter="/px > 1")
    world.publish("orders", {"id": 1, "px": 0})
    assert one.data() == []
    assert other.data() == [("p", {"id": 1, "px": 0})]


@pytest.mark.parametrize("name", ["through", "^through$"])
@pytest.mark.parametrize("pace", ["", ",conflation=1s"])
def test_a_snapshot_of_a_topic_that_stores_nothing_is_no_reason_to_miss_an_oof(name, pace):
    world = World(Topic("through", "json", keys=("/id",), retain=False))
    clients = [world.client(), world.client()]
    for number, client in enumerate(clients):
        client.say(c="sow_and_subscribe", t=name, filter="/px > 1", opts="oof" + pace)
        world.publish("through", {"id": number, "px": 5})
        world.advance(2 * SECOND)
    for number in range(2):
        world.publish("through", {"id": number, "px": 0})
    world.advance(2 * SECOND)
    one, other = ([kind for kind, _ in client.data()] for client in clients)
    assert one == ["p", "p", "match", "match"]
    assert other == ["p", "match"], "the lines of the other one do not affect this one"
