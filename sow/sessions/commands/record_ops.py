"""Operations on records: one by its SowKey, or a delete of all that a selector names.

One record is put, merged or deleted if it is what the client takes it for. It is a publish of one
message, or a removal of one record, like any other: the same permissions, limits and order. In
addition a *look* is called with the record in the step that changes it, and may raise. Nothing
comes between the look and the change.
"""

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from sow.core.cooperative import Task, run_to_completion
from sow.engine.bulk_publish import Counted, NotWritable, WritePolicy
from sow.engine.capacity import Deed
from sow.engine.engine import Engine
from sow.engine.running_topics import LiveTopic, SourceTopic
from sow.errors import (
    BadMessage,
    Busy,
    ClientError,
    InvalidTopic,
    NotEntitled,
    UnknownRecord,
    shown,
)
from sow.messages import line_bodies
from sow.protocol.commands import Command
from sow.protocol.publish_batching import PublishBatch
from sow.protocol.replies import quoted
from sow.query import Query
from sow.security.authorization import Permissions
from sow.sessions.commands.audit import Audit
from sow.sessions.queries.access_control import permit_for, restrict_query, row_policy_for, shows
from sow.streaming.sessions import Session
from sow.topic.records import CheckedMessages, Records
from sow.topic.series import TopicEvents

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


def at_hand(engine: Engine, name: str, reads_before: bool = False) -> Task[None]:
    """Wait until a topic is whole, or if it `reads_before`, until it may be read, and make its
    SowKeys known: they are by the end of the steps, but for those of a few records that have just
    come."""
    while True:
        records = engine.atomic.readable(engine.topic(name)) if reads_before else None
        if records is None:
            yield from engine.atomic.finish_before(name)
            records = engine.topic(name).records
        table = records.table
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
    counted: Counted | None = None,
) -> Task[int]:
    """Store one message that was read for a topic, or merge it into its record; returns its
    bookmark. Arguments are those of `Publications.carry_out`; raises what it and `look` do."""
    return engine.publications.carry_out(
        topic.name,
        [message],
        now_us,
        expires_s=expires_s,
        delta=delta,
        permit=LookingPermit(permit_for(rights, "write", topic.name), look),
        counted=counted,
    )


def delete(
    engine: Engine,
    name: str,
    sow_key: str,
    now_us: int,
    *,
    rights: Callable[[], Permissions],
    look: Look,
    counted: Callable[[int], object] | None = None,
) -> Task[int]:
    """Remove the record of a SowKey; returns 1, and calls `counted` with it in the same step.

    `rights` is called after everything that has to be waited for, since permissions may change
    meanwhile: a visible record that may not be deleted raises NotEntitled, an invisible one
    UnknownRecord. Raises also what `Engine.removal` and `look` raise.
    """
    # What this client has left of a publish came before.
    yield from engine.publications.finish_left(name)
    yield from at_hand(engine, name)
    engine.sequencer.moment(now_us)
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
        raise UnknownRecord(f"topic {name} has no such record: {shown(sow_key)}")
    return (yield from engine.removal(name, np.array([slot], np.int64), now_us, counted))


def _may_go(permit: WritePolicy, records: Records, slot: int) -> bool:
    identity = records.table.identities[slot]
    return identity is not None and permit.may_delete(records, [identity])[0]


def edit(
    engine: Engine,
    name: str,
    seq: int,
    message: CheckedMessages,
    now_us: int,
    *,
    rights: Callable[[], Permissions],
) -> Task[int]:
    """Replace an event of a series by one message that was read for its topic; returns the bookmark
    of that. `rights` is called as `delete` does.

    Raises UnknownRecord where there is no such event, or the user neither sees it nor may write it,
    NotEntitled, TooLarge, and Full.
    """
    yield from engine.publications.finish_left(name)
    yield from engine.make_ready(name)
    yield from engine.atomic.finish_before(name)
    topic, (identity,), held = engine.publishable(name), message.identities, rights()
    events = events_of(topic)
    now_us = engine.sequencer.moment(now_us)
    engine.removals.make_way(topic, [identity], now_us)
    event = events.find(identity, seq)
    permit = permit_for(held, "write", name)
    if (
        event is not None
        and permit is not None
        and not permit.passes(topic.records, [event.body])[0]
    ):
        if shows(row_policy_for(held, topic.records), topic.records, event.body):
            raise NotEntitled("no role allows you to write this event")
        event = None
    if event is None:
        raise UnknownRecord(f"this record of {name} has no event {seq}")
    made = topic.finished(message, False, {identity: event.body}, now_us=now_us)
    engine.capacity.check_sizes(made.bodies)
    if permit is not None and not permit.passes(topic.records, made.bodies)[0]:
        raise NotWritable(0)
    if engine.capacity.bounds(topic) and len(made.bodies[0]) > len(event.body):
        run_to_completion(engine.capacity.check(topic, [Deed((identity,), [len(made.bodies[0])])]))
    batch = topic.edit(made, event, now_us)
    engine.pass_on(topic, batch)
    return batch.changes.seqs[0]


