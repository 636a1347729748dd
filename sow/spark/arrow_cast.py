"""Converts values of messages to Arrow types: exactly, or to null.

A value fits a type or it does not; nothing is rounded, guessed or inferred from its neighbours. A
value that does not fit becomes null. Numbers keep their text (`Number`) until the type is known, so
that a decimal has all its digits and a text column shows the original spelling.

A variant is Spark's type for any value: here a struct of its bytes and its names, and the second is
marked. Spark's own class makes those of JSON and reads them; what it would round is kept from it.

`sow.spark.source` refuses types without JSON values beforehand.
"""

import base64
import binascii
import json
import math
import re
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Context, Decimal, localcontext
from typing import Any

import pyarrow as pa

from sow.core.lossless_numbers import written

WHOLE_NUMBER = re.compile(r"-?[0-9]+\Z")
PLAIN_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?\Z")
FLAGS = {"true": True, "false": False}
VARIANT_DIGITS_MAX = 38
"""Digits of a decimal in a variant, and places behind its point; others are doubles there."""
VARIANT_CONTEXT = Context(prec=2 * VARIANT_DIGITS_MAX)
"""Spark's class multiplies decimals in the context of the thread, which rounds to 28 digits."""
NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


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
        if is_variant(kind):
            return variant_of(value)
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
        names = [OF_TEXTS.fit(name, kind.key_type) for name in value]
        if None in names or len(set(names)) < len(names):  # "7" and "07" are one number
            return None
        values = [self.fit(one, kind.item_type) for one in value.values()]
        return list(zip(names, values, strict=True))

    def _scalar(self, value: Any, kind: pa.DataType) -> Any:
        if pa.types.is_string(kind):
            return _encodable(value if _is_text(value) else _text_of(value))
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


OF_TEXTS = ArrowCast(from_texts=True)
"""Names of fields are texts, which are keys of a map."""


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


def _text_of(value: Any) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else json_text(value)


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
    if isinstance(value, bytes):
        return _quoted(_text_of(value))
    return _quoted(value) if isinstance(value, str) else json.dumps(value)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


# Variants.


def is_variant(kind: pa.DataType) -> bool:
    """Whether an Arrow type is Spark's variant."""
    if not pa.types.is_struct(kind) or [field.name for field in kind] != ["value", "metadata"]:
        return False
    return (kind.field("metadata").metadata or {}).get(b"variant") == b"true"


def variant_of(value: Any) -> dict[str, bytes] | None:
    """A value as a variant; None if Spark has none so large. A number within it that neither 38
    digits nor a double hold exactly is null."""
    from pyspark.errors import PySparkValueError
    from pyspark.sql.types import VariantVal

    try:
        exact = _exact(value)
        if exact is None:
            return None
        found = VariantVal.parseJson(json_text(exact))
    except (PySparkValueError, UnicodeEncodeError, RecursionError):
        return None
    return {"value": found.value, "metadata": found.metadata}


def value_of(variant: dict[str, bytes]) -> Any:
    """The value of a variant; raises ValueError if Python has none such."""
    from pyspark.errors import PySparkValueError
    from pyspark.sql.types import VariantVal

    try:
        with localcontext(VARIANT_CONTEXT):
            return VariantVal(variant["value"], variant["metadata"]).toPython()
    except (PySparkValueError, OverflowError, RecursionError) as error:
        raise ValueError(str(error) or type(error).__name__) from None


def _exact(value: Any) -> Any:
    """The value with numbers as they are written, or null where a variant would round them."""
    if isinstance(value, dict):
        return {name: _exact(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_exact(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return Number(NOT_FINITE[str(value)])
    number = _number(value)
    return value if number is None else _exact_number(number)


def _exact_number(text: Number) -> Number | None:
    try:
        number = Decimal(text)
    except ArithmeticError:  # an exponent beyond all bounds
        return None
    _, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    fits = len(digits) + max(exponent, 0) <= VARIANT_DIGITS_MAX and -exponent <= VARIANT_DIGITS_MAX
    if fits and "e" not in text.lower():
        return text
    if Decimal(repr(float(text))) == number:
        return text
    return Number(format(number, "f")) if fits else None
