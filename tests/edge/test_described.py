"""What is asked of every answer in the tests of the edge finds what is not described."""

import pytest

from tests.edge.described import DESCRIBED
from tests.edge.serving import records

PROBLEM, JSON = "application/problem+json", "application/json"


@pytest.mark.parametrize(
    ("method", "path", "status", "kind"),
    [
        ("GET", "/v1/topics", 200, JSON),
        ("HEAD", records("a/b", filter="/x > 1"), 200, "text/csv; charset=utf-8"),
        ("GET", f"{records('orders')}/12", 304, ""),
        ("GET", f"{records('orders')}/12", 200, "application/octet-stream"),
        ("POST", records("orders"), 415, PROBLEM),
        ("GET", "/nowhere", 404, PROBLEM),
        ("DELETE", "/v1/topics", 405, PROBLEM),
        ("OPTIONS", "/v1/topics", 204, ""),
    ],
)
def test_what_is_described_is_let_through(method, path, status, kind):
    assert DESCRIBED.lacks(method, path, status, kind) is None


@pytest.mark.parametrize(
    ("method", "path", "status", "kind"),
    [
        ("GET", "/v1/topics", 410, PROBLEM),
        ("GET", "/v1/topics", 200, "text/csv"),
        ("GET", "/v1/topics", 404, PROBLEM),
        ("POST", records("orders"), 201, JSON),
        ("GET", records("orders"), 400, "text/plain"),
        ("GET", "/nowhere", 200, JSON),
    ],
)
def test_what_is_not_described_is_found(method, path, status, kind):
    assert f"{method} {path.partition('?')[0]}: {status}" in DESCRIBED.lacks(
        method, path, status, kind
    )
