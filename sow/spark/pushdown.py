"""Filters of Spark's as filters of the server's.

A pushed filter only spares rows the way: it must let through every row for which Spark's own is
true, and Spark evaluates its own all the same. So comparisons are pushed where the server's are as
wide as Spark's, and left alone where they are not: texts that look like numbers are numbers to the
server, and a field of another type than its column is null to Spark alone.
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
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

COMPARISONS: dict[type[Filter], str] = {
    EqualTo: "=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
}
PATTERNS: dict[type[Filter], str] = {
    StringContains: "{}",
    StringStartsWith: "^{}",
    StringEndsWith: "{}$",
}
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
PLAIN = re.compile(r"[ -&(-\[\]-~]+\Z")  # printable, without quotes and backslashes
LITERALLY = re.compile(r"[A-Za-z0-9_ ]+\Z")  # means itself in a pattern
EXACT = 2**53


def pushed(filters: Iterable[Filter], fields: pa.Schema) -> list[str]:
    """Expressions of the server's for those of `filters` that it can help with.

    `fields` are the columns that are fields of the body.
    """
    found = (expression(one, fields) for one in filters)
    return [text for text in found if text is not None]


def expression(condition: Filter, fields: pa.Schema) -> str | None:
    """One filter over fields of the body as an expression, or None."""
    if isinstance(condition, Not):
        # Only of numbers: that a text differs from another is not the same to both.
        child = condition.child
        if isinstance(child, EqualTo) and _number(child.value):
            inner = expression(child, fields)
            return None if inner is None else f"NOT ({inner})"
        return None
    attribute: tuple[str, ...] = getattr(condition, "attribute", ())
    if not attribute or attribute[0] not in fields.names or not all(map(NAME.match, attribute)):
        return None
    path, kind = "/" + "/".join(attribute), fields.field(attribute[0]).type
    if isinstance(condition, IsNotNull):
        # To the server an empty text is NULL.
        is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
        return f"{path} IS NOT NULL" if is_number else None
    if isinstance(condition, In):
        values = [_literal(value) for value in condition.value]
        known = [value for value in values if value is not None]
        return f"{path} IN ({', '.join(known)})" if known and len(known) == len(values) else None
    value: Any = getattr(condition, "value", None)
    if type(condition) in PATTERNS:
        return _pattern(path, PATTERNS[type(condition)], value)
    operator = COMPARISONS.get(type(condition))
    literal = _literal(value)
    if operator is None or literal is None or (operator != "=" and not _number(value)):
        return None
    return f"{path} {operator} {literal}"


def _number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) < EXACT


def _literal(value: Any) -> str | None:
    if isinstance(value, str):
        return f"'{value}'" if _plain(value) else None
    return repr(value) if _number(value) else None


def _pattern(path: str, form: str, value: Any) -> str | None:
    if not isinstance(value, str):
        return None
    return f"{path} LIKE '" + form.format(value) + "'" if LITERALLY.match(value) else None


def _plain(value: str) -> bool:
    """Not empty, and no character that an expression might read otherwise than it is meant."""
    return bool(PLAIN.match(value))
