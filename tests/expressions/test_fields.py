"""Field constructions: what is computed, and where it goes."""

import math
import re

import pytest

from sow.errors import BadFilter, NotAvailable, TooLarge
from sow.expressions import compile_fields
from sow.expressions.parser import FIELD_DEPTH_MAX

RECORD = {"qty": 4, "list": [2, 5, 7], "px": 2.5, "text": "12", "word": "abc", "a": {"b": 1}}


def value(expression):
    return compile_fields([f"{expression} AS /out"]).apply(RECORD)["out"]


@pytest.mark.parametrize(
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
def test_a_mistake_is_told(text, why):
    with pytest.raises(BadFilter, match=re.escape(why)):
        compile_fields([text])


@pytest.mark.parametrize(
    ("text", "kind", "why"),
    [
        ("x" * 5000, TooLarge, "the limit is 4096"),
        ("/a OF PREVIOUS AS /b", NotAvailable, "OF PREVIOUS is not available yet"),
    ],
)
def test_what_cannot_be_made_is_refused(text, kind, why):
    with pytest.raises(kind, match=why):
        compile_fields([text])


def test_a_function_that_is_not_built_is_refused_by_name():
    with pytest.raises(NotAvailable, match="UNIX_TIMESTAMP is not available yet"):
        compile_fields(["UNIX_TIMESTAMP() AS /t"])


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
