"""Fields: extracted as long as somebody wants them, and computed for every record."""

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.core.definitions import Declared
from sow.core.paths import parse_path
from sow.errors import BadMessage, TooLarge
from sow.expressions import compile_filter
from sow.messages import message_type
from sow.messages.declared import DeclaredFields
from sow.topic import fields as module
from sow.topic.fields import (
    NOTHING_WATCHED,
    ExtractedFields,
    PreprocessingDecoder,
    check_watched,
    computed_fields,
)
from tests.topic.making import body

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
    monkeypatch.setattr(module, "WATCHED_MAX", 2)
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
    monkeypatch.setattr(module, "WATCHED_MAX", 1)
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


JSON = message_type("json")
NVFIX = message_type("nvfix")
BFLAT = message_type("bflat")


def made(text, previous=None, nulls=None, kind=JSON, fields=("/a + 1 AS /b",)):
    return computed_fields(kind, fields).body(text, previous, nulls)


def test_fields_are_added_to_the_message():
    assert json.loads(made(b'{"a":1,"c":[2]}')) == {"a": 1, "c": [2], "b": 2}


def test_a_message_of_which_nothing_is_made_keeps_its_bytes():
    text = b'{"a" : 1.50}'
    assert made(text, fields=()) is text
    assert made(text, fields=("/x AS /y HINT OPTIONAL",)) is text


def test_what_was_before_is_the_record_and_null_where_there_was_none():
    fields = ("COALESCE(/n OF PREVIOUS, 0) + 1 AS /n",)
    assert made(b'{"id":1}', fields=fields) == b'{"id":1,"n":1}'
    assert made(b'{"id":1}', b'{"id":1,"n":41}', fields=fields) == b'{"id":1,"n":42}'


def test_of_current_is_the_message_with_what_was_set_current():
    fields = ("/a * 2 AS /a HINT SET_CURRENT", "/a OF CURRENT + /a OF PREVIOUS AS /sum")
    found = json.loads(made(b'{"a":5}', b'{"a":100}', fields=fields))
    assert found == {"a": 10, "sum": 110}


def test_a_delta_is_enriched_by_itself_and_then_merged():
    fields = ("COALESCE(/qty, /qty OF PREVIOUS) * COALESCE(/px, /px OF PREVIOUS) AS /value",)
    before = b'{"id":1,"qty":2,"px":10.5,"value":21.0}'
    found = json.loads(made(b'{"id":1,"qty":3}', before, "ignore", fields=fields))
    assert found == {"id": 1, "qty": 3, "px": 10.5, "value": 31.5}


@pytest.mark.parametrize(
    ("nulls", "value"), [("ignore", {"v": 1}), ("set", {"v": None}), ("remove", {})]
)
def test_a_null_that_was_made_of_a_delta_means_what_any_null_does(nulls, value):
    found = json.loads(made(b'{"id":1}', b'{"id":1,"v":1}', nulls, fields=("/x AS /v",)))
    assert found == {"id": 1, **value}


def test_a_delta_that_is_the_whole_record_keeps_its_bytes_unless_something_is_made():
    text = b'{"id" : 1}'
    assert made(text, None, "ignore", fields=()) is text
    assert json.loads(made(b'{"id":1,"n":null}', None, "ignore", fields=())) == {"id": 1}
    # true and 1 are equal in Python.
    assert made(b'{"v":true}', None, "ignore", fields=("/v + 0 AS /v",)) == b'{"v":1}'


@pytest.mark.parametrize(
    ("kind", "text", "fields", "found"),
    [
        (NVFIX, b"a=2\x01", ("/a * 3 AS /b",), b"a=2\x01b=6\x01"),
        (NVFIX, b"a=x\x01", ("/a * 3 AS /b",), b"a=x\x01"),
        (NVFIX, b"a=x\x01b=1\x01", ("CONCAT(/a, CHAR_VALUE(1)) AS /b",), b"a=x\x01"),
        (NVFIX, b"a=x\x01", ("CHAR_VALUE(1) AS /b", "UPPER(/a) AS /c"), b"a=x\x01c=X\x01"),
        (JSON, b'{"a":1.5}', ("/a / 0 AS /b",), b'{"a":1.5,"b":null}'),
        (JSON, b'{"a":9223372036854775807}', ("/a * 10 AS /b",),
         b'{"a":9223372036854775807,"b":92233720368547758070}'),
    ],
)  # fmt: skip
def test_what_a_message_of_the_type_cannot_hold_is_null(kind, text, fields, found):
    assert made(text, kind=kind, fields=fields) == found


def test_types_with_binary_fields_are_made_alike():
    text = BFLAT.encode({"a": 2, "s": "x"})
    assert BFLAT.parse(made(text, kind=BFLAT)) == {"a": 2, "s": "x", "b": 3}


def test_a_number_too_large_for_the_type_is_null():
    text = BFLAT.encode({"a": 2**120})
    assert BFLAT.parse(made(text, kind=BFLAT, fields=("/a * /a AS /b",)))["b"] is None


def decoder(fields, *paths):
    paths = tuple(map(parse_path, paths))
    return PreprocessingDecoder(JSON, computed_fields(JSON, fields), JSON.decoder(paths))


def test_columns_are_those_of_the_messages_as_they_are_stored():
    reader = decoder(("CONCAT(/a, '-', /b) AS /id",), "/id", "/a")
    stored, columns = reader.read([b'{"a":1,\n"b":2}', b'{"a":"x"}'])
    assert stored == [b'{"a":1,"b":2,"id":"1-2"}', b'{"a":"x","id":"x-"}']
    assert columns == reader.columns(stored) == [["1-2", "x-"], [1, "x"]]


def test_a_bad_message_is_named_before_anything_is_made_of_it():
    with pytest.raises(BadMessage) as refused:
        decoder(("1 AS /b",), "/b").read([body(a=1), b'{"a":', body(a=2)])
    assert refused.value.index == 1


def test_the_same_constructions_are_compiled_once():
    assert computed_fields(JSON, ("1 AS /b",)) is computed_fields(JSON, ("1 AS /b",))
    assert computed_fields(JSON, ("1 AS /b",)) is not computed_fields(NVFIX, ("1 AS /b",))


@pytest.mark.parametrize(("fitted", "value"), [(True, None), (False, BadMessage)])
def test_what_does_not_fit_refuses_the_message_or_is_null(fitted, value):
    declared = DeclaredFields(JSON, [Declared("/b", "int64")])
    fields = computed_fields(JSON, ("/a * 2 AS /b",))
    assert json.loads(fields.body(b'{"a":2}', declared=declared, fitted=fitted))["b"] == 4
    if value is None:
        assert json.loads(fields.body(b'{"a":2.5}', declared=declared, fitted=fitted))["b"] is None
    else:
        with pytest.raises(value) as refused:
            fields.body(b'{"a":2.5}', declared=declared)
        assert refused.value.field == "/b"


def test_of_a_delta_only_what_is_made_is_judged():
    """What was stored before there was a Schema stays as it is."""
    declared = DeclaredFields(JSON, [Declared("/old", "int64")])
    fields = computed_fields(JSON, ("1 AS /b",))
    assert b'"old":"x"' in fields.body(b'{"a":2}', b'{"old":"x"}', "ignore", declared)


def test_an_object_becomes_its_json_text_with_all_digits():
    made = computed_fields(JSON, ("/o AS /text",))
    text = made.body(b'{"o":{"px":1.50,"n":9007199254740993}}')
    assert json.loads(text)["text"] == '{"px":1.50,"n":9007199254740993}'
