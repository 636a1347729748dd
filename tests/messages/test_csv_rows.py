"""CSV: what is written is read back, and what comes from outside is bounded."""

import csv
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.core.cooperative import run_to_completion
from sow.core.definitions import Declared, MessageTypeOptions, RecordField
from sow.errors import BadMessage, ClientError, TooLarge
from sow.messages import csv_rows, message_type
from sow.messages.csv_rows import (
    CsvReader,
    cells,
    column_of,
    columns,
    csv_pieces,
    declared_columns,
    fixed_pieces,
    header,
    steps_of,
)
from sow.messages.declared import DeclaredFields
from sow.messages.separated import Record


def test_top_level_fields_are_columns():
    assert cells(b'{"id":1,"name":"a b"}') == {"id": "1", "name": "a b"}


def test_nested_fields_are_named_by_their_path():
    assert cells(b'{"a":{"b":{"c":1},"d":2}}') == {"/a/b/c": "1", "/a/d": "2"}


def test_numbers_keep_their_spelling():
    assert cells(b'{"px":1.10,"n":123456789012345678901234}') == {
        "px": "1.10",
        "n": "123456789012345678901234",
    }


def test_arrays_stay_json_and_null_is_empty():
    assert cells(b'{"a":[1,{"b":2}],"c":null,"d":{}}') == {"a": '[1,{"b":2}]', "c": "", "d": "{}"}


def test_a_record_without_fields_is_one_value():
    assert cells(b'"text"') == {"value": "text"}


def test_columns_are_the_union_in_the_order_met():
    assert columns([{"a": "", "b": ""}, {"c": "", "a": ""}]) == ["a", "b", "c"]


NAMES = st.text(st.sampled_from("a/~."), max_size=3)
DOCUMENTS = st.recursive(
    st.integers(), lambda inner: st.dictionaries(NAMES, inner, min_size=1, max_size=3)
)


@given(st.dictionaries(NAMES, DOCUMENTS))
def test_no_two_fields_have_one_name_and_each_can_be_had_back(document):
    found = cells(json.dumps(document).encode())
    again = {}
    for name, cell in found.items():
        level, steps = again, steps_of(name)
        assert column_of(steps) == name
        for step in steps[:-1]:
            level = level.setdefault(step, {})
        level[steps[-1]] = int(cell)
    assert again == document


def test_columns_that_are_whole_are_not_looked_into():
    assert cells(b'{"a":{"b":{"c":1}}}', ["/a/b"]) == {"/a/b": '{"c":1}'}


JSON = message_type("json")
RECORD = Record(
    MessageTypeOptions(
        "trades",
        "record",
        field_separator=b"|",
        fields=(RecordField("name"), RecordField("px", "decimal")),
    )
)
SCHEMA = (
    Declared("/id", "string"),
    Declared("/px", "decimal(9,2)"),
    Declared("/a/at", "timestamp"),
    Declared("/more", "json"),
)


def read(text, schema=(), kind=JSON, size_max=10_000):
    body = text if isinstance(text, bytes) else text.encode()
    declared = DeclaredFields(kind, schema) if schema else None
    reader = CsvReader(kind, declared, body, size_max)
    return [message for piece in reader.pieces() for message in piece]


def written(rows, first=()):
    names = run_to_completion(header(first, iter([rows])))
    return b"".join(csv_pieces(names, iter([rows]))).decode()


@given(st.lists(st.dictionaries(st.sampled_from(["a", "b,", 'c"', "d\n"]), st.text()), min_size=1))
def test_what_is_written_is_a_table_that_csv_reads(rows):
    table = list(csv.reader(io.StringIO(written(rows), newline="")))
    names = list(dict.fromkeys(name for row in rows for name in row))
    if names:
        assert table[0] == names
        assert table[1:] == [[row.get(name, "") for name in names] for row in rows]
    else:
        assert table == []


def test_lines_end_as_the_standard_says_and_declared_columns_come_first():
    assert written([{"b": "1", "a": "x"}], ["a", "z"]) == "a,z,b\r\nx,,1\r\n"


