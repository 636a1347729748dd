"""Converts filters of Spark's to filters of the server's.

A pushed filter only saves transfers: it must accept every row for which Spark's own is true, and
Spark still evaluates its own. So a filter is pushed only if the server's comparison is at least as
wide as Spark's:


* numbers, over columns of whole numbers and doubles. A `float` is rounded where the body is not,
  and decimals, times and texts have rules of their own;
* texts that start like no JSON value other than a text. A text column shows other values as JSON
  (`true`, `12.50`, `{"a":1}`), and to the server a boolean is a number and an object nothing;
* prefixes and suffixes of texts for the same reason, and substrings never: an object's text may
  contain anything.

Columns that are not fields of the body are never pushed.
"""

import re
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringEndsWith,
    StringStartsWith,
)

COMPARISON_FILTERS: dict[type[Filter], str] = {
    EqualTo: "=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
}
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
PLAIN_WORDS = re.compile(r"[A-Za-z_][ -&(-\[\]-~]*\Z")
"""Printable, without quotes and backslashes, and not the start of a number, array or object."""
OF_JSON = re.compile(r"(true|false|null|nan|inf(inity)?)\Z", re.IGNORECASE)
"""Words that are a text here and another value there."""
BEGINNING = re.compile(r"(?![tfn])[A-Za-z_][A-Za-z0-9_ ]*\Z")
"""Literal in a pattern, and not the start of another JSON value."""
ENDING = re.compile(r"[A-Za-z0-9_ ]*(?![el])[A-Za-z_]\Z")
"""The same for the ends of other values: a digit, a bracket, true, false or null."""
EXACT = 2**53
"""Whole numbers below it are exact as doubles, so that both sides compare alike."""


def pushed(filters: Iterable[Filter], fields: pa.Schema) -> list[str]:
    """Expressions of the server's for those of `filters` that can be pushed.

    `fields` are the columns that are fields of the body.
    """
    found = (expression(one, fields) for one in filters)
    return [text for text in found if text is not None]


def expression(condition: Filter, fields: pa.Schema) -> str | None:
    """One filter over fields of the body as an expression, or None."""
    if isinstance(condition, Not):
        # Only for numbers: inequality of texts differs between the two.
        child = condition.child
        if isinstance(child, EqualTo) and _number(child.value) is not None:
            inner = expression(child, fields)
            return None if inner is None else f"NOT ({inner})"
        return None
    attribute: tuple[str, ...] = getattr(condition, "attribute", ())
    if not attribute or attribute[0] not in fields.names or not all(map(NAME.match, attribute)):
        return None
    path, kind = "/" + "/".join(attribute), _kind(attribute, fields)
    is_number = kind is not None and (pa.types.is_integer(kind) or pa.types.is_float64(kind))
    is_text = kind is not None and pa.types.is_string(kind)
    if isinstance(condition, IsNotNull):
        # To the server an empty text is NULL.
        return f"{path} IS NOT NULL" if is_number else None
    literal = _number if is_number else _text if is_text else None
    if literal is None:
        return None
    if isinstance(condition, In):
        values = [literal(value) for value in condition.value]
        known = [value for value in values if value is not None]
        return f"{path} IN ({', '.join(known)})" if known and len(known) == len(values) else None
    value: Any = getattr(condition, "value", None)
    if is_text and isinstance(condition, StringStartsWith):
        return f"{path} LIKE '^{value}'" if BEGINNING.match(value) else None
    if is_text and isinstance(condition, StringEndsWith):
        return f"{path} LIKE '{value}$'" if ENDING.match(value) else None
    operator, written = COMPARISON_FILTERS.get(type(condition)), literal(value)
    if operator is None or written is None or (is_text and operator != "="):
        return None
    return f"{path} {operator} {written}"


def _kind(attribute: tuple[str, ...], fields: pa.Schema) -> pa.DataType | None:
    """The type of a column, or of a field within one."""
    kind: pa.DataType | None = fields.field(attribute[0]).type
    for name in attribute[1:]:
        if kind is None or not pa.types.is_struct(kind) or kind.get_field_index(name) < 0:
            return None
        kind = kind.field(name).type
    return kind


def _number(value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return repr(value) if abs(value) < EXACT else None


def _text(value: Any) -> str | None:
    if not isinstance(value, str) or not PLAIN_WORDS.match(value) or OF_JSON.match(value):
        return None
    return f"'{value}'"
