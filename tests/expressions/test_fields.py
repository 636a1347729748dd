"""Field constructions: what is computed, and where it goes."""

import json
import math
import re

import pytest

from sow.core.paths import parse_path, value_at
from sow.errors import BadFilter, TooLarge
from sow.expressions import Trait, compile_fields
from sow.expressions.parser import FIELD_DEPTH_MAX
from tests.cases import all_cases

RECORD = {"qty": 4, "list": [2, 5, 7], "px": 2.5, "text": "12", "word": "abc", "a": {"b": 1}}


def value(expression):
    return compile_fields([f"{expression} AS /out"]).apply(RECORD)["out"]


@all_cases(
    ("expression", "result"),
    [
        ("/px * /qty", 10.0),
        ("/px / /qty", 0.625),
        ("1 / 5", 0),
        ("-7 / 2", -3),
        ("1.0 / 5", 0.2),
        ("-5 % 3", -2),
        ("5 MOD -3", 2),
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("-/qty - 1", -5),
        ("/text + 1", 13),
        ("/word + 1", None),
        ("/none + 1", None),
        ("/qty % 0", None),
        ("/list + 1", 3),
        ("/list[1] + 1", 6),
        ("/qty > 3", True),
        ("/none > 3", None),
        ("'it''s'", None),
        ("r'a\\d'", "a\\d"),
        ("[/a/b] + 1", 2),
    ],
)
def test_arithmetic(expression, result):
    if "''" in expression:
        with pytest.raises(BadFilter):
            value(expression)
    else:
        assert value(expression) == result
        assert type(value(expression)) is type(result)


def test_dividing_a_double_by_nothing_is_not_a_number():
    assert math.isnan(value("/px / 0"))


def test_a_field_may_go_anywhere_and_leaves_the_rest():
    made = compile_fields(["/qty + 1 AS /a/c", "UPPER(/word) as /word"]).apply(RECORD)
    assert made == {**RECORD, "a": {"b": 1, "c": 5}, "word": "ABC"}
    assert RECORD["a"] == {"b": 1}


def test_null_is_written_or_with_a_hint_takes_the_field_away():
    assert compile_fields(["/none AS /qty"]).apply({"qty": 1}) == {"qty": None}
    assert compile_fields(["/none AS /a/b HINT OPTIONAL"]).apply(RECORD)["a"] == {}
    # The empty text is NULL, and without the hint it is written as it is.
    assert compile_fields(["'' AS /a/b HINT OPTIONAL"]).apply(RECORD)["a"] == {}
    assert compile_fields(["/empty AS /a/b"]).apply({"empty": ""})["a"] == {"b": ""}


def test_later_fields_see_a_result_only_when_it_is_set_current():
    fields = ["/qty * 2 AS /qty", "/qty + 1 AS /next"]
    assert compile_fields(fields).apply({"qty": 1}) == {"qty": 2, "next": 2}
    fields[0] += " HINT SET_CURRENT"
    assert compile_fields(fields).apply({"qty": 1}) == {"qty": 2, "next": 3}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("/a", "expected"),
        ("/a + AS /b", "position 5"),
        ("/a AS b", "is not understood"),
        ("/a AS /b[1]", "has an index"),
        ("NOPE(/a) AS /b", "there is no function NOPE"),
        ("ABS(1, 2) AS /b", "takes 1 argument; 2 are given"),
    ],
)
def test_a_mistake_is_sent(text, why):
    with pytest.raises(BadFilter, match=re.escape(why)):
        compile_fields([text])


@pytest.mark.parametrize(
    ("text", "kind", "why"),
    [
        ("x" * 5000, TooLarge, "the limit is 4096"),
        ("1 OF PREVIOUS AS /b", BadFilter, "'OF' at position 2 is not understood"),
        ("/a AS /b OF PREVIOUS", BadFilter, "'OF' at position 9 is not understood"),
        ("/a OF LATER AS /b", BadFilter, "'OF' at position 3 is not understood"),
    ],
)
def test_what_cannot_be_made_is_refused(text, kind, why):
    with pytest.raises(kind, match=why):
        compile_fields([text])


RECORDS = {"qty": 5}, {"qty": 2, "list": [1, 2]}


@all_cases(
    ("expression", "result"),
    [
        ("/qty OF PREVIOUS", 2),
        ("/qty OF CURRENT", 5),
        ("/qty of current - /qty  Of  Previous", 3),
        ("/list OF PREVIOUS", [1, 2]),
        ("/list[1] OF PREVIOUS", 2),
        ("$.qty OF PREVIOUS", 2),
        ("[/qty] OF PREVIOUS", 2),
        ("/none OF PREVIOUS", None),
        ("/qty OF PREVIOUS = 2 AND /qty > /qty OF PREVIOUS", True),
        ("/list OF PREVIOUS = /qty OF PREVIOUS", True),
        ("COALESCE(/none, /qty OF PREVIOUS)", 2),
    ],
)
def test_a_field_is_made_of_what_there_was_before(expression, result):
    made = compile_fields([f"{expression} AS /out"])
    assert made.apply(*RECORDS)["out"] == result
    assert made.of_previous == ("PREVIOUS" in expression.upper())


def test_of_what_was_not_there_there_was_nothing():
    made = compile_fields(["/qty OF PREVIOUS AS /was", "/qty OF PREVIOUS IS NULL AS /new"])
    assert made.apply({"qty": 5}) == {"qty": 5, "was": None, "new": True}


