"""Records as tables."""

import sys

import pyarrow as pa
import pytest

from sow.client.tables import from_stream, to_arrow, to_pandas, to_polars
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


def test_without_polars_it_is_said_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(ClientError, match="pip install polars, or use to_arrow"):
        to_polars(to_arrow([]))


def test_a_stream_is_read_as_a_table():
    table = to_arrow([{"id": 1}])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    assert from_stream(sink.getvalue().to_pybytes()).equals(table)
