"""Every refusal of an expression says where, and what could have stood there; none is an echo."""

import pytest

from sow.errors import BadFilter, ClientError, TooLarge
from sow.expressions import compile_fields, compile_filter
from tests.cases import all_cases
from tests.expressions.refusals import REFUSED


@all_cases(("text", "position"), REFUSED.values())
def test_a_refused_filter_says_where_and_what_was_expected(text, position):
    with pytest.raises(ClientError) as caught:
        compile_filter(text)
    error = caught.value
    assert error.fields() == {"position": position, "expected": error.expected}
    assert error.expected
    assert len(error.detail) < 400


@pytest.mark.parametrize(
    "text",
    [
        "x" * 60_000 + " = 1",
        "F" * 60_000 + "() = 1",
        "/a LIKE '" + "(" * 60_000 + "'",
        "/a = '" + r"\xff" * 15_000 + "'",
        "[" + "t" * 60_000 + "]./a = 1",
        "/a[" + "9" * 60_000 + "] = 1",
    ],
)
def test_a_refusal_is_no_echo(text):
    with pytest.raises(ClientError) as caught:
        compile_filter(text)
    assert len(caught.value.detail) + len(caught.value.expected) < 400


FIELDS = [
    ("/a", 2, BadFilter),
    ("/a + AS /b", 5, BadFilter),
    ("1 AS /b[1]", 5, BadFilter),
    ("1 + NOPE(/a) AS /b", 4, BadFilter),
    ("1 + ABS(1, 2) AS /b", 4, BadFilter),
    ("1 + SUM(/a) AS /t", 4, BadFilter),
    ("1 + CLIENT_NAME() AS /t", 4, BadFilter),
    ("1 AS /b" + " " * 5000, 4096, TooLarge),
]


@pytest.mark.parametrize(("text", "position", "kind"), FIELDS)
def test_a_refused_field_construction_says_so_too(text, position, kind):
    with pytest.raises(kind) as caught:
        compile_fields([text])
    assert (caught.value.position, bool(caught.value.expected)) == (position, True)
    assert len(caught.value.detail) < 400


def test_an_aggregate_is_suggested_too():
    with pytest.raises(BadFilter, match="did you mean COUNT") as caught:
        compile_filter("COUN(/a) = 1")
    assert caught.value.expected == "COUNT"
