"""Rows of pandas, polars and Arrow are the same documents, whichever of them holds them."""

import datetime
import math
import tracemalloc
from decimal import Decimal

import orjson
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.client.data_frames import is_data_frame, pieces_of_rows
from sow.client.encode import encode_all
from sow.errors import BadMessage, ClientError
from tests.effort import examples

AT = datetime.datetime(2026, 11, 22, 9, 30, 0, 5, tzinfo=datetime.UTC)
COLUMNS = {
    "id": [1, 2],
    "px": [1.5, 2.5],
    "qty": [Decimal("1.10"), None],
    "at": [AT, None],
    "day": [datetime.date(2026, 11, 22), None],
    "name": ["a", None],
    "open": [True, None],
}
ROWS = [
    b'{"id":1,"px":1.5,"qty":1.10,"at":"2026-11-22T09:30:00.000005+00:00","day":"2026-11-22",'
    b'"name":"a","open":true}',
    b'{"id":2,"px":2.5,"qty":null,"at":null,"day":null,"name":null,"open":null}',
]


def rows(frame):
    return [row for some in pieces_of_rows(frame) for row in some]


def pandas_frame():
    return (
        pd.DataFrame(COLUMNS)
        .astype({"at": object, "open": "boolean"})
        .assign(at=pd.Series(COLUMNS["at"], dtype=object))
    )


FRAMES = {
    "pandas": pandas_frame,
    "polars": lambda: pl.DataFrame(COLUMNS),
    "table": lambda: pa.table(COLUMNS),
    "batch": lambda: pa.RecordBatch.from_pydict(COLUMNS),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_rows_are_messages(kind):
    frame = FRAMES[kind]()
    assert is_data_frame(frame)
    assert encode_all(frame) == ROWS


@pytest.mark.parametrize("kind", FRAMES)
def test_a_frame_without_rows_is_no_message(kind):
    assert encode_all(FRAMES[kind]()[:0] if kind != "batch" else FRAMES[kind]().slice(2)) == []


def test_other_things_are_no_frames():
    assert not any(map(is_data_frame, ({}, [], pd.Series([1]), pa.array([1]), None)))


def test_times_of_pandas_are_texts_with_all_their_digits():
    times = pd.to_datetime(["2026-11-22 09:30:00.000000001", None])
    with pytest.raises(BadMessage, match="message 1: /at is NaT"):
        encode_all(pd.DataFrame({"at": times}))
    assert encode_all(pd.DataFrame({"at": times}), nan_as_null=True) == [
        b'{"at":"2026-11-22T09:30:00.000000001"}',
        b'{"at":null}',
    ]


def test_times_of_arrow_are_texts_with_all_their_digits():
    micro = pa.table({"at": pa.array([1_000], pa.timestamp("ns"))})
    nano = pa.table({"at": pa.array([1], pa.timestamp("ns"))})
    assert encode_all(micro) == [b'{"at":"1970-01-01T00:00:00.000001"}']
    assert encode_all(nano) == [b'{"at":"1970-01-01T00:00:00.000000001"}']


@pytest.mark.parametrize(
    ("zone", "text"),
    [
        ("UTC", "2020-01-01T00:00:00.000000001Z"),
        ("+05:30", "2020-01-01T05:30:00.000000001+05:30"),
        ("-03:00", "2019-12-31T21:00:00.000000001-03:00"),
    ],
)
def test_times_of_arrow_with_nanoseconds_are_of_iso_8601(zone, text):
    times = pa.array([1_577_836_800_000_000_001, None], pa.timestamp("ns", zone))
    time = pa.table({"at": times, "day": pa.array([1, None], pa.time64("ns"))})
    first, second = encode_all(time)
    assert orjson.loads(first) == {"at": text, "day": "00:00:00.000000001"}
    assert orjson.loads(second) == {"at": None, "day": None}


@pytest.mark.parametrize(
    "column",
    [
        pa.array([2**62], pa.timestamp("s")),
        pa.array([2**62], pa.timestamp("us")),
        pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]),
    ],
)
def test_what_python_has_no_value_for_is_refused_by_its_column(column):
    says = "the frame has a value in column 'at' that Python cannot represent: "
    with pytest.raises(ClientError, match=f"^{says}.*; convert the column to text$"):
        encode_all(pa.table({"at": column}))


