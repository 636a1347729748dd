"""Finding records by the values of their key fields, in the table's own dictionary.

The dictionary knows identities, which are texts, and a filter knows literals: a number is looked
up under every text that usually stands for it. Key texts that spell a number in an unusual way
('05' for 5) cannot be guessed; the slots of such records are remembered, from the first lookup
that needs them, and added to what it finds. The result may hold records that do not match.
"""

from collections.abc import Iterable, Sequence
from itertools import product
from math import prod

from sow.indexes.equal_values import equal_values, unusual_number
from sow.keys import KEY_SEPARATOR, identities
from sow.paths import Path, Scalar
from sow.store.memory import Table

COMBINATIONS_MAX = 100_000
"""Keys that a lookup may try, made of the literals of several fields. Beyond it, testing the
records is no slower."""
UNUSUAL_MAX = 1_000
"""Records whose keys spell numbers in unusual ways, each of which a lookup by a number has to
try."""


class KeyIndex:
    """Lookups by `paths`, the key fields of a table."""

    def __init__(self, table: Table, paths: tuple[Path, ...]) -> None:
        self.paths = paths
        self._table = table
        self._unusual: set[int] | None = None
        self._dirty: list[int] = []

    def touch(self, slots: Iterable[int]) -> None:
        """The records in these slots are new, changed or gone."""
        if self._unusual is not None:
            self._dirty.extend(slots)
            if len(self._dirty) > 2 * len(self._table.bodies) + UNUSUAL_MAX:
                self._dirty = list(set(self._dirty))

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
        if any(not isinstance(literal, str) for wanted in literals for literal in wanted):
            unusual = self._unusual_slots()
            if len(unusual) > UNUSUAL_MAX:
                return None
        combinations = list(product(*fields))
        if not combinations:
            return []
        wanted = identities(self.paths, list(zip(*combinations, strict=True)))
        find = self._table.slots.get
        return list(unusual | {slot for identity in wanted if (slot := find(identity)) is not None})

    def check(self) -> None:
        """Assert that what is known of the records that are not noted is true."""
        if self._unusual is None:
            return
        noted = set(self._dirty)
        for slot, identity in enumerate(self._table.identities):
            if slot not in noted:
                unusual = identity is not None and _is_unusual(identity)
                assert (slot in self._unusual) is unusual, f"slot {slot} is not what is known of it"

    def _unusual_slots(self) -> set[int]:
        """Slots of records of which a key text spells a number in an unusual way."""
        slots: Iterable[int] = self._dirty
        if self._unusual is None:
            self._unusual, slots = set(), self._table.slots.values()
        for slot in slots:
            identity = self._table.identities[slot]
            if identity is not None and _is_unusual(identity):
                self._unusual.add(slot)
            else:
                self._unusual.discard(slot)
        self._dirty = []
        return self._unusual


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
