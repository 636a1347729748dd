"""What kind of file a name means, and rows of Arrow as documents. Round trips: `test_dump.py`."""

import asyncio
import csv
import io
import json
import os
from types import SimpleNamespace

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.cli import table_files as module
from sow.cli.table_files import (
    CSV_FILE,
    ENDINGS,
    FILE_FORMS,
    JSON_TYPE,
    NDJSON_FILE,
    PARQUET_FILE,
    CsvFields,
    MessagePlaces,
    chunks,
    csv_tables,
    documents,
    form_of,
    lines,
    records,
    row_documents,
    rows_in,
)
from sow.errors import BadMessage, ClientError
from sow.messages.csv_rows import CsvReader
from tests.cases import all_cases


def test_the_end_of_a_name_says_what_it_is_unless_it_is_said():
    assert [form_of(f"x{end}", None) for end in ENDINGS] == list(ENDINGS.values())
    assert set(ENDINGS.values()) == set(FILE_FORMS)
    assert [form_of("x.csv", PARQUET_FILE), form_of("-", None), form_of("X.CSV", None)] == [
        PARQUET_FILE, NDJSON_FILE, CSV_FILE,
    ]  # fmt: skip
    with pytest.raises(ClientError, match="give --format"):
        form_of("orders", None)


def test_a_column_that_repeats_a_field_is_left_out_and_json_is_put_in_as_it_is():
    fields = [
        pa.field("order", pa.string(), metadata={"kind": "json"}),
        pa.field("/order/id", pa.int64(), metadata={"path": "/order/id"}),
        pa.field('a"%', pa.decimal128(5, 2)),
    ]
    batch = pa.record_batch([['{"id":1}', None], [1, None], [None, None]], pa.schema(fields))
    assert list(map(msgspec.json.decode, row_documents(batch))) == [{"order": {"id": 1}}, {}]
    assert row_documents(pa.RecordBatch.from_struct_array(pa.array([{}], pa.struct([])))) == [b"{}"]


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    ["7e10234", "9" * 400, "-1E+999", "1e5", "", "true", "[", "{}", "[1,]", "\0", "\r", '"', "NaN"]
)


@given(texts=st.lists(TEXTS, min_size=1, max_size=4))
def test_a_table_of_any_texts_says_which_are_read_otherwise(texts):
    fields = CsvFields()
    fields.look([msgspec.json.encode({"id": at, "v": text}) for at, text in enumerate(texts)])
    same = []
    for at, text in enumerate(texts):
        alone = CsvFields()
        row = msgspec.json.encode({"id": at, "v": text})
        alone.look([row])
        (read,) = csv_again(alone.header() + alone.lines([row]))
        assert (read == {"id": at, "v": text}) is (alone.changed == 0)
        same.append(alone.changed == 0)
    assert fields.changed == same.count(False)


def csv_again(text):
    reader = CsvReader(JSON_TYPE, None, text, 10_000)
    return [msgspec.json.decode(body) for some in reader.pieces() for body in some]


def test_a_short_hash_is_dumped_as_what_it_is():
    fields = CsvFields()
    fields.look([b'{"id":1,"commit":"7e10234"}'])
    assert fields.changed == 0


async def pieces(*parts):
    for part in parts:
        yield part


def read(cut, *parts):
    places = MessagePlaces()

    async def all_of():
        return [body async for found in cut(pieces(*parts), places) for body in found]

    return asyncio.run(all_of()), places


@given(st.lists(st.integers(0, 10**6), min_size=1), st.data())
def test_where_the_pieces_are_cut_changes_nothing(numbers, data):
    bodies = [b'{"id":%d}' % number for number in numbers]
    text = b"\n".join(bodies)
    at = data.draw(st.integers(0, len(text)))
    assert read(documents, text[:at], text[at:])[0] == bodies


@given(st.lists(st.dictionaries(st.text(), st.integers()), min_size=1))
def test_an_array_is_its_members_however_it_is_laid_out(values):
    text = json.dumps(values, indent=2).encode()
    assert [json.loads(body) for body in read(documents, text)[0]] == values


def test_a_document_over_several_lines_becomes_one_line():
    assert read(documents, b'{\n "px": 1.10,\n "b": [\n1]}\n')[0] == [b'{"px":1.10,"b":[1]}']


def test_lines_lose_their_carriage_return_and_blank_lines_are_left_out():
    assert read(lines, b"a\r\n\r\n \nb")[0] == [b"a", b"b"]


def test_blank_lines_count_in_a_place():
    _, places = read(lines, b"a\n\n\nb\nc")
    assert [places.name(index) for index in range(3)] == ["line 1", "line 4", "line 5"]


