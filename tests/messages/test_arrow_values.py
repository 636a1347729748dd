"""Values that were read already make columns that hold every one of them."""

import pyarrow as pa
import pytest

from sow.messages.arrow_values import column_of_values, table_of_documents


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (["a", None], pa.string()),
        ([["a", "b"], "c"], pa.string()),
        ([b"\0", None], pa.binary()),
        ([1, 2**70], pa.float64()),
        ([1, 2**70 + 1], pa.string()),
        ([2**53 + 1, 0.5], pa.string()),
        ([True, 1], pa.string()),
        ([10**400, 0.5], pa.string()),
    ],
)
def test_a_column_of_values(given, kind):
    assert column_of_values(given).type == kind


def test_fields_stand_in_order_of_first_appearance_and_are_null_where_absent():
    found = table_of_documents([{"b": 1}, {"a": "x", "b": None}])
    assert found.column_names == ["b", "a"]
    assert found.to_pylist() == [{"b": 1, "a": None}, {"b": None, "a": "x"}]
