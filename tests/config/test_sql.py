"""A slip in a query is seen without Spark, and no query is taken for a slip."""

from pathlib import Path

import pytest

from sow.config import loads
from sow.config.sql import problem

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
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
        "(SELECT 1 FROM source) UNION ALL (SELECT 'a\\'b' FROM source)",
        "FROM source |> WHERE a > 1",
        "SELECT ';' FROM source; -- that; is all\n;",
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
