"""The topics that a user may see, and the number of visible records in each.

There may be a hundred thousand topics, so this runs in steps. `sow.server.api.describe` describes
each of them.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from sow.core.cooperative import Task
from sow.engine.engine import Engine
from sow.engine.patterns import PatternTopic
from sow.engine.running_topics import CopyTopic, LiveTopic
from sow.errors import UnknownTopic
from sow.query import Query
from sow.security.authorization import Permissions
from sow.sessions.queries.access_control import row_policy_for

LOOKED_AT_ONCE = 500
"""Topics whose permissions one step checks: some microseconds each with a few Allows."""

Listed = LiveTopic | PatternTopic


def there_for(
    rights: Permissions,
    listed: Sequence[Listed],
    prefix: str = "",
    top_n: int | None = None,
    members: bool = True,
) -> Task[list[Listed]]:
    """The visible topics whose names begin with `prefix`, the first `top_n` of them (None: all);
    without `members`, no topics of a visible pattern."""
    if rights.is_open and not prefix and members:
        return [*listed[:top_n]]
    found: list[Listed] = []
    for at, one in enumerate(listed, 1):
        if len(found) == top_n:
            break
        if at % LOOKED_AT_ONCE == 0:
            yield
        if not members and _is_member(one, rights):
            continue
        if one.name.startswith(prefix) and rights.sees(one.name):
            found.append(one)
    return found


def _is_member(one: Listed, rights: Permissions) -> bool:
    """Whether it belongs to a visible pattern."""
    if isinstance(one, PatternTopic) or one.pattern is None:
        return False
    return rights.sees(one.pattern)


class MemberCounts(NamedTuple):
    """Counts over the visible topics of a pattern: topics, records, and changes since the start of
    the server (None if a row policy hides some). For conflated topics also the updates in, the
    pending ones, and since when the oldest waits."""

    topics: int
    records: int
    updates: int | None
    updates_in: int
    pending: int
    oldest_us: int | None


def members_of(
    rights: Permissions, listed: Sequence[Listed], counts: Mapping[str, int]
) -> Task[dict[str, MemberCounts]]:
    """The counts of each pattern, by its name; `counts` holds the visible records of topics with a
    row policy."""
    found: dict[str, MemberCounts] = {}
    for pattern in listed:
        if isinstance(pattern, PatternTopic):
            topics = records = updates = updates_in = pending = 0
            oldest_us, is_guarded = None, False
            for at, topic in enumerate([*pattern.members.values()], 1):
                if at % LOOKED_AT_ONCE == 0:
                    yield
                if not rights.sees(topic.name):
                    continue
                topics += 1
                records += counts.get(topic.name, len(topic.records.table.slots))
                updates += topic.updates
                is_guarded = is_guarded or topic.name in counts
                if isinstance(topic, CopyTopic):
                    conflation = topic.copy.conflation
                    updates_in += conflation.updates_in
                    pending += conflation.pending
                    waits_us = conflation.oldest_us()
                    oldest_us = min(filter(None, (oldest_us, waits_us)), default=None)
            found[pattern.name] = MemberCounts(
                topics, records, None if is_guarded else updates, updates_in, pending, oldest_us
            )
    return found


def counting(engine: Engine, rights: Permissions, listed: Sequence[Listed]) -> Task[dict[str, int]]:
    """The number of visible records of each topic with a row policy, by name; members of patterns
    one by one."""
    counts: dict[str, int] = {}
    if rights.is_open:
        return counts
    topics = [
        topic
        for one in listed
        for topic in (one.members.values() if isinstance(one, PatternTopic) else (one,))
    ]
    for at, topic in enumerate(topics, 1):
        if at % LOOKED_AT_ONCE == 0:
            yield
        guard = row_policy_for(rights, topic.records)
        if guard is None or guard.rows is None or topic.name in counts:
            continue
        counts[topic.name] = 0
        if not rights.may("read", topic.name):
            continue
        query = Query(filter=guard.rows, top_n=0)
        # A topic removed meanwhile holds nothing.
        with suppress(UnknownTopic):
            counts[topic.name] = (yield from engine.queries.answering(topic.name, query)).matches
        yield
    return counts
