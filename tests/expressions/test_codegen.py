import pytest

from sow.expressions import Between, Compare, Identifier, Literal, compile_filter, compile_term
from sow.expressions.compare import between, compare
from sow.paths import Path

A = Identifier(Path(("a",)))
VALUES = [5, 5.0, 4, 6.5, "5", "5.0", "x", "A", True, False, None, "", float("nan"), [1, 5], [None]]


@pytest.mark.parametrize("levels", [39, 40, 41, 80, 99])
def test_deep_conditions_are_compiled(levels):
    text = "/a = 1 AND (/b = 2 OR (" * levels + "/c = 3" + "))" * levels
    compiled = compile_filter(text)
    assert compiled.truth([1, 0, 3]) is True
    assert compiled.truth([1, 0, 4]) is False
    assert compiled.truth([1, None, 4]) is None


def test_a_wide_condition_is_compiled():
    compiled = compile_filter(" OR ".join(f"/f{i} = {i}" for i in range(2000)))
    values = [None] * 2000
    assert compiled.truth(values) is None
    values[1999] = 1999
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


@pytest.mark.parametrize("operator", ["=", "!=", "<", "<=", ">", ">="])
@pytest.mark.parametrize("literal", [5, 5.5, "5", "x", True, None, "", float("inf")])
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
