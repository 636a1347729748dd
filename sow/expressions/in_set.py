"""IN with a list of literals: one look in a set instead of a chain of comparisons.

The set answers exactly as the chain of ``=`` would, conversions between strings and numbers
included: a number looks among the literals that are or spell numbers, a string among the string
literals and, read as a number, among the number literals.
"""

from collections.abc import Sequence

from sow.core.paths import Scalar, Value
from sow.expressions.compare import Outcome, any_of, as_number, elements


class Members:
    """The literals of one IN list."""

    def __init__(self, literals: Sequence[Scalar]) -> None:
        values = [value for value in literals if value is not None and value != ""]
        self.has_null = len(values) < len(literals)
        self.texts = frozenset(value for value in values if isinstance(value, str))
        self.numbers = frozenset(value for value in values if not isinstance(value, str))
        spelt = {as_number(text) for text in self.texts} - {None}
        self.all_numbers = self.numbers | spelt

    def contain(self, value: Value) -> Outcome:
        """Whether `value`, or an element of it, equals a member."""
        if isinstance(value, list):
            return any_of(map(self._contain_scalar, elements(value)))
        return self._contain_scalar(value)

    def _contain_scalar(self, value: Scalar) -> Outcome:
        if value is None or value == "":
            return None
        if isinstance(value, str):
            found = value in self.texts or (bool(self.numbers) and as_number(value) in self.numbers)
        else:
            found = value in self.all_numbers
        return found or (None if self.has_null else False)
