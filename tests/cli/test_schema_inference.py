"""What a file of data suggests for a topic."""

import datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sow.cli.schema_inference import SAMPLE_BYTES, sample
from sow.errors import ClientError


def written(folder, name, text):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def test_csv(tmp_path):
    text = "px,symbol,qty,at,day,ok,nothing\n1.5,A,3,2024-01-01T00:00:00Z,2024-01-01,true,\n2,B,4,2024-01-02T00:00:00Z,2024-01-02,false,\n"  # noqa: E501
    found = sample(written(tmp_path, "my day.csv", text))
    assert (found.name, found.keys, found.rows) == ("my-day", ["/symbol"], 2)
    assert found.types == {
        "/px": "float64", "/symbol": "string", "/qty": "int64", "/at": "timestamp", "/day": "date",
        "/ok": "bool",
    }  # fmt: skip


def test_json_lines_with_objects_and_lists(tmp_path):
    text = (
        '{"order":{"id":7,"px":1.5},"legs":[1],"note":null}\n{"order":{"id":8,"px":2},"legs":[]}\n'
    )
    found = sample(written(tmp_path, "orders.ndjson", text))
    assert found.keys == ["/order/id"]
    assert found.types == {"/order/id": "int64", "/order/px": "float64", "/legs": "json"}


def test_parquet(tmp_path):
    path = str(tmp_path / "day.parquet")
    columns = {
        "ts": [datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)] * 3,
        "sym": pa.array(["A", "B", "A"]).dictionary_encode(),
        "px": [Decimal("1.25"), Decimal("2.50"), None],
        "big": pa.array([1, 2, 3], pa.uint64()),
        "raw": pa.array([b"x", b"y", b"z"]),
    }
    pq.write_table(pa.table(columns), path)
    found = sample(path)
    assert found.types == {"/ts": "timestamp", "/sym": "string", "/px": "decimal(3,2)"}
    assert found.keys == ["/sym"], "updates of the same records do not tell rows apart"


def test_times_finer_than_microseconds_are_texts(tmp_path):
    path = str(tmp_path / "ns.parquet")
    pq.write_table(pa.table({"id": [1], "at": pa.array([1], pa.timestamp("ns"))}), path)
    assert sample(path).types == {"/id": "int64", "/at": "string"}


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("a,b\n1,1\n1,2\n", ["/b"]),  # the only one that tells rows apart
        ("a,order_id\n1,5\n2,6\n", ["/order_id"]),  # called as a key
        ("a,id\n1,\n2,6\n", ["/a"]),  # not in every row
        ("a,b\n1,1\n1,1\n", []),
        ("px\n1.5\n2.5\n", []),  # nobody is known by a price
    ],
)
def test_the_key_reports_rows_apart_or_is_called_so(tmp_path, text, keys):
    assert sample(written(tmp_path, "x.csv", text)).keys == keys


def test_a_name_is_a_path_or_stands_in_one(tmp_path):
    found = sample(written(tmp_path, "x.csv", "id,a/b,/c/d,e f,/\n1,2,3,4,5\n"))
    assert list(found.types) == ["/id", "$['a/b']", "/c/d", "[/e f]", "$['']"]


def test_of_a_long_file_the_first_lines_are_read(tmp_path):
    line = b'{"id":1,"pad":"' + b"x" * 1000 + b'"}\n'
    lines = SAMPLE_BYTES // len(line)
    found = sample(written(tmp_path, "long.ndjson", line * (lines + 5) + b'{"id":"not a number"'))
    assert (found.rows, found.types["/id"]) == (lines, "int64")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("x.txt", "", "is not one of .parquet, .csv, .ndjson"),
        ("x.parquet", "no parquet", "cannot be read as Parquet"),
        ("x.ndjson", '{"a":1}\n{"a":"x"}\n', "cannot be read as JSON lines"),
        ("x.csv", "", "has no columns"),
        ("x.csv", 'a,b\n1,"2\n', "cannot be read as CSV"),
        ("x.csv", b"a,b\n1,\xe9\n", "is not UTF-8; save it as UTF-8"),
        ("x.csv", b"\xff\xfea\x00,\x00b\x00", "is not UTF-8; save it as UTF-8"),
        ("x.csv", "\n\na,b\n1,2\n", "begins with a blank line"),
        ("x.csv", "\ufeffid;b\n1;2,5\n", "one column, 'id;b'; if semicolons stand between"),
        ("x.csv", "sep=;\nid;b\n1;2\n", "one column, 'sep=;'; if semicolons stand between"),
        ("x.csv", "id\tb\n1\t2\n", "if tabs stand between its cells, save it with commas"),
        ("x.csv", "id|b\n1|2\n", "if bars stand between its cells, save it with commas"),
        ("x.csv", "a,b,a\n1,2,3\n", "has the column 'a' twice"),
        ("x.csv", "a,b\n1,2,3\n", "a row of 3 cells, and 2 columns; it begins with '1'"),
    ],
)
def test_what_is_no_data_is_refused(tmp_path, name, content, said):
    with pytest.raises(ClientError, match=said):
        sample(written(tmp_path, name, content))


def test_a_long_file_may_be_cut_within_a_row(tmp_path, monkeypatch):
    monkeypatch.setattr("sow.cli.schema_inference.SAMPLE_BYTES", 30)
    found = sample(written(tmp_path, "x.csv", 'id,note\n1,a\n2,"b\nc\nd\ne\nf\ng\nh"\n'))
    assert found.types["/id"] == "int64"


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path):
    assert sample(written(tmp_path, "x.csv", "\ufeffid\n1\n2\n")).keys == ["/id"]
    assert sample(written(tmp_path, "x.ndjson", '\ufeff{"id":1}\n{"id":2}\n')).keys == ["/id"]
