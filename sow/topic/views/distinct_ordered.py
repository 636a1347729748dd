"""Distinct texts of a group, in the order in which they first came.

A text came when the first of the rows that now have it came. The order is cached until a text is
added or removed, or gets another first row.
"""

from sow.core.paths import Value
from sow.expressions import as_text
from sow.topic.views.sorted_multiset import SortedMultiset

CONCATENATED_CHARS_MAX = 64 * 1024
"""Characters of the text of a group: it is written whole with every change of one of its values,
and longer ones would block all others. A longer one is NULL."""


class DistinctOrdered:
    """The texts of a group, each with the births of the rows that have it."""

    __slots__ = ("_borns", "_chars", "_order")

    def __init__(self) -> None:
        self._borns: dict[str, SortedMultiset] = {}
        self._chars = 0
        self._order: list[str] | None = None

    def add(self, value: Value, born: int) -> None:
        """A row with this value was added."""
        text = _text(value)
        if text is None:
            return
        borns = self._borns.get(text)
        if borns is None:
            borns = self._borns[text] = SortedMultiset()
            self._chars += len(text)
        elif born > borns.least():
            borns.add(born)
            return
        borns.add(born)
        self._order = None

    def remove(self, value: Value, born: int) -> None:
        """A row that was added with this value was removed."""
        text = _text(value)
        if text is None:
            return
        borns = self._borns[text]
        if born == borns.least():
            self._order = None
        if borns.remove(born) and not borns.counts:
            del self._borns[text]
            self._chars -= len(text)

    def replace(self, was: Value, now: Value, born: int) -> None:
        """The value of a row was replaced."""
        self.add(now, born)
        self.remove(was, born)

    def joined(self, separator: str) -> str | None:
        """All texts, the separator between them; None if there is none, or they are too long."""
        if not self._borns:
            return None
        if self._chars + (len(self._borns) - 1) * len(separator) > CONCATENATED_CHARS_MAX:
            return None
        if self._order is None:
            borns = self._borns
            # Rows of a join may have the same birth.
            self._order = sorted(borns, key=lambda text: (borns[text].least(), text))
        return separator.join(self._order)


def _text(value: Value) -> str | None:
    """A value as text; None if it is NULL."""
    if isinstance(value, list):
        value = value[0] if value and not isinstance(value[0], list) else None
    return None if value is None or value == "" else as_text(value)
