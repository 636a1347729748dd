"""Topics and sessions as JSON documents (field names: docs/http.md)."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from sow.core.definitions import ConflatedTopic, Topic, View
from sow.core.paths import parse_path
from sow.engine.patterns import PatternTopic
from sow.engine.running_topics import CopyTopic, LiveTopic, SourceTopic, ViewTopic
from sow.protocol.encodings import timestamp
from sow.security.authorization import EVERYTHING, Permissions
from sow.security.row_level_security import RowPolicy
from sow.server.api.topic_list import MemberCounts
from sow.sessions.commands.session_manager import GoneSession
from sow.sessions.queries.access_control import row_policy_for
from sow.sessions.subscriptions.subscription import Subscription
from sow.streaming.conflated_channel import ConflatedChannel
from sow.streaming.sessions import Session

NO_COUNTS: Mapping[str, int] = {}
DESCRIBED_MAX = 1000
"""Subscriptions of a session that are described: as many as a person reads, in a millisecond."""


def describe_topic(
    topic: LiveTopic,
    now_us: int,
    rights: Permissions = EVERYTHING,
    counts: Mapping[str, int] = NO_COUNTS,
) -> dict[str, Any]:
    """A topic's definition and state, as far as these permissions allow. `counts` holds the number
    of visible records of the topics with a row policy. Names of topics that the user may not see,
    their fields, and indexes on hidden fields are left out."""
    records, definition = topic.records, topic.definition
    guard = row_policy_for(rights, records)
    described: dict[str, Any] = {
        "name": topic.name,
        "kind": topic.kind,
        "message_type": definition.message_type,
        "keys": [str(key) for key in records.keys],
        "indexes": _indexes(definition.hash_indexes, records.keys, guard),
        "memos": [
            str(path) for path in records.indexes.memos if guard is None or not guard.hides(path)
        ],
        "records": counts.get(topic.name, len(records.table)),
        "bytes": None if topic.name in counts else records.table.bytes,
        "subscriptions": topic.router.subscription_count,
        # The count would disclose records that the user may not see.
        "updates": None if topic.name in counts else topic.updates,
    }
    if topic.pattern is not None and rights.sees(topic.pattern):
        described["of_pattern"] = topic.pattern
    if isinstance(topic, SourceTopic):
        described["key_domain"] = records.domain
    if isinstance(topic, CopyTopic):
        copied, conflation = topic.definition, topic.copy.conflation
        oldest_us = conflation.oldest_us()
        described |= {
            "underlying": topic.underlying,
            "interval_ms": copied.interval_us / 1000,
            "filter": copied.filter,
            "engine": copied.engine,
            "filled_bookmark": str(topic.copy.filled_seq),
            "pending": conflation.pending,
            "oldest_pending_ms": _waits_ms(oldest_us, now_us),
            "updates_in": conflation.updates_in,
            "updates_out": conflation.updates_out,
            "executions": conflation.releases,
            "conflation_ratio": round(conflation.ratio, 3),
            "stopped": topic.stopped or None,
        }
        if not rights.sees(topic.underlying):
            described |= {"underlying": None, "stopped": _whether(topic.stopped)}
        if not _knows_fields(rights, topic.underlying):
            described["filter"] = None
    if isinstance(topic, ViewTopic):
        described |= _of_view(topic.definition, rights) | _of_rows(topic)
        if not all(map(rights.sees, topic.underlyings)):
            described["stopped"] = _whether(topic.view.stopped)
    elif isinstance(topic, SourceTopic) and topic.definition.view is not None:
        described |= {"kind": ViewTopic.kind} | _of_view(topic.definition.view, rights)
        # Rows written up to there belong to an earlier view: Spark has to start from scratch.
        described["filled_bookmark"] = str(records.since_seq)
    return described


def _waits_ms(oldest_us: int | None, now_us: int) -> float:
    """How long the oldest entry has waited; 0 if there is none."""
    return 0 if oldest_us is None else max(0, now_us - oldest_us) / 1000


def _whether(stopped: str) -> str | None:
    """Whether something stopped, without the message, which names other topics."""
    return "stopped" if stopped else None


def _of_view(definition: View, rights: Permissions) -> dict[str, Any]:
    seen = [*filter(rights.sees, definition.underlyings)]
    if not all(_knows_fields(rights, name) for name in definition.underlyings):
        is_single = len(seen) == len(definition.underlyings) == 1
        return {
            "underlying": seen[0] if is_single else None,
            "underlyings": seen,
            "projection": [],
            "grouping": [],
            "filter": None,
            "engine": definition.engine,
        }
    return {
        "underlying": definition.underlyings[0] if len(definition.underlyings) == 1 else None,
        "underlyings": list(definition.underlyings),
        "projection": list(definition.projection),
        "grouping": list(definition.grouping),
        "filter": definition.filter,
        "engine": definition.engine,
    }


def _of_rows(topic: ViewTopic) -> dict[str, Any]:
    view = topic.view
    return {
        "filled_bookmark": str(view.filled_seq),
        "pending": view.groups.dirty_count,
        "left_out": view.groups.left_out,
        "stopped": view.stopped or None,
        "updates_in": view.updates_in,
        "updates_out": view.updates_out,
        "conflation_ratio": round(view.updates_in / (view.updates_out or 1), 3),
    }


def _knows_fields(rights: Permissions, name: str) -> bool:
    """Whether the user may see all fields of a topic."""
    guard = rights.guard(name)
    return rights.sees(name) and (guard is None or guard.select is None)


def _indexes(
    hashed: Sequence[Sequence[str]], keys: Sequence[object], guard: RowPolicy | None = None
) -> list[list[str]]:
    """The hash indexes: that of the key, then the configured ones."""
    key = [str(path) for path in keys]
    found = [list(fields) for fields in hashed if list(fields) != key]
    if guard is not None:
        found = [one for one in found if not any(guard.hides(parse_path(text)) for text in one)]
    return ([key] if key else []) + found


def describe_pattern(
    pattern: PatternTopic, members: MemberCounts, now_us: int, rights: Permissions = EVERYTHING
) -> dict[str, Any]:
    """A pattern of topics; `members` counts the topics that these permissions allow to see."""
    definition = pattern.definition
    described: dict[str, Any] = {
        "name": definition.name,
        "kind": "pattern",
        "message_type": definition.message_type,
        "indexes": _indexes(definition.hash_indexes, getattr(definition, "keys", ())),
        "topics": members.topics,
        "records": members.records,
        "updates": members.updates,
    }
    if isinstance(definition, ConflatedTopic):
        is_seen = rights.sees(definition.underlying)
        return described | {
            "underlying": definition.underlying if is_seen else None,
            "pattern": definition.topic_format,
            "interval_ms": definition.interval_us / 1000,
            "filter": definition.filter if _knows_fields(rights, definition.underlying) else None,
            "updates_in": members.updates_in if members.updates is not None else None,
            "updates_out": members.updates,
            "pending": members.pending,
            "oldest_pending_ms": _waits_ms(members.oldest_us, now_us),
        }
    assert isinstance(definition, Topic)
    return described | {"keys": list(definition.keys), "pattern": definition.pattern}


def describe_session(session: Session, subscriptions: int, now_us: int) -> dict[str, Any]:
    """A connected session and its queue."""
    oldest_us = session.outbox.oldest_us()
    return {
        "id": session.id,
        "client": session.client,
        **_peer(session),
        "connected": session.connected and session.ended is None,
        "connected_ms": max(0, now_us - session.connected_us) / 1000,
        "subscriptions": subscriptions,
        "queue_messages": session.outbox.message_count,
        "queue_bytes": session.outbox.size_bytes,
        "conflated": session.conflates,
        "conflated_messages": session.outbox.folded,
        "dropped_messages": session.dropped,
        "lag_ms": _waits_ms(oldest_us, now_us),
        "reason": session.ended,
    }


def _peer(session: Session | GoneSession) -> dict[str, Any]:
    """The user of a session, the address of its client, and when it connected."""
    user = session.rights.user
    return {
        "user": None if user is None else user.name,
        "address": session.address,
        "since": timestamp(session.connected_us),
    }


def describe_followed(followed: Iterable[Subscription], now_us: int) -> list[dict[str, Any]]:
    """The subscriptions of a session and their conflation counters."""
    return [_describe_one(one, now_us) for one in islice(followed, DESCRIBED_MAX)]


def _describe_one(one: Subscription, now_us: int) -> dict[str, Any]:
    key, channel = one.key, one.channel
    described: dict[str, Any] = {
        "s": one.name,
        "topic": one.topic,
        "filter": key.filter,
        "interval_ms": None if key.interval_us is None else key.interval_us / 1000,
        "auto": key.auto,
        "window": key.window is not None,
    }
    if isinstance(channel, ConflatedChannel):
        oldest_us = channel.conflator.oldest_us()
        described |= {
            "pending": len(channel.conflator),
            "oldest_pending_ms": _waits_ms(oldest_us, now_us),
            "updates_in": channel.updates_in,
            "updates_out": channel.lines_out,
        }
    return described


def describe_gone(gone: GoneSession, now_us: int) -> dict[str, Any]:
    """A closed session and the reason."""
    return {
        "id": gone.id,
        "client": gone.client,
        **_peer(gone),
        "connected": False,
        "connected_ms": max(0, gone.closed_us - gone.connected_us) / 1000,
        "closed_ms": max(0, now_us - gone.closed_us) / 1000,
        "conflated_messages": gone.folded,
        "dropped_messages": gone.dropped,
        "reason": gone.reason,
    }
