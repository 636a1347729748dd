"""Functions of numbers, of all values of a list, and of times, which are numbers.

Everything but the functions of lists takes the first value of one. What is no list counts as a list
of one. Largest and smallest are by the rules of comparison: numbers and texts that spell one by
their number, other texts above all numbers.

A time is its seconds since 1970, and all is in UTC. Formats are those of strftime(3), with ``%f``
for microseconds and ``%03f`` for milliseconds. What time it is comes with the messages
(`sow.expressions.message_attributes`): nothing here reads a clock. AMPS has forms in local time and
in UTC of some; here a server gives the same wherever it runs, so both are UTC.
"""

import math
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import cmp_to_key
from typing import Any

from sow.core.paths import Scalar, Value
from sow.errors import BadFilter, clipped, shown
from sow.expressions.function import (
    NULL_BY_NULL,
    Example,
    Function,
    by_name,
    function,
    of_number,
    of_numbers,
)
from sow.expressions.message_attributes import Trait
from sow.expressions.nodes import Call, Literal, MessageTrait
from sow.expressions.values import ARITHMETIC, Number, compare_scalars, elements, number, text

EARTH_RADIUS_M = 6_371_008.8
"""The mean radius of the Earth (IUGG)."""
DIGITS_MAX = 308
"""Places that ROUND takes: a double has no more."""


def _sign(one: Number) -> int:
    return (one > 0) - (one < 0)


def _round(one: Number, digits: Number = 0) -> Number:
    places = max(-DIGITS_MAX, min(DIGITS_MAX, int(digits)))
    return one if isinstance(one, int) and places >= 0 else round(one, places)


def _whole(run: Callable[[Any], int]) -> Callable[[Number], Number]:
    """Whole numbers, NaN and the infinities have nothing to be rounded, and stay."""
    return lambda one: run(one) if isinstance(one, float) and math.isfinite(one) else one


def _logarithm(run: Callable[[Any], float]) -> Callable[[Number], float]:
    return lambda one: run(one) if one > 0 or math.isnan(one) else math.nan


def _numbers(values: Sequence[Value]) -> list[Number]:
    """The values that are numbers; NaN is excluded, since it has no order."""
    return [one for one in map(number, values) if one is not None and one == one]


def _greatest(*values: Value) -> Value:
    return max(_numbers(values), default=None)


def _least(*values: Value) -> Value:
    return min(_numbers(values), default=None)


def _bucket(one: Number, low: Number, high: Number, count: Number) -> int | None:
    count = int(count)
    if count < 1 or low == high or math.isnan(one):
        return None
    share = (one - low) / (high - low)
    if math.isnan(share):
        return None
    return 0 if share < 0 else count + 1 if share >= 1 else int(share * count) + 1


def _distance(latitude: Number, longitude: Number, latitude2: Number, longitude2: Number) -> float:
    one, other = math.radians(latitude), math.radians(latitude2)
    up = math.sin((other - one) / 2) ** 2
    along = math.sin(math.radians(longitude2 - longitude) / 2) ** 2
    chord = up + math.cos(one) * math.cos(other) * along
    return 2 * EARTH_RADIUS_M * math.asin(math.sqrt(min(1.0, chord)))


def _of_one(name: str, run: Callable[[Any], Any], about: str, *examples: Example) -> Function:
    return Function(f"{name}(x)", 1, 1, of_number(run), about, "NULL if x is no number", examples)


