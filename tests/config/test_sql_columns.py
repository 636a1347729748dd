"""A slip in a list of columns is seen without Spark, and no list of Spark's is taken for a slip."""

import pytest

from sow.config.sql_columns import NESTING_MAX, columns_problem

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


@pytest.mark.parametrize(("text", "says"), SLIPS)
def test_a_slip_is_seen(text, says):
    assert says in columns_problem(text)