def test_names_are_those_of_the_first_rows(monkeypatch):
    monkeypatch.setattr(csv_rows, "HEADER_ROWS", 2)
    chunks = [[{"a": "1"}], [{"b": "2"}, {"c": "3"}], [{"d": "4"}]]
    names = run_to_completion(header((), chunks))
    assert names == ["a", "b"]
    monkeypatch.setattr(csv_rows, "CELLS_AT_ONCE", 2)
    assert b"".join(csv_pieces(names, chunks)) == b"a,b\r\n1,\r\n,2\r\n,\r\n,\r\n"


def test_too_many_columns_are_refused_before_anything_is_written(monkeypatch):
    monkeypatch.setattr(csv_rows, "CSV_COLUMNS_MAX", 1)
    with pytest.raises(TooLarge, match="2 different fields"):
        run_to_completion(header((), [[{"a": "", "b": ""}]]))


def test_rows_of_fixed_columns_have_them_without_rows_too():
    assert b"".join(fixed_pieces(("a", "b"), [[("1", "2")], []])) == b"a,b\r\n1,2\r\n"
    assert b"".join(fixed_pieces(("a",), [])) == b"a\r\n"


def test_cells_become_what_they_say():
    text = 'id,n,yes,list,/a/b,/a/c,text\r\nx,1.50,true,"[1, 2]",,2,01\r\n,,,,,,\r\n\r\n'
    assert read(text) == [
        b'{"id":"x","n":1.50,"yes":true,"list":[1, 2],"a":{"c":2},"text":"01"}',
        b"{}",
    ]


def test_a_declared_field_is_read_by_its_type():
    text = "id,px,/a/at,more\n7,1.50,1,1\n8,x,2025-01-31T00:00:00Z,[1]\n"
    assert read(text, SCHEMA) == [
        b'{"id":"7","px":1.50,"a":{"at":1},"more":1}',
        b'{"id":"8","px":"x","a":{"at":"2025-01-31T00:00:00Z"},"more":[1]}',
    ]
    assert list(declared_columns(DeclaredFields(JSON, SCHEMA))) == ["id", "px", "/a/at", "more"]


def test_messages_of_fix_can_be_read():
    assert read("1,55\nx,A\n", kind=message_type("fix")) == [b"1=x\x0155=A\x01"]


def test_messages_that_have_only_texts_keep_those_of_the_cells():
    assert read("1,44,5,8\nx,1.50,true,-0\n", kind=message_type("nvfix")) == [
        b"1=x\x0144=1.50\x015=true\x018=-0\x01"
    ]


@pytest.mark.parametrize("cell", ["[1]", "{}", "true", "1.50"])
def test_the_fields_of_a_record_read_their_cells(cell):
    assert read(f"name,px\n{cell},1.50\n", kind=RECORD) == [f"{cell}|1.50".encode()]


def test_a_mark_of_spreadsheets_is_no_part_of_a_name():
    assert read(b"\xef\xbb\xbfid\n1\n") == [b'{"id":1}']
    assert read("") == []
    assert read("id\n") == []


@pytest.mark.parametrize(
    ("text", "index", "word"),
    [
        ("a\n1\n1,2\n", 1, "2 cells, and there are 1 columns"),
        ('a\n"x"y\n', 0, "cannot be read"),
        ('a\n"x', 0, "cannot be read"),
        (b"a\n1\n\xff\n", 0, "the CSV is not UTF-8 from there on; save the table as UTF-8"),
        ("a,/a/b\n1,2\n", 0, "is a value and has fields"),
        ("/a/b,a\n1,2\n", 0, "is a value and has fields"),
    ],
)
def test_a_bad_row_is_named(text, index, word):
    with pytest.raises(BadMessage, match=word) as caught:
        read(text)
    assert caught.value.index == index


