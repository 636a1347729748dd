"""Documents merged path by path: the one rule, wherever a newer document changes an older one.

Objects are merged field by field, everything else (text, numbers, arrays) replaces what was there,
and fields that the newer document does not name stay as they are. What an explicit null means, the
caller says. A document is a mapping of names to JSON values; nothing is changed in place.
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
