"""In what definitions differ, and how that is called in config.xml."""

from dataclasses import fields, replace

from sow.core.definitions import ConflatedTopic, QueueSettings, Series, Topic, View
from sow.engine.definition_changes import (
    SECTION,
    changeable,
    changed_elements,
    changed_fields,
    kind_of,
)
from tests.cases import all_cases

ORDERS = Topic("orders", "json", keys=("/id",))
QUEUE = Topic("jobs", "json", queue=QueueSettings("orders"))
VIEW = View("sums", "json", ("orders",), ("COUNT(1) AS /n",), ("/side",))


@all_cases("kind", [Topic, ConflatedTopic, View])
def test_every_field_of_a_definition_is_called_as_in_the_file(kind):
    section = SECTION.child(kind.__name__)
    without = [one.name for one in fields(kind) if not section.filling(one.name)]
    assert set(without) <= {"line", "view", "queue"}


def test_every_field_of_a_queue_is_called_as_in_the_file():
    section = SECTION.child("Queue")
    assert all(section.filling(one.name) for one in fields(QueueSettings))


@all_cases(
    ("definition", "kind"),
    [
        (ORDERS, "topic"),
        (QUEUE, "queue"),
        (VIEW, "view"),
        (replace(ORDERS, view=VIEW), "view"),
        (ConflatedTopic("copy", "json", "orders"), "conflated topic"),
    ],
)
def test_a_definition_is_called_as_its_element(definition, kind):
    assert kind_of(definition) == kind


def test_a_queue_differs_in_the_fields_of_its_settings():
    other = replace(QUEUE, queue=replace(QUEUE.queue, lease_us=1, priority="/p"), line=7)
    assert changed_fields(QUEUE, other) == {"lease_us", "priority"}
    assert changed_elements(QUEUE, other) == ["LeasePeriod", "Priority"]


def test_a_view_that_spark_computes_differs_in_the_elements_of_the_view():
    old, new = (replace(ORDERS, view=replace(VIEW, filter=text)) for text in (None, "/a = 1"))
    assert changed_elements(old, new) == ["Filter"]


def test_what_a_reload_may_change_depends_on_what_it_is():
    series = replace(ORDERS, series=Series())
    assert "series" in changeable(series, series)
    assert "series" not in changeable(ORDERS, series) | changeable(series, ORDERS)
    copy = ConflatedTopic("copy", "json", "orders")
    assert changeable(copy, copy) >= {"interval_us", "filter"}
    by_spark = replace(copy, engine="spark")
    assert not changeable(by_spark, by_spark) & {"interval_us", "filter"}
