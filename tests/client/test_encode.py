"""What a program publishes becomes JSON as it is, or is refused by the path of its field."""

import collections
import dataclasses
import datetime
import decimal
import enum
import pathlib
import types
import uuid
from typing import NamedTuple

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from sow.client.encode import RowBodies, encode, encode_all
from sow.errors import BadMessage
from tests.cases import all_cases

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
