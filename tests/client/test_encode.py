"""What a program publishes becomes JSON as it is, or is refused by the path of its field."""

import collections
import dataclasses
import datetime
import decimal
import enum
import math
import pathlib
import tracemalloc
import types
import uuid
from decimal import Decimal
from typing import NamedTuple

import msgspec
import numpy as np
import orjson
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.client.encode import RowBodies, encode, encode_all, is_data_frame, pieces_of_rows
from sow.errors import BadMessage, ClientError
from tests.cases import all_cases
from tests.effort import examples

NAN, INFINITY = float("nan"), float("inf")


@dataclasses.dataclass
class Leg:
    px: float


class Level(enum.Enum):
    LOW = 1
    NONE = NAN


@dataclasses.dataclass
class Order:
    id: int
    leg: Leg
    _note: str = "kept"


class Fill(msgspec.Struct, rename="camel"):
    fill_id: int
    leg: Leg


class Pair(NamedTuple):
    id: int
    px: float


class Model:
    """As of pydantic: it has fields, and can be gone through."""

    def model_dump(self):
        return {"id": 1, "px": decimal.Decimal("2.50")}

    def __iter__(self):
        return iter([("id", 1)])


class Ratio(float):
    pass


NANOSECOND = b'{"at":"2026-11-22T09:30:00.000000001"}'
ITSELF = {}
ITSELF["again"] = ITSELF


@all_cases(
    ("message", "body"),
    [
        (b"raw", b"raw"),
        (bytearray(b"raw"), b"raw"),
        ("text", b"text"),
        ({"id": 1, "none": None, "word": "null"}, b'{"id":1,"none":null,"word":"null"}'),
        ({"pair": (1, 2)}, b'{"pair":[1,2]}'),
        ({"leg": Leg(1.5), "level": Level.LOW}, b'{"leg":{"px":1.5},"level":1}'),
        ({"at": datetime.date(2026, 11, 22)}, b'{"at":"2026-11-22"}'),
        ({"n": 2**64 - 1}, b'{"n":18446744073709551615}'),
        ({"n": np.int64(3), "px": np.float32(0.5)}, b'{"n":3,"px":0.5}'),
        ({"list": np.array([1.0, 2.5])}, b'{"list":[1.0,2.5]}'),
        (types.MappingProxyType({"id": 1}), b'{"id":1}'),
        ({"inner": collections.ChainMap({"a": 1})}, b'{"inner":{"a":1}}'),
        ({"px": decimal.Decimal("1.10")}, b'{"px":1.10}'),
        ({"px": decimal.Decimal("1E+400"), "none": None}, b'{"px":1E+400,"none":null}'),
        (decimal.Decimal("-0.0"), b"-0.0"),
        ({"id": uuid.UUID(int=3)}, b'{"id":"00000000-0000-0000-0000-000000000003"}'),
        ({"at": datetime.time(10, 30)}, b'{"at":"10:30:00"}'),
        (
            {"at": datetime.datetime(2026, 11, 22, 9, 30, tzinfo=datetime.UTC)},
            b'{"at":"2026-11-22T09:30:00+00:00"}',
        ),
        ({"at": datetime.datetime(2026, 11, 22, 9, 30)}, b'{"at":"2026-11-22T09:30:00"}'),
        ({"at": pd.Timestamp("2026-11-22 09:30:00.000000001")}, NANOSECOND),
        ({"at": np.datetime64("2026-11-22T09:30", "s")}, b'{"at":"2026-11-22T09:30:00"}'),
        ({"none": pd.NA}, b'{"none":null}'),
        ({"list": np.arange(6)[::2]}, b'{"list":[0,2,4]}'),
        ({"list": np.array(["a", "b"])}, b'{"list":["a","b"]}'),
        ({"list": np.array([decimal.Decimal("1.0"), None])}, b'{"list":[1.0,null]}'),
        ({"n": np.array(5), "b": np.bool_(True)}, b'{"n":5,"b":true}'),
        (Order(7, Leg(decimal.Decimal("1.50"))), b'{"id":7,"leg":{"px":1.50},"_note":"kept"}'),
        (Fill(1, Leg(2)), b'{"fillId":1,"leg":{"px":2}}'),
        (Pair(1, 2.5), b'{"id":1,"px":2.5}'),
        (Model(), b'{"id":1,"px":2.50}'),
        (Ratio(1.5), b"1.5"),
        (5, b"5"),
        (np.float64(2), b"2.0"),
    ],
)
def test_what_json_has_is_written(message, body):
    assert encode(message) == body
    assert encode_all(message) == [body]


