"""Arrow tables as bytes and back."""

import pyarrow as pa
import pytest

from conflated_topics.ipc import from_ipc, to_ipc

TABLES = {
    "rows": pa.table({"key": ["a", None], "at": pa.array([1, 2], pa.timestamp("us", "UTC"))}),
    "no rows": pa.table({"key": pa.array([], pa.string())}),
    "no columns": pa.table({}),
    "several batches": pa.concat_tables([pa.table({"n": [1]}), pa.table({"n": [2, 3]})]),
    "a dictionary": pa.table({"key": pa.array(["a", "b", "a"]).dictionary_encode()}),
}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_a_table_comes_back_as_it_was(table):
    back = from_ipc(to_ipc(table))
    assert back.schema == table.schema
    assert back.to_pydict() == table.to_pydict()


def test_what_is_no_stream_is_refused():
    with pytest.raises(pa.ArrowInvalid):
        from_ipc(b"PAR1")
