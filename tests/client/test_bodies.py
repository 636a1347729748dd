"""What a program publishes becomes JSON as it is, or is refused by the path of its field."""

import collections
import dataclasses
import datetime
import decimal
import enum
import types

import numpy as np
import pytest

from sow.client.bodies import encode, encode_all
from sow.errors import BadMessage

NAN, INFINITY = float("nan"), float("inf")


@dataclasses.dataclass
class Leg:
    px: float


class Level(enum.Enum):
    LOW = 1
    NONE = NAN


ITSELF = {}
ITSELF["again"] = ITSELF


@pytest.mark.parametrize(
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
        (5, b"5"),
        (np.float64(2), b"2.0"),
    ],
)
def test_what_json_has_is_written(message, body):
    assert encode(message) == body
    assert encode_all(message) == [body]


@pytest.mark.parametrize(
    ("message", "says"),
    [
        ({"px": NAN}, "/px is NaN"),
        ({"none": None, "px": -INFINITY}, "/px is -Infinity"),
        ({"legs": [{"px": 1}, {"px": INFINITY}]}, "/legs[1]/px is Infinity"),
        ({"pair": (1, NAN)}, "/pair[1] is NaN"),
        ({"leg": Leg(NAN)}, "/leg/px is NaN"),
        ({"level": Level.NONE}, "/level is NaN"),
        ({"px": np.float64("nan")}, "/px is NaN"),
        ({"px": np.float32("inf")}, "/px is Infinity"),
        ({"grid": np.array([[1, 2], [3, NAN]])}, "/grid[1][1] is NaN"),
        ({"at": np.datetime64("NaT")}, "/at is NaT"),
        (types.MappingProxyType({"px": NAN}), "/px is NaN"),
        (NAN, "it is NaN"),
        ({"n": 2**64}, "/n is an integer of more than 64 bits; send the message as JSON text"),
        ({"n": -(2**63) - 1}, "/n is an integer of more than 64 bits"),
        (
            {"tags": {"a"}},
            "/tags is of the type set, which JSON does not have; convert it to a list",
        ),
        ({"px": decimal.Decimal("1.10")}, "/px is of the type Decimal"),
        ({"raw": b"x"}, "/raw is of the type bytes, which JSON does not have; convert it to text"),
        ({"a": {1: 2}}, "/a has a field named by int '1'; name it by text"),
        ({"a": "x\ud800"}, "/a has half a surrogate pair"),
        ({"\ud800": 1}, "it has half a surrogate pair"),
        ("\ud800", "it has half a surrogate pair"),
        (ITSELF, "or holds itself"),
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
