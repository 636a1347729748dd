"""Deltas: part of a document that stands for a change of the whole.

A delta is a document that is merged into another one path by path: objects are merged field by
field, everything else (text, numbers, arrays, null) replaces what was there. Fields that a delta
does not name stay as they are, so a delta cannot remove a field; where the new state lacks one,
`difference` and `composed` say so with None and the whole document has to travel instead.

    difference(a, b)     the delta with merged(a, delta) == b
    composed(d1, d2)     the delta with merged(a, it) == merged(merged(a, d1), d2) for every a

Documents are what `MessageType.parse` returns for types with fields. Nothing is changed in place.
"""

from typing import Any, Literal

Document = dict[str, Any]
Nulls = Literal["ignore", "set", "remove"]
"""What an explicit null in a delta means: nothing, null itself, or removal.

The first is what holds unless a topic says otherwise (docs/semantics.md, Rule 8).
"""


def merged(document: Document, delta: Document, nulls: Nulls = "set") -> Document:
    """`document` with `delta` merged into it; new fields come last, in the delta's order."""
    result = dict(document)
    for name, value in delta.items():
        if value is None and nulls != "set":
            if nulls == "remove":
                result.pop(name, None)
        elif isinstance(value, dict):
            under = result.get(name)
            result[name] = merged(under if isinstance(under, dict) else {}, value, nulls)
        else:
            result[name] = value
    return result


def difference(old: Document, new: Document) -> Document | None:
    """The fields of `new` that differ from `old`; None if `new` lacks a field of `old`."""
    if not old.keys() <= new.keys():
        return None
    delta: Document = {}
    for name, value in new.items():
        if name not in old:
            delta[name] = value
            continue
        before = old[name]
        if isinstance(before, dict) and isinstance(value, dict):
            inner = difference(before, value)
            if inner is None:
                return None
            if inner:
                delta[name] = inner
        elif not same(before, value):
            delta[name] = value
    return delta


def composed(first: Document, second: Document) -> Document | None:
    """Both deltas as one; None where no delta can say it: an object replaced a scalar, which
    may itself have replaced an object."""
    result = dict(first)
    for name, value in second.items():
        before = result.get(name)
        if isinstance(value, dict) and name in result:
            inner = composed(before, value) if isinstance(before, dict) else None
            if inner is None:
                return None
            result[name] = inner
        else:
            result[name] = value
    return result


def same(one: object, other: object) -> bool:
    """Equal as JSON: 1, 1.0 and true are three values."""
    if type(one) is not type(other):
        return False
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    return one == other