def test_what_was_before_stays_what_it_was_though_fields_are_set_current():
    made = compile_fields(["7 AS /qty HINT SET_CURRENT", "/qty - /qty OF PREVIOUS AS /up"])
    assert made.apply(*RECORDS) == {"qty": 7, "up": 5}


@pytest.mark.parametrize(
    ("states", "text", "position"),
    [
        ((), "/a OF CURRENT AS /b", 3),
        ((), "1 + [/a] OF PREVIOUS AS /b", 9),
        (("CURRENT",), "/a OF CURRENT + /a OF PREVIOUS AS /b", 19),
    ],
)
def test_states_that_a_field_does_not_have_are_refused_where_they_stand(states, text, position):
    with pytest.raises(BadFilter, match="has no place in this field") as refused:
        compile_fields([text], states)
    assert (refused.value.position, bool(refused.value.expected)) == (position, True)


VALUES = [1, 2.5, "x", "", True, None, [], [1, "a"], [None], [[1], 2], {"b": 1}, {"b": [1, 2]},
          [{"b": 3}, {"b": {"c": 4}}]]  # fmt: skip


@all_cases("value", VALUES)
@all_cases("path", ["/a", "/a[0]", "/a/b", "/a/b[1]", "/none"])
def test_fields_are_read_as_paths_are_everywhere(value, path):
    document = {"a": value}
    made = compile_fields([f"{path} AS /now", f"{path} OF PREVIOUS AS /then"])
    found = made.apply({"c": 1, **document}, document)
    there = value_at(document, parse_path(path))
    assert (found["now"], found["then"]) == (there, there)


def test_what_is_made_is_no_part_of_what_came():
    document = {"a": {"b": 1}, "l": [1]}
    fields = ["1 AS /x", "2 AS /a/c HINT SET_CURRENT", "3 AS /y", "/n AS /l HINT OPTIONAL"]
    made = compile_fields(fields).apply(document)
    assert made == {"a": {"b": 1, "c": 2}, "x": 1, "y": 3}
    assert document == {"a": {"b": 1}, "l": [1]}


def test_a_result_that_cannot_be_held_is_null():
    made = compile_fields(["'x' AS /a/b HINT SET_CURRENT", "/a/b IS NULL AS /c"])
    assert made.apply({}, None, lambda field: "c" in field) == {"a": {"b": None}, "c": True}


def test_it_is_sent_where_fields_go():
    made = compile_fields(["1 AS /a/b", "2 AS /c HINT OPTIONAL"])
    assert [str(path) for path in made.targets] == ["/a/b", "/c"]


def test_an_aggregate_is_refused_by_name():
    with pytest.raises(BadFilter, match="SUM at position 0 has no place in this field"):
        compile_fields(["SUM(/qty) AS /t"])


def test_a_field_may_be_made_of_the_message_and_of_what_all_messages_share():
    fields = compile_fields(
        ["CONCAT(TOPIC_NAME(), ' of ', AMPS_INSTANCE_NAME()) AS /from", "SOW_KEY() AS /a/key"]
    )
    known = {
        Trait.TOPIC_NAME: "orders",
        Trait.AMPS_INSTANCE_NAME: "desk",
        Trait.SOW_KEY: "7",
    }
    assert set(fields.traits) == known.keys()
    made = fields.apply(RECORD, known=known)
    assert made == {**RECORD, "from": "orders of desk", "a": {"b": 1, "key": "7"}}


@pytest.mark.parametrize(
    "nested",
    [
        lambda n: "+".join(["/a"] * (n + 1)),
        lambda n: "- " * n + "/a",
        lambda n: "ABS(" * n + "/a" + ")" * n,
    ],
)
def test_a_field_nests_so_deeply_and_no_deeper(nested):
    made = compile_fields([f"{nested(FIELD_DEPTH_MAX)} AS /b"]).apply({"a": 1})
    assert abs(made["b"]) in (1, FIELD_DEPTH_MAX + 1)
    with pytest.raises(TooLarge, match="nests deeper"):
        compile_fields([f"{nested(FIELD_DEPTH_MAX + 1)} AS /b"])


def test_a_path_to_an_object_gives_its_text_and_within_an_expression_null():
    made = compile_fields(
        [
            "/o AS /x",
            "/o OF PREVIOUS AS /y",
            "/mixed AS /m",
            "/plain AS /p",
            "CONCAT(/o, '-') AS /c",
        ],
        text_of=json.dumps,
    )
    document = {"o": {"a": 1}, "mixed": [1, {"b": 2}], "plain": [1, 2]}
    found = made.apply(document, {"o": {"a": 0}})
    assert found == document | {
        "x": '{"a": 1}', "y": '{"a": 0}', "m": '[1, {"b": 2}]', "p": [1, 2], "c": "-",
    }  # fmt: skip
    assert made.apply({"o": {}}, None)["x"] is None


def test_a_field_of_an_object_or_through_a_list_is_as_it_was():
    made = compile_fields(["/o/a AS /x", "/legs/qty AS /q"], text_of=json.dumps)
    found = made.apply({"o": {"a": 5}, "legs": [{"qty": 1}, {"qty": 2}]})
    assert (found["x"], found["q"]) == (5, [1, 2])
