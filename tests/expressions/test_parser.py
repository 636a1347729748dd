import pickle
import sys
import tracemalloc

import pytest

from sow.core.paths import Path
from sow.errors import BadFilter, TooLarge
from sow.expressions import And, Compare, Identifier, In, IsNull, Like, Literal, Not, Or, parse
from sow.expressions import parser as module
from sow.expressions.parser import FIELDS_MAX, TERMS_MAX
from tests.cases import all_cases

A = Identifier(Path(("a",)))
A1 = Compare("=", A, Literal(1))
B2 = Compare("=", Identifier(Path(("b",))), Literal(2))


@all_cases(
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


@all_cases(
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


def test_a_filter_has_so_many_terms_at_most() -> None:
    tests = TERMS_MAX // 4
    many = " OR ".join(["/a = 1"] * tests)
    assert parse(many)
    with pytest.raises(TooLarge, match=f"more than {TERMS_MAX} terms") as error:
        parse(f"{many} OR /b = 1")
    # One comparison has three terms, and each OR before it one.
    assert error.value.position == len(many) + len(" OR ")
    with pytest.raises(TooLarge, match="more than 3 terms"):
        parse("/a = 1 OR /b = 2", terms_max=3)


@pytest.mark.parametrize("words", ["IN", "NOT IN", "BEGINS WITH", "NOT ENDS WITH"])
def test_a_list_of_literals_is_one_term(words) -> None:
    members = ", ".join(f"'{at}'" for at in range(TERMS_MAX))
    assert parse(f"/a {words} ({members})", terms_max=4)
    with pytest.raises(TooLarge):
        parse(f"/a {words} ({members}, /b)")


LISTS = [
    "(1)",
    "( 1 ,2.5,\t.5 , 1e3,1.e-2 , 1E+5,-1, +2, - 3 )",
    "('a', \"b\", r'\\d', R\"'\", 'it\\'s', 'a,b)', '(', '')",
    "(NULL, null, 'NULL')",
    "('\\x41', '\\303\\251', 'é')",
    "(00012345678901234567890123, -0.0, 1e999)",
    "(7.)",
]


@pytest.mark.parametrize("members", LISTS)
def test_a_list_of_literals_holds_what_its_members_say(members) -> None:
    """One member in parentheses makes the list one of expressions, read word by word."""
    plain = parse(f"/a IN {members}")
    word_by_word = parse(f"/a IN {members[:-1]}, (1))")
    assert list(map(repr, plain.members)) == list(map(repr, word_by_word.members[:-1]))
    for one, other in zip(plain.members, word_by_word.members, strict=False):
        assert one.position == other.position


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("/a IN (1, 2", 11),
        ("/a IN (1 2)", 9),
        ("/a IN ()", 7),
        ("/a IN (1,)", 9),
        ("/a IN (1, 'x)", 10),
        ("/a IN (1, 2)) OR /b", 12),
        ("/a IN (1, 5x)", 11),
        (r"/a IN (1, '\xff')", 10),
        ("/a IN 5", 6),
    ],
)
def test_a_mistake_in_a_list_is_found_where_it_is(text, position) -> None:
    with pytest.raises(BadFilter) as error:
        parse(text)
    assert error.value.position == position


@pytest.mark.parametrize("member", ["12345678901234567", "'a'", "r'a'", "- 1.5e-7"])
def test_a_list_that_ends_in_something_else_is_read_in_linear_time(member) -> None:
    with pytest.raises(TooLarge):
        parse(f"/a IN ({', '.join([member] * 3000)}, /b)")
    with pytest.raises((TooLarge, BadFilter)):
        parse(f"/a IN ({', '.join([member] * 3000)}")


# Saved tables.


@pytest.fixture
def tables(tmp_path, monkeypatch):
    """Writes other tables, for the parsers of this test."""

    def save(content):
        file = tmp_path / "tables"
        if content is not None:
            file.write_bytes(content)
        monkeypatch.setattr(module, "TABLES", file)
        module._parser.cache_clear()
        return module.saved_tables()

    yield save
    module._parser.cache_clear()


def test_the_saved_tables_are_those_of_the_grammar():
    # They hold the grammar that they are made of; Lark numbers the states anew each time.
    saved, made = module.saved_tables(), pickle.loads(module.tables())
    assert saved is not None, "the grammar or Lark has changed; run: make docs"
    states = [len(one["data"]["parser"]["parser"]["states"]) for one in (saved, made)]
    assert states[0] == states[1]
    assert saved["data"]["rules"] == made["data"]["rules"]


OTHERS = [
    None,
    b"",
    b"no pickle",
    pickle.dumps({"made_of": ('start: "x"', module.lark_version, module.PARSER_OPTIONS)}),
    pickle.dumps({"made_of": (module._grammar(), "0.1", module.PARSER_OPTIONS)}),
]


@pytest.mark.parametrize("content", OTHERS)
def test_tables_of_another_grammar_or_lark_are_not_used(tables, content):
    text = "NOT /a = 1 AND /b IN (1, 'x') OR /c LIKE 'y'"
    by_tables = parse(text)
    with pytest.raises(BadFilter) as refused:
        parse("/a = = 1")
    assert tables(content) is None
    assert parse(text) == by_tables
    with pytest.raises(BadFilter) as again:
        parse("/a = = 1")
    assert str(again.value) == str(refused.value)


@pytest.mark.parametrize("cut", [0, 1, 100, 20_000])
def test_damaged_tables_are_made_again(monkeypatch, tmp_path, cut):
    whole, damaged = module.TABLES.read_bytes(), tmp_path / "grammar.tables"
    damaged.write_bytes(whole[:cut] + b"\xff" + whole[cut + 1 : -1])
    monkeypatch.setattr(module, "TABLES", damaged)
    assert module.saved_tables() is None


@all_cases(
    "hostile",
    [
        "/a = '" + "x" * 65_000,
        '/a = "' + "x" * 65_000,
        "/a = '" + r"\'" * 32_000,
        "$['" + "x" * 65_000,
        "(" * 65_000,
        ")" * 65_000,
        "/a = " + "9" * 65_000 + " x",
        "NOT " * 16_000,
    ],
)
def test_a_hostile_text_is_refused_without_much_work(hostile):
    """The stack of a regular expression that tries again and again is memory, and counts as
    such."""
    calls = [0]

    def refused():
        with pytest.raises((BadFilter, TooLarge)):
            parse(hostile)

    def count(_frame, event, _argument):
        calls[0] += event in ("call", "c_call")

    refused()
    tracemalloc.start()
    try:
        refused()
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    sys.setprofile(count)
    try:
        refused()
    finally:
        sys.setprofile(None)
    assert peak_bytes < 1024**2
    assert calls[0] < 8 * TERMS_MAX
