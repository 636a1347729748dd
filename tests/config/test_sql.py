"""A slip in a query is seen without Spark, and no query is taken for a slip."""

from pathlib import Path

import pytest

from sow.config import loads
from sow.config.sql import NESTING_MAX, columns_problem, problem
from tests.cases import all_cases

ROOT = Path(__file__).parents[2]


@all_cases(
    ("text", "says"),
    [
        ("SELEC * FROM source", "begins with selec"),
        ("", "begins with nothing"),
        ("SELECT count(* FROM source", "line 1 a bracket is left open"),
        ("SELECT a\nFROM source)", "line 2 a bracket is closed"),
        ("SELECT 'a FROM source", "a quote ' is left open"),
        ("SELECT `a FROM source", "a quote ` is left open"),
        ("SELECT /* a FROM source", "a comment /* is left open"),
        ("SELECT * FROM sorce", "does not read source"),
        ("SELECT * FROM source;\nSELECT 1", "line 2 a second statement begins"),
        ("SELECT * FROM source; (SELECT 1)", "a second statement begins"),
        ("SELECT", "it ends with SELECT, and something has to follow"),
        ("SELECT a FROM source WHERE", "it ends with WHERE"),
        ("SELECT a FROM source WHERE a >= ;", "it ends with >="),
        ("SELECT a FROM source ORDER BY a,", "it ends with ,"),
        ("SELECT a FROM source WHERE a IN", "it ends with IN"),
        ("SELECT a FROM source UNION ALL", "it ends with ALL"),
        ("SELECT a FROM source WHERE a IS", "it ends with IS"),
        ("SELECT a FROM source GROUP", "it ends with GROUP"),
        ("SELECT a FROM source LEFT", "it ends with LEFT"),
        ("WITH x AS (SELECT (a) FROM source)", "the query has to follow"),
        ("SELECT a,\nFROM source", "line 2 FROM follows ,"),
        ("SELECT FROM source", "FROM follows SELECT"),
        ("SELECT a FROM WHERE a > 1", "WHERE follows FROM"),
        ("SELECT a FROM source WHERE a = AND b", "AND follows ="),
        ("SELECT count(a,) FROM source", ") follows ,"),
        ("SELECT f(,a) FROM source", "line 1 , follows ("),
        ("SELECT CASE WHEN a THEN 1 FROM source", "a CASE has no END"),
    ],
)
def test_a_slip_is_seen(text, says):
    assert says in problem(text, ["source"])


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM source",
        "-- it's all (there is\nSELECT ')' a, \"(\" b, `(` c /* ( */ FROM `source`",
        "WITH x AS (SELECT * FROM source) SELECT 'it''s' FROM x",
        "WITH x AS (SELECT (a) FROM source) (SELECT max(a) FROM x WHERE a IN (1))",
        "(SELECT 1 FROM source) UNION ALL (SELECT 'a\\'b' FROM source)",
        "FROM source |> WHERE a > 1",
        "SELECT ';' FROM source; -- that; is all\n;",
        "SELECT count(*), a.*, -1.5e-3 x, window.end, CASE WHEN a THEN 1 END `from` FROM source",
        "SELECT x -> x + 1, v:a.b::int, a <=> b, m['k'], trim(FROM a), order, limit FROM source",
        "SELECT a FROM source WHERE NOT a AND (b OR c IS DISTINCT FROM d) GROUP BY ALL",
        "SELECT *-- all\n EXCEPT (a) FROM source",
        "SELECT when, a AS by, x.on, in, 1 + then, case FROM source ORDER BY when, order",
        "SELECT struct(*), case_id FROM source TABLESAMPLE (10 PERCENT)",
    ],
)
def test_a_query_is_let_through(text):
    assert problem(text, ["source"]) == ""


def test_every_view_is_read_whatever_its_case():
    text = "SELECT * FROM Trades JOIN `names` USING (id)"
    assert problem(text, ["trades", "names"]) == ""
    assert problem(text, ["trades", "prices"]) == "it does not read prices"


def test_it_is_said_of_the_element():
    text = (ROOT / "config.xml").read_text()
    broken = text.replace("GROUP BY symbol, window(_ts, '1 minute')", "GROUP BY window(_ts")
    assert not loads(text).errors
    (found,) = loads(broken).errors
    assert (found.element, "a bracket is left open" in found.message) == ("SQL", True)


RIGHT = [
    "id long, px double",
    "id: long, px: double",
    "struct<id:long,leg:struct<q:int,tags:array<string>>>",
    "a struct<q:int,b array<array<string>>> NOT NULL COMMENT 'x, y', m map<string, decimal(10,2)>",
    "`a b` string collate utf8_binary not null, c VARCHAR(10), d char(2), e Timestamp_NTZ",
    "a interval, b interval year to month, c interval day, d struct<>, e variant, f time(6)",
    "a int, -- the first\n b int /* and, the second */",
    "1a int, _b binary",
]
SLIPS = [
    ("id lng", "the column id is lng, which is no type of Spark's; did you mean long?"),
    ("id long, px dobule", "did you mean double?"),
    ("id text", "there are boolean, "),
    ("", "a name is expected instead of nothing"),
    ("id", "the column id has no type"),
    ("id long,", "a name is expected instead of nothing"),
    ("id long px double", ", is expected instead of px, after the column id"),
    ("id long; px double", ", is expected instead of ;"),
    ("a-b int", "the column a has no type"),
    ("a int, a long", "two columns a"),
    (
        "a array",
        "< is expected instead of nothing, in the type of the column a: write array",
    ),
    ("a array<int", "> is expected instead of nothing"),
    ("a map<int>", ", is expected instead of >"),
    ("a struct<b lng>", "the column b is lng"),
    ("a decimal(10", "a bracket is left open"),
    ("a int not", "nothing follows NOT"),
    ("a interval day to week", "does not end in one of year"),
    ("struct<a:int> b", "unexpected b at the end"),
    ("a " + "array<" * (NESTING_MAX + 1), "deep"),
]


@pytest.mark.parametrize("text", RIGHT)
def test_a_list_of_columns_is_let_through(text):
    assert columns_problem(text) == ""


@all_cases(("text", "says"), SLIPS)
def test_a_slip_in_columns_is_seen(text, says):
    assert says in columns_problem(text)
