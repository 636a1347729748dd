"""Merges documents path by path: the one rule, wherever a newer document changes an older one.

Objects are merged field by field, everything else (text, numbers, arrays) replaces the old value,
and fields that the newer document lacks stay. The caller chooses the meaning of an explicit null. A
document is a mapping of names to JSON values; nothing is changed in place.
"""

from typing import Any, Literal

Document = dict[str, Any]
Nulls = Literal["ignore", "set", "remove"]
"""The meaning of an explicit null in a delta: nothing, null itself, or removal.

The first is the default of topics (docs/semantics.md, Rule 8).
"""

TEXT_FIELD = "#text"
"""The field of an object that is its own text."""


MANY_FIELDS = 64
"""From here on looking at all values at once takes less than looking at each."""


class ObjectWithText(dict[str, Any]):
    """An object that has a value besides its fields: an element of XML with attributes.

    The value is its field `#text`; a path to the object finds it, and merging a scalar into the
    object changes that field only.
    """


def merged(document: Document, delta: Document, nulls: Nulls = "set") -> Document:
    """`document` with `delta` merged into it; new fields come last, in the delta's order."""
    result = type(document)(document)
    if len(delta) >= MANY_FIELDS and _is_plain(document, delta, nulls):
        result.update(delta)
        return result
    for name, value in delta.items():
        if value is None and nulls != "set":
            if nulls == "remove":
                result.pop(name, None)
        elif isinstance(value, dict):
            result[name] = merged(_object(result.get(name), value), value, nulls)
        elif isinstance(under := result.get(name), ObjectWithText) and not isinstance(value, list):
            result[name] = ObjectWithText({**under, TEXT_FIELD: value})
        else:
            result[name] = value
    return result


def _is_plain(document: Document, delta: Document, nulls: Nulls) -> bool:
    """Whether every value of a delta takes the place of what was there, looked for without a step
    of Python for each: a record may have a hundred thousand fields."""
    types = set(map(type, delta.values()))
    if any(issubclass(one, dict) for one in types) or (nulls != "set" and type(None) in types):
        return False
    return ObjectWithText not in set(map(type, document.values()))


def _object(under: Any, delta: Document) -> Document:
    """The object to merge into in place of this value."""
    if isinstance(under, dict):
        # An object with a text of its own keeps it among further fields.
        return type(delta)(under) if isinstance(delta, ObjectWithText) else under
    if isinstance(delta, ObjectWithText):
        return ObjectWithText({TEXT_FIELD: under} if isinstance(under, str) else {})
    return {}
