"""What holds of every expression, record and value."""

from hypothesis import given
from hypothesis import strategies as st

from sow.errors import ClientError
from sow.expressions import (
    Compare,
    Identifier,
    In,
    compile_term,
    parse,
    parser,
    pinned,
    sort_key,
)
from sow.expressions.nodes import Literal
from sow.expressions.values import compare
from tests.effort import examples

from . import naive
from .strategies import PATHS, expressions, literals, operators, records, scalars, values


@examples(90)
@given(expressions, records)
def test_generated_code_agrees_with_a_naive_interpreter(expression, record):
    compiled = compile_term(expression)
    outcome = compiled.truth([record[path] for path in compiled.sources])
    assert outcome is naive.truth(expression, record)


@given(expressions, st.lists(records, max_size=4))
def test_a_batch_matches_where_the_expression_is_true(expression, batch):
    compiled = compile_term(expression)
    columns = [[record[path] for record in batch] for path in compiled.sources]
    expected = [naive.truth(expression, record) is True for record in batch]
    assert compiled.matches(columns, len(batch)) == expected


@given(expressions)
def test_printing_and_parsing_again_gives_the_same_expression(expression):
    assert parse(str(expression)) == expression


@given(expressions, records)
def test_the_conjuncts_together_say_what_the_whole_says(expression, record):
    whole = naive.truth(expression, record) is True
    terms = compile_term(expression).conjuncts
    assert all(naive.truth(term, record) is True for term in terms) == whole


@given(expressions, records)
def test_a_match_equals_one_of_the_literals_its_path_is_pinned_to(expression, record):
    if naive.truth(expression, record) is not True:
        return
    for path, found in filter(None, map(pinned, compile_term(expression).conjuncts)):
        assert any(compare("=", record[path], literal) for literal in found)


@given(values, st.lists(literals, min_size=1, max_size=4))
def test_in_says_what_the_chain_of_equals_says(value, members):
    record = {PATHS[0]: value}
    chain = [naive.truth(Compare("=", Identifier(PATHS[0]), m), record) for m in members]
    inside = compile_term(In(Identifier(PATHS[0]), tuple(members)))
    assert inside.truth([value]) is naive.or_all(chain)


@given(operators, scalars, scalars)
def test_a_comparison_and_its_mirror_image_agree(operator, a, b):
    mirrored = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(operator, operator)
    assert compare(operator, a, b) is compare(mirrored, b, a)


@given(scalars, literals)
def test_a_value_is_below_equal_or_above_unless_it_is_null_or_nan(value, literal):
    outcomes = [compare(operator, value, literal.value) for operator in ("<", "=", ">")]
    assert outcomes.count(True) == 1 or set(outcomes) in ({None}, {False})


@given(st.lists(values))
def test_any_values_sort_with_nulls_first_and_numbers_before_strings(column):
    ranks = [sort_key(value)[0] for value in sorted(column, key=sort_key)]
    assert ranks == sorted(ranks)


@given(st.text(min_size=1))
def test_any_text_survives_as_a_string_literal(text):
    assert parse(str(Compare("=", Literal(text), Literal(text)))).left.value == text


@given(st.text(alphabet="/ab [](),'\"=<>!0.-eANDORINOT\\", max_size=30))
def test_any_text_at_all_compiles_or_is_refused_with_a_reported_error(text):
    position = 0
    try:
        compile_term(parse(text))
    except ClientError as error:
        position = getattr(error, "position", 0)
    assert 0 <= position <= len(text)


@examples(90)
@given(expressions, st.randoms(use_true_random=False))
def test_the_loop_reads_what_lark_reads_and_nothing_else(expression, draw):
    text = str(expression)
    at = draw.randrange(len(text) + 1)
    broken = text[:at] + draw.choice(["", "(", ")", ",", "'", " AND ", " 1 "]) + text[at + 1 :]
    for one in (text, broken):
        limits = parser._Limits("filter", parser.BYTES_MAX, parser.EXPRESSION_DEPTH_MAX)
        try:
            by_lark = repr(parser._explained(one, "start", limits))
        except ClientError:
            by_lark = None
        try:
            read = parser._tables().read(one, "start", limits)
        except ClientError:
            read = None
        assert (None if read is None else repr(read)) == by_lark
