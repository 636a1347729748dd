import pytest

from sow.core.paths import Path
from sow.errors import BadFilter
from sow.expressions import (
    MessageColumns,
    Trait,
    check_deterministic,
    check_fields_alone,
    compile_filter,
    compile_term,
    parse,
    pinned,
    with_texts,
)
from tests.cases import all_cases

A, B, C = Path(("a",)), Path(("b",)), Path(("c",))


def test_paths_are_distinct_and_in_the_order_of_the_text():
    assert compile_filter("/b = 1 AND (/a = 2 OR /b = 3) AND /c IN (/a)").paths == (B, A, C)


def test_a_batch_is_answered_from_columns():
    compiled = compile_filter("/a = 'x' AND /b > 10")
    assert compiled.matches([["x", "x", "y"], [11, 9.5, 12]], 3) == [True, False, False]


@pytest.mark.parametrize(("text", "matches"), [("1 = 1", True), ("1 = 2", False), ("NULL", False)])
def test_a_filter_without_paths_answers_for_the_count(text, matches):
    assert compile_filter(text).matches([], 3) == [matches] * 3


def test_an_empty_batch_has_no_matches():
    assert compile_filter("/a = 1 AND /b = 2").matches([[], []], 0) == []


def test_matches_are_booleans_even_where_the_outcome_is_unknown():
    assert compile_filter("/a > 5").matches([[None, "", [], [9], "z", 6]], 6) == [
        *[False, False, False],
        *[True, True, True],
    ]


def test_conjuncts_reach_through_parentheses_and_not_into_or():
    compiled = compile_filter("(/a = 1 AND (/b = 2 AND /c = 3)) AND (/a = 4 OR /b = 5)")
    texts = [str(term) for term in compiled.conjuncts]
    assert texts == ["/a = 1", "/b = 2", "/c = 3", "/a = 4 OR /b = 5"]


def test_a_conjunct_can_be_compiled_on_its_own():
    term = compile_term(compile_filter("/a = 1 AND /b LIKE 'x'").conjuncts[1])
    assert (term.text, term.paths) == ("/b LIKE 'x'", (B,))
    assert term.matches([["xy", "z"]], 2) == [True, False]


@all_cases(
    ("text", "equalities"),
    [
        ("/a = 'x'", {A: ("x",)}),
        ("5 = /a AND /b > 1", {A: (5,)}),
        ("/a IN ('x', 2, 'x') AND /b = 1.5", {A: ("x", 2), B: (1.5,)}),
        ("/a = TRUE_VALUE()", {A: (1,)}),
        ("/a IN ('x', NULL, '')", {A: ("x",)}),
        ("/a = NULL", {A: ()}),
        ("/a IN (1, 2) AND /a = 2", {A: (2,)}),
        ("/a = 1 OR /b = 2", {}),
        ("/a IN (1, /b)", {}),
        ("NOT /a = 1", {}),
        ("/a != 1 AND /b LIKE 'x' AND /c = /a", {}),
    ],
)
def test_equalities_are_what_conjuncts_pin_paths_to(text, equalities):
    assert dict(filter(None, map(pinned, compile_filter(text).conjuncts))) == equalities


def test_zero_and_booleans_are_pinned_as_plain_numbers():
    terms = compile_filter("/a = -0.0 AND /b = TRUE_VALUE()").conjuncts
    assert [repr(pinned(term)[1]) for term in terms] == ["(0.0,)", "(1,)"]


def test_what_is_planned_of_a_filter_is_made_once_and_goes_with_it():
    made = []

    def plan(condition):
        made.append(condition.text)
        return [condition.paths]

    condition = compile_filter("/a = 1")
    assert condition.planned(plan) is condition.planned(plan)
    assert made == ["/a = 1"]
    assert compile_filter("/a = 1").planned(plan) is not condition.planned(plan)


def test_client_text_never_becomes_code():
    text = "/a = '\\'); import os #' OR [/b); raise SystemExit #] = 1"
    assert compile_filter(text).matches([["x"], [1]], 1) == [True]


def test_filters_of_one_form_share_their_code_and_not_their_literals():
    one, other = compile_filter("/a = 'x' AND /b > 1"), compile_filter("/c = 'y' AND /d > 2")
    assert one._matches.__code__ is other._matches.__code__
    assert one.matches([["x", "y"], [2, 3]], 2) == [True, False]
    assert other.matches([["x", "y"], [2, 3]], 2) == [False, True]


def test_every_filter_so_far_depends_on_the_record_alone():
    assert compile_filter("/a = 1").deterministic


def test_a_filter_shows_its_text():
    assert repr(compile_filter("/a=1")) == "Filter('/a=1')"


