"""`sow load`: what is wrong with a file is a sentence that says where; the rest is on the disk.

That each kind of file comes back as it was dumped is shown in `test_dump.py`.
"""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest


def test_a_load_says_how_many_records_are_on_the_disk(sow, server, tmp_path):
    file = tmp_path / "a.ndjson"
    file.write_text("".join(f'{{"id":{number}}}\n' for number in range(2500)))
    said = json.loads(sow.ok("load", "orders", str(file), "--json"))
    assert said["loaded"] == len(server.records("orders")) == 2500
    assert int(said["bookmark"]) > 0


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.ndjson", '{"id":1}\n\n{"no":2}\n', "line 3 of {}: key field /id is missing"),
        ("a.ndjson", "\x00\xff\n", "line 1 of {}: "),
        ("a.csv", "id,x\n1,1\n,2\n", "row 2 of {}: key field /id is missing"),
        ("a.csv", 'id,x\n1,"open\n', "row 1 of {}: "),
        ("a.csv", "id,id\n1,1\n", "the CSV has the column 'id' twice"),
        ("a.parquet", "PAR1 and then nothing", "{} is not a complete Parquet file: "),
        ("a.parquet", "", "{} is not a complete Parquet file: "),
        ("a.dat", "", "the name a.dat does not show its format"),
        ("a.ndjson", "x" * 3_000_000, "line 1 of {}: "),
    ],
)
def test_what_is_wrong_with_a_file_is_a_sentence_that_says_where(
    sow, server, tmp_path, name, text, said
):
    file = tmp_path / name
    file.write_text(text, encoding="latin-1")
    result = sow("load", "orders", str(file))
    assert result.exit_code == 1
    assert result.stderr.startswith("sow: " + said.format(file))
    assert len(result.stderr) < 2000
    assert server.records("orders") == []


def test_a_file_that_ends_within_a_line_is_sent_and_so_is_what_was_loaded(sow, server, tmp_path):
    file = tmp_path / "a.ndjson"
    file.write_text('{"id":1}\n{"id":2,"x')
    result = sow("load", "orders", str(file))
    assert (result.exit_code, result.stderr.startswith(f"sow: line 2 of {file}: ")) == (1, True)
    assert result.stderr.endswith("; loaded before it: 1 record\n")
    assert server.records("orders") == [{"id": 1}]


def test_a_parquet_file_that_was_cut_short_is_refused_as_a_whole(sow, server, tmp_path):
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": [1, 2, 3]}), file)
    file.write_bytes(file.read_bytes()[:-20])
    assert "was it written completely?" in sow("load", "orders", str(file)).stderr
    assert server.records("orders") == []


def test_a_row_of_a_table_is_named_and_what_came_before_is_counted(
    sow, server, tmp_path, monkeypatch
):
    monkeypatch.setattr("sow.cli.table_files.FILE_ROWS", 2)
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": [1, 2, 3, None]}), file)
    result = sow("load", "orders", str(file))
    assert result.stderr.startswith(f"sow: row 4 of {file}: key field /id is missing")
    assert result.stderr.endswith("; loaded before it: 2 records\n")
    assert len(server.records("orders")) == 2


def test_a_column_that_is_said_to_hold_json_and_does_not_is_named(sow, tmp_path):
    file = tmp_path / "a.parquet"
    schema = pa.schema(
        [pa.field("id", pa.int64()), pa.field("x", pa.string(), metadata={"kind": "json"})]
    )
    pq.write_table(pa.table({"id": [1, 2], "x": ["[1]", "[1"]}, schema), file)
    result = sow("load", "orders", str(file))
    assert "row 2 of" in result.stderr
    assert "the column x is declared as JSON, but holds something else" in result.stderr


INFINITE = float("inf")
NAN = float("nan")
NO_NUMBERS = [
    (pa.array([1.5, None, NAN]), None),
    (pa.array([1.5, None, -INFINITE], pa.float32()), None),
    (pa.array([1.5, None, INFINITE]).dictionary_encode(), None),
    (pa.array([[1.5], None, [1.0, NAN]]), [1.0, None]),
    (pa.array([{"n": 1.5}, None, {"n": INFINITE}]), {"n": None}),
]
"""Columns, and what stands in the last row of each where such a number is a null."""


@pytest.mark.parametrize(("column", "left"), NO_NUMBERS)
def test_a_number_that_json_has_not_is_refused_by_row_and_column(
    sow, server, tmp_path, column, left
):
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": [1, 2, 3], "px": column}), file)
    result = sow("load", "orders", str(file))
    said = f"sow: row 3 of {file}: the column px is NaN or infinite, which JSON cannot hold; "
    assert (result.exit_code, result.stderr.startswith(said)) == (1, True)
    assert server.records("orders") == []
    sow.ok("load", "orders", str(file), "--nan-as-null")
    last = server.records("orders")[2]
    assert last == ({"id": 3} if left is None else {"id": 3, "px": left})


def test_files_of_others_are_read_by_their_types(sow, server, tmp_path):
    file = tmp_path / "a.parquet"
    table = pa.table(
        {
            "id": pa.array(["a"]).dictionary_encode(),
            "at": pa.array([1_700_000_000_000_000], pa.timestamp("us", "UTC")),
            "q": pa.array([None], pa.int32()),
            "leg": pa.array([{"n": 1}]),
        }
    )
    pq.write_table(table, file)
    sow.ok("load", "orders", str(file))
    assert server.records("orders") == [
        {"id": "a", "at": "2023-11-14T22:13:20.000000Z", "leg": {"n": 1}}
    ]


def test_a_topic_that_is_not_there_or_takes_no_records_says_so(sow, tmp_path):
    for name, text in (("a.ndjson", '{"id":1}\n'), ("b.ndjson", "")):
        (tmp_path / name).write_text(text)
        assert "no topic 'nope'" in sow("load", "nope", str(tmp_path / name)).stderr
    assert sow("load", "orders-C", str(tmp_path / "a.ndjson")).exit_code == 1
    assert sow("load", "orders", str(tmp_path / "none.ndjson")).exit_code == 1


def test_a_row_that_is_refused_is_counted_from_the_start_of_the_file(sow, server, tmp_path):
    file, rows = tmp_path / "a.parquet", 1_500  # more than one request
    table = pa.table({"id": range(rows), "px": [*[1.0] * (rows - 1), NAN]})
    pq.write_table(table, file)
    result = sow("load", "orders", str(file))
    assert result.stderr.startswith(f"sow: row 1500 of {file}: the column px is NaN")
    assert result.stderr.endswith("; loaded before it: 1,000 records\n")
    assert len(server.records("orders")) == 1_000
