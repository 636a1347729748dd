"""Chained keys: which record a message is of, what a restart knows of it, and what it costs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.core.definitions import CHAINS, KeyChainSettings, Topic
from sow.engine import key_chains
from sow.errors import BadMessage, ClientError, TooLarge
from tests.effort import examples
from tests.laws.harness import World

ORDERS = Topic("orders", "json", chain=KeyChainSettings("/id", "/of"))


@pytest.fixture
def world():
    return World(ORDERS, CHAINS)


def keys(world):
    world.check()
    return [*world.engine.topics["orders"].records.table.slots]


def test_a_message_that_points_at_a_member_joins_its_record(world):
    world.publish("orders", {"id": 1, "qty": 5})
    world.publish("orders", {"id": 2, "of": 1, "qty": 6})
    world.publish("orders", {"id": 3, "of": 2}, {"id": 9, "of": 8}, {"id": "4", "of": ""})
    assert keys(world) == ["1", "9", "4"]
    assert world.records("orders")[0] == {"id": 3, "of": 2}
    world.publish("orders", {"id": 2, "late": True})  # a member stays where it is
    world.publish("orders", {"id": 3, "of": 9})
    assert keys(world) == ["1", "9", "4"]


def test_a_request_may_hold_a_whole_chain_and_a_delta_finds_its_record(world):
    world.publish("orders", *({"id": n, "of": n - 1} for n in range(1, 2_000)))
    assert keys(world) == ["1"]
    world.publish("orders", {"id": 5_000, "of": 1_999, "px": 1}, delta=True)
    assert world.records("orders") == [{"id": 5_000, "of": 1_999, "px": 1}]


def test_a_restart_knows_the_members_and_a_kill_leaves_them_with_their_records(world):
    world.publish("orders", {"id": 1}, {"id": 2, "of": 1})
    world.engine.publish("orders", [b'{"id":3,"of":2}'], world.now)  # the disk never gets it
    world = world.restart()
    world.publish("orders", {"id": 4, "of": 2}, {"id": 5, "of": 3})
    assert keys(world) == ["1", "5"]


def test_a_record_that_leaves_takes_its_chain_along(world):
    world.publish("orders", {"id": 1}, {"id": 2, "of": 1})
    world.delete("orders", "/id = 2")
    assert keys(world) == []
    assert world.records(CHAINS.name) == []
    world.publish("orders", {"id": 3, "of": 1})
    assert keys(world) == ["3"]


def test_a_message_without_a_name_is_refused_with_its_index_and_a_given_key_too(world):
    with pytest.raises(BadMessage) as failure:
        world.publish("orders", {"id": 1}, {"of": 1})
    assert failure.value.index == 1
    with pytest.raises(ClientError, match="makes its keys from chains"):
        world.publish("orders", {"id": 1}, key="mine")
    assert keys(world) == []


def test_what_was_read_and_refused_is_bounded(world, monkeypatch):
    monkeypatch.setattr(key_chains, "COMING_MAX", 3)
    chain = world.executor.chains.by_name["orders"]
    chain.keys([b'{"id":%d}' % n for n in range(9)], None)
    assert len(chain._coming) == 3
    with pytest.raises(TooLarge):
        chain.check_room(3_001)


@examples(50)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.integers(1, 12), st.integers(0, 12)),
            st.sampled_from(["restart", "refused"]),
        ),
        max_size=25,
    )
)
def test_records_are_those_of_a_naive_model_over_lives(acts):
    world, roots = World(ORDERS, CHAINS), {}
    for act in acts:
        if act == "restart":
            world = world.restart()
        elif act == "refused":
            with pytest.raises(BadMessage):
                world.publish("orders", {"of": 1})
        else:
            id_, of = map(str, act)
            roots.setdefault(id_, roots.get(of, id_))
            world.publish("orders", {"id": id_, "of": of})
    assert set(keys(world)) == set(roots.values())
    assert world.executor.chains.by_name.get("orders").roots == roots
