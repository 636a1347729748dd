"""docs/functions.md is what the table of functions says."""

from sow.expressions import AGGREGATES, FUNCTIONS, described_functions
from tests.docs.functions import PAGE, page


def test_the_page_is_made_of_the_table():
    assert PAGE.read_text(encoding="utf-8") == page()


def test_what_is_answered_over_http_names_every_function_once():
    described = described_functions()
    assert [one["name"] for one in described] == sorted([*FUNCTIONS, *AGGREGATES])
    keys = {"name", "signature", "description", "null", "example", "result"}
    assert all(one.keys() == keys for one in described)
