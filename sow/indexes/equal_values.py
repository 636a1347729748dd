"""Which values of a field equal a literal, so that equality can be a dictionary lookup.

By the rules of ``=`` (`sow.expressions.values`) strings equal as text, and a string equals a
number that it spells: the literal 5 is equalled by 5, 5.0, '5', '05' and '5e0', the literal '5'
by '5' and every number 5. A list equals what any of its elements equals. Usual spellings follow
from the number; unusual ones and lists cannot be guessed, so they are noted as they turn up.
"""

import math
from typing import TypeVar

from sow.core.paths import Scalar
from sow.expressions import as_number

Number = int | float
Single = Scalar | tuple[Scalar, ...]
"""A field's value where it must be hashable: a list as a tuple."""
Equalled = TypeVar("Equalled", bound=Scalar)
Spelt = TypeVar("Spelt")


def number_forms(number: Number) -> list[Number]:
    """The same number as an integer and as a double, where it is one."""
    forms: list[Number] = []
    # An integer may be beyond all doubles; isfinite would need one.
    if isinstance(number, int) or (math.isfinite(number) and number == int(number)):
        forms.append(int(number))
    try:
        if float(number) == number:
            forms.append(float(number))
    except OverflowError:
        pass
    return forms


def usual_texts(number: Number) -> list[str]:
    """How programs write this number: 5 and 5.0."""
    return [repr(form) for form in number_forms(number)]


def unusual_number(text: str) -> Number | None:
    """The number that `text` spells in another way than `usual_texts`, or None."""
    if text.isascii() and text.isdigit() and text[0] != "0":
        return None
    number = as_number(text)
    return None if number is None or text in usual_texts(number) else number


def equal_values(literal: Scalar) -> list[Scalar]:
    """The scalars that equal a literal, unusual spellings aside; none equals NULL."""
    if literal is None or literal == "":
        return []
    if isinstance(literal, str):
        number = as_number(literal)
        return [literal] if number is None else [literal, *number_forms(number)]
    return [literal, *number_forms(literal), *usual_texts(literal)]


class Spellings:
    """The values of one field that a literal can equal without looking like it."""

    def __init__(self) -> None:
        # How often each was noted, by what it equals.
        self._texts: dict[Number, dict[str, int]] = {}
        self._lists: dict[Scalar, dict[tuple[Scalar, ...], int]] = {}

    def note(self, value: Single) -> None:
        """Count a value that the field has."""
        self._count(value, 1)

    def forget(self, value: Single) -> None:
        """Undo one `note` of the same value."""
        self._count(value, -1)

    def _count(self, value: Single, times: int) -> None:
        if isinstance(value, tuple):
            for element in value:
                _count_in(self._lists, element, value, times)
                self._count_text(element, times)
        else:
            self._count_text(value, times)

    def _count_text(self, value: Scalar, times: int) -> None:
        if isinstance(value, str) and (number := unusual_number(value)) is not None:
            _count_in(self._texts, number, value, times)

    def equal(self, literal: Scalar) -> set[Single]:
        """Every noted or usual value that equals `literal`."""
        scalars = set(equal_values(literal))
        if scalars and not isinstance(literal, str):
            assert literal is not None
            scalars.update(self._texts.get(literal, ()))
        values: set[Single] = set(scalars)
        return values.union(*[self._lists.get(scalar, ()) for scalar in scalars])


def _count_in(
    noted: dict[Equalled, dict[Spelt, int]], equalled: Equalled, value: Spelt, times: int
) -> None:
    """Count a value among those that equal something, for as long as it was noted at all."""
    counts = noted.setdefault(equalled, {})
    counts[value] = counts.get(value, 0) + times
    if not counts[value]:
        del counts[value]
    if not counts:
        del noted[equalled]