NUMERIC_FUNCTIONS = by_name(
    _of_one("ABS", abs, "x without its sign", Example("ABS(-3)", 3)),
    _of_one("ACOS", math.acos, "the angle of a cosine", Example("ACOS(1)", 0.0)),
    _of_one("ASIN", math.asin, "the angle of a sine", Example("ASIN(0)", 0.0)),
    _of_one("ATAN", math.atan, "the angle of a tangent", Example("ATAN(0)", 0.0)),
    _of_one("CEILING", _whole(math.ceil), "rounded up", Example("CEILING(2.1)", 3)),
    _of_one("COS", math.cos, "the cosine of an angle in radians", Example("COS(0)", 1.0)),
    _of_one("EXP", math.exp, "e to the power of x", Example("EXP(0)", 1.0)),
    _of_one("FLOOR", _whole(math.floor), "rounded down", Example("FLOOR(2.9)", 2)),
    function("GEO_DISTANCE(latitude, longitude, latitude, longitude)", of_numbers(_distance))(
        "metres between two places given in degrees, on a sphere",
        "NULL if an argument is no number",
        Example("ROUND(GEO_DISTANCE(60.17, 24.94, 60.17, 24.94))", 0.0),
    ),
    function("GREATEST(x, ...)", _greatest)(
        "the largest number",
        "what is no number is left out; NULL if nothing is left",
        Example("GREATEST(1, 3, 2)", 3),
        Example("GREATEST(/none, 2)", 2),
    ),
    function("LEAST(x, ...)", _least)(
        "the smallest number",
        "what is no number is left out; NULL if nothing is left",
        Example("LEAST(3, 1, 2)", 1),
    ),
    _of_one("LOG", _logarithm(math.log), "the natural logarithm", Example("LOG(1)", 0.0)),
    _of_one(
        "LOG10", _logarithm(math.log10), "the logarithm to base 10", Example("LOG10(1000)", 3.0)
    ),
    _of_one("LOG2", _logarithm(math.log2), "the logarithm to base 2", Example("LOG2(8)", 3.0)),
    function("POWER(base, exponent)", of_numbers(math.pow))(
        "base to the power of exponent, a double",
        "NULL if an argument is no number, or there is no result",
        Example("POWER(2, 3)", 8.0),
        Example("POWER(-1, 0.5)", None),
    ),
    function("ROUND(x[, digits])", of_numbers(_round))(
        "x to so many digits behind the point, 0 unless given",
        NULL_BY_NULL,
        Example("ROUND(2.345, 1)", 2.3),
        Example("ROUND(1234, -2)", 1200),
    ),
    _of_one("SIGN", _sign, "-1, 0 or 1", Example("SIGN(-2.5)", -1)),
    _of_one("SIN", math.sin, "the sine of an angle in radians", Example("SIN(0)", 0.0)),
    _of_one("SQRT", math.sqrt, "the square root", Example("SQRT(9)", 3.0)),
    _of_one("TAN", math.tan, "the tangent of an angle in radians", Example("TAN(0)", 0.0)),
    function("WIDTH_BUCKET(x, low, high, count)", of_numbers(_bucket))(
        "which of `count` equal parts of low to high x is in: 1 and up, 0 below, count + 1 above",
        "NULL if an argument is no number, count is below 1, or low is high",
        Example("WIDTH_BUCKET(/px, 0, 10, 5)", 2),
        Example("WIDTH_BUCKET(11, 0, 10, 5)", 6),
    ),
)
"""By name."""


def _order(one: Scalar, other: Scalar) -> int:
    if compare_scalars("<", one, other):
        return -1
    return 1 if compare_scalars(">", one, other) else 0


_key = cmp_to_key(_order)


def _present(value: Value) -> list[Scalar]:
    return [one for one in elements(value) if one is not None and one != "" and one == one]


def _largest(value: Value) -> Value:
    return max(_present(value), key=_key, default=None)


def _smallest(value: Value) -> Value:
    return min(_present(value), key=_key, default=None)


def _count(value: Value) -> int:
    return sum(one is not None and one != "" for one in elements(value))


def _sum(value: Value) -> Value:
    total: Value = 0
    for one in map(number, elements(value)):
        total = total if one is None else ARITHMETIC["+"](total, one)
    return total


ARRAY_FUNCTIONS = by_name(
    function("ARRAY_COUNT(list)", _count)(
        "how many values it has",
        "0 if it has none; NULLs are not counted",
        Example("ARRAY_COUNT(/list)", 3),
        Example("ARRAY_COUNT(/tags)", 2),
    ),
    function("ARRAY_MAX(list)", _largest)(
        "the largest value",
        "NULL if it has none; NULLs are left out",
        Example("ARRAY_MAX(/list)", 7),
    ),
    function("ARRAY_MIN(list)", _smallest)(
        "the smallest value",
        "NULL if it has none; NULLs are left out",
        Example("ARRAY_MIN(/list)", 2),
    ),
    function("ARRAY_SUM(list)", _sum)(
        "its numbers added up",
        "0 if it has none; what is no number is left out",
        Example("ARRAY_SUM(/list)", 14),
    ),
)
"""By name."""