@all_cases(
    ("message", "says"),
    [
        ({"px": decimal.Decimal("NaN")}, "/px is NaN"),
        ({"px": decimal.Decimal("sNaN")}, "/px is NaN"),
        ({"px": decimal.Decimal("-Infinity")}, "/px is -Infinity"),
        ({"at": pd.NaT}, "/at is NaT"),
        ({"for": datetime.timedelta(1)}, "/for is of the type timedelta, which JSON does not have"),
        ({"for": np.timedelta64(1, "s")}, "/for is of the type timedelta64"),
        ({"px": np.longdouble(1)}, "/px is of the type longdouble"),
        ({"z": np.array([1 + 2j])}, "/z[0] is of the type complex128"),
        ({"where": pathlib.Path("x")}, "/where is of the type PosixPath"),
        ({"list": np.array([1, {1}], object)}, "/list[1] is of the type set"),
        (Fill(1, Leg(NAN)), "/leg/px is NaN"),
        (Pair(1, NAN), "/px is NaN"),
        ({"px": NAN}, "/px is NaN"),
        ({"none": None, "px": -INFINITY}, "/px is -Infinity"),
        ({"legs": [{"px": 1}, {"px": INFINITY}]}, "/legs[1]/px is Infinity"),
        ({"pair": (1, NAN)}, "/pair[1] is NaN"),
        ({"leg": Leg(NAN)}, "/leg/px is NaN"),
        ({"level": Level.NONE}, "/level is NaN"),
        ({"px": np.float64("nan")}, "/px is NaN"),
        ({"px": np.float32("inf")}, "/px is Infinity"),
        ({"grid": np.array([[1, 2], [3, NAN]])}, "/grid[1][1] is NaN"),
        ({"at": [np.array(np.nan)]}, "/at[0] is NaN"),
        ({"x": {enum.StrEnum("Name", "A").A: 1}}, "/x has a field named by Name"),
        ({"at": np.datetime64("NaT")}, "/at is NaT"),
        (types.MappingProxyType({"px": NAN}), "/px is NaN"),
        (NAN, "it is NaN"),
        ({"n": 2**64}, "/n is an integer of more than 64 bits; send the message as JSON text"),
        ({"n": -(2**63) - 1}, "/n is an integer of more than 64 bits"),
        (
            {"tags": {"a"}},
            "/tags is of the type set, which JSON does not have; convert it to a list",
        ),
        ({"raw": b"x"}, "/raw is of the type bytes, which JSON does not have; convert it to text"),
        ({"a": {1: 2}}, "/a has a field named by int '1'; name it by text"),
        ({"a": "x\ud800"}, "/a has half a surrogate pair"),
        ({"\ud800": 1}, "it has half a surrogate pair"),
        ("\ud800", "it has half a surrogate pair"),
        (ITSELF, "or contains itself"),
    ],
)
def test_what_json_does_not_have_is_refused_by_its_path(message, says):
    with pytest.raises(BadMessage) as caught:
        encode(message)
    assert caught.value.detail.startswith("message 0: ")
    assert says in caught.value.detail


def test_of_many_messages_the_index_is_said():
    with pytest.raises(BadMessage, match="message 2: /px is NaN") as caught:
        encode_all([{"px": 1}, b"raw", {"px": NAN}])
    assert caught.value.index == 2


def test_a_refusal_is_no_echo():
    with pytest.raises(BadMessage) as caught:
        encode({"x" * 100_000: {("y" * 100_000,): 1}})
    assert len(caught.value.detail) < 400


@pytest.mark.parametrize(
    ("message", "body"),
    [
        ({"px": NAN, "n": 1}, b'{"px":null,"n":1}'),
        ({"px": np.float32("nan")}, b'{"px":null}'),
        ({"at": pd.NaT, "px": decimal.Decimal("NaN")}, b'{"at":null,"px":null}'),
    ],
)
def test_nan_is_null_where_that_is_said(message, body):
    assert encode(message, nan_as_null=True) == body


@pytest.mark.parametrize("value", [INFINITY, decimal.Decimal("Infinity")])
def test_the_infinities_are_never_null(value):
    with pytest.raises(BadMessage, match="/px is Infinity"):
        encode({"px": value}, nan_as_null=True)


def test_rows_of_a_frame_are_messages_and_one_that_is_bad_is_named_by_its_number():
    table = pa.table({"id": list(range(2500)), "px": [1.0] * 2400 + [NAN] * 100})
    with pytest.raises(BadMessage, match="message 2400: /px is NaN") as caught:
        encode_all(table)
    assert caught.value.index == 2400
    bodies = RowBodies(table, nan_as_null=True)
    assert [len(some) for some in bodies] == [1000, 1000, 500]
    assert encode_all(table, nan_as_null=True) == [body for some in bodies for body in some]
    assert encode_all(table, nan_as_null=True)[-1] == b'{"id":2499,"px":null}'


def test_messages_with_fields_are_one_each():
    assert encode_all([Pair(1, 2), Model()]) == [b'{"id":1,"px":2}', b'{"id":1,"px":2.50}']
    assert encode_all(iter([1, 2])) == [b"1", b"2"]


@all_cases("unit", ["ns", "us", "ms", "s", "m", "h", "D", "W", "M", "Y"])
@all_cases("nan_as_null", [False, True])
def test_no_time_of_numpy_becomes_a_time(unit, nan_as_null):
    nothing = np.datetime64("NaT", unit)
    for value, path in [
        (nothing, "/at"),
        (np.array(nothing), "/at"),
        (np.array([0, "NaT"], f"M8[{unit}]"), "/at[1]"),
    ]:
        with pytest.raises(BadMessage) as refused:
            encode({"at": value}, nan_as_null=nan_as_null)
        said = "is NaT of numpy, no time at all; send None, or leave the field out"
        assert str(refused.value) == f"message 0: {path} {said}"


@pytest.mark.parametrize("time", ["1677-09-21T00:12:43.145224", "1970-01-01T00:00:00"])
def test_a_time_that_no_time_is_written_as_is_sent(time):
    bodies = encode_all([{"at": time}, {"at": np.datetime64(time)}])
    assert bodies == [f'{{"at":"{time}"}}'.encode()] * 2


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
