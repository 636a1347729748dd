"""`order_by`: which fields sort the result of a query, and how values rank.

Ascending, NULLs stand first, then NaN, then numbers (booleans are 1 and 0), then strings as
text; a list counts by its first element. With TEXT every value ranks as its text. Sorting itself
is the caller's, with a stable sort and `reverse` for DESC.
"""

import re
from dataclasses import dataclass

from sow.errors import BadFilter, TooLarge, shown
from sow.expressions.compare import as_text
from sow.paths import Path, Scalar, Value, parse_path

TERMS_MAX = 32
"""Fields of an order: the records are sorted once for each."""
SortKey = tuple[int] | tuple[int, str | int | float]

_NULL: SortKey = (0,)
_NAN: SortKey = (1,)
_SEPARATOR = re.compile(r",(?![^\[]*\])")
_TERM = re.compile(
    r"\s*(?P<path>\[[^\]]*\]\S*|\S+)(?:\s+(?P<direction>ASC|DESC))?(?:\s+(?P<text>TEXT))?\s*\Z",
    re.I,
)


@dataclass(frozen=True, slots=True)
class OrderTerm:
    """One field of an `order_by`: descending or not, ranked as text or by value."""

    path: Path
    descending: bool = False
    text: bool = False

    def key(self, value: Value) -> SortKey:
        """What to sort by, ascending, for a record with this value of `path`."""
        return text_sort_key(value) if self.text else sort_key(value)


def sort_key(value: Value) -> SortKey:
    """A key under which any values sort: NULL, NaN, numbers, strings."""
    first = _first(value)
    if first is None or first == "":
        return _NULL
    if isinstance(first, str):
        return (3, first)
    return (2, first) if first == first else _NAN


def text_sort_key(value: Value) -> SortKey:
    """A key under which values sort as their text, NULLs first."""
    first = _first(value)
    return _NULL if first is None or first == "" else (3, as_text(first))


def _first(value: Value) -> Scalar:
    if isinstance(value, list):
        return value[0] if value else None
    return value


def parse_order_by(text: str) -> tuple[OrderTerm, ...]:
    """Read ``/px DESC, /id``: paths, each with ASC or DESC and TEXT as wanted; raises BadFilter."""
    terms: list[OrderTerm] = []
    start = 0
    for end in [*(found.start() for found in _SEPARATOR.finditer(text)), len(text)]:
        if len(terms) == TERMS_MAX:
            raise TooLarge(
                f"order_by has more than {TERMS_MAX} fields; name fewer",
                position=start,
                expected=f"at most {TERMS_MAX} fields",
            )
        term = text[start:end]
        terms.append(_term(term, start + len(term) - len(term.lstrip())))
        start = end + 1
    return tuple(terms)


def _term(text: str, position: int) -> OrderTerm:
    found = _TERM.match(text)
    try:
        if found is None:
            raise BadFilter(f"{shown(text.strip())} is not a path with ASC or DESC and TEXT")
        path = parse_path(found["path"])
    except BadFilter as error:
        raise BadFilter(
            f"order_by, position {position}: {error.detail}; write for example /px DESC, /id",
            position=position,
            expected="a path, then ASC or DESC, then TEXT",
            reason="bad orderby",
        ) from None
    descending = (found["direction"] or "").upper() == "DESC"
    return OrderTerm(path, descending, found["text"] is not None)