FORMATTED_BYTES_MAX = 128
"""Length of a time as text, as in AMPS; longer ones are NULL."""
FORMAT_CHARS_MAX = 128
"""Length of a format; its result is hardly shorter."""
_CODES = frozenset("aAbBdHIjmMpSUwWyYZzfcxX%TFDeRnCgGhrstuV")
_CODE = re.compile(r"%(03f|.|\Z)", re.S)
_PART = re.compile(r"%03f|%[Cgs]|(?:%(?!03f|[Cgs]).|[^%])+", re.S)
"""Codes that Python does not know, or not in UTC, and all that lies between."""
DAY_S = 86_400
"""Seconds of a day in UTC, without leap seconds."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WRITTEN = {
    "D": "%m/%d/%y",
    "F": "%Y-%m-%d",
    "R": "%H:%M",
    "T": "%H:%M:%S",
    "h": "%b",
    "n": "\n",
    "r": "%I:%M:%S %p",
    "t": "\t",
}
"""Codes of C that abbreviate others."""
_MADE: dict[str, Callable[[datetime], str]] = {
    "%03f": lambda at: f"{at.microsecond // 1000:03}",
    "%C": lambda at: f"{at.year // 100:02}",
    "%g": lambda at: at.strftime("%G")[-2:],
    "%s": lambda at: str((at - _EPOCH) // timedelta(seconds=1)),
}
"""Codes that are worked out here."""


def moment(seconds: int | float) -> datetime:
    """The time of so many seconds since 1970; raises OverflowError or ValueError."""
    return _EPOCH + timedelta(microseconds=round(seconds * 1_000_000))


def _day(seconds: int | float) -> int | float:
    moment(seconds)  # raises what has no day
    return seconds - seconds % DAY_S


def _pieces(form: str, position: int) -> str:
    """A format with nothing but codes that Python has; raises BadFilter."""
    if len(form) > FORMAT_CHARS_MAX:
        raise BadFilter(
            f"the format {clipped(form)} has {len(form)} characters, over {FORMAT_CHARS_MAX}",
            position=position,
            expected=f"a format of at most {FORMAT_CHARS_MAX} characters",
        )
    for found in _CODE.finditer(form):
        if found[1] != "03f" and found[1] not in _CODES:
            raise BadFilter(
                f"the format {shown(form)}: %{found[1]} is not known; write for example "
                "'%Y-%m-%dT%H:%M:%S.%f'",
                position=position,
                expected="a format of strftime",
            )
    return _CODE.sub(lambda found: _WRITTEN.get(found[1], found[0]), form)


def _formatting(form: str, position: int) -> Callable[[Value], Value]:
    parts = [part for part in _PART.findall(_pieces(form, position)) if part]

    def formatted(seconds: Value) -> Value:
        one = number(seconds)
        if one is None:
            return None
        try:
            at = moment(one)
            texts = [_MADE[part](at) if part in _MADE else at.strftime(part) for part in parts]
        except (ValueError, OverflowError):
            return None
        made = "".join(texts)
        return made if len(made.encode(errors="replace")) <= FORMATTED_BYTES_MAX else None

    return formatted


def _reading(form: str, position: int) -> Callable[[Value], Value]:
    form = _pieces(form, position).replace("%03f", "%f")
    try:
        datetime.strptime("", form)
    except re.error:
        raise BadFilter(
            f"the format {shown(form)} names something twice",
            position=position,
            expected="a format that names each part once",
        ) from None
    except ValueError as error:
        if "bad directive" in str(error) or "unconverted" in str(error):
            raise BadFilter(
                f"the format {shown(form)} cannot be read back",
                position=position,
                expected="a format of strptime",
            ) from None

    def read(written: Value) -> Value:
        whole = text(written)
        if whole is None or len(whole) > FORMATTED_BYTES_MAX:
            return None
        try:
            at = datetime.strptime(whole, form)
        except (ValueError, OverflowError):
            return None
        at = at if at.tzinfo else at.replace(tzinfo=UTC)
        return (at - _EPOCH) / timedelta(seconds=1)

    return read


_NOW = MessageTrait(Trait.UNIX_TIMESTAMP)
_TODAY = Call("DATE", (_NOW,))


def _date(name: str) -> Function:
    return function(f"{name}(seconds)", of_number(_day))(
        "the beginning of the day of a time in UTC, in seconds since 1970",
        NULL_BY_NULL,
        Example(f"{name}(/at)", 1_699_920_000.0),
    )


def _today(name: str) -> Function:
    return function(f"{name}()", stands_for=_TODAY)(
        "the beginning of today in UTC, in seconds since 1970: that of the day of UNIX_TIMESTAMP()",
        "never NULL",
        Example(f"{name}()", 1_699_920_000.0),
    )


DATE_FUNCTIONS = by_name(
    _date("DATE"),
    _date("DATE_UTC"),
    function("DAY(seconds)", of_number(lambda one: moment(one).day))(
        "the day of the month in UTC", NULL_BY_NULL, Example("DAY(/at)", 14)
    ),
    function("MONTH(seconds)", of_number(lambda one: moment(one).month))(
        "the month in UTC, 1 to 12", NULL_BY_NULL, Example("MONTH(/at)", 11)
    ),
    function("STRFTIME(format, seconds)", literals=(0,), prepare=_formatting)(
        "a time as text",
        "NULL if there is no such time, or the text has over 128 bytes",
        Example("STRFTIME('%Y-%m-%d %H:%M:%S.%03f', /at)", "2023-11-14 22:13:20.250"),
        Example("STRFTIME('%F', /none)", None),
    ),
    function("STRPTIME(text, format)", literals=(1,), prepare=_reading)(
        "the seconds of a time that was written as text, UTC unless it has an offset",
        "NULL if the text is no such time",
        Example("STRPTIME('2023-11-14 22:13:20', '%Y-%m-%d %H:%M:%S')", 1_700_000_000.0),
        Example("STRPTIME('tomorrow', '%F')", None),
    ),
    function("TIMEZONEOFFSET()", stands_for=Literal(0))(
        "how many seconds local time is ahead of UTC: 0, since all times here are in UTC",
        "never NULL",
        Example("TIMEZONEOFFSET()", 0),
    ),
    _today("TODAY"),
    _today("TODAY_UTC"),
    function("UNIX_TIMESTAMP()", stands_for=_NOW)(
        "now, in seconds since 1970 UTC: in a query when it began, else when the message came",
        "never NULL",
        Example("UNIX_TIMESTAMP()", 1_700_000_060.0),
        Example("UNIX_TIMESTAMP() - /at", 59.75),
    ),
    function("YEAR(seconds)", of_number(lambda one: moment(one).year))(
        "the year in UTC", NULL_BY_NULL, Example("YEAR(/at)", 2023)
    ),
)
"""By name."""
