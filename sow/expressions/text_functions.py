"""Functions of text: parts, search, replacement, checksums. Case is that of ASCII letters."""

import re
import zlib
from collections.abc import Callable
from functools import cache, lru_cache

import re2

from sow.core.paths import Value
from sow.expressions.function import (
    NULL_BY_NULL,
    TEXT_CHARS_MAX,
    Example,
    bounded,
    by_name,
    function,
    of_text,
    of_texts,
)
from sow.expressions.patterns import ENGINE_BYTES_MAX, engine_options, searched_chars_max, searcher
from sow.expressions.values import as_text, number, text

LONG_CHARS = 4096
"""A text of more takes microseconds to be made small letters of."""
REPLACED_CHARS_MAX = 4096
"""Length of a text for REGEXP_REPLACE: each match costs some three microseconds, and every
character may be one."""
_ONE_ATOM = re.compile(
    r"(?:\\d|[A-Za-z0-9]|\[\^?(?:[A-Za-z0-9]-[A-Za-z0-9]|[A-Za-z0-9_ .,:;#/@])+-?\])\+?\Z"
)
"""Patterns that Python's own engine reads as RE2 does, in linear time and a tenth of the time: one
digit, letter or class of ASCII, perhaps several of it."""
BLANKS = " \t\n\r\f\v"
"""The characters that TRIM removes."""


HASHED_CHARS_MAX = 4096
"""Length of a text for CRC64: each byte costs some 0.1 microseconds."""
ALL_BITS = 2**64 - 1
"""The initial value of a checksum of 64 bits."""
_CRC64_ECMA = 0xC96C5795D7870F42
"""The polynomial of ECMA-182, its bits in reverse order, as xz uses it."""


def upper(value: str) -> str:
    """`value` with the letters a to z as capitals."""
    return value.upper() if value.isascii() else _as_bytes(value, bytes.upper)


def lower(value: str) -> str:
    """`value` with the letters A to Z as small ones."""
    if len(value) > LONG_CHARS:
        return _lower_of_long(value)
    return value.lower() if value.isascii() else _as_bytes(value, bytes.lower)


@lru_cache(maxsize=2)
def _lower_of_long(value: str) -> str:
    """Cached for the next test: hundreds of them may use the same."""
    return _as_bytes(value, bytes.lower)


def _as_bytes(value: str, change: Callable[[bytes], bytes]) -> str:
    """Apply a change of ASCII letters to the bytes in UTF-8, which keeps all other characters."""
    return change(value.encode(errors="surrogatepass")).decode(errors="surrogatepass")


def _substr(value: Value, position: Value, length: Value = TEXT_CHARS_MAX) -> Value:
    if isinstance(value, str) and isinstance(position, int) and isinstance(length, int) and value:
        # Nearly always they are what they should be, and nothing is to be read of them.
        at = position - 1
        if 0 <= at <= TEXT_CHARS_MAX and length >= 0:
            return value[at : at + length]
    whole, start, count = text(value), number(position), number(length)
    if whole is None or start is None or count is None:
        return None
    start = _start(whole, start)
    return whole[start : start + max(0, _whole(count))]


def _start(whole: str, at: int | float) -> int:
    return _whole(at) - 1 if at > 0 else max(0, len(whole) + _whole(at))


def _whole(one: int | float) -> int:
    """A position or length as an integer: none is farther than a text is long."""
    if one != one:
        return 0
    return int(max(-TEXT_CHARS_MAX * 64, min(TEXT_CHARS_MAX * 64, one)))


def _end(take: Callable[[str, int], str]) -> Callable[[Value, Value], Value]:
    def taken(value: Value, length: Value) -> Value:
        whole, count = text(value), number(length)
        if whole is None or count is None:
            return None
        return take(whole, max(0, _whole(count)))

    return taken


def _concat(*values: Value) -> Value:
    return bounded("".join(text(value) or "" for value in values))


def _replace(value: str | None, old: str | None, new: str) -> Value:
    if value is None or old is None:
        return None
    if old not in value:
        return value
    if (
        len(new) > len(old)
        and len(value) + value.count(old) * (len(new) - len(old)) > TEXT_CHARS_MAX
    ):
        return None
    return value.replace(old, new)


