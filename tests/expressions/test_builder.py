"""What the rules of the grammar become: one node a meaning, each where it stood in the text."""

import pytest

from sow.core.paths import INDEX_DIGITS_MAX, Path
from sow.errors import BadFilter
from sow.expressions.nodes import (
    Affix,
    Arithmetic,
    Call,
    Compare,
    Identifier,
    IsNan,
    Literal,
    Not,
    as_condition,
    walk,
)
from sow.expressions.parser import parse
from tests.cases import all_cases

A = Identifier(Path(("a",)), position=4)


def literal(text):
    """The one literal of `/a = text`."""
    return parse(f"/a = {text}").right.value


@all_cases(
    ("text", "value"),
    [
        (r"'a\tb\\c'", "a\tb\\c"),
        (r"'\xc3\xa9'", "é"),
        (r"'\303\251'", "é"),
        (r"'\x9'", "\t"),
        (r"'\0'", "\0"),
        (r"'\q'", "q"),
        (r'"it\'s"', "it's"),
        (r"r'\d\n'", r"\d\n"),
        ("'a\\\nb'", "a\nb"),
        ("6.022E23", 6.022e23),
        ("-1", -1),
        ("-1.50", -1.5),
        ("NULL", None),
        ("TRUE_VALUE()", True),
    ],
)
def test_literals(text, value):
    found = literal(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("text", [r"'\xff'", r"'\xc3'", r"'\777'"])
def test_escapes_that_make_no_text_are_refused_where_the_string_begins(text):
    with pytest.raises(BadFilter, match="is not UTF-8 text") as caught:
        parse(f"/a = {text}")
    assert caught.value.position == 5


def test_every_node_knows_where_it_stood():
    text = "NOT /a IN (1, 'x') AND [/b c][0] IS NULL"
    found = {str(node): node.position for node in walk(parse(text))}
    assert found["/a"] == text.index("/a")
    assert found["'x'"] == text.index("'x'")
    assert found["NOT /a IN (1, 'x')"] == 0
    assert found["[/b c][0]"] == text.index("[/b c]")


def test_a_value_as_a_condition_says_that_it_is_not_zero():
    condition = as_condition(A)
    assert condition == Compare("!=", A, Literal(0))
    assert condition.position == A.position
    assert as_condition(Not(condition)) == Not(condition)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("/b + 1", Arithmetic("+", Identifier(Path(("b",))), Literal(1))),
        ("-/b", Arithmetic("*", Literal(-1), Identifier(Path(("b",))))),
        ("5 MOD -3", Arithmetic("%", Literal(5), Literal(-3))),
        ("1 - 2 - 3", Arithmetic("-", Arithmetic("-", Literal(1), Literal(2)), Literal(3))),
        ("1 + 2 * 3", Arithmetic("+", Literal(1), Arithmetic("*", Literal(2), Literal(3)))),
        ("abs(/b)", Call("ABS", (Identifier(Path(("b",))),))),
        ("(/b = 1)", Compare("=", Identifier(Path(("b",))), Literal(1))),
        ("$.b.c[2]", Identifier(Path(("b", "c"), 2))),
        ("$['odd name'][\"it's\"]", Identifier(Path(("odd name", "it's")))),
    ],
)
def test_values(text, value):
    assert parse(f"/a = {text}").right == value
    assert parse(str(parse(f"/a = {text}"))).right == value


def test_affixes_and_numbers_that_are_none():
    assert parse("/a BEGINS WITH ('x', /b)") == Affix(
        A, (Literal("x"), Identifier(Path(("b",)))), at_end=False
    )
    assert parse("/a NOT ENDS WITH ('x')") == Not(Affix(A, (Literal("x"),), at_end=True))
    assert parse("/a IS NOT NAN") == Not(IsNan(A))


@pytest.mark.parametrize("pattern", ["''", "5", "/b", "NULL"])
def test_like_wants_a_pattern_that_is_there(pattern):
    with pytest.raises(BadFilter, match="LIKE needs a regular expression") as caught:
        parse(f"/a LIKE {pattern}")
    assert caught.value.position == 8


@pytest.mark.parametrize("name", ["/a", "[/a b]"])
def test_an_index_has_so_many_digits(name):
    longest = "9" * INDEX_DIGITS_MAX
    assert next(iter(walk(parse(f"{name}[{longest}] = 1").left))).path.index == int(longest)
    with pytest.raises(BadFilter, match="is too large") as caught:
        parse(f"{name}[{longest}9] = 1")
    assert caught.value.position == len(name) + 1
