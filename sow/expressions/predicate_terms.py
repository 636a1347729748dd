"""Access terms: by what an index can find a filter.

Of conditions that must all be true one is enough to leave a filter out: a record that fails it
cannot match. So a filter is filed under the most selective of its terms that an index knows how to
look up: values of a field, a range, or a pattern. An OR is found by any of its arms if each of them
can be found. What is found this way still has the whole filter to pass: an access term may be true
of more records than its condition, never of fewer. In particular two bounds of one field make one
range, although of an array different elements may keep to them: an array counts as the whole range
from its lowest to its highest element.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from sow.core.paths import Path, Scalar
from sow.expressions.filters import Filter, LiteralValue, pinned
from sow.expressions.nodes import (
    And,
    Between,
    Compare,
    Identifier,
    Like,
    Literal,
    Node,
    Or,
    conjuncts,
)
from sow.expressions.patterns import suits_a_set
from sow.expressions.values import COMPARISONS


class ValueTerm(NamedTuple):
    """The field equals one of `values`; without any it is never true."""

    path: Path
    values: tuple[LiteralValue, ...]


class RangeTerm(NamedTuple):
    """The field lies from `low` to `high`, both included; None is no bound.

    Both bounds are numbers, or both are text.
    """

    path: Path
    low: LiteralValue | None
    high: LiteralValue | None


class PatternTerm(NamedTuple):
    """The regular expression `pattern` is found in the field."""

    path: Path
    pattern: str


AccessTerm = ValueTerm | RangeTerm | PatternTerm
MANY_VALUES = 50
"""The assumed selectivity of a range between two bounds, or of a pattern, as a number of values;
ten times as many for a range with one bound. There are no statistics before records arrive."""
_ABOVE, _BELOW = (">", ">="), ("<", "<=")


@dataclass(frozen=True)
class Access:
    """An access path to a filter: every record that matches makes one of `terms` true, and all of
    `rest`, what is left of the conditions."""

    terms: Sequence[AccessTerm]
    rest: Sequence[Node]

    @cached_property
    def further(self) -> "Access | None":
        """What distinguishes it from others that are found by the same terms, if anything does."""
        return find_access(self.rest)


_ACCESSES: WeakKeyDictionary[Filter, Access | None] = WeakKeyDictionary()
"""A cache of access paths. A filter that follows a pattern is filed for each of its topics."""


def access_of(condition: Filter) -> Access | None:
    """The most selective way to find the records that match a filter, found once, if there is."""
    if condition not in _ACCESSES:
        _ACCESSES[condition] = find_access(condition.conjuncts)
    return _ACCESSES[condition]


def find_access(conditions: Iterable[Node]) -> Access | None:
    """The most selective way to find records for which all `conditions` are true, if there is one.

    Depends on the conditions alone, so that an entry can be located again for its removal.
    """
    terms = [part for condition in conditions for part in conjuncts(condition)]
    found = min(_accesses(terms), key=_weight, default=None)
    if found is None:
        return None
    access, used = found
    return Access(access, [term for at, term in enumerate(terms) if at not in used])


def _weight(found: tuple[Sequence[AccessTerm], Sequence[int]]) -> int:
    """The estimated selectivity of the terms, in values."""
    return sum(map(_values_of, found[0]))


def _values_of(term: AccessTerm) -> int:
    match term:
        case ValueTerm(_, values):
            return len(values)
        case RangeTerm(_, None, _) | RangeTerm(_, _, None):
            return 10 * MANY_VALUES
    return MANY_VALUES


def _accesses(terms: Sequence[Node]) -> Iterator[tuple[Sequence[AccessTerm], Sequence[int]]]:
    """Each way to find records for which all `terms` are true, with the indexes of those it
    uses."""
    ranges: dict[tuple[Path, type], list[tuple[int, RangeTerm]]] = {}
    for at, term in enumerate(terms):
        match found := _access_terms(term):
            case [RangeTerm(path, low, high) as limits]:
                kind = str if isinstance(high if low is None else low, str) else float
                ranges.setdefault((path, kind), []).append((at, limits))
            case list():
                yield found, (at,)
    for limited in ranges.values():
        yield [_common([limits for _, limits in limited])], [at for at, _ in limited]


def _common(ranges: Sequence[RangeTerm]) -> RangeTerm:
    """The intersection of these ranges of one field."""
    lows: list[Any] = [limits.low for limits in ranges if limits.low is not None]
    highs: list[Any] = [limits.high for limits in ranges if limits.high is not None]
    return RangeTerm(ranges[0].path, max(lows, default=None), min(highs, default=None))


def _access_terms(term: Node) -> list[AccessTerm] | None:
    """The access path to one condition; None if there is none."""
    match term:
        case Or(arms):
            return _any_of(arms)
        case And():
            access = find_access((term,))
            return None if access is None else list(access.terms)
        case Like(Identifier(path), pattern):
            text = str(pattern.value)
            return [PatternTerm(path, text)] if suits_a_set(text) else None
    equality = pinned(term)
    found = ValueTerm(*equality) if equality is not None else _range(term)
    return None if found is None else [found]


def _any_of(arms: Sequence[Node]) -> list[AccessTerm] | None:
    """The access path to a disjunction; all values of a field make one term."""
    values: dict[Path, dict[LiteralValue, None]] = {}
    others: dict[AccessTerm, None] = {}
    for arm in arms:
        terms = _access_terms(arm)
        if terms is None:
            return None
        for term in terms:
            if isinstance(term, ValueTerm):
                values.setdefault(term.path, {}).update(dict.fromkeys(term.values))
            else:
                others[term] = None
    return [*(ValueTerm(path, tuple(those)) for path, those in values.items()), *others]


def _range(term: Node) -> AccessTerm | None:
    match term:
        case Compare(operator, Literal() as bound, Identifier() as field):
            return _range(Compare(COMPARISONS[operator].mirrored, field, bound))
        case Compare(">" | ">=", Identifier(path), Literal(bound)):
            return _limits(path, bound, None)
        case Compare("<" | "<=", Identifier(path), Literal(bound)):
            return _limits(path, None, bound)
        case Between(Identifier(path), Literal(low), Literal(high)):
            if low is None or low == "" or high is None or high == "":
                return ValueTerm(path, ())
            both = isinstance(low, str) == isinstance(high, str)
            return _limits(path, low, high if both else None)
    return None


def _limits(path: Path, low: Scalar, high: Scalar) -> AccessTerm:
    if low == "" or high == "" or (low is None and high is None):
        return ValueTerm(path, ())  # compared with NULL
    return RangeTerm(path, low, high)
