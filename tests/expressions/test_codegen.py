import sys
import tracemalloc

import pytest

from sow.core.paths import Path
from sow.expressions import (
    And,
    Between,
    Compare,
    Identifier,
    Literal,
    Or,
    compile_filter,
    compile_term,
    parse,
    paths_in,
)
from sow.expressions.codegen import SourceText
from sow.expressions.values import between, compare
from tests.cases import all_cases

A = Identifier(Path(("a",)))
VALUES = [5, 5.0, 4, 6.5, "5", "5.0", "x", "A", True, False, None, "", float("nan"), [1, 5], [None]]


def test_what_there_was_before_stands_behind_what_there_is():
    before = Identifier(A.path, "PREVIOUS")
    source = SourceText([A.path], before=[A.path])
    assert (source.count, source.variables) == (2, "v0, v1")
    assert source.value(Compare("=", A, before)).endswith("(v0, v1)")


@pytest.mark.parametrize("levels", [39, 40, 41, 80, 99])
def test_deep_conditions_are_compiled(levels):
    text = "/a = 1 AND (/b = 2 OR (" * levels + "/c = 3" + "))" * levels
    compiled = compile_filter(text)
    assert compiled.truth([1, 0, 3]) is True
    assert compiled.truth([1, 0, 4]) is False
    assert compiled.truth([1, None, 4]) is None


def test_a_wide_condition_is_compiled():
    compiled = compile_filter(" OR ".join(f"/f{i % 200} = {i}" for i in range(400)))
    values = [None] * 200
    assert compiled.truth(values) is None
    values[199] = 399
    assert compiled.truth(values) is True


def test_a_long_list_of_members_is_compiled():
    compiled = compile_filter(f"/a IN ({', '.join(map(str, range(10_000)))})")
    assert compiled.matches([[9_999, 10_000, "42"]], 3) == [True, False, True]


@pytest.mark.parametrize(
    ("text", "outcomes"),
    [
        ("/a = 5", [True, True, True, False, False, None, None, False, True]),
        ("/a != 5", [False, False, False, True, True, None, None, False, True]),
        ("/a < 7", [True, True, True, True, False, None, None, False, True]),
        ("/a >= '5'", [True, True, True, False, True, None, None, False, True]),
        ("/a BETWEEN 4 AND 6", [True, True, True, False, False, None, None, False, True]),
        ("/a IN (5, 6)", [True, True, True, False, False, None, None, False, True]),
        ("/a IN ('5')", [True, True, True, False, False, None, None, False, True]),
        ("/a IN (5, 'x')", [True, True, True, False, True, None, None, False, True]),
    ],
)
def test_every_type_of_value_gets_its_outcome(text, outcomes):
    values = [5, 5.0, "5", True, "x", None, "", float("nan"), [1, 5]]
    assert [compile_filter(text).truth([value]) for value in values] == outcomes


@all_cases("operator", ["=", "!=", "<", "<=", ">", ">="])
@all_cases("literal", [5, 5.5, "5", "x", True, None, "", float("inf")])
def test_shortcuts_give_the_answers_of_compare(operator, literal):
    left = compile_term(Compare(operator, Literal(literal), A))
    right = compile_term(Compare(operator, A, Literal(literal)))
    for value in VALUES:
        assert left.truth([value]) is compare(operator, literal, value)
        assert right.truth([value]) is compare(operator, value, literal)


@pytest.mark.parametrize(
    ("low", "high"), [(1, 5), (5, 5.5), ("A", "x"), ("5", "x"), (1, "x"), (None, 5), (5, "")]
)
def test_shortcuts_give_the_answers_of_between(low, high):
    compiled = compile_term(Between(A, Literal(low), Literal(high)))
    for value in VALUES:
        assert compiled.truth([value]) is between(value, low, high)


@pytest.mark.parametrize(
    "text", ["/a = 5", "/a != 'x'", "/a <= 'x'", "/a BETWEEN 'a' AND 'z'", "/a IN ('x')"]
)
def test_the_negation_has_the_opposite_outcomes(text):
    plain, negated = compile_filter(text), compile_filter(f"NOT {text}")
    opposite = {True: False, False: True, None: None}
    for value in VALUES:
        assert negated.truth([value]) is opposite[plain.truth([value])]


def test_a_batch_counts_unknown_as_no_match():
    for text in ("/a <= 'x'", "NOT /a IN (5)", "NOT /a != 5", "NOT /a = 'x'"):
        compiled = compile_filter(text)
        outcomes = [compiled.truth([value]) is True for value in VALUES]
        assert compiled.matches([VALUES], len(VALUES)) == outcomes


def nested(groups):
    """Conditions that nest 150 deep, over many fields."""
    words = [
        "".join(f"(/a{(group + at) % 200} = {group} {('OR', 'AND')[at % 2]} " for at in range(150))
        for group in range(groups)
    ]
    return " OR ".join(word + "/z = 1" + ")" * 150 for word in words)


def source_length(text):
    node = parse(text, terms_max=100_000)
    paths = paths_in(node)
    source = SourceText(paths, tests=1000)
    return len(source.condition(node, True)) + sum(map(len, source.functions))


