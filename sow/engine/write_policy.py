"""Permits: which records of a topic somebody may write or delete.

A permit is a condition over records. What was there and what is to be there both have to meet it,
so that nobody takes a record away from others, nor gives one to them. What is refused is told by
its place in the request alone, never by what the record holds.
"""

from collections.abc import Mapping, Sequence

from sow.errors import NotEntitled
from sow.security.row_level_security import RowPolicy
from sow.topic.records import CheckedMessages, Records


class WritePolicy:
    """Records that meet the rows of a guard may be written."""

    def __init__(self, guard: RowPolicy) -> None:
        self._rows = guard.rows

    def passes(self, records: Records, bodies: Sequence[bytes]) -> list[bool]:
        """Which of these states may be written."""
        if self._rows is None or not bodies:
            return [True] * len(bodies)
        if self._rows.paths and not records.message_type.structured:
            return [False] * len(bodies)
        columns = records.decoder(self._rows.paths).columns(bodies)
        return self._rows.matches(columns, len(bodies))

    def check(
        self,
        records: Records,
        messages: CheckedMessages,
        held: Mapping[str, bytes | None] | None = None,
    ) -> None:
        """Raise NotEntitled unless all records may become what these messages make of them.

        `held` are states that records are to be taken for, whatever the table has: what was made
        of them by messages that have passed.
        """
        news = self.passes(records, messages.bodies)
        olds = self._olds(records, messages.identities, held or {})
        for at, (identity, passes) in enumerate(zip(messages.identities, news, strict=True)):
            if not passes or not olds.get(identity, True):
                raise NotWritable(at)

    def _olds(
        self, records: Records, identities: Sequence[str], held: Mapping[str, bytes | None]
    ) -> dict[str, bool]:
        """Of the records that are there, whether they may be changed."""
        table = records.table
        there = {
            one: table.bodies[table.slots[one]] or b""
            for one in identities
            if one not in held and one in table.slots
        }
        passes = self.passes(records, [*there.values()])
        return dict(zip(there, passes, strict=True))

    def may_delete(
        self,
        records: Records,
        identities: Sequence[str],
        held: Mapping[str, bytes | None] | None = None,
    ) -> list[bool]:
        """Which of these records may go; one that is not there may. `held` are states that they are
        to be taken for."""
        olds = self._olds(records, identities, held or {})
        made = {one: body for one in identities if (body := (held or {}).get(one)) is not None}
        olds |= dict(zip(made, self.passes(records, [*made.values()]), strict=True))
        return [olds.get(one, True) for one in identities]


class NotWritable(NotEntitled):
    """A message that would write a record that its user may not write; `index` is its place."""

    def __init__(self, index: int) -> None:
        super().__init__(
            f"message {index} is not entitled: the record that is there, or that it would make, "
            "does not pass the Check of any role"
        )
        self.index = index

    def moved(self, by: int) -> "NotWritable":
        """The same about a message that stands behind `by` others."""
        return NotWritable(self.index + by)

    def fields(self) -> dict[str, object]:
        """The index of the message within its request."""
        return {"index": self.index}
