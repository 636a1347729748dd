"""Making views: what they may hold, and which of them say which of their rows is the newest."""

import gc

import pytest

from sow.core.cooperative import run_to_completion
from sow.core.definitions import View
from sow.engine.topic_changes import TopicChanges
from tests.engine.making import ORDERS, catalog
from tests.laws.harness import World

SUMS = View("sums", "json", ("orders",), ("/desk", "SUM(/qty) AS /qty"), ("/desk",))
LAST = View("last", "json", ("sums",), ("/qty", "/desk"), ("/qty",))


def test_a_view_reports_its_newest_row_where_one_above_needs_it():
    alone, _ = catalog(ORDERS, SUMS)
    assert not alone.topics["sums"].view.reports_newest
    both, _ = catalog(ORDERS, SUMS, LAST)
    assert both.topics["sums"].view.reports_newest
    assert not both.topics["last"].view.reports_newest
    assert alone.view_maker.require_newest(LAST) == [alone.topics["sums"]]


def test_a_view_stands_above_those_that_it_is_made_of():
    made, _ = catalog(ORDERS, SUMS, LAST)
    below, above = made.topics["sums"].view, made.topics["last"].view
    assert below.rank < above.rank
    assert above.sources == {"orders", "sums"}


@pytest.mark.parametrize("grouping", ["/id", "/same"])
def test_views_have_no_more_objects_than_reported(grouping):
    names = ["sum", "min", "count_distinct", "group_concat", "stddev_pop", "any"]
    fields = (grouping, *[f"{name.upper()}(/{name}) AS /{name}" for name in names], "/bare")
    world = World(ORDERS, View("v", "json", ("orders",), fields, (grouping,)))
    world.publish("orders", {"id": -1})
    view_objects_max, count = world.engine.catalog.view_maker.objects_max, 1_000
    before = view_objects_max()
    gc.collect()
    there = len(gc.get_objects())
    world.publish(
        "orders",
        *[{"id": at, "bare": at, **dict.fromkeys(names, at + 0.5)} for at in range(count)],
    )
    gc.collect()
    come = len(gc.get_objects()) - there
    assert come <= view_objects_max() - before <= 40 * come + 100 * count
    run_to_completion(TopicChanges(world.engine).remove_copies("v", lambda _topic: None))
    while world.engine.views.gc.due_us() is not None:
        world.engine.views.gc.advance(0)
    assert view_objects_max() == 0, "groups are forgotten without the collector"
