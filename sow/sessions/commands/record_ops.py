"""One record by its SowKey: put, merged or deleted, if it is what the client takes it for.

It is a publish of one message, or a removal of one record, like any other: the same permissions,
limits and order. In addition a *look* is called with the record in the step that changes it, and
may raise. Nothing comes between the look and the change.
"""

from collections.abc import Callable, Mapping

import numpy as np

from sow.core.cooperative import Task
from sow.engine.engine import Engine
from sow.engine.running_topics import SourceTopic
from sow.engine.write_policy import WritePolicy
from sow.errors import NotEntitled, UnknownRecord, shown
from sow.security.authorization import Permissions
from sow.sessions.queries.access_control import permit_for, row_policy_for, shows
from sow.topic.records import CheckedMessages, Records

KEYED_AT_ONCE = 2_000
"""Records whose SowKeys one step looks up: a fraction of a millisecond."""
Look = Callable[[Records, int | None], object]
"""Is shown the slot of a record that is about to change, None if there is none; raises."""


class LookingPermit(WritePolicy):
    """A permit, or None, and a look at the record that one message is about."""

    def __init__(self, permit: WritePolicy | None, look: Look) -> None:
        self._permit = permit
        self._look = look

    def check(
        self,
        records: Records,
        messages: CheckedMessages,
        held: Mapping[str, bytes | None] | None = None,
    ) -> None:
        """Raise the errors of the message: missing permission to write first."""
        if self._permit is not None:
            self._permit.check(records, messages, held)
        (identity,) = messages.identities
        self._look(records, records.table.slots.get(identity))


def at_hand(engine: Engine, name: str) -> Task[None]:
    """Wait until a topic is whole, and make its SowKeys known: they are by the end of the steps,
    but for those of a few records that have just come."""
    while True:
        yield from engine.atomic.finish_before(name)
        table = engine.topic(name).records.table
        if table.unkeyed_count <= KEYED_AT_ONCE:
            return
        table.key(KEYED_AT_ONCE)
        yield


def put(
    engine: Engine,
    topic: SourceTopic,
    message: CheckedMessages,
    now_us: int,
    *,
    rights: Permissions,
    look: Look,
    expires_s: float | None = None,
    delta: bool = False,
) -> Task[int]:
    """Store one message that was read for a topic, or merge it into its record; returns its
    bookmark. Raises what `Publications.carry_out` and `look` do."""
    return engine.publications.carry_out(
        topic.name,
        [message],
        now_us,
        expires_s=expires_s,
        delta=delta,
        permit=LookingPermit(permit_for(rights, "write", topic.name), look),
    )


def delete(
    engine: Engine,
    name: str,
    sow_key: str,
    now_us: int,
    *,
    rights: Callable[[], Permissions],
    look: Look,
) -> Task[int]:
    """Remove the record of a SowKey; returns 1.

    `rights` is called after everything that has to be waited for, since permissions may change
    meanwhile: a visible record that may not be deleted raises NotEntitled, an invisible one
    UnknownRecord. Raises also what `Engine.removal` and `look` raise.
    """
    # What this client has left of a publish came before.
    yield from engine.publications.finish_left(name)
    yield from at_hand(engine, name)
    engine.ledger.moment(now_us)
    records = engine.catalog.deletable(name).records
    slot = records.table.find(sow_key)
    held = rights()
    permit = permit_for(held, "delete", name)
    if slot is not None and permit is not None and not _may_go(permit, records, slot):
        if shows(row_policy_for(held, records), records, records.table.bodies[slot] or b""):
            raise NotEntitled("no role allows you to delete this record")
        slot = None  # and calling `look` would reveal that it exists
    look(records, slot)
    if slot is None:
        raise UnknownRecord(f"topic {name} has no record {shown(sow_key)}")
    return (yield from engine.removal(name, np.array([slot], np.int64), now_us))


def _may_go(permit: WritePolicy, records: Records, slot: int) -> bool:
    identity = records.table.identities[slot]
    return identity is not None and permit.may_delete(records, [identity])[0]
