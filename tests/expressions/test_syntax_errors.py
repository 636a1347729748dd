import pytest

from sow.errors import BadFilter
from sow.expressions import parse
from sow.expressions.parser import parse_projected
from tests.cases import all_cases

VALUE = "a path, a literal or '('"


@all_cases(
    ("text", "position", "expected"),
    [
        ("", 0, VALUE),
        ("/a = ", 5, VALUE),
        ("/a = 1 AND", 10, VALUE),
        ("/a = 1 2", 7, "AND, OR or the end of the filter"),
        ("(/a = 1", 7, "')'"),
        ("/a = 1)", 6, "the end of the filter"),
        ("/a IN", 5, "'('"),
        ("/a IN ()", 7, VALUE),
        (
            "/a IN (1 2)",
            9,
            "an operator (= != < <= > >= + - * / % IN, LIKE, BETWEEN, BEGINS WITH, ENDS WITH, IS), "
            "AND, OR, ',' or ')'",
        ),
        ("/a NOT 5", 7, "BETWEEN, IN, LIKE, BEGINS WITH or ENDS WITH"),
        ("/a IS 5", 6, "NOT, NULL or NAN"),
        ("/a BETWEEN 1 OR 2", 13, "AND"),
        ("/a < /b < /c", 8, "AND, OR or the end of the filter"),
    ],
)
def test_an_error_names_its_place_and_what_was_expected(text, position, expected):
    with pytest.raises(BadFilter) as error:
        parse(text)
    assert error.value.fields() == {"position": position, "expected": expected}


def test_after_a_value_the_operators_are_expected():
    with pytest.raises(BadFilter) as error:
        parse("/a ? 2")
    assert error.value.expected.startswith("an operator (= != < <= > >= + - * / % IN,")


@all_cases(
    ("text", "advice"),
    [
        ("region = 'A'", "write /region"),
        ("order.px > 1", "write /order/px"),
        ("/a = 1 && /b = 2", "write AND"),
        ("/a = 1 || /b = 2", "write OR between conditions, and CONCAT"),
        ("/a = 1 | /b = 2", "write OR"),
        ("!/a", "write NOT"),
        ("/a = true", r"write TRUE_VALUE\(\)"),
        ("/a = 'x", "no closing quote"),
        (r"/a = 'x\'", "no closing quote"),
        ("/a IN r'x", "no closing quote"),
        ("/a = 'x' 'y'", "expected AND, OR or the end"),
        ("/a IN 'x' AND /b = 1", r"take parentheses; write \('x'\)"),
        ("/a NOT IN 5", r"write \(5\)"),
        ("/a ENDS WITH /b", r"write \(/b\)"),
        ("/a IN {5}", r"expected '\('$"),
        ("//a = 1", "one '/' before each name"),
        ("$..a = 1", "/order/id"),
        ("/a BEGINS 'x'", r"write BEGINS WITH \('text'\)"),
        ("/a CONTAINS 'x'", "write INSTR"),
        ("/a ILIKE 'x'", r"write LIKE '\(\?i\)pattern'"),
        ("/a RLIKE 'x'", "write LIKE 'pattern'"),
        ("/a LIKE 'x' ESCAPE '!'", "a pattern is a regular expression"),
        ("/a STARTS WITH 'x'", r"write BEGINS WITH \('text'\)"),
        ("CURRENT_TIMESTAMP > 1", r"write UNIX_TIMESTAMP\(\)"),
        ("/day = current_date", r"write TODAY\(\)"),
        ("`a` = 1", r"write a name with odd characters as \[/odd name\]"),
        ("/a IS TRUE", "after = and not after IS"),
        ("/a AS /b", "only a field that is made"),
        ("CASE /a WHEN 1 THEN 2 END", "write IF"),
    ],
)
def test_a_slip_from_another_language_gets_advice(text, advice):
    with pytest.raises(BadFilter, match=advice):
        parse(text)


def test_counting_everything_gets_our_form():
    for text, advice in [
        ("COUNT(*) AS /n", r"write COUNT\(1\)"),
        ("/a + count ( * ) AS /n", r"write COUNT\(1\)"),
        ("COUNT(DISTINCT /x) AS /n", r"write COUNT_DISTINCT\(/field\)"),
    ]:
        with pytest.raises(BadFilter, match=advice):
            parse_projected(text)


def test_a_topic_has_no_place_in_a_filter():
    with pytest.raises(BadFilter, match=r"\[orders\] at position 0 .*about one topic; write /a"):
        parse("[orders]./a = 1")