def _joined(values: Value, delimiter: Value, null_text: Value = None) -> Value:
    listed = values if isinstance(values, list) else [values]
    between, missing = text(delimiter) or "", text(null_text)
    texts = [missing if one is None or one == "" else as_text(one) for one in listed]
    if all(one is None or one == "" for one in listed):
        return None
    return bounded(between.join(one for one in texts if one is not None))


def _character(code: Value) -> Value:
    one = number(code)
    return chr(int(one)) if one is not None and 0 <= one <= 255 else None


def _reversed(value: str) -> str:
    return value[::-1]


def _replacing(pattern: str, position: int) -> Callable[[Value, Value], Value]:
    """A function that replaces all matches of the regular expression `pattern`."""
    is_found = searcher(pattern, position)
    # As bytes, as LIKE searches: with offsets of characters it would take twice as long.
    compiled = re2.compile(pattern.encode(errors="replace"), _options())
    chars_max = searched_chars_max(pattern)
    quick_sub = re.compile(pattern, re.ASCII).sub if _ONE_ATOM.match(pattern) else None

    def replaced(value: Value, new: Value) -> Value:
        # Nearly always both are texts, and nothing is to be read of them.
        whole = value if value.__class__ is str and value else text(value)
        put = new if new.__class__ is str else text(new) or ""
        if whole is None or len(whole) > chars_max:
            return None
        if quick_sub and len(whole) <= REPLACED_CHARS_MAX and "\\" not in put and whole.isascii():
            made = quick_sub(put, whole)
            return made if len(made) <= TEXT_CHARS_MAX else None
        if not is_found(whole):
            return whole
        if len(whole) > REPLACED_CHARS_MAX:
            return None
        try:
            made = compiled.sub(put.encode(errors="replace"), whole.encode(errors="replace"))
        except (re2.error, IndexError):
            # A group that the pattern does not have.
            return None
        return bounded(bytes(made).decode(errors="replace"))

    return replaced


@cache
def _crc64_table() -> tuple[int, ...]:
    """The table of CRC64, made at its first use."""
    table = list(range(256))
    for _ in range(8):
        table = [one >> 1 ^ (_CRC64_ECMA if one & 1 else 0) for one in table]
    return tuple(table)


def _crc64(value: str) -> Value:
    if len(value) > HASHED_CHARS_MAX:
        return None
    table, found = _crc64_table(), ALL_BITS
    for byte in value.encode(errors="replace"):
        found = table[(found ^ byte) & 0xFF] ^ found >> 8
    return found ^ ALL_BITS


def _options() -> re2.Options:
    options = engine_options(ENGINE_BYTES_MAX)
    options.never_capture = False
    return options


