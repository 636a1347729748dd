"""Converts values of messages to Arrow types: exactly, or to null.

A value fits a type or it does not; nothing is rounded, guessed or inferred from its neighbours. A
value that does not fit becomes null. Numbers keep their text (`Number`) until the type is known, so
that a decimal has all its digits and a text column shows the original spelling.

`sow.spark.source` refuses types without JSON values beforehand.
"""

import base64
import binascii
import json
import math
import re
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from sow.core.lossless_numbers import written

WHOLE_NUMBER = re.compile(r"-?[0-9]+\Z")
PLAIN_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?\Z")
FLAGS = {"true": True, "false": False}


class Number(str):
    """A number as it was written."""

    __slots__ = ()


def document_of(text: str) -> Mapping[str, Any]:
    """The fields of a JSON document, numbers as text; none if it is no document."""
    try:
        found = json.loads(text, parse_float=Number, parse_int=Number, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


class ArrowCast:
    """Fits values to types. `from_texts` means that the messages hold only texts, so that a number,
    or a list of one, is a text too."""

    def __init__(self, from_texts: bool = False) -> None:
        self._from_texts = from_texts

    def fit(self, value: Any, kind: pa.DataType) -> Any:
        """A value as one of an Arrow type, or None."""
        if value is None:
            return None
        if pa.types.is_struct(kind):
            if not isinstance(value, dict):
                return None
            return {field.name: self.fit(value.get(field.name), field.type) for field in kind}
        if pa.types.is_list(kind):
            if not isinstance(value, list):
                if not self._from_texts:
                    return None
                value = [value]  # of a field that may come more than once
            return [self.fit(one, kind.value_type) for one in value]
        if pa.types.is_map(kind):
            return self._map(value, kind)
        return self._scalar(value, kind)

    def _map(self, value: Any, kind: pa.DataType) -> Any:
        if not isinstance(value, dict):
            return None
        is_text = pa.types.is_string(kind.key_type)
        names = [name if is_text else _whole(Number(name), kind.key_type) for name in value]
        if None in names:
            return None
        values = [self.fit(one, kind.item_type) for one in value.values()]
        return list(zip(names, values, strict=True))

    def _scalar(self, value: Any, kind: pa.DataType) -> Any:
        if pa.types.is_string(kind):
            return _encodable(value if _is_text(value) else json_text(value))
        if pa.types.is_binary(kind):
            return self._bytes(value)
        if pa.types.is_boolean(kind):
            if self._from_texts and _is_text(value):
                return FLAGS.get(value)
            return value if isinstance(value, bool) else None
        if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
            return _time(value, kind) if _is_text(value) else None
        if self._from_texts and _is_text(value) and PLAIN_NUMBER.match(value):
            value = Number(value)
        if pa.types.is_decimal(kind):
            return _decimal(value, kind)
        number = _number(value)
        if number is None:
            return None
        if pa.types.is_integer(kind):
            return _whole(number, kind)
        return float(number) if pa.types.is_floating(kind) else None

    def _bytes(self, value: Any) -> bytes | None:
        if isinstance(value, bytes):
            return value
        if not _is_text(value):
            return None
        try:
            return value.encode() if self._from_texts else base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            return None


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and not isinstance(value, Number)


def _number(value: Any) -> Number | None:
    """The text of a number of any origin."""
    if isinstance(value, Number):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return Number(written(value) if isinstance(value, float) else repr(value))


def _whole(value: Number, kind: pa.DataType) -> int | None:
    # No 64-bit number has so many digits, and Python parses them slowly.
    if len(value) > 20 or not WHOLE_NUMBER.match(value):
        return None
    number, bits = int(value), int(kind.bit_width) - 1
    return number if -(1 << bits) <= number < 1 << bits else None


def _decimal(value: Any, kind: pa.DataType) -> Decimal | None:
    text = value if isinstance(value, str) else _number(value)
    if text is None:
        return None
    try:
        # As Arrow does where it reads many rows at once.
        found: Decimal = pa.scalar(str(text)).cast(kind).as_py()
    except (pa.ArrowException, UnicodeEncodeError):
        return None
    return found


def _time(text: str, kind: pa.DataType) -> datetime | date | None:
    try:
        if pa.types.is_date(kind):
            return date.fromisoformat(text)
        return datetime.fromisoformat(text)  # truncates nanoseconds to microseconds
    except ValueError:
        return None


def _encodable(text: str) -> str | None:
    try:
        text.encode()
    except UnicodeEncodeError:
        return None
    return text


def json_text(value: Any) -> str:
    """A value as JSON, numbers as they were written."""
    if isinstance(value, Number):
        return value
    if isinstance(value, dict):
        pairs = (f"{_quoted(name)}:{json_text(one)}" for name, one in value.items())
        return f"{{{','.join(pairs)}}}"
    if isinstance(value, list):
        return f"[{','.join(map(json_text, value))}]"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, float):
        return written(value)
    return _quoted(value) if isinstance(value, str) else json.dumps(value)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
