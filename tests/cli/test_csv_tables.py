"""CSV is cut between rows, wherever the pieces of it end."""

import asyncio
import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.cli import csv_tables as module
from sow.cli.csv_tables import csv_tables, rows_in

CELLS = st.text(alphabet='a",\n\r ä', max_size=4)


def tables_of(*pieces):
    async def source():
        for piece in pieces:
            yield piece

    async def all_of():
        return [table async for table in csv_tables(source())]

    return asyncio.run(all_of())


def read(text):
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
        tables = [read(table) for table, _ in tables_of(*pieces)]
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
