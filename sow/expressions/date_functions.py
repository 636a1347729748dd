"""Functions of times: seconds since 1970 UTC, to text and back. All are in UTC.

Formats are those of strftime(3), with ``%f`` for microseconds and ``%03f`` for milliseconds. What
time it is comes with the messages (`sow.expressions.message_attributes`): nothing here reads a
clock. AMPS has forms in local time and in UTC of some; here a server gives the same wherever it
runs, so both are UTC.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from sow.core.paths import Value
from sow.errors import BadFilter, clipped, shown
from sow.expressions.function import NULL_BY_NULL, Example, Function, by_name, function, of_number
from sow.expressions.message_attributes import Trait
from sow.expressions.nodes import Call, Literal, MessageTrait
from sow.expressions.values import number, text

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
