"""`sow delete`: exactly one way of saying which records go."""

import json

import pytest


def rows(text):
    return [json.loads(line) for line in text.splitlines()]


def test_delete_by_filter_and_by_keys(sow, server, orders):
    orders({"id": 1}, {"id": 2}, {"id": 3})
    assert sow.ok("delete", "orders", "--filter", "/id = 1").startswith("deleted 1 ")
    (row,) = rows(sow.ok("watch", "orders", "--filter", "/id = 2", "--count", "1"))
    assert json.loads(sow.ok("delete", "orders", "--keys", row["k"], "--json")) == {"deleted": 1}
    assert server.records("orders") == [{"id": 3}]


@pytest.mark.parametrize("which", [(), ("--filter", "1=1", "--keys", "1")])
def test_neither_and_both_are_wrong_usage(sow, server, orders, which):
    orders({"id": 1})
    result = sow("delete", "orders", *which)
    assert (result.exit_code, "exactly one of --filter" in result.stderr) == (2, True)
    assert server.records("orders") == [{"id": 1}]


def test_what_is_not_there_is_no_error(sow):
    assert sow.ok("delete", "orders", "--keys", "1,2") == "deleted 0 records from orders\n"
