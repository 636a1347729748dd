"""Write policies: which records of a topic a user may write or delete.

A policy is a condition over records. Both the old and the new state have to meet it, so that a user
can neither take a record away from others nor give them one. An error names the position of the
message in the request only, never what the record contains.
"""

from collections.abc import Mapping, Sequence

from sow.errors import NotEntitled
from sow.security.row_level_security import RowPolicy
from sow.topic.records import CheckedMessages, Records


class WritePolicy:
    """Records that meet the rows of a row policy may be written."""

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

        `held` are states that override the table: results of earlier messages of the request.
        """
        news = self.passes(records, messages.bodies)
        olds = self._olds(records, messages.identities, held or {})
        for at, (identity, passes) in enumerate(zip(messages.identities, news, strict=True)):
            if not passes or not olds.get(identity, True):
                raise NotWritable(at)

    def _olds(
        self, records: Records, identities: Sequence[str], held: Mapping[str, bytes | None]
    ) -> dict[str, bool]:
        """For each existing record, whether it may be changed."""
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
        """Which of these records may be deleted; a missing one may. `held` are states that override
        the table."""
        olds = self._olds(records, identities, held or {})
        made = {one: body for one in identities if (body := (held or {}).get(one)) is not None}
        olds |= dict(zip(made, self.passes(records, [*made.values()]), strict=True))
        return [olds.get(one, True) for one in identities]


class NotWritable(NotEntitled):
    """A message that would write a record that its user may not write; `index` is its position."""

    def __init__(self, index: int) -> None:
        super().__init__(
            f"message {index} is not entitled: the record that is there, or that it would make, "
            "does not pass the Check of any role"
        )
        self.index = index

    def moved(self, by: int) -> "NotWritable":
        """The same error for a message that follows `by` others."""
        return NotWritable(self.index + by)

    def fields(self) -> dict[str, object]:
        """The index of the message within its request."""
        return {"index": self.index}
