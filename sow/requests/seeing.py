"""Seeing: what somebody asks of one topic, as far as he may see it.

His guard (`sow.guards`) joins what he asks in one place for each form of asking: a query, the shape
of lines, the key and the condition of a feed. Who may see all asks what he asked, and pays nothing.
"""

from dataclasses import replace

from sow.commands import Command
from sow.delivery.lines import FeedKey
from sow.engine.permits import Permit
from sow.engine.private_names import is_private
from sow.guards import BLIND, Guard
from sow.query import Query
from sow.rights import Rights
from sow.security import Verb
from sow.topic.records import Records
from sow.topic.rendering import Shape


def guard_for(rights: Rights, topic: Records) -> Guard | None:
    """What may be seen of a topic; None: all of it.

    What was made for one client alone has been made of what he may see. Of messages without fields
    nothing may be, where fields say what.
    """
    if rights.is_open or is_private(topic.name):
        return None
    guard, kind = rights.guard(topic.name), topic.message_type
    if guard is None:
        return None
    lacks_fields = not kind.structured and guard.needs_fields
    return BLIND if lacks_fields or (guard.select and not kind.partial) else guard


def may_see(rights: Rights, topic: Records) -> bool:
    """Whether anything of a topic may be seen."""
    return guard_for(rights, topic) is not BLIND


def guard_of(command: Command, topic: Records) -> Guard | None:
    """The same for whoever has given a command."""
    return guard_for(command.rights, topic)


def seen_query(query: Query, guard: Guard | None) -> Query:
    """The query, of what may be seen."""
    if guard is None:
        return query
    return replace(
        query, filter=guard.condition(query.filter), order_by=guard.order(query.order_by)
    )


def seen_shape(shape: Shape, guard: Guard | None) -> Shape:
    """The shape, of what may be seen."""
    return shape if guard is None else shape._replace(select=guard.shape(shape.select))


def seen_key(key: FeedKey, guard: Guard | None) -> FeedKey:
    """The key of a feed that tells what may be seen."""
    return key if guard is None else key._replace(guard=guard, shape=seen_shape(key.shape, guard))


def shows(guard: Guard | None, topic: Records, body: bytes) -> bool:
    """Whether a record in this state may be seen."""
    if guard is None or guard.rows is None:
        return True
    columns = topic.decoder(guard.rows.paths).columns([body])
    return guard.rows.matches(columns, 1)[0]


def permit_for(rights: Rights, verb: Verb, topic: str) -> Permit | None:
    """The records of a topic that may be written or deleted; None: all."""
    guard = None if rights.is_open else rights.write_guard(topic, verb)
    return None if guard is None else Permit(guard)
