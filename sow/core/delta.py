"""Deltas: part of a document that stands for a change of the whole.

A delta is a document that is merged into another one path by path
(`conflated_topics.documents`). Fields that it does not name stay as they are, so a delta cannot
remove a field; where the new state lacks one, `difference` and `composed` say so with None and the
whole document has to travel instead.

    merged(a, delta)     the document `a` as the delta leaves it
    difference(a, b)     the delta with merged(a, delta) == b
    composed(d1, d2)     the delta with merged(a, it) == merged(merged(a, d1), d2) for every a

Documents are what `MessageType.parse` returns for types with fields. Nothing is changed in place.
"""

from collections.abc import Iterable
from itertools import compress, repeat
from operator import and_, eq, is_, is_not, ne, not_, or_, truth

from conflated_topics.documents import (
    MANY_FIELDS,
    TEXT_FIELD,
    Document,
    Nulls,
    ObjectWithText,
    merged,
)
from sow.core.cooperative import Task
from sow.core.lossless_numbers import LosslessNumber

__all__ = ["Document", "Nulls", "composed", "difference", "differing", "merged", "same"]

PLAIN = frozenset({str, int, bool, type(None)})
"""Values of one of these types are the same if they are equal."""
SIMPLE = PLAIN | {float}
"""Values of these types take the place of each other."""
NOTHING = object()
"""Stands for a value that there is not."""


FIELDS_AT_ONCE = 5_000
"""Fields that one step of `differing` compares: four milliseconds where all are different."""


def differing(old: Document, new: Document) -> Task[Document | None]:
    """`difference` of documents that may have very many fields, some of them in each step."""
    if not old.keys() <= new.keys():
        return None
    names, delta = list(new), type(new)()
    for start in range(0, len(names), FIELDS_AT_ONCE):
        some = names[start : start + FIELDS_AT_ONCE]
        before = type(old)([(name, old[name]) for name in some if name in old])
        found = difference(before, type(new)(zip(some, map(new.get, some), strict=True)))
        if found is None:
            return None
        delta.update(found)
        yield
    return delta


def difference(old: Document, new: Document) -> Document | None:
    """The fields of `new` that differ from `old`; None if no delta says it: `new` lacks a field of
    `old`, or an object that is its own text loses that text or its fields."""
    if not old.keys() <= new.keys():
        return None
    delta: Document = type(new)()
    names: Iterable[str] = new
    if len(new) >= MANY_FIELDS:
        delta, names = _sorted_out(old, new, _suspects(old, new))
    for name in names:
        value = new[name]
        if name not in old:
            delta[name] = value
            continue
        before = old[name]
        if isinstance(before, dict) and isinstance(value, dict):
            inner = difference(before, value)
            if inner is None or (inner.keys() == {TEXT_FIELD} and type(before) is not type(value)):
                return None
            if inner:
                delta[name] = inner
        elif not same(before, value):
            if _is_kept_beside(before, value):
                return None
            delta[name] = value
    return _without_nothing(delta) if len(delta) >= MANY_FIELDS else delta


def _suspects(old: Document, new: Document) -> list[str]:
    """The fields of `new` that may differ, found without a step of Python for each of very many."""
    before, after = list(map(old.get, new, repeat(NOTHING))), list(new.values())
    types = list(map(type, after))
    plain = map(PLAIN.__contains__, types)
    if float in {*types}:
        floats = map(and_, map(is_, types, repeat(float)), map(truth, after))
        plain = map(or_, plain, floats)  # 0.0 and -0.0 are equal, and not the same
    alike = map(and_, map(is_, map(type, before), types), map(eq, before, after))
    return [*compress(new, map(not_, map(and_, plain, alike)))]


def _sorted_out(old: Document, new: Document, names: list[str]) -> tuple[Document, list[str]]:
    """Of very many fields that may differ a delta, in which those are `NOTHING` that have to be
    looked at one by one, and these; found in the same way."""
    if len(names) < MANY_FIELDS:
        return type(new)(), names
    before, after = list(map(old.get, names, repeat(NOTHING))), list(map(new.get, names))
    kinds, types = list(map(type, before)), list(map(type, after))
    simple = map(and_, map(SIMPLE.__contains__, kinds), map(SIMPLE.__contains__, types))
    differ = map(and_, simple, map(ne, before, after))
    if float in {*kinds} & {*types}:
        # NaN is not equal to itself, and the same.
        differ = map(and_, differ, map(or_, map(eq, before, before), map(eq, after, after)))
    surely = list(differ)
    if all(surely):
        return type(new)(new if len(names) == len(new) else zip(names, after, strict=True)), []
    delta = type(new)(zip(names, repeat(NOTHING)))
    delta.update(compress(zip(names, after, strict=True), surely))
    return delta, [*compress(names, map(not_, surely))]


def _without_nothing(delta: Document) -> Document:
    if NOTHING not in delta.values():
        return delta
    return type(delta)(compress(delta.items(), map(is_not, delta.values(), repeat(NOTHING))))


def _is_kept_beside(before: object, value: object) -> bool:
    """Whether merging leaves of what was there what should go: a text changes an object that has
    one, and attributes are put to a text."""
    if isinstance(value, ObjectWithText):
        return isinstance(before, str) and TEXT_FIELD not in value
    return isinstance(before, ObjectWithText) and not isinstance(value, list)


def composed(first: Document, second: Document) -> Document | None:
    """Both deltas as one; None where no delta can say it: an object replaced a scalar, which
    may itself have replaced an object, or has got attributes meanwhile."""
    result = (type(second) if isinstance(second, ObjectWithText) else type(first))(first)
    for name, value in second.items():
        before = result.get(name)
        if isinstance(value, dict) and name in result:
            inner = composed(before, value) if isinstance(before, dict) else None
            if inner is None or (type(inner) is not type(before) and TEXT_FIELD not in inner):
                return None
            result[name] = inner
        else:
            result[name] = value
    return result


def same(one: object, other: object) -> bool:
    """Equal as JSON: 1, 1.0 and true are three values, and so are 1.1 and 1.10 where a message
    keeps digits."""
    if type(one) is not type(other):
        return False
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, LosslessNumber) and isinstance(other, LosslessNumber):
        return one.text == other.text
    if isinstance(one, float):
        # 0.0 and -0.0 are equal, and not the same; NaN is the same, and not equal.
        return repr(one) == repr(other)
    return one == other