def events_of(topic: LiveTopic) -> TopicEvents:
    """The events of a series; raises InvalidTopic for any other topic."""
    if topic.records.events is None:
        raise InvalidTopic(
            f"topic {topic.name} is no series: it keeps records, and no events of them; write a "
            "Series into its Topic, or read its changes in /v1/log"
        )
    return topic.records.events


NAMED_AT_ONCE = 500
"""Bodies that name records to delete, of one step: half a millisecond of reading."""


def identities(topic: LiveTopic, bodies: Sequence[bytes]) -> Task[list[str]]:
    """The identities of bodies' records; raises BadMessage with the index of the first without
    one."""
    names: list[str] = []
    for start in range(0, len(bodies), NAMED_AT_ONCE):
        try:
            names += topic.records.identities_of_sent(bodies[start : start + NAMED_AT_ONCE])
        except BadMessage as error:
            raise error.moved(start) from None
        yield
    return names


def delete_selected(
    engine: Engine,
    audit: Audit,
    topic: SourceTopic,
    now_us: int,
    *,
    filter_text: str | None,
    sow_keys: tuple[str, ...] | None,
    identities: Collection[str] | None,
    rights: Permissions,
    check_still: Callable[[], object],
    counted: Callable[[int], object] | None = None,
) -> Task[int]:
    """Remove the records that exactly one of the three selectors names, as of the moment at
    which they are found; returns how many, and calls `counted` in the step that removes the last.

    Records that these `rights` do not permit to delete stay, and are not mentioned: to the user
    they do not exist. The number of records that a filter finds reveals their content, so
    deletes by filter are audited, and require the permission to read. `check_still` raises if
    the permissions have changed by the time the records are found.

    Raises ClientError for another number of selectors, NotEntitled, and what `Engine.removal`
    does.
    """
    given = [selector is not None for selector in (filter_text, sow_keys, identities)]
    if sum(given) != 1:
        raise ClientError(
            "a delete takes exactly one of a filter (1=1 for all), keys, or bodies whose "
            f"key fields name the records; {sum(given)} were given"
        )
    if filter_text is not None and not rights.may("read", topic.name):
        raise NotEntitled(
            "a delete by filter reveals the content of records, and no role allows you "
            f"to read topic {topic.name}; name them by keys or bodies"
        )
    permit = permit_for(rights, "delete", topic.name)
    # What this client has left of a publish came before.
    yield from engine.publications.finish_left(topic.name)
    yield from engine.atomic.finish_before(topic.name)
    if identities is None:
        engine.sequencer.moment(now_us)
        condition = None if filter_text is None else engine.filter(filter_text)
        query = Query(filter=condition, keys=sow_keys)
        # Hidden fields must reveal nothing about records, not even about the user's own.
        if rights.may("read", topic.name):
            query = restrict_query(query, row_policy_for(rights, topic.records))
        if permit is not None:
            query = restrict_query(query, rights.write_guard(topic.name, "delete"))
        slots = (yield from engine.queries.answering(topic.name, query)).slots
    else:
        held = topic.records.table.slots
        names = [name for name in identities if name in held]
        if permit is not None:
            allowed = permit.may_delete(topic.records, names)
            names = [name for name, may in zip(names, allowed, strict=True) if may]
        there = dict.fromkeys([held[name] for name in names])
        slots = np.fromiter(there, np.int64, len(there))
    check_still()
    if filter_text is not None:
        # Before the first is removed, so that no client waits for the end.
        audit.note(
            "delete", rights, "sow_delete", topic=topic.name, filter=filter_text, deleted=len(slots)
        )
    return (yield from engine.removal(topic.name, slots, now_us, counted))


def check_still(session: Session, command: Command) -> None:
    """Raise Busy where its sender may do other things than when the command was begun."""
    if command.rights.text != session.rights.text:
        raise Busy("what this session may do has changed meanwhile; send this again")


def stored_bodies(
    topic: LiveTopic, command: Command | PublishBatch, bodies: Sequence[bytes]
) -> Sequence[bytes]:
    """Some of a command's bodies as they are to be stored, whichever way they came."""
    kind = topic.records.message_type
    if command.enc is None:
        return bodies if command.framed else line_bodies(kind, bodies)
    if kind.enc != command.enc:
        raise ClientError(
            f"messages of {topic.name} are text ({kind.name}), which has no "
            f"enc {command.enc}; leave enc out and send the text"
        )
    texts = quoted([body.decode("latin-1") for body in bodies]) if command.framed else bodies
    return line_bodies(kind, texts)
