"""Native types of binary formats in documents, and back: one traversal for all such formats.

A library decodes a message into dictionaries, lists and values. Most values are left as they are;
those without a JSON type (bytes, times, integers of several widths) become texts and numbers, which
filters, keys and JSON understand. These remember the original, so that a message that the server
encodes again (a merged delta, selected fields) has the same native values. They equal their plain
form, and columns never hold them: `plain` removes the original.

Each format defines its types and the names of its keys by the methods that it overrides; this
module only traverses, no deeper than `NESTING_MAX`.
"""

from base64 import b64decode, b64encode
from typing import Any

from sow.core.paths import Scalar
from sow.errors import LargeMessage


class Base64(str):
    """The value of a binary field: base64 text that a writer turns back into bytes."""

    __slots__ = ()

    @classmethod
    def of(cls, data: bytes) -> "Base64":
        """The text of some bytes."""
        return cls(b64encode(data).decode())

    @property
    def data(self) -> bytes:
        """The bytes."""
        return b64decode(self)


class TypedText(str):
    """A text that represents `original`, a native value of the format."""

    __slots__ = ("original",)
    original: Any

    def __new__(cls, text: str, original: object) -> "TypedText":
        """The text `text`, written as `original`."""
        marked = super().__new__(cls, text)
        marked.original = original
        return marked


class TypedInt(int):
    """The same of an integer."""

    original: Any

    def __new__(cls, number: int, original: object) -> "TypedInt":
        """The number `number`, written as `original`."""
        marked = super().__new__(cls, number)
        marked.original = original
        return marked


def plain(value: object) -> Scalar:
    """A scalar without what it remembers; None for what is none."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    return value if isinstance(value, float | bool) else None


def bare(document: Any) -> Any:
    """A document of texts and numbers that remember nothing; raises TypeError where it holds
    anything else, or names a field by no text."""
    if isinstance(document, dict):
        return {_bare_name(name): bare(value) for name, value in document.items()}
    if isinstance(document, list):
        return [bare(value) for value in document]
    if document is None or isinstance(document, str | int | float):
        return plain(document)
    raise TypeError(f"it holds a value of the type {type(document).__name__}")


def _bare_name(name: Any) -> str:
    if isinstance(name, str):
        return str(name)
    raise TypeError(f"a field is named by {type(name).__name__}; name it by text")


NESTING_MAX = 100
"""Levels of objects and lists in one message, as in MongoDB."""
ATOMS = frozenset({str, int, float, bool, type(None)})
"""Values that are the same in a message and in its document."""
TEXTS = frozenset({str})


class BinaryTypes:
    """The kinds of one format; by itself of one that has none."""

    # Defined by each format.

    def shown(self, value: Any, _level: int) -> Any:
        """A native value as documents have it; raises ValueError for an unknown type."""
        raise ValueError(f"it has no {type(value).__name__}")

    def named(self, key: Any) -> str:
        """The name of a field with a key that is no text; raises ValueError."""
        raise ValueError(f"a field is named by {type(key).__name__}")

    def remembered(self, value: TypedText | TypedInt) -> Any:
        """The native value of a scalar that remembers it."""
        return str(value) if isinstance(value, str) else int(value)

    def key(self, name: Any) -> Any:
        """The native key for the name of a field; raises TypeError."""
        if not isinstance(name, str):
            raise TypeError("a field is named by text")
        return str(name)

    def whole(self, value: int) -> int:
        """The native integer; raises ValueError for one that does not fit."""
        return value

    # Traversal.

    def document(self, found: dict[Any, Any], level: int = 1) -> dict[str, Any]:
        """The decoded message as a document: changed in place, since most values stay. Raises
        LargeMessage where it nests too deeply."""
        _check(level)
        if not TEXTS.issuperset(map(type, found)):
            names = [key if type(key) is str else self.named(key) for key in found]
            found = dict(zip(names, found.values(), strict=True))
        if not ATOMS.issuperset(map(type, found.values())):
            for name, value in found.items():
                if type(value) not in ATOMS:
                    found[name] = self._shown(value, level)
        return found

    def _shown(self, value: Any, level: int) -> Any:
        kind = type(value)
        if kind in ATOMS:
            return value
        if kind is dict:
            return self.document(value, level + 1)
        if kind is list:
            _check(level + 1)
            if ATOMS.issuperset(map(type, value)):
                return value
            return [self._shown(element, level + 1) for element in value]
        return self.shown(value, level)

    def message(self, value: Any, level: int = 1) -> Any:
        """The native form of a document, or of a value of one. Raises ValueError
        and TypeError for what the format has not."""
        _check(level - 1)
        match value:
            case dict():
                return {
                    name if type(name) is str else self.key(name): self.message(inner, level + 1)
                    for name, inner in value.items()
                }
            case list():
                return [self.message(element, level + 1) for element in value]
            case Base64():
                return value.data
            case TypedText() | TypedInt():
                return self.remembered(value)
            case float():
                return float(value)
            case bool() | None:
                return value
            case int():
                return self.whole(value)
            case str():
                return str(value)
        raise TypeError(f"it has no {type(value).__name__}")


def _check(level: int) -> None:
    if level > NESTING_MAX:
        raise too_deep()


def too_deep() -> LargeMessage:
    """The error about a message that nests deeper than allowed."""
    return LargeMessage(f"nested more than {NESTING_MAX} levels deep")
