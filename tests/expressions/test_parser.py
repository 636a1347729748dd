import pytest

from sow.errors import BadFilter, TooLarge
from sow.expressions import And, Compare, Identifier, In, IsNull, Like, Literal, Not, Or, parse
from sow.expressions.parser import FIELDS_MAX
from sow.paths import Path

A = Identifier(Path(("a",)))
A1 = Compare("=", A, Literal(1))
B2 = Compare("=", Identifier(Path(("b",))), Literal(2))


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("/a == 1", "/a = 1"),
        ("/a <> 1", "/a != 1"),
        ("/a not in (1, /b)", "NOT /a IN (1, /b)"),
        ("/a Is Not Null", "NOT /a IS NULL"),
        ('/a NOT LIKE "x\'y"', r"NOT /a LIKE 'x\'y'"),
        ("/a NOT BETWEEN 1 AND 2 AND /b", "NOT /a BETWEEN 1 AND 2 AND /b != 0"),
        ("((/a)) = (1)", "/a = 1"),
        ("(/a = 1 or /b = 2) and true_value()", "(/a = 1 OR /b = 2) AND TRUE_VALUE() != 0"),
        ("/qty>10", "/qty > 10"),
        ("/a-b<-5", "/a-b < -5"),
        ("/a.b:c@d=1", "/a.b:c@d = 1"),
        ("/Order/@update = 1", "/Order/@update = 1"),
        ("/55='x'", "/55 = 'x'"),
        ("NOT(/a=1)AND(/b=2)", "NOT /a = 1 AND /b = 2"),
        ("[/odd name][3] = 1", "[/odd name][3] = 1"),
    ],
)
def test_synonyms_and_spacing_make_no_difference(text, canonical):
    assert str(parse(text)) == canonical


def test_and_binds_tighter_than_or_and_not_tightest():
    assert parse("NOT /a = 1 OR /a = 1 AND /b = 2") == Or((Not(A1), And((A1, B2))))


def test_a_chain_is_one_node():
    assert parse("/a = 1 AND /b = 2 AND /a = 1") == And((A1, B2, A1))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("42", 42),
        ("-273", -273),
        ("18446744073709551610", 18446744073709551610),
        ("6.022E23", 6.022e23),
        ("31.4e-1", 3.14),
        (".5", 0.5),
        ("1e999", float("inf")),
        (r"'a\tb\x41\101\q\'\\'", "a\tbAAq'\\"),
        (r"'\xc3\xa9'", "é"),
        (r"r'\d'", "\\d"),
        ('R"\'"', "'"),
        ("'a\nb'", "a\nb"),
        ("NULL", None),
        ("FALSE_VALUE()", False),
    ],
)
def test_a_literal_has_its_value(text, value):
    literal = parse(f"/a = {text}").right
    assert literal == Literal(value)
    assert type(literal.value) is type(value)


def test_nodes_know_where_they_stand():
    node = parse("/a = 1 AND NOT /bc IN (2, 'x')")
    _, negated = node.operands
    assert (negated.position, negated.operand.position) == (11, 15)
    assert [member.position for member in negated.operand.members] == [23, 26]


def test_every_kind_of_test_is_its_own_node():
    kinds = [type(parse(f"/a {rest}")) for rest in ("> 1", "IN (1)", "LIKE 'x'", "IS NULL")]
    assert kinds == [Compare, In, Like, IsNull]


def test_a_string_that_is_not_utf8_is_refused():
    with pytest.raises(BadFilter, match="UTF-8") as error:
        parse(r"/a = '\xff'")
    assert error.value.position == 5


def test_a_filter_over_the_size_limit_is_refused():
    with pytest.raises(TooLarge, match="11 bytes and the limit is 10"):
        parse("/a = 'éé'", bytes_max=10)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 201 + "/a" + ")" * 201,
        "NOT " * 200 + "/a",
        "NOT NOT (" * 150 + "/a" + ")" * 150,
        "/a AND (/a OR (" * 101 + "/a" + "))" * 101,
        "NOT (/a) IN (" * 201,
    ],
)
def test_deep_nesting_is_refused(text):
    with pytest.raises(TooLarge, match="200 levels"):
        parse(text)


@pytest.mark.parametrize("opening", ["(", "NOT ", "/a AND (", "((", "IF("])
def test_nesting_without_end_is_an_error_and_not_a_crash(opening):
    text = opening * 20_000 + "/a"
    with pytest.raises(TooLarge):
        parse(text, bytes_max=10**7, depth_max=10**6)


@pytest.mark.parametrize("text", ["(" * 200 + "/a" + ")" * 200, "NOT " * 199 + "/a"])
def test_nesting_up_to_the_limit_is_understood(text):
    assert parse(text)


def test_parentheses_side_by_side_do_not_nest():
    assert len(parse(" AND ".join(["(/a = 1)"] * 300)).operands) == 300


def test_parentheses_in_strings_and_names_do_not_nest():
    assert parse("/a = '((((' AND /b = r\"((\\\" AND [/odd (( name] = 1", depth_max=3)


@pytest.mark.parametrize("text", ["'" + "\\'" * 32_000, "[/" * 32_000, "'\"" * 32_000])
def test_text_that_never_closes_is_refused_in_linear_time(text):
    with pytest.raises(BadFilter):
        parse(text)


def test_a_filter_names_so_many_different_fields_at_most():
    names = " OR ".join(f"/f{at} = 1" for at in range(FIELDS_MAX))
    assert parse(f"{names} OR /f0 = 2")
    with pytest.raises(TooLarge, match="different fields") as error:
        parse(f"{names} OR /g = 1 OR /h = 1")
    assert error.value.position == len(names) + 4
