"""Access control: a request restricted to what its user may see and change.

The user's row policy (`sow.security.row_level_security`) is applied in one place for each form of
request: a query, the shape of lines, the key and the condition of a feed, a write or a delete. A
user who may see everything keeps the request unchanged, at no cost.

Errors are redacted, too: an error is raised where all topics are known. Before it is sent to a
user, its suggestions are made again from the topics that the user may see, and the names of
dependent topics are left out. Without authentication errors stay as they are.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import islice

from sow.core.definitions import Topic
from sow.core.humanize import no_topic
from sow.core.security_definitions import Verb
from sow.engine.bulk_publish import WritePolicy
from sow.engine.live_topic import is_hidden
from sow.errors import Busy, InvalidTopic, SowError, UnknownTopic
from sow.expressions.patterns import is_pattern
from sow.protocol.commands import Command
from sow.query import Query
from sow.security.authorization import Permissions
from sow.security.row_level_security import DENY_ALL, RowPolicy
from sow.streaming.sessions import Session
from sow.streaming.update_encoder import FeedKey
from sow.topic.records import Records
from sow.topic.rendering import Shape


def row_policy_for(rights: Permissions, topic: Records) -> RowPolicy | None:
    """The row policy for a topic; None: everything may be seen.

    A view created for one client has been made from what its user may see. Nothing may be seen of
    messages without fields, where the policy is about fields.
    """
    if rights.is_open or is_hidden(topic.name):
        return None
    guard, kind = rights.guard(topic.name), topic.message_type
    if guard is None:
        return None
    lacks_fields = not kind.structured and guard.needs_fields
    return DENY_ALL if lacks_fields or (guard.select and not kind.partial) else guard


def is_visible(rights: Permissions, topic: Records) -> bool:
    """Whether anything of a topic may be seen."""
    return row_policy_for(rights, topic) is not DENY_ALL


def row_policy_of(command: Command, topic: Records) -> RowPolicy | None:
    """The same for the sender of a command."""
    return row_policy_for(command.rights, topic)


def restrict_query(query: Query, guard: RowPolicy | None) -> Query:
    """The query, restricted to what may be seen."""
    if guard is None:
        return query
    return replace(
        query, filter=guard.condition(query.filter), order_by=guard.order(query.order_by)
    )


def restrict_shape(shape: Shape, guard: RowPolicy | None) -> Shape:
    """The shape, restricted to what may be seen."""
    return shape if guard is None else shape._replace(select=guard.shape(shape.select))


def restrict_key(key: FeedKey, guard: RowPolicy | None) -> FeedKey:
    """The key of a feed that sends only what may be seen."""
    return (
        key if guard is None else key._replace(guard=guard, shape=restrict_shape(key.shape, guard))
    )


def key_of_feed(key: FeedKey, topic: Records, guard: RowPolicy | None) -> FeedKey:
    """The key of a topic's feed. All lines of a conflated topic or a view name their places."""
    key = restrict_key(key, guard)
    if isinstance(topic.definition, Topic) or is_hidden(topic.name):
        return key
    return key._replace(shape=key.shape._replace(marked=True))


def shows(guard: RowPolicy | None, topic: Records, body: bytes) -> bool:
    """Whether a record in this state may be seen."""
    if guard is None or guard.rows is None:
        return True
    columns = topic.decoder(guard.rows.paths).columns([body])
    return guard.rows.matches(columns, 1)[0]


def check_still_permitted(session: Session, command: Command) -> None:
    """Raise what speaks against a command that took a while, if its session may not see the same
    any more as when it began."""
    before, now = command.rights, session.rights
    if before is now or before.text == now.text:
        return
    name = str(command.topic)
    if not is_pattern(command.topic) or command.options.non_regex_topic:
        now.check("read", name)
        if before.guard(name) == now.guard(name):
            return
    raise Busy("what this session may see has changed meanwhile; send this again")


def permit_for(rights: Permissions, verb: Verb, topic: str) -> WritePolicy | None:
    """The records of a topic that may be written or deleted; None: all."""
    guard = None if rights.is_open else rights.write_guard(topic, verb)
    return None if guard is None else WritePolicy(guard)


LOOKED_AT_MAX = 1_000
"""Maximum number of names checked for visibility: some microseconds each, once."""
COMPARED_MAX = 200
"""Comparing a mistyped name takes some 10 us a name."""


def redact_error(
    error: SowError, rights: Permissions, names: Iterable[str], patterns: Mapping[str, str]
) -> SowError:
    """The same error with a detail for a user with these permissions; `names` are those of all
    topics, `patterns` those by which topics are created."""
    if rights.is_open:
        return error
    if isinstance(error, UnknownTopic) and error.wanted:
        listed = (name for name in islice(names, LOOKED_AT_MAX) if not is_hidden(name))
        seen = (name for name in listed if rights.sees(name))
        known = [*islice(seen, COMPARED_MAX)]
        visible = {name: text for name, text in patterns.items() if rights.sees(name)}
        error.detail = no_topic(error.wanted, known, visible)
    elif isinstance(error, InvalidTopic) and not all(map(rights.sees, error.others)):
        error.detail = error.alone
    return error
