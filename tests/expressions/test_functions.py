"""The table of functions: each does what its examples say; others are refused by name."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.errors import BadFilter, ClientError
from sow.expressions import (
    AGGREGATES,
    MessageTrait,
    Trait,
    compile_fields,
    compile_filter,
    parse,
    traits_in,
    walk,
)
from sow.expressions.function import EXAMPLE_MESSAGE, EXAMPLE_RECORD
from sow.expressions.functions import FUNCTIONS, MESSAGE_FUNCTIONS, NOT_KEPT, SLIPS
from tests.cases import all_cases
from tests.effort import examples

EXAMPLES = [(name, example) for name in FUNCTIONS for example in FUNCTIONS[name].examples]
values = st.sampled_from(
    [
        None,
        "",
        "a",
        "5",
        " 5",
        5,
        2.5,
        True,
        [],
        [None, 3],
        ["7", 1],
        -3,
        0,
        10**400,
        1e308,
        math.inf,
        -math.inf,
        math.nan,
        "é",
        "%",
        "2023-01-01",
        2**63,
        -(10**18),
    ]
)


def value(expression, record):
    return compile_fields([f"{expression} AS /out"]).apply(record, known=EXAMPLE_MESSAGE)["out"]


@all_cases(("name", "example"), EXAMPLES)
def test_a_function_does_what_its_example_says(name, example):
    found = value(example.expression, EXAMPLE_RECORD)
    assert (found, type(found)) == (example.result, type(example.result))
    assert name in example.expression


@all_cases("name", FUNCTIONS)
def test_a_function_can_be_called_as_its_signature_says(name):
    function = FUNCTIONS[name]
    assert function.signature.startswith(f"{name}(")
    assert function.about
    assert function.null


def call_of(name, count):
    """A call with so many arguments, and the paths of those that are not literals."""
    function = FUNCTIONS[name]
    given_by_place = dict.fromkeys(function.literals, "'%Y-%m-%d'")
    return f"{name}({', '.join(given_by_place.get(at, f'/a{at}') for at in range(count))})"


@pytest.mark.parametrize("name", FUNCTIONS)
@examples(10)
@given(data=st.data())
def test_no_function_raises_whatever_it_is_given(name, data):
    function = FUNCTIONS[name]
    count = data.draw(st.integers(function.least, min(function.most, function.least + 2)))
    record = {f"a{at}": data.draw(values) for at in range(count)}
    filtered = compile_filter(f"{call_of(name, count)} IS NULL")
    values_read = [record.get(path.steps[0]) for path in filtered.paths]
    values_read += [EXAMPLE_MESSAGE[trait] for trait in filtered.traits]
    assert filtered.truth(values_read) in (True, False)


@pytest.mark.parametrize("name", NOT_KEPT)
def test_an_attribute_that_is_not_kept_is_refused_with_the_reason(name):
    with pytest.raises(BadFilter, match=f"there is no {name} here: ") as error:
        compile_filter(f"/a = 1 AND {name}() = 'x'")
    assert (error.value.position, bool(error.value.expected)) == (11, True)
    assert name not in FUNCTIONS


@all_cases("name", FUNCTIONS)
def test_what_a_call_stands_for_stands_where_it_is_written(name):
    if (stands_for := FUNCTIONS[name].stands_for) is not None:
        right = parse(f"/a = {name}()").right
        assert {part.position for part in walk(right)} == {5}
        assert right == stands_for or right.value != right.value


def test_an_unknown_function_is_answered_with_the_nearest():
    with pytest.raises(BadFilter, match="did you mean TRUE_VALUE") as error:
        compile_filter("/a = TRUE_VALU()")
    assert error.value.position == 5


def test_an_unknown_function_like_no_other_is_answered_with_where_they_stand():
    with pytest.raises(BadFilter, match=r"known are those of docs/functions\.md"):
        compile_filter("XQZ9() = 1")


@all_cases("name", SLIPS)
def test_what_other_languages_call_a_function_is_answered_with_our_form(name):
    with pytest.raises(BadFilter) as caught:
        compile_filter(f"{name}(/a, /b) = 1")
    assert caught.value.expected == SLIPS[name]
    assert name not in FUNCTIONS.keys() | AGGREGATES.keys()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("TRUE_VALUE(1)", r"takes no arguments; 1 are given: write TRUE_VALUE\(\)"),
        ("ABS() = 1", r"takes 1 argument; 0 are given: write ABS\(x\)"),
        ("SUBSTR('a') = 1", r"takes 2 to 3 arguments; 1 are given"),
        ("CONCAT() = 1", r"takes 1 arguments or more; 0 are given"),
        ("STRPTIME(/a, /b) = 1", "format as a quoted text"),
        ("REGEXP_REPLACE(/a, '(', 'x') = 1", "regular expressions in RE2 syntax"),
        ("STRFTIME('%Q', /a) = 1", "%Q is not known"),
        ("STRPTIME(/a, '%Y %Y') = 1", "names something twice"),
        ("STRFTIME('%', /a) = 1", "is not known"),
    ],
)
def test_a_call_that_cannot_be_is_refused(text, why):
    with pytest.raises(BadFilter, match=why):
        compile_filter(text)


@pytest.mark.parametrize("levels", [50, 150])
def test_texts_that_double_do_not_take_the_memory_of_all(levels):
    text = "/a"
    for _ in range(8):
        text = f"CONCAT({text}, {text})"
    compiled = compile_filter(f"LENGTH({text}) > 0")
    assert compiled.truth(["x" * 4000]) is True
    assert compiled.truth(["x" * 5000]) is None
    with pytest.raises(ClientError):
        compile_filter(f"{'CONCAT(' * levels * 5}/a{')' * levels * 5} = 1")


@pytest.mark.parametrize("name", MESSAGE_FUNCTIONS)
def test_a_function_of_the_message_is_read_as_its_trait(name):
    for text in (f"{name}() = 1", f"{name.lower()} ( ) = 1"):
        assert parse(text).left == MessageTrait(Trait(name))
    condition = compile_filter(f"ABS({name}()) > /a OR {name}() IN (1, /b)")
    assert [str(path) for path in condition.paths] == ["/a", "/b"]
    assert condition.traits == (Trait(name),)
    assert condition.sources == (*condition.paths, *condition.traits)
    assert parse(str(condition.expression)) == condition.expression


def test_values_are_handed_over_behind_those_of_fields():
    condition = compile_filter("SOW_KEY() = /id AND MESSAGE_SIZE() > 3")
    assert condition.truth(["7", "7", 4]) is True
    assert condition.matches([["7", "7", "8"], ["7", "7", "7"], [4, 3, 4]], 3) == [
        *[True, False, False]
    ]


def test_every_trait_but_that_of_the_time_has_a_function_here():
    assert set(Trait) - MESSAGE_FUNCTIONS.keys() == {Trait.UNIX_TIMESTAMP}
    assert not NOT_KEPT.keys() & MESSAGE_FUNCTIONS.keys()
    assert traits_in(parse("/a = 1")) == ()