def test_categories_lists_and_structs_are_what_they_hold():
    assert rows(pd.DataFrame({"c": pd.Categorical(["a", "b"])})) == [{"c": "a"}, {"c": "b"}]
    assert rows(pa.table({"c": pa.array(["a"]).dictionary_encode()})) == [{"c": "a"}]
    assert rows(pl.DataFrame({"l": [[1, 2]], "s": [{"a": 1}]})) == [{"l": [1, 2], "s": {"a": 1}}]


@pytest.mark.parametrize(
    "kind", ["string", pd.StringDtype("pyarrow"), pd.StringDtype(na_value=math.nan)]
)
def test_missing_texts_of_pandas_are_null_whatever_says_so(kind):
    frame = pd.DataFrame({"name": pd.Series(["a", None], dtype=kind)})
    assert rows(frame) == [{"name": "a"}, {"name": None}]


def test_a_number_among_texts_that_is_none_is_refused_by_name():
    with pytest.raises(BadMessage, match=r"message 1: /name is NaN.*nan_as_null=True"):
        encode_all(pd.DataFrame({"name": pd.Series(["a", math.nan], dtype=object)}))


def test_an_index_with_a_name_is_a_field_and_one_without_only_counts():
    frame = pd.DataFrame({"px": [1, 2]}, index=["a", "b"])
    assert rows(frame) == [{"px": 1}, {"px": 2}]
    assert rows(frame.rename_axis("id")) == [{"id": "a", "px": 1}, {"id": "b", "px": 2}]


@pytest.mark.parametrize(
    ("frame", "says"),
    [
        (pd.DataFrame([[1, 2]]), "a column named by int '0'; name it by text"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "two columns called 'a'; rename one"),
        (pa.table([[1], [2]], names=["a", "a"]), "two columns called 'a'"),
        (
            pd.DataFrame({"a": [1]}, index=pd.Index([2], name="a")),
            "two columns called 'a'; rename one",
        ),
        (pl.DataFrame({"a": [1]}).lazy(), "publish what collect"),
    ],
)
def test_columns_that_are_no_fields_are_refused(frame, says):
    with pytest.raises(ClientError, match=says):
        encode_all(frame)


def test_durations_and_bytes_are_refused_by_their_column():
    with pytest.raises(BadMessage, match="message 0: /for is of the type timedelta"):
        encode_all(pl.DataFrame({"for": [datetime.timedelta(1)]}))
    with pytest.raises(BadMessage, match="message 0: /raw is of the type bytes"):
        encode_all(pa.table({"raw": [b"x"]}))


def test_columns_of_json_texts_as_the_server_makes_them_are_the_values_again():
    schema = pa.schema(
        [
            pa.field("leg", pa.string(), metadata={"kind": "json"}),
            pa.field("/leg/id", pa.int64(), metadata={"path": "/leg/id"}),
        ]
    )
    table = pa.table([['{"id":1.10}', None], [1, None]], schema=schema)
    assert encode_all(table) == [b'{"leg":{"id":1.10}}', b'{"leg":null}']
    broken = pa.table([["{", None], [1, None]], schema=schema)
    with pytest.raises(BadMessage, match="message 0: the column leg is declared as JSON"):
        encode_all(broken)


@examples(18)
@given(
    st.lists(
        st.fixed_dictionaries(
            {"i": st.integers(-(2**63), 2**63 - 1) | st.none(), "t": st.text() | st.none()}
        ),
        max_size=5,
    )
)
def test_what_arrow_and_polars_hold_comes_back(documents):
    table = pa.Table.from_pylist(documents, pa.schema([("i", pa.int64()), ("t", pa.string())]))
    for frame in (table, pl.from_arrow(table)):
        assert [orjson.loads(body) for body in encode_all(frame)] == documents


def test_a_long_frame_is_gone_through_without_a_copy_of_it():
    frame = pa.table({"id": list(range(100_000)), "name": ["x" * 50] * 100_000})
    some = pieces_of_rows(frame)
    next(some)
    tracemalloc.start()
    count = sum(len(rows) for rows in some)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 99_000
    assert most < 2_000_000
