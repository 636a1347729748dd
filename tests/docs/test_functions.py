"""`GET /v1/functions` is what the table of functions says; docs/functions.md is generated."""

from sow.expressions import AGGREGATES, FUNCTIONS, described_functions


def test_what_is_answered_over_http_names_every_function_once():
    described = described_functions()
    assert [one["name"] for one in described] == sorted([*FUNCTIONS, *AGGREGATES])
    keys = {"name", "signature", "description", "null", "example", "result"}
    assert all(one.keys() == keys for one in described)
