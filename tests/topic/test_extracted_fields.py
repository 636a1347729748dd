"""Watched fields: read as long as somebody wants them, and not too many of them."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.core.paths import parse_path
from sow.errors import TooLarge
from sow.expressions import compile_filter
from sow.topic import extracted_fields
from sow.topic.extracted_fields import NOTHING_WATCHED, ExtractedFields, check_watched

KEYS = (parse_path("/id"),)


def paths(*names):
    return [parse_path(f"/{name}") for name in names]


def test_without_anybody_only_the_keys_are_read_and_nothing_is_kept():
    fields = ExtractedFields(KEYS)
    assert fields.paths is KEYS
    fields.check([])
    fields.add(paths("a"))
    assert ExtractedFields(KEYS).paths is KEYS
    assert not NOTHING_WATCHED


def test_what_is_read_already_changes_nothing_for_a_thread_that_reads():
    fields = ExtractedFields(KEYS)
    fields.add(paths("a"))
    before = fields.paths
    fields.add(paths("a", "id"))
    fields.remove(paths("a", "id"))
    assert set(before) == {*KEYS, *paths("a")}
    fields.add(paths("b"))
    assert set(before) == {*KEYS, *paths("a")}, "what a thread reads is another list"


@given(st.lists(st.sets(st.sampled_from("abc"), min_size=1)), st.data())
def test_a_field_is_read_as_long_as_one_of_those_who_requested_for_it_is_there(requested, data):
    fields, there = ExtractedFields(KEYS), []
    for names in requested:
        fields.add(paths(*names))
        there.append(names)
        if data.draw(st.booleans()):
            fields.remove(paths(*there.pop(data.draw(st.integers(0, len(there) - 1)))))
        wanted = Counter(path for names in there for path in paths(*names))
        assert set(fields.paths) == {*KEYS, *wanted}
        fields.check(wanted)


def test_how_many_fields_filters_may_name_is_bounded(monkeypatch):
    monkeypatch.setattr(extracted_fields, "WATCHED_MAX", 2)
    fields = ExtractedFields(KEYS)
    fields.add(compile_filter("/a = 1").paths)
    with pytest.raises(TooLarge, match="subscriptions to orders would name 3 fields"):
        fields.check_room("orders", compile_filter("/b = 1 AND /c = 1"))
    with pytest.raises(TooLarge, match="name fewer"):
        fields.check_room("orders", compile_filter("/b = 1"), paths("c"))
    fields.check_room("orders", compile_filter("/a = 2"))
    check_watched("patterns", 2)
    with pytest.raises(TooLarge, match="subscriptions to patterns would name 3 fields"):
        check_watched("patterns", 3)


def test_who_is_over_the_bound_already_may_ask_for_what_is_read(monkeypatch):
    monkeypatch.setattr(extracted_fields, "WATCHED_MAX", 1)
    fields = ExtractedFields(KEYS)
    fields.add(paths("a", "b"))  # by indexes, which may be more
    fields.check_room("orders", compile_filter("/a = 1 AND /b = 1"))


def test_fields_stand_in_the_order_in_which_they_came_each_once():
    fields = ExtractedFields(KEYS)
    fields.add(paths("b", "a", "b", "id"))
    fields.add(paths("a", "c"))
    assert fields.paths == (*KEYS, *paths("b", "a", "c"))
    fields.remove(paths("b", "a", "b", "id"))
    assert fields.paths == (*KEYS, *paths("a", "c"))