NAMED = {Trait.AMPS_INSTANCE_NAME: "desk"}


def test_what_all_messages_share_is_put_in_when_the_filter_is_read():
    condition = compile_filter("AMPS_INSTANCE_NAME() = /server", known=NAMED)
    assert (condition.traits, str(condition.expression)) == ((), "'desk' = /server")
    assert condition.truth(["desk"]) is True
    assert compile_filter("AMPS_INSTANCE_NAME() = 'x'").traits == (Trait.AMPS_INSTANCE_NAME,)


@pytest.mark.parametrize(
    ("text", "then"),
    [
        ("/at > UNIX_TIMESTAMP() - 60", "/at > 1699999940.0"),
        ("DATE(/at) = TODAY()", "DATE(/at) = 1699920000.0"),
        ("/a = 1 AND STRFTIME('%F', UNIX_TIMESTAMP()) = /day", "/a = 1 AND '2023-11-14' = /day"),
        ("/at + 5 > UNIX_TIMESTAMP()", "(/at + 5) > 1700000000.0"),
        ("/a IN (1, YEAR(TODAY_UTC()))", "/a IN (1, 2023)"),
        ("NOT (/a LIKE 'x' OR UNIX_TIMESTAMP() < 1)", "NOT (/a LIKE 'x' OR 1700000000.0 < 1)"),
    ],
)
def test_as_of_a_moment_the_time_is_a_number_that_indexes_know(text, then):
    condition = compile_filter(text)
    fixed = condition.at(1_700_000_000_000_000)
    assert (str(fixed.expression), fixed.text) == (then, text)
    assert (condition.deterministic, fixed.deterministic) == (False, True)
    assert fixed.at(0) is fixed


def test_a_long_text_that_could_be_calculated_beforehand_is_not():
    text = "CONCAT(AMPS_INSTANCE_NAME(), '" + "x" * 2000 + "') = /a"
    assert str(compile_filter(text, known=NAMED).expression).startswith("CONCAT('desk', 'xx")


def test_a_filter_is_steady_when_a_record_determines_its_outcome():
    steady = {text: compile_filter(text).steady for text in ("/a = 1", "SOW_KEY() = '1'")}
    assert steady == {"/a = 1": True, "SOW_KEY() = '1'": True}
    for name in ("BOOKMARK", "LAST_UPDATED", "UNIX_TIMESTAMP", "TODAY"):
        assert not compile_filter(f"{name}() = 1").steady


@pytest.mark.parametrize(
    ("check", "text", "position"),
    [
        (check_deterministic, "/a = 1 AND TODAY() = 5", 11),
        (check_fields_alone, "/a = 1 AND LAST_UPDATED() > 5", 11),
    ],
)
def test_what_a_place_does_not_know_is_refused_where_it_stands(check, text, position):
    with pytest.raises(BadFilter, match=r"this place cannot (read|use)") as error:
        check(compile_filter(text), "this place")
    assert (error.value.position, bool(error.value.expected)) == (position, True)
    check(compile_filter("/a = 1"), "this place")


def test_messages_are_judged_by_fields_and_what_is_known_beside_them():
    messages = MessageColumns("orders", [b"{}", b"{  }"], lambda: ["1", "2"], None, [0, 0])
    condition = compile_filter("/a > 0 AND MESSAGE_SIZE() > 2")
    assert condition.matches_messages([[1, 1]], messages) == [False, True]
    assert compile_filter("/a > 0").matches_messages([[1, 0]], messages) == [True, False]


def test_texts_are_changed_wherever_they_stand_but_where_a_function_is_made_of_them():
    text = (
        "NOT /a IN ('x', 'y', 1) AND (/b LIKE 'x' OR UPPER('x') = /x) "
        "AND REGEXP_REPLACE(/a, 'x', 'x') = 'x'"
    )
    changed = with_texts(parse(text), lambda one, is_pattern: f"<{one}>" + "?" * is_pattern)
    assert changed == parse(
        "NOT /a IN ('<x>', '<y>', 1) AND (/b LIKE '<x>?' OR UPPER('<x>') = /x) "
        "AND REGEXP_REPLACE(/a, 'x', 'x') = '<x>'"
    )


@pytest.mark.parametrize(
    "text",
    ["NOT " * 240 + "TODAY() > 5", "ABS(" * 240 + "TODAY()" + ")" * 240, "1 + " * 240 + "TODAY()"],
)
def test_what_nests_as_deep_as_it_may_has_its_moment_put_in(text):
    condition = compile_filter(text, depth_max=250)
    fixed = condition.at(0)
    assert (condition.deterministic, fixed.deterministic) == (False, True)
    assert fixed.truth([]) is condition.truth([0.0])