TEXT_FUNCTIONS = by_name(
    function("ARRAY_TO_STRING(list, delimiter[, null_text])", _joined)(
        "all values of a list as text, with the delimiter between; NULLs are left out or as given",
        "NULL if the list has no value",
        Example("ARRAY_TO_STRING(/list, '-')", "2-5-7"),
        Example("ARRAY_TO_STRING(/tags, ',', '?')", "a,?,b"),
    ),
    function("CHAR_VALUE(code)", _character)(
        "the character of a code from 0 to 255",
        "NULL for any other code",
        Example("CHAR_VALUE(65)", "A"),
    ),
    function("CONCAT(value, ...)", _concat)(
        "all values as text, one after the other",
        "NULLs are left out",
        Example("CONCAT('a', 1, /none)", "a1"),
    ),
    function("CRC32(text)", of_text(lambda value: zlib.crc32(value.encode(errors="replace"))))(
        "a checksum from 0 to 4294967295",
        NULL_BY_NULL,
        Example("CRC32('ACME') % 10", zlib.crc32(b"ACME") % 10),
    ),
    function("CRC64(text)", of_text(_crc64), slow=True)(
        "a checksum from 0 to 18446744073709551615, that of xz (CRC-64 of ECMA-182)",
        "NULL if the text is NULL, or has over 4,096 characters",
        Example("CRC64('123456789')", 0x995DC9BBDF1939FA),
    ),
    function("INSTR(text, part)", of_texts(lambda value, part: value.find(part) + 1), scans=True)(
        "where part begins, from 1; 0 if it is not there",
        NULL_BY_NULL,
        Example("INSTR(/sym, 'M')", 3),
        Example("INSTR(/sym, 'x')", 0),
    ),
    function(
        "INSTR_I(text, part)",
        of_texts(lambda value, part: lower(value).find(lower(part)) + 1),
        scans=True,
    )("INSTR, whatever the case", NULL_BY_NULL, Example("INSTR_I(/sym, 'me')", 3)),
    function("LEFT(text, length)", _end(lambda value, count: value[:count]))(
        "the first characters", NULL_BY_NULL, Example("LEFT(/sym, 2)", "AC")
    ),
    function(
        "LENGTH(text)",
        of_text(lambda value: len(value) if value.isascii() else len(value.encode())),
    )(
        "how many bytes of UTF-8 it has",
        NULL_BY_NULL,
        Example("LENGTH(/sym)", 4),
        Example("LENGTH('é')", 2),
    ),
    function("LOWER(text)", of_text(lower))(
        "in small letters, A to Z only", NULL_BY_NULL, Example("LOWER('AbC')", "abc")
    ),
    function("LTRIM(text)", of_text(lambda value: value.lstrip(BLANKS)))(
        "without the blanks at its beginning", NULL_BY_NULL, Example("LTRIM('  a ')", "a ")
    ),
    function(
        "REGEXP_REPLACE(text, pattern, new)", literals=(1,), prepare=_replacing, searches=True
    )(
        "all that the regular expression finds replaced; `\\1` in new is what its group found",
        "NULL if the text is NULL, or has a match and over 4,096 characters, or over 65,536; new "
        "text that is NULL is nothing",
        Example("REGEXP_REPLACE(/sym, r'[A-C]', '*')", "**ME"),
    ),
    function(
        "REPLACE(text, old, new)",
        lambda value, old, new: _replace(text(value), text(old), text(new) or ""),
    )(
        "every `old` replaced by `new`",
        "NULL if the text or `old` is NULL; a new text that is NULL is nothing",
        Example("REPLACE('aba', 'a', 'x')", "xbx"),
        Example("REPLACE('aba', 'a', '')", "b"),
    ),
    function("REVERSE(text)", of_text(_reversed))(
        "its characters from the last to the first", NULL_BY_NULL, Example("REVERSE('abc')", "cba")
    ),
    function(
        "RIGHT(text, length)",
        _end(lambda value, count: value[len(value) - count :] if count < len(value) else value),
    )("the last characters", NULL_BY_NULL, Example("RIGHT(/sym, 2)", "ME")),
    function("RTRIM(text)", of_text(lambda value: value.rstrip(BLANKS)))(
        "without the blanks at its end", NULL_BY_NULL, Example("RTRIM(' a  ')", " a")
    ),
    function(
        "STREQUAL_I(text, text)",
        of_texts(lambda one, other: int(len(one) == len(other) and lower(one) == lower(other))),
    )(
        "1 if both are the same, whatever the case; else 0",
        NULL_BY_NULL,
        Example("STREQUAL_I(/sym, 'acme')", 1),
    ),
    function("SUBSTR(text, position[, length])", _substr)(
        "from a position, 1 being the first, below 1 counted from the end",
        NULL_BY_NULL,
        Example("SUBSTR('fandango', 5)", "ango"),
        Example("SUBSTR('fandango', 1, 3)", "fan"),
        Example("SUBSTR('fandango', -2)", "go"),
    ),
    function("TRIM(text)", of_text(lambda value: value.strip(BLANKS)))(
        "without the blanks at both ends", NULL_BY_NULL, Example("TRIM('  a ')", "a")
    ),
    function("UPPER(text)", of_text(upper))(
        "in capitals, a to z only", NULL_BY_NULL, Example("UPPER('AbC')", "ABC")
    ),
)
"""By name."""
