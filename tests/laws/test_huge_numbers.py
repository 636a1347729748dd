"""Integers beyond all doubles are numbers like any other where a filter names one."""

import pytest

from tests.laws.harness import ORDERS, World

HUGE = "9" * 400


@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        (f"/v > {HUGE}", []),
        (f"/v < {HUGE}", ["1"]),
        (f"/v = {HUGE}", []),
        (f"/v IN (1, {HUGE})", ["1"]),
        (f"/v BETWEEN 1 AND {HUGE}", ["1"]),
        (f"/v = '{HUGE}'", []),
    ],
)
def test_a_filter_with_a_huge_integer_is_answered(condition, ids):
    world = World(ORDERS)
    client = world.client()
    world.publish("orders", {"id": "1", "v": 1}, {"id": "2"})
    lines = client.say(c="sow", t="orders", filter=condition, cid="1")
    assert [line["d"]["id"] for line in lines if line["c"] == "sow"] == ids
