"""Typed scalars: texts and numbers that remember the native value they represent.

A binary format has bytes, times and integers of several widths. In documents they are texts and
numbers, which filters, keys and JSON understand; these classes keep the original, so that a message
that the server encodes again (a merged delta, selected fields) has the same native values. They
equal their plain form. Columns never hold them: `plain` removes the original.
"""

from base64 import b64decode, b64encode
from typing import Any

from sow.core.paths import Scalar


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
