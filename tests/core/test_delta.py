"""Deltas: what they say, and that merging them gives back what they were made from."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conflated_topics import documents
from conflated_topics.documents import ObjectWithText
from sow.core import delta as deltas
from sow.core.cooperative import run_to_completion
from sow.core.delta import composed, difference, differing, merged, same
from sow.core.lossless_numbers import LosslessNumber

SCALARS = (
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "a", 1.0, 0.0, -0.0])
)
VALUES = st.recursive(
    SCALARS | st.lists(SCALARS, max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)
DOCUMENTS = st.dictionaries(st.sampled_from("abcd"), VALUES, max_size=4)


def test_a_difference_names_changed_and_new_fields_only():
    old = {"id": 1, "leg": {"px": 1, "qty": 5}, "tags": [1, 2]}
    new = {"id": 1, "leg": {"px": 2, "qty": 5}, "tags": [1], "x": None}
    assert difference(old, new) == {"leg": {"px": 2}, "tags": [1], "x": None}


def test_no_difference_is_an_empty_delta():
    assert difference({"a": {"b": [1]}}, {"a": {"b": [1]}}) == {}


def test_a_removed_field_cannot_be_said_by_a_delta():
    assert difference({"a": 1, "b": {"c": 1, "d": 1}}, {"a": 1, "b": {"c": 1}}) is None


WITH_TEXT = ObjectWithText({"@x": "1", "#text": "t"})


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (ObjectWithText({"@x": "1"}), ""),
        (WITH_TEXT, "u"),
        ("t", ObjectWithText({"@x": "1"})),
        ({"b": ""}, ObjectWithText({"b": "", "#text": "t"})),
    ],
)
def test_what_would_be_kept_beside_a_text_cannot_be_said_by_a_delta(old, new):
    assert difference({"a": old}, {"a": new}) is None


def test_the_text_of_an_object_is_sent_by_itself():
    new = ObjectWithText({"@x": "1", "#text": "u"})
    assert difference({"a": WITH_TEXT}, {"a": new}) == {"a": {"#text": "u"}}


def test_attributes_of_what_may_have_been_a_text_cannot_be_composed():
    assert composed({"a": {"b": "1"}}, {"a": ObjectWithText({"@x": "1"})}) is None
    assert composed({"a": {"b": "1"}}, {"a": WITH_TEXT}) == {"a": {"b": "1", **WITH_TEXT}}


def test_true_one_and_one_point_nought_are_three_values():
    assert difference({"a": 1, "b": [1]}, {"a": True, "b": [1.0]}) == {"a": True, "b": [1.0]}


def test_a_nought_below_nought_is_another_one_and_nan_is_the_same():
    nan = float("nan")
    assert repr(difference({"a": 0.0, "b": nan}, {"a": -0.0, "b": float("nan")})) == "{'a': -0.0}"
    assert not same({"a": [0.0]}, {"a": [-0.0]})


def test_a_field_that_changed_and_changed_back_stays_in_the_composition():
    assert composed({"a": 2, "b": 1}, {"a": 1}) == {"a": 1, "b": 1}


def test_an_object_over_a_scalar_over_an_object_cannot_be_composed():
    assert composed({"a": 5}, {"a": {"y": 2}}) is None


@given(DOCUMENTS, DOCUMENTS)
def test_merging_a_difference_gives_the_new_document(old, new):
    delta = difference(old, new)
    if delta is not None:
        assert same(merged(old, delta), new)


@given(DOCUMENTS, DOCUMENTS, DOCUMENTS)
def test_a_composition_does_what_its_parts_do_one_after_the_other(document, first, second):
    both = composed(first, second)
    if both is not None:
        assert same(merged(document, both), merged(merged(document, first), second))


@given(DOCUMENTS, DOCUMENTS)
def test_merging_changes_neither_of_its_arguments(document, delta):
    before = repr((document, delta))
    merged(document, delta, "remove")
    assert repr((document, delta)) == before


def test_digits_are_sent_apart_that_no_double_reports_apart():
    one, other = LosslessNumber("0.12345678901234567890"), LosslessNumber("0.12345678901234567891")
    assert difference({"a": one}, {"a": other}) == {"a": other}
    assert difference({"a": one}, {"a": LosslessNumber(one.text)}) == {}
    assert not same(LosslessNumber("1.10"), 1.1)


@given(DOCUMENTS, DOCUMENTS, st.sampled_from(["ignore", "set", "remove"]))
def test_of_very_many_fields_the_same_is_found_at_once(old, new, nulls):
    few = difference(old, new), merged(old, new, nulls)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deltas, "MANY_FIELDS", 0)
        patch.setattr(documents, "MANY_FIELDS", 0)
        patch.setattr(deltas, "FIELDS_AT_ONCE", 2)
        many = difference(old, new), merged(old, new, nulls)
        in_steps = run_to_completion(differing(old, new))
    assert repr(few) == repr(many)
    assert repr(few[0]) == repr(in_steps)


def test_of_very_many_fields_too_a_nought_below_nought_is_another_one_and_nan_is_the_same():
    many = {f"f{at}": at for at in range(documents.MANY_FIELDS)}
    old = many | {"a": 0.0, "b": float("nan"), "c": 1.0, "d": [0.0], "e": 1}
    new = many | {"a": -0.0, "b": float("nan"), "c": 1, "d": [-0.0], "e": True}
    assert repr(difference(old, new)) == "{'a': -0.0, 'c': 1, 'd': [-0.0], 'e': True}"


@pytest.mark.parametrize("find", [merged, difference])
def test_very_many_fields_take_no_step_of_python_each(find):
    old = {f"f{at}": at for at in range(10_000)}
    new, calls = old | {"f7": -1}, [0]

    def count(_frame, event, _argument):
        calls[0] += event == "call"

    sys.setprofile(count)
    try:
        find(old, new)
    finally:
        sys.setprofile(None)
    assert calls[0] < 100
