"""Equality as a dictionary lookup: which values equal a literal, and which records have such keys.

By the rules of ``=`` (`sow.expressions.values`) strings equal as text, and a string equals a
number that it spells: the literal 5 is equalled by 5, 5.0, '5', '05' and '5e0', the literal '5'
by '5' and every number 5. A list equals what any of its elements equals. Usual spellings follow
from the number; unusual ones and lists cannot be guessed, so they are noted as they turn up.

A `KeyIndex` finds records by the values of their key fields in the table's own dictionary, which
knows identities, texts: a number is looked up under every text that usually stands for it. The
slots of records whose keys spell a number in an unusual way are remembered, from the first lookup
that needs them, and added to what it finds. The result may hold records that do not match.
"""

import math
from collections.abc import Sequence
from copy import copy
from itertools import product
from math import prod
from typing import TypeVar

import numpy as np

from sow.core.keys import KEY_SEPARATOR, identities
from sow.core.paths import Path, Scalar
from sow.expressions import as_number
from sow.indexes.pending_rows import PendingRows
from sow.store.memory import Table

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


COMBINATIONS_MAX = 100_000
"""Keys that a lookup may try, combined from the literals of several fields. Beyond it, testing the
records is no slower."""
NEVER = -1
"""The birth of no record."""
UNUSUAL_MAX = 1_000
"""Records whose keys spell numbers in unusual ways; a lookup by a number has to try each."""


class KeyIndex:
    """Lookups by `paths`, the key fields of a table."""

    __slots__ = ("_born", "_notes", "_table", "_unusual", "paths")

    def __init__(self, table: Table, paths: tuple[Path, ...]) -> None:
        self.paths = paths
        self._table = table
        self._unusual: set[int] = set()
        """Slots whose key text spells a number in an unusual way, or did when they had a record."""
        self._born = np.zeros(0, np.int64)
        """By slot, the birth of the record that was examined there: its key never changes."""
        self._notes = PendingRows()

    def frozen(self, table: Table) -> "KeyIndex":
        """The same for a frozen copy of the table."""
        made = copy(self)
        made._table, made._born = table, self._born.copy()
        made._unusual, made._notes = set(self._unusual), self._notes.copy()
        return made

    @property
    def dirty_count(self) -> int:
        """How many records are not examined for unusual spellings yet."""
        return self._notes.count(len(self._table.bodies))

    def touch(self, slots: Sequence[int]) -> None:
        """The records in these slots are new, changed or gone."""
        self._notes.touch(slots)

    def refresh(self, limit: int | None = None) -> int:
        """Examine up to `limit` records; returns how many."""
        return self._notes.work_off(len(self._table.bodies), limit, self._look)

    def _look(self, slots: list[int]) -> None:
        where = np.array(slots, np.int64)
        more = int(where.max()) + 1 - len(self._born)
        if more > 0:
            more = max(more, len(self._born) // 2)
            self._born = np.concatenate([self._born, np.full(more, NEVER, np.int64)])
        born = self._table.born[where]
        new = where[self._born[where] != born]
        self._born[where] = born
        for slot in new.tolist():
            identity = self._table.identities[slot]
            if identity is not None and _is_unusual(identity):
                self._unusual.add(slot)
            else:
                self._unusual.discard(slot)

    @staticmethod
    def needs_refresh(literals: Sequence[Sequence[Scalar]]) -> bool:
        """Whether `find` has to know of unusual spellings: only numbers can be spelled so."""
        return any(not isinstance(literal, str) for wanted in literals for literal in wanted)

    def find(self, literals: Sequence[Sequence[Scalar]]) -> list[int] | None:
        """Slots of at least the records that in each field equal one of its literals.

        None when there are too many combinations, or too many unusual texts.
        """
        fields = [
            list({text for literal in wanted for text in _key_texts(literal)})
            for wanted in literals
        ]
        if prod(map(len, fields)) > COMBINATIONS_MAX:
            return None
        unusual: set[int] = set()
        if self.needs_refresh(literals):
            self.refresh()
            held = self._table.identities
            unusual = {slot for slot in self._unusual if held[slot] is not None}
            if len(unusual) > UNUSUAL_MAX:
                return None
        combinations = list(product(*fields))
        if not combinations:
            return []
        wanted = identities(self.paths, list(zip(*combinations, strict=True)))
        find = self._table.slots.get
        return list(unusual | {slot for identity in wanted if (slot := find(identity)) is not None})

    def check(self) -> None:
        """Assert that the state of records that are not noted is right."""
        noted = self._notes.slots(len(self._table.bodies))
        for slot, identity in enumerate(self._table.identities):
            if slot not in noted and identity is not None:
                unusual = slot in self._unusual
                assert unusual is _is_unusual(identity), f"slot {slot} is not what is known of it"


class SowKeyIndex:
    """The dictionary of SowKeys that a table makes on first use."""

    __slots__ = ("_table",)

    def __init__(self, table: Table) -> None:
        self._table = table

    @property
    def dirty_count(self) -> int:
        """How many records the dictionary does not know yet."""
        return self._table.unkeyed_count

    def touch(self, slots: Sequence[int]) -> None:
        """Nothing: the table maintains the dictionary."""

    def refresh(self, limit: int | None = None) -> int:
        """Add up to `limit` more records to the dictionary; returns how many."""
        return self._table.key(limit)


def _key_texts(literal: Scalar) -> set[str]:
    """How keys that equal a literal are written in an identity."""
    texts = set()
    for value in equal_values(literal):
        texts.add(identities((Path(("key",)),), [[value]])[0])
        if not isinstance(value, str) and value in (0, 1):
            texts.add("true" if value else "false")
    return texts


def _is_unusual(identity: str) -> bool:
    return any(unusual_number(text) is not None for text in identity.split(KEY_SEPARATOR))
