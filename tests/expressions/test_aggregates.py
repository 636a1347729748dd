"""The table of aggregates: each does what its examples say, and has its place in a projection."""

import pytest

from sow.core.paths import value_at
from sow.errors import BadFilter, ClientError
from sow.expressions import (
    AGGREGATES,
    FUNCTIONS,
    compile_fields,
    compile_filter,
    compile_projection,
    parse_order_by,
)
from sow.expressions.functions import EXAMPLE_RECORDS
from sow.topic.views.accumulators import Keeping
from tests.cases import all_cases

EXAMPLES = [one for function in AGGREGATES.values() for one in function.examples]


def row_of(text, records=EXAMPLE_RECORDS):
    """The row of a group of these records."""
    projection = compile_projection([text], ["/desk"], {"orders": "json"})
    columns = [[value_at(one, path.path) for one in records] for path in projection.inputs]
    values = [one.values(columns, len(records)) for one in projection.arguments]
    keeping, numbers = Keeping(projection), range(len(records))
    group = keeping.group()
    keeping.add([group] * len(records), values, numbers, numbers, numbers)
    return projection.document([columns[0][0]], group.results())


@all_cases("example", EXAMPLES)
def test_an_aggregate_does_what_its_example_says(example):
    (found,) = row_of(example.expression).values()
    assert repr(found) == repr(example.result)


@all_cases("name", AGGREGATES)
def test_an_aggregate_is_described_and_no_function_too(name):
    function = AGGREGATES[name]
    assert function.signature.startswith(f"{name}(")
    assert function.about
    assert function.null
    assert name in function.examples[0].expression
    assert name not in FUNCTIONS


@all_cases("name", AGGREGATES)
def test_an_aggregate_has_no_place_where_one_record_is_requested_about(name):
    for read in (
        lambda: compile_filter(f"/a > 1 AND {name}(/qty) > 1"),
        lambda: parse_order_by(f"{name}(/qty) DESC"),
        lambda: compile_fields([f"{name}(/qty) AS /total"]),
    ):
        with pytest.raises(BadFilter, match=rf"{name} at position .*projection=\[") as caught:
            read()
        assert caught.value.position is not None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("SUM(/a, /b) AS /x", r"SUM takes 1 argument; 2 are given: write SUM\(x\)"),
        ("SUM() AS /x", "SUM takes 1 argument; 0 are given"),
        ("GROUP_CONCAT(/a, /b) AS /x", "wants its separator as a quoted text"),
        ("GROUP_CONCAT(/a, 'x', 'y') AS /x", "takes 1 to 2 arguments"),
    ],
)
def test_a_call_that_cannot_be_is_refused_with_its_form(text, words):
    with pytest.raises(ClientError, match=words):
        row_of(text)
