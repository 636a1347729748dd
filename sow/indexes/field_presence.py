"""Which fields some record of a topic is known to have, and which none had when it was looked at.

A field that a query names is mostly there, and then the query should pay next to nothing for the
certainty: a witness is a slot with the number of the change that its record is of. While that is
the record's newest change, the record has the field. For a field that no record has, the highest
change is kept that was looked at: next time only what has changed since is read. Both are of the
records that one user may see, whose policy is a text.

What no query has named since the last sweep but one is forgotten. It does not read records:
`sow.topic.missing_fields` does.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from sow.core.containers import sweep_too
from sow.core.paths import Path
from sow.store.columns import Slots
from sow.store.memory import Table

FIELDS_KEPT_MAX = 1_000
"""Fields of a topic that are kept, some 200 bytes each: those of many different queries. Beyond
that all are forgotten."""


class Witness(NamedTuple):
    """The record in a slot has the field, as of a change; or no record has it (None) that was as
    old."""

    slot: int | None
    seq: int


class FieldPresence:
    """What is known of the fields of the records in `table`."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._known: dict[tuple[str, Path], Witness] = {}
        """What was found or used since the last sweep."""
        self._idle: dict[tuple[str, Path], Witness] = {}
        """What was before."""
        self._advice: dict[tuple[Path, ...], tuple[object, tuple[str, ...]]] = {}
        """What was said of fields since the last sweep, and the state that it is of."""
        sweep_too(self)

    def sweep(self) -> int:
        """Forget what was not used since the last sweep; returns how many."""
        count, self._idle, self._known = len(self._idle), self._known, {}
        self._advice = {}
        return count

    def unsure(self, paths: Iterable[Path], policy: str) -> list[Path]:
        """Those of the fields that no known record has by now."""
        known, bodies, seqs = self._known, self._table.bodies, self._table.seqs
        left: list[Path] = []
        for path in paths:  # without a call for those that are known
            name = policy, path
            if name not in known and name in self._idle:
                known[name] = self._idle[name]
            if name in known:
                slot, seq = known[name]
                if slot is not None and bodies[slot] is not None and seqs[slot] == seq:
                    continue
            left += (path,)
        return left

    def _found(self, path: Path, policy: str) -> Witness | None:
        name = policy, path
        return self._known.get(name) or self._idle.get(name)

    def likely(self, path: Path, policy: str) -> int | None:
        """A slot whose record had the field once."""
        found = self._found(path, policy)
        return found.slot if found else None

    def changed(self, path: Path, policy: str, slots: Slots) -> Slots:
        """Those of the slots that have to be read to know whether a record has the field."""
        found = self._found(path, policy)
        if found is None or found.slot is not None:
            return slots
        left: Slots = slots[self._table.seqs[slots] > found.seq]
        return left

    @property
    def state(self) -> tuple[int, int]:
        """Differs after every change of records that get a higher number with each."""
        return self.newest, len(self._table)

    def advice(self, paths: tuple[Path, ...]) -> tuple[str, ...] | None:
        """What was said of these fields of the records as they are; None: nothing yet."""
        state, said = self._advice.get(paths, (None, ()))
        return said if state == self.state else None

    def keep_advice(self, paths: tuple[Path, ...], state: object, said: tuple[str, ...]) -> None:
        """Keep what there is to say of fields of the records in a `state`."""
        if len(self._advice) >= FIELDS_KEPT_MAX:
            self._advice.clear()
        self._advice[paths] = state, said

    @property
    def newest(self) -> int:
        """The highest change of a record."""
        return int(np.max(self._table.seqs, initial=0))

    def keep(self, path: Path, policy: str, witness: Witness) -> None:
        """Keep what was found of a field."""
        if len(self._known) >= FIELDS_KEPT_MAX:
            self._known.clear()
        self._known[policy, path] = witness

    def seq_of(self, slot: int) -> int:
        """The change that a record is of."""
        return int(self._table.seqs[slot])
