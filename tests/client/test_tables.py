"""Records as tables."""

import sys

import pytest

from sow.client.tables import to_arrow, to_pandas
from sow.errors import ClientError


def test_a_column_for_each_field_met_in_any_record():
    table = to_arrow([{"id": 1, "px": 1.5}, {"id": 2, "name": "x"}])
    assert set(table.column_names) == {"id", "px", "name"}
    assert table.column("px").to_pylist() == [1.5, None]


def test_a_record_that_is_no_object_stands_in_a_column_of_its_own():
    assert to_arrow(["a", "b"]).to_pydict() == {"value": ["a", "b"]}


def test_nothing_is_a_table_without_rows():
    assert to_arrow([]).num_rows == 0


def test_without_pandas_it_is_said_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)

    class Table:
        def to_pandas(self):
            import pandas

            return pandas

    with pytest.raises(ClientError, match="pip install pandas, or use to_arrow"):
        to_pandas(Table())
