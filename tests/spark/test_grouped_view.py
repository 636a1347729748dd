"""What a view's definition means for records and groups, where Spark keeps both as texts."""

import pickle
from dataclasses import replace

import pytest

from sow.core.keys import sow_key
from sow.core.lossless_numbers import LosslessNumber
from sow.spark.grouped_view import SparkView, contributed
from tests.spark.view_engines import view

FIELDS = ("/desk", "COUNT(1) AS /n", "SUM(/v) AS /v")


@pytest.fixture
def compiled():
    return SparkView(view(FIELDS), "json").compiled


def test_a_record_contributes_what_can_be_taken_back(compiled):
    (text,) = compiled.contributions(['{"desk":1,"v":1.10}'])
    assert contributed(text) == ["1", ["1"], [1], [1, 1.1]]
    group = compiled.group("1", None)
    group.change(contributed(text), 1)
    assert group.changed_row() == (
        str(sow_key("desks", "1")),
        "publish",
        '{"desk":1,"n":1,"v":1.1}',
    )
    again = compiled.group("1", group.state)
    assert again.changed_row() is None, "it is as it was"
    again.change(contributed(text), -1, 7, "delete")
    assert again.changed_row() == (str(sow_key("desks", "1")), "delete", None)
    assert again.state is None


def test_a_number_keeps_its_digits(compiled):
    group = compiled.group("1.10", None)
    group.change(["1.10", ["1.10"], [LosslessNumber("1.10")], [1, LosslessNumber("2.50")]], 1)
    assert group.row == '{"desk":1.10,"n":1,"v":2.5}'
    assert compiled.group("1.10", group.state).row == group.row
    (written,) = contributed('[{"digits":"1.10"}]')
    assert (type(written), written.text) == (LosslessNumber, "1.10")


def test_who_does_not_take_part_contributes_nothing():
    compiled = SparkView(view(FIELDS, condition="/v > 1"), "json").compiled
    long = "x" * 20_000
    texts = ['{"v":1}', '{"v":2}', f'{{"v":3,"desk":"{long}"}}']
    assert [one is None for one in compiled.contributions(texts)] == [True, False, True]
    assert compiled.contributions([]) == []


def test_a_group_that_nothing_came_to_is_none(compiled):
    group = compiled.group("a", None)
    assert (group.row, group.state, group.changed_row()) == (None, None, None)


def test_a_state_is_of_use_for_what_it_was_made_for():
    definition = view(FIELDS)
    made = SparkView(definition, "json")
    moved = [replace(definition, line=7), replace(definition, indexes=("/desk",))]
    assert {SparkView(one, "json").purpose("5") for one in moved} == {made.purpose("5")}
    others = [
        replace(definition, filter="/v > 1"),
        replace(definition, projection=FIELDS[:2]),
        replace(definition, grouping=("/desk", "/v")),
        replace(definition, underlyings=("others",)),
        replace(definition, key_domain="d"),
        replace(definition, message_type="nvfix"),
    ]
    assert made.purpose("5") not in {SparkView(one, "json").purpose("5") for one in others}
    assert SparkView(definition, "nvfix").purpose("5") != made.purpose("5")
    assert made.purpose("6") != made.purpose("5"), "rows before that were another topic's"


def test_it_can_be_sent_to_where_it_runs(compiled):
    made = SparkView(view(FIELDS), "json")
    assert compiled is made.compiled
    assert pickle.loads(pickle.dumps(made)) == made
