"""Value types: which texts an element accepts, and the value that each is parsed to.

Each has a name for the reference and a function from text to value that raises `MistakeError`.
A value type validates one value by itself; what must agree between elements is in the rules.
Intervals are written as everywhere (`conflated_topics.user_texts`); sizes count in powers of 1024
however they are spelt.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import PurePosixPath
from typing import Literal, get_args
from urllib.parse import urlsplit

from conflated_topics.user_texts import IntervalError, interval_us, nearest
from sow.config.diagnostics import MistakeError, halves
from sow.core.comma_lists import check_written, parse_select
from sow.core.paths import parse_path
from sow.errors import BadFilter, ClientError, shown
from sow.expressions import check_deterministic, check_fields_alone, compile_fields, compile_filter
from sow.expressions.patterns import METACHARACTERS, topic_search
from sow.messages.declared import value_type
from sow.security.row_level_security import USER_PREFIX, read_condition

NUMBER_AND_UNIT = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[A-Za-z]*)", re.ASCII)
# Beyond this a value no longer fits the 64-bit integers that it is stored in.
HIGHEST = 2**62

POWERS_OF_1024 = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
POWERS_OF_1000 = {"": 0, "k": 1, "m": 2}


def duration_us(text: str) -> int:
    """An interval such as ``500ms`` in microseconds, rounded up; raises MistakeError."""
    try:
        return interval_us(text)
    except IntervalError as error:
        raise MistakeError(error.wrong, error.instead) from None


def size_bytes(text: str) -> int:
    """A size such as ``16MB`` in bytes, K M G T (or KB, KiB, …) being powers of 1024."""
    number, unit = _split(text, "a size", "write a number of bytes, such as 64KB or 16MB")
    prefix = re.sub(r"i?b\Z", "", unit.lower())
    if prefix not in POWERS_OF_1024 or unit.lower() == "ib":
        raise MistakeError(f"{text!r} has the unit {unit!r}, which is none", "use KB, MB, GB or TB")
    return _bounded(_whole(number * 1024 ** POWERS_OF_1024[prefix], text), text)


def count_of(text: str) -> int:
    """A count such as ``10000`` or ``10k``; k is a thousand, M a million, in either case."""
    number, unit = _split(text, "a count", "write a whole number, such as 10000 or 10k")
    if unit.lower() not in POWERS_OF_1000:
        raise MistakeError(
            f"{text!r} has the unit {unit!r}; counts have k or M", "write digits only"
        )
    return _bounded(_whole(number * 1000 ** POWERS_OF_1000[unit.lower()], text), text)


def _split(text: str, what: str, instead: str) -> tuple[Fraction, str]:
    # The length is bounded since Python refuses to convert thousands of digits.
    found = NUMBER_AND_UNIT.fullmatch(text) if len(text) <= 40 else None
    if found is None:
        raise MistakeError(f"{text[:40]!r} is not {what}", instead)
    return Fraction(found["number"]), found["unit"]


def _whole(number: Fraction, text: str) -> int:
    if number.denominator != 1:
        raise MistakeError(f"{text!r} is not a whole number", "write it without a fraction")
    return number.numerator


def _bounded(value: int, text: str) -> int:
    if value > HIGHEST:
        raise MistakeError(f"{text!r} is too large", "write a smaller value")
    return value


LABEL_CHARS_MAX = 100
"""Characters of what every page of the console and every answer of the status shows."""
LONGEST_NAME = 255
"""Characters of a name. Topics that come into being by a Pattern keep to the same
(sow.engine.catalog)."""
CALLABLE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)
ADDRESS = re.compile(
    r"(?:(?P<host>\[[0-9A-Fa-f:.%]+\]|[^\s:\[\]/]+):)?(?P<port>\d{1,20})", re.ASCII
)
KAFKA_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
PORT_MAX = 65535
"""TCP has 16 bits for a port."""


@dataclass(frozen=True, slots=True)
class ValueKind:
    """A kind of value: its name in the reference, its reader, which raises MistakeError, and the
    words that it takes, if it takes no others. References ``${…}`` that begin with `parameters` are
    its own, and no variables of the file."""

    name: str
    read: Callable[[str], object]
    words: tuple[str, ...] = ()
    may_be_empty: bool = False
    parameters: str = ""


def _text(text: str) -> str:
    if not text.isprintable():
        raise MistakeError("contains a control character or a line break", "remove it")
    return text


def _label(text: str) -> str:
    if len(text) > LABEL_CHARS_MAX:
        raise MistakeError(
            f"the text has {len(text)} characters", f"use at most {LABEL_CHARS_MAX} characters"
        )
    return _text(text)


def _instance_name(text: str) -> str:
    if bad := re.search(r"[/\\$~]", text):
        raise MistakeError(
            f"{shown(text)} contains {bad[0]!r}", "use letters, digits, blanks, '-', '_' and '.'"
        )
    return _label(text)


def _topic_name(text: str) -> str:
    if len(text) > LONGEST_NAME:
        raise MistakeError(
            f"the name has {len(text)} characters", f"use at most {LONGEST_NAME} characters"
        )
    return _text(text)


def _field_name(text: str) -> str:
    if text.startswith("/") and "/" not in text[1:]:
        raise MistakeError(
            f"{shown(text)} is a path, and a name of a field is expected", f"write {text[1:]}"
        )
    if bad := re.search(r"[/\[\]]", text):
        raise MistakeError(
            f"{shown(text)} contains {bad[0]!r}, which no name in a path can",
            "use letters, digits, blanks, '-', '_' and '.'",
        )
    return _topic_name(text)


def _path(text: str) -> str:
    """A path in its one canonical spelling, so that equal paths are equal texts."""
    try:
        return str(parse_path(text))
    except BadFilter as error:
        raise MistakeError(*halves(error.detail)) from None


def _declared_path(text: str) -> str:
    """The path of a field that is one: it names no place in an array."""
    try:
        path = parse_path(text)
    except BadFilter as error:
        raise MistakeError(*halves(error.detail)) from None
    if path.index is not None:
        raise MistakeError(
            f"{path} is one value of an array, and a type is that of a field",
            "declare the field itself, as json",
        )
    return str(path)


def _value_type(text: str) -> str:
    try:
        return value_type(text).name
    except ClientError as error:
        raise MistakeError(*halves(error.detail)) from None


def expression(name: str, check: Callable[[str], object], *, parameters: str = "") -> ValueKind:
    """A text of the expression language, for which `check` raises nothing."""

    def read(text: str) -> str:
        try:
            check(text)
        except ClientError as error:
            raise mistake(error) from None
        return text

    return ValueKind(name, read, parameters=parameters)


def _select(text: str) -> tuple[str, ...]:
    members = tuple(member.strip() for member in text.split(","))
    try:
        if not all(members):
            raise ClientError("a member is empty; write paths between commas, such as -/client")
        check_written(members)
    except ClientError as error:
        raise MistakeError(*halves(error.detail)) from None
    if not parse_select(members).hides:
        raise MistakeError(
            "hides nothing, since fields that no path decides are shown",
            "write -/ first, or paths without signs, to show these alone: /id,/px",
        )
    return members


def field(*states: str) -> ValueKind:
    """A field construction, which may refer to these states of the record."""
    return expression("expression `AS` path", lambda text: compile_fields([text], states))


def mistake(error: ClientError) -> MistakeError:
    """The mistake in an expression, with its position."""
    wrong, instead = halves(error.detail)
    if "position" not in wrong:
        wrong += f" (at position {error.position})"
    if error.expected and error.expected not in error.detail:
        instead += f"{'; ' if instead else ''}expected {error.expected}"
    return MistakeError(wrong, instead, position=error.position or 0)


def _file(text: str) -> str:
    """A path inside the data directory, without ``./`` and doubled slashes."""
    path = PurePosixPath(_text(text))
    if path.is_absolute():
        raise MistakeError(
            f"{shown(text)} is an absolute path; paths are relative to the data directory",
            f"write {text.strip('/') or 'a name'}, and set DataDirectory or --data-dir",
        )
    if ".." in path.parts:
        raise MistakeError(
            f"{shown(text)} leads out of the data directory", "write a path without '..'"
        )
    if "\\" in text:
        raise MistakeError(f"{shown(text)} contains a backslash", "separate directories with '/'")
    if not path.parts:
        raise MistakeError(f"{shown(text)} names the data directory itself", "write a name")
    return str(path)


def _expiration(text: str) -> tuple[bool, int | None]:
    """Whether lifetimes are honoured, and the default lifetime in microseconds."""
    if text in ("disabled", "enabled"):
        return text == "enabled", None
    if text.lower() in ("never", "none", "off", "unlimited", "infinite"):
        raise MistakeError(f"{shown(text)} is not an interval", "did you mean disabled?")
    try:
        lifetime_us = duration_us(text)
    except MistakeError as mistake:
        instead = mistake.instead + ", or 'enabled' or 'disabled'"
        raise MistakeError(mistake.message, instead) from None
    return True, lifetime_us or None  # 0 is for ever, as where a publisher sends it


def _retained(text: str) -> tuple[int | None, int | None]:
    """How many events of a series are kept, and how old they may be, in microseconds."""
    words = text.split()
    found = dict(zip(words[::2], words[1::2], strict=False))
    if len(words) != 2 * len(found) or not found.keys() <= {"limit", "last"}:
        raise MistakeError(
            f"{shown(text)} does not say which events are kept",
            "write limit and a count, last and an interval, or both, such as limit 100 last 10s",
        )
    limit, last = found.get("limit"), found.get("last")
    events_max, age_us = limit and count_of(limit), last and duration_us(last)
    if events_max == 0 or age_us == 0:
        raise MistakeError(f"{shown(text)} keeps nothing", "write 1 or more of it")
    return events_max or None, age_us or None


def _present(text: str) -> bool:
    if text:
        raise MistakeError(
            f"holds {shown(text)}, and means what it means by being there", "empty it"
        )
    return True


def _address(text: str) -> tuple[str, int]:
    found = ADDRESS.fullmatch(text)
    if found is None:
        raise MistakeError(
            f"{shown(text)} is not an address", "write host:port, such as 127.0.0.1:8080"
        )
    if int(found["port"]) > PORT_MAX:
        raise MistakeError(
            f"the port {found['port']} is above the highest, {PORT_MAX}",
            f"write one from 1 to {PORT_MAX}, or 0 for any free one",
        )
    return (found["host"] or "127.0.0.1").strip("[]"), int(found["port"])


def _addresses(text: str) -> tuple[str, ...]:
    return tuple(_url(one.strip()) for one in text.split(","))


def _servers(text: str) -> tuple[str, ...]:
    each = (one.strip() for one in text.split(","))
    return tuple(
        _with_port(one) if ADDRESS.fullmatch(one) and ":" in one else _url(one) for one in each
    )


def _with_port(text: str) -> str:
    """An address whose port is one, if it has any."""
    try:
        urlsplit(text if "://" in text else f"//{text}").port  # noqa: B018
    except ValueError:
        # The rest may be a password.
        raise MistakeError(
            "an address has a port that is none", f"write one from 1 to {PORT_MAX}"
        ) from None
    return text


def _stream(text: str) -> str:
    if any(one.isspace() or one in ".*>/\\" or not one.isprintable() for one in text):
        raise MistakeError(
            f"{shown(text)} cannot be a stream of NATS",
            "leave out blanks and '.', '*', '>', '/' and '\\'",
        )
    return text


def _kafka_topic(text: str) -> str:
    if not KAFKA_TOPIC.fullmatch(text) or text in (".", ".."):
        raise MistakeError(
            f"{shown(text)} cannot be a topic of Kafka",
            "use at most 249 letters, digits, '-', '_' and '.'",
        )
    return text


def _url(text: str) -> str:
    scheme, found, rest = text.partition("://")
    if not (scheme and found and rest) or any(char.isspace() for char in text):
        called = "what stands there" if "@" in text else shown(text)  # it may be a password
        raise MistakeError(
            f"{called} is not an address with its scheme",
            "write it as nats://10.0.0.1:4222 or http://10.0.0.1:8080",
        )
    return _with_port(text)


def _separator(text: str) -> bytes:
    code = int(text) if re.fullmatch(r"\d{1,3}", text, re.ASCII) else 0
    if not 1 <= code <= 127 or chr(code) == "=" or chr(code).isalnum():
        raise MistakeError(
            f"{shown(text)} is not the code of a separator",
            "write the decimal ASCII code of a character that is no letter, digit or '=', "
            "such as 1 (SOH) or 124 (|)",
        )
    return bytes([code])


def _percentage(text: str) -> float:
    """A percentage as a fraction."""
    found = re.fullmatch(r"(\d{1,3})\s*%", text, re.ASCII)
    if found is None or not 1 <= int(found[1]) <= 100:
        raise MistakeError(f"{shown(text)} is not a percentage", "write 1% to 100%, such as 50%")
    return int(found[1]) / 100


def _callable(text: str) -> str:
    if not CALLABLE.fullmatch(text):
        raise MistakeError(
            f"{shown(text)} does not name a callable",
            "write package.module:name, such as mine.sums:add",
        )
    return text


def _topic_pattern(text: str) -> str:
    try:
        topic_search(_text(text))
    except ClientError as error:
        raise MistakeError(*halves(error.detail)) from None
    return text


def _topic_format(text: str) -> str:
    """A name with %n in it, and nothing that reads as a pattern (docs/semantics.md, Rule 4)."""
    if "%n" not in text:
        raise MistakeError(
            f"{shown(text)} has no %n, so all copies would have one name",
            f"write {text}-%n or such: %n becomes the name of each topic",
        )
    if text == "%n":
        raise MistakeError(
            "'%n' alone gives each copy the name of the topic that it copies", "write %n-C or such"
        )
    if found := METACHARACTERS.intersection(text):
        raise MistakeError(
            f"{shown(text)} contains {' '.join(sorted(found))}, which means something to a regular "
            "expression",
            "use letters, digits, '/', '-' and '_'",
        )
    return _topic_name(text)


def choice(words: object, **others: tuple[str, ...]) -> ValueKind:
    """One word of several: those of a `Literal`, which is also the type of what is read. `others`
    are what some call one of them."""
    values: tuple[str, ...] = get_args(words)
    meanings = {other: word for word, several in others.items() for other in several}

    def read(text: str) -> str:
        if text in values:
            return text
        meant = meanings.get(text.lower()) or nearest(text, values)
        raise MistakeError(
            f"{shown(text)} is not one of {', '.join(values)}",
            f"did you mean {meant}?" if meant else "write one of them",
        )

    return ValueKind(" or ".join(f"`{value}`" for value in values), read, values)


def switch(words: object, **others: tuple[str, ...]) -> ValueKind:
    """The same of two words, read as whether it is the first."""
    word = choice(words, **others)
    return replace(word, read=lambda text: word.read(text) == word.words[0])


def or_unlimited(kind: ValueKind) -> ValueKind:
    """A limit that may be absent, read as None."""
    return ValueKind(
        f"{kind.name} or `unlimited`", lambda text: None if text == "unlimited" else kind.read(text)
    )


def duration(minimum: str = "0", maximum: str = "") -> ValueKind:
    """An interval, read as microseconds."""
    return _ranged("interval", duration_us, minimum, maximum)


def size(minimum: str = "1") -> ValueKind:
    """A size in memory or on disk, read as bytes."""
    return _ranged("size", size_bytes, minimum, "")


def count(minimum: str = "1", maximum: str = "") -> ValueKind:
    """A whole number."""
    return _ranged("count", count_of, minimum, maximum)


def _ranged(name: str, parse: Callable[[str], int], minimum: str, maximum: str) -> ValueKind:
    def read(text: str) -> int:
        value = parse(text)
        if value < parse(minimum):
            raise MistakeError(
                f"{text} is less than the minimum, {minimum}", f"write {minimum} or more"
            )
        if maximum and value > parse(maximum):
            raise MistakeError(
                f"{text} is more than the maximum, {maximum}", f"write {maximum} or less"
            )
        return value

    return ValueKind(name, read)


FLAG = switch(
    Literal["true", "false"],
    true=("yes", "on", "1", "enabled", "enable"),
    false=("no", "off", "0", "disabled", "disable"),
)
TEXT = ValueKind("text", _text)
URL = ValueKind("address", _url)
URLS = ValueKind("addresses with commas between", _addresses)
SERVERS = ValueKind("addresses or host:port, with commas between", _servers)
KAFKA_TOPIC_NAME = ValueKind("name of a topic of Kafka", _kafka_topic)
LABEL = ValueKind("text", _label)
PRESENT = ValueKind("empty", _present, may_be_empty=True)
INSTANCE_NAME = ValueKind("name", _instance_name)
TOPIC_NAME = ValueKind("topic name", _topic_name)
PATH = ValueKind("path", _path)
DECLARED_PATH = ValueKind("path", _declared_path)
VALUE_TYPE = ValueKind(
    "`int64`, `float64`, `decimal(p,s)`, `string`, `bool`, `timestamp`, `date` or `json`",
    _value_type,
)
FIELD_NAME = ValueKind("name", _field_name)
STREAM_NAME = ValueKind("name", _stream)
FILTER = expression(
    "filter", lambda text: check_deterministic(compile_filter(text), "the filter of a topic")
)
ENTITLEMENT = expression("filter with `${user.…}`", read_condition, parameters=USER_PREFIX)
SELECT = ValueKind("select list", _select)
FIELDS_FILTER = expression(
    "filter", lambda text: check_fields_alone(compile_filter(text), "the filter of a pipeline")
)
"""One that knows nothing of a row but its fields."""
FILE = ValueKind("file", _file)
DIRECTORY = ValueKind("directory", _text)
EXPIRATION = ValueKind("`disabled`, `enabled` or an interval", _expiration)
RETAINED = ValueKind("`limit` and a count, `last` and an interval, or both", _retained)
AGE = or_unlimited(duration(minimum="1s"))
SIZE_IF_ANY = or_unlimited(size())
COUNT_IF_ANY = or_unlimited(count())
ADDRESS_KIND = ValueKind("host:port", _address)
SEPARATOR = ValueKind("ASCII code", _separator)
PERCENTAGE = ValueKind("percentage", _percentage)
CALLABLE_NAME = ValueKind("package.module:callable", _callable)
TOPIC_PATTERN = ValueKind("regular expression", _topic_pattern)
TOPIC_FORMAT = ValueKind("topic name with `%n`", _topic_format)
