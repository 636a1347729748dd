"""Nodes of a shared log compare what they have; which of them is wrong."""

from types import SimpleNamespace

import pytest

from sow.errors import ConfigError
from sow.server.api.nodes import ServerNode
from sow.server.boot import log_reports
from sow.server.boot.log_reports import NodeReports, corrupt, is_outvoted
from sow.shared_log.entry import Lead
from tests.server.stand_ins import World, stepped


def node(url, state, role="follower", bookmark="7"):
    return ServerNode(url, role, bookmark, state)


@pytest.mark.parametrize(
    ("own", "others", "outvoted"),
    [
        (node("b", "1"), [], False),
        (node("b", "1"), [node("a", "1", "primary")], False),
        (node("b", "1"), [node("a", "2", "primary")], True),
        (node("a", "2", "primary"), [node("b", "1")], False),
        (node("a", "2", "primary"), [node("b", "1"), node("c", "1")], True),
        (node("b", "1"), [node("a", "2", "primary"), node("c", "1")], False),
        (node("c", "2"), [node("a", "1", "primary"), node("b", "1")], True),
        (node("b", "1"), [node("a", "2", "primary", "8"), node("c", None)], False),
        (node("b", "1"), [node("b", "2"), node("a", "1", "primary")], False),
        (node("b", None), [node("a", "2", "primary")], False),
    ],
)
def test_the_minority_is_wrong_and_of_as_many_who_is_not_with_the_primary(own, others, outvoted):
    assert is_outvoted(own, others) is outvoted


@stepped
@pytest.mark.parametrize(("role", "stops"), [("follower", True), ("chained", False)])
async def test_another_process_of_its_name_ends_a_node_and_its_own_edges_do_not(
    monkeypatch, role, stops
):
    async def name_at(_calls, _url):
        return "c"  # an edge answers what the node above it does

    monkeypatch.setattr(log_reports, "name_at", name_at)
    driver = SimpleNamespace(lead=Lead("c", "http://c", 1), failures=[])
    driver.fail = driver.failures.append
    reports = NodeReports(driver, None, None, False)
    await reports._check_name(None, [node("http://first", "1", role), node("http://c", "1")])
    assert [type(one) for one in driver.failures] == [ConfigError] * stops


@stepped
async def test_a_record_can_be_changed_for_tests():
    world = World()
    assert not corrupt(world.engine)
    world.publish(b'{"id":1}')
    with world.engine.noting() as noted:
        assert corrupt(world.engine)
        assert [topic.name for topic in noted] == ["orders"]