def test_a_place_in_an_array_is_the_number_of_the_message():
    _, places = read(documents, b"[{},\n\n{}]")
    assert places.name(1) == "message 2"


def test_a_broken_first_line_is_still_a_line():
    assert read(documents, b"{nonsense}\n{}\n")[0] == [b"{nonsense}", b"{}"]


def test_a_broken_array_says_so():
    with pytest.raises(BadMessage, match="not a JSON array"):
        read(documents, b"[{},")


def test_nothing_is_no_message():
    assert read(documents, b" \n")[0] == []


def test_lines_of_a_pipe_arrive_before_it_ends():
    reading, writing = os.pipe()

    async def read_all():
        with os.fdopen(reading, "rb") as source:
            arriving = lines(chunks(source), MessagePlaces())
            os.write(writing, b"a\nb\n")
            first = await anext(arriving)
            os.write(writing, b"c")
            os.close(writing)
            return [first, *[found async for found in arriving]]

    assert asyncio.run(read_all()) == [[b"a", b"b"], [b"c"]]


def test_what_cannot_be_read_is_an_error(tmp_path):
    descriptor = os.open(tmp_path, os.O_RDONLY)
    source = SimpleNamespace(fileno=lambda: descriptor)

    async def read_all():
        return [piece async for piece in chunks(source)]

    with pytest.raises(IsADirectoryError):
        asyncio.run(read_all())
    os.close(descriptor)


def test_a_source_without_a_descriptor_is_read():
    async def all_of():
        return [piece async for piece in chunks(io.BytesIO(b"abc"))]

    assert asyncio.run(all_of()) == [b"abc"]


def test_records_end_with_lines_and_with_u0001():
    found, places = read(records, b"1\x02A\x012\x02", b"B\x01\n3\n\n")
    assert found == [b"1\x02A", b"2\x02B", b"3"]
    assert places.name(1) == "message 2"


MARK = b"\xef\xbb\xbf"


@all_cases("cut", [lines, documents, records])
@all_cases("at", range(6))
def test_a_byte_order_mark_is_no_part_of_the_first_message(cut, at):
    text = MARK + b'{"a":1}\n{"a":2}\n'
    assert read(cut, text[:at], text[at:])[0] == [b'{"a":1}', b'{"a":2}']
    assert read(cut, MARK)[0] == read(cut, MARK[:2], MARK[2:])[0] == []


def test_an_array_may_have_a_byte_order_mark_and_half_a_mark_is_none():
    assert read(documents, MARK + b'[{"a":1}]')[0] == [b'{"a":1}']
    assert read(lines, MARK[:2])[0] == [MARK[:2]]


CELLS = st.text(alphabet='a",\n\r ä', max_size=4)


def tables_of(*pieces):
    async def source():
        for piece in pieces:
            yield piece

    async def all_of():
        return [table async for table in csv_tables(source())]

    return asyncio.run(all_of())


def cells_of(text):
    return [row for row in csv.reader(io.StringIO(text.decode(), newline=""), strict=True) if row]


@given(
    st.lists(st.lists(CELLS, min_size=2, max_size=2), min_size=1),
    st.integers(1, 7),
    st.integers(1, 3),
    st.sampled_from(["\n", "\r\n"]),
)
def test_tables_hold_all_rows_each_once(rows, piece_bytes, rows_max, end):
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator=end, quoting=csv.QUOTE_ALL).writerows([["n", "m"], *rows])
    text = out.getvalue().encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "TABLE_ROWS_MAX", rows_max)
        pieces = [text[at : at + piece_bytes] for at in range(0, len(text), piece_bytes)]
        tables = [cells_of(table) for table, _ in tables_of(*pieces)]
    assert all(table[0] == ["n", "m"] for table in tables)
    assert all(1 <= len(table) - 1 <= rows_max for table in tables)
    assert [row for table in tables for row in table[1:]] == rows


def test_a_last_line_needs_no_end_and_without_rows_there_is_no_table():
    assert tables_of(b"id,v\n1,2") == [(b"id,v\n1,2\n", 4)]
    assert tables_of(b"id,v\n") == tables_of(b"id,v") == tables_of() == []


def test_what_cannot_be_read_is_handed_on_to_be_refused(monkeypatch):
    assert tables_of(b'id\n1\n"2\n', b"3\n") == [(b"id\n1\n", 2), (b'id\n"2\n3\n', 5)]
    monkeypatch.setattr(module, "CSV_ROW_CHARS_MAX", 3)
    assert rows_in(b'1\n"22', is_over=False) == ([b"1\n"], b'"22')
    assert rows_in(b'1\n"2222', is_over=False) == ([b"1\n", b'"2222'], b"")