@pytest.mark.parametrize(
    "text",
    [
        nested,
        lambda count: " OR ".join(f"/f{at % 200} = {at}" for at in range(100 * count)),
        lambda count: f"/a IN ({', '.join(f'/b{at % 200}' for at in range(100 * count))})",
        lambda count: " OR ".join(f"/a LIKE 'a.{at}'" for at in range(50 * count)),
    ],
)
def test_the_source_is_as_long_as_the_filter_and_no_longer(text):
    assert source_length(text(8)) < 4.6 * source_length(text(2))


@pytest.mark.parametrize("word", [" OR ", " AND "])
def test_no_function_is_longer_however_many_conditions_there_are(word):
    """While Python compiles one, no other thread runs."""
    longest = []
    for count in (200, 2_000):
        one, other = ("AND", "OR") if word == " OR " else ("OR", "AND")
        text = word.join(
            f"(/a = {at} {one} NOT (/b > {at} {other} /c = 'x'))" for at in range(count)
        )
        node = parse(text, bytes_max=10**6, terms_max=100_000)
        source = SourceText(paths_in(node), tests=node.contents.tests)
        whole = source.condition(node, True)
        longest.append(max(map(len, (whole, *source.functions))))
    assert longest[1] < 1.3 * longest[0]


@pytest.mark.parametrize(
    ("joined", "form", "decided"),
    [(Or, "/a = %d AND /b > %d", any), (And, "/a != %d OR /b > %d", all)],
)
def test_very_many_conditions_mean_what_few_do(joined, form, decided):
    some = [compile_term(parse(form % (at, at))) for at in range(300)]
    whole = compile_term(joined(tuple(one.expression for one in some)))
    rows = [(a, b) for a in (-1, 0, 63, 64, 299, None, "x") for b in (0, 64, 65, 300, None)]
    expected = [decided(one.truth(row) is True for one in some) for row in rows]
    assert whole.matches([*zip(*rows, strict=True)], len(rows)) == expected
    assert len({*expected}) == 2


def compared(groups):
    """Conditions that are compared with conditions, 70 deep."""
    words = ["/z = 1"] * groups
    for at in range(70):
        words = [f"(({word}) = (/a{at} = 1))" for word in words]
    return " OR ".join(words)


@pytest.mark.parametrize(
    "text", [nested(2), compared(2), " OR ".join(f"/f{at % 200} = 1" for at in range(500))]
)
def test_one_of_the_largest_filters_is_compiled_in_bounded_memory(text):
    tracemalloc.start()
    compile_filter(text)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 * 1024**2


@pytest.mark.parametrize(
    "text",
    ["/a = 5", "/a != 'x'", "/a <= 'x'", "/a BETWEEN 'a' AND 'z'", "/a IN ('x', 5)", "/a LIKE 'x'"],
)
@pytest.mark.parametrize("negation", ["", "NOT "])
def test_a_test_among_many_has_the_outcomes_that_it_has_alone(text, negation):
    many = " AND ".join(f"/z != {at}" for at in range(1, 200))
    alone = compile_filter(negation + text)
    among = compile_filter(f"{negation}({text}) AND {many}")
    for value in VALUES:
        assert among.truth([value, 0]) is alone.truth([value])
        assert among.matches([[value], [0]], 1) == alone.matches([[value]], 1)
        assert among.holds([value, 0]) is alone.holds([value]) is (alone.truth([value]) is True)


CONDITIONS_IN_CONDITIONS = [
    "(({0}) = (/a = 1))",
    "(({0}) != (/a = 1))",
    "(({0}) IS NULL)",
    "(({0}) IS NAN)",
    "(NOT ({0}) = 0)",
    "(({0}) IN (1, 2))",
    "(({0}) IN (1, /b))",
    "(({0}) BETWEEN 0 AND 2)",
    "(({0}) BETWEEN 0 AND /b)",
    "(({0}) LIKE '[1]')",
    "(({0}) BEGINS WITH (1))",
    "(({0}) + 1 = 2)",
    "(COALESCE(/c, {0}) = 1)",
    "(CONCAT({0}, 'a') = 'x')",
    "(IF({0}, /a, /b) = 1)",
    "(({0} AND /a = 1) = (/b = 1 OR /a = 1))",
    "((NOT {0}) = 1)",
]


def calls_of(levels, form, value):
    """How many calls it takes to answer a condition in so many conditions."""
    text = "/z = 1"
    for _ in range(levels):
        text = form.format(text)
    compiled = compile_filter(text)
    values = [value] * len(compiled.paths)
    compiled.truth(values)
    calls = 0

    def count(_frame, event, _argument):
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        compiled.truth(values)
    finally:
        sys.setprofile(None)
    return calls


@all_cases("form", CONDITIONS_IN_CONDITIONS)
@all_cases("value", [0, 1, None, "x"])
def test_a_condition_inside_conditions_is_requested_no_more_often_the_deeper_it_lies(form, value):
    assert calls_of(40, form, value) < 40 * 30


@all_cases("one", ["TRUE", "FALSE", "NULL"])
@all_cases("other", ["TRUE", "FALSE", "NULL"])
@all_cases("word", ["AND", "OR"])
def test_conditions_that_are_joined_have_the_same_outcome_as_a_value(one, other, word):
    outcomes = {"TRUE": 1, "FALSE": 0, "NULL": None}
    values = [outcomes[one], outcomes[other]]
    joined = f"/a = 1 {word} /b = 1"
    wanted = compile_filter(joined).truth(values)
    assert compile_filter(f"(NOT ({joined})) = 0").truth(values) is wanted
    assert compile_filter(f"({joined}) = 1").truth(values) is wanted