@pytest.mark.parametrize(
    ("text", "kind", "word"),
    [
        ("a,a\n1,2\n", "json", "the column 'a' twice"),
        ("/a" * 300 + "\n1\n", "json", "levels deep"),
        (",".join(map(str, range(3_000))) + "\n", "json", "3000 columns"),
        ("value\nx\n", "binary", "have no fields"),
        ("a\n" + "x" * 2_000_000 + "\n", "json", "more than 1048576 characters"),
        ('a\n"' + 100 * "x" + "\n1\n" * 20_000 + 99 * "x" + '"\n', "json", "more than 10000 bytes"),
        ('a\n"' + 30 * "x" + ("\n" + 30 * "x") * 40_000, "json", "more than 1048576 characters"),
        ('a\n"' + "\n" * 60_000 + '"\n', "json", "more than 50000 lines; is a quote open"),
        ("x" * 1_000 + "\n" + "1\n" * 100, "json", "more than 10000 bytes"),
    ],
)
def test_what_would_cost_too_much_is_refused(text, kind, word):
    with pytest.raises(ClientError, match=word):
        read(text, kind=message_type(kind))


def test_lines_within_quotes_count_in_what_one_step_reads():
    body = "id,a\n" + "".join(f'{at},"{1_000 * chr(10)}"\n' for at in range(20))
    reader = CsvReader(JSON, None, body.encode(), 10**6)
    assert [len(piece) for piece in reader.pieces()][:4] == [5, 5, 5, 5]


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["a", "b", "/c"]),
            st.integers() | st.booleans() | st.text("xyz ,\n", min_size=1) | st.just({"d": 1}),
            min_size=1,
        )
    )
)
def test_what_csv_can_say_comes_back(documents):
    rows = [cells(json.dumps(document).encode()) for document in documents]
    assert [json.loads(message) for message in read(written(rows), size_max=10**6)] == documents


def test_rows_are_read_some_cells_at_a_time_however_short_they_are():
    wide = ",".join(f"c{at}" for at in range(2_000)) + "\n" + ("1" + ",1" * 1_999 + "\n") * 30
    assert [len(piece) for piece in pieces(wide)] == [10, 10, 10, 0]
    deep = (
        ",".join(f"{'/a' * 9}/{at}" for at in range(2_000)) + "\n" + ("1" + ",1" * 1_999 + "\n") * 3
    )
    assert [len(piece) for piece in pieces(deep)] == [1, 1, 1, 0]
    long = "a\n" + ("x" * 200_000 + "\n") * 4
    assert [len(piece) for piece in pieces(long)] == [2, 2, 0]
    blank = "a\n" + "\n" * 12_000 + "1\n"
    assert [len(piece) for piece in pieces(blank)] == [0, 0, 1]


def pieces(text):
    return CsvReader(JSON, None, text.encode(), 10_000_000).pieces()


@pytest.mark.parametrize("cell", ["7e10234", "-1E+400", "9" * 400])
def test_what_looks_like_a_number_beyond_every_double_is_text(cell):
    assert read(f"v,w\n{cell},1e300\n") == [b'{"v":"%b","w":1e300}' % cell.encode()]
    (packed,) = read(f"v\n{cell}\n", kind=message_type("msgpack"))
    assert message_type("msgpack").parse(packed) == {"v": cell}


def test_a_declared_field_is_read_by_its_type_under_each_name_of_it():
    schema = (Declared("/zip", "string"),)
    for name in ("zip", "/zip"):
        assert read(f"{name}\n12\n", schema) == [b'{"zip":"12"}']


@pytest.mark.parametrize(("kind", "number"), [("int64", "9" * 400), ("double", "1e999")])
def test_a_number_beyond_a_type_is_refused_with_its_row(kind, number):
    with pytest.raises(BadMessage, match="message 1") as error:
        read(f"value\n12\n{number}\n", kind=message_type(kind))
    assert error.value.index == 1


def test_messages_of_xml_have_the_digits_of_the_table():
    assert read("/o/px\n1.10\n", kind=message_type("xml")) == [b"<o><px>1.10</px></o>"]


def test_blank_lines_are_not_to_be_had_in_any_number(monkeypatch):
    monkeypatch.setattr(csv_rows, "BLANK_LINES_MAX", 3)
    assert read("a\n\n\n1\n\n") == read("a\n1\n")
    with pytest.raises(TooLarge, match="more than 3 blank lines; leave them out"):
        read("a\n\n\n1\n\n\n")
