"""Topics over HTTP: those that a user may see, and their state as JSON (field names: docs/http.md).

There may be a hundred thousand topics, so they are listed, counted and described in steps. What a
user may not see is left out: topics, records under a row policy, and the names of other topics and
of hidden fields.

`/v1/topics/{topic}/rates` is two minutes of a topic's or a record's updates, a figure a second. The
figures are those of `sow.engine.rates`; here is the clock that has them taken once a second, from
when the server has its records until it stops. Who sees some records of a topic only gets no
figures of the topic: they count changes that are hidden from him.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any, NamedTuple

from aiohttp import web

from sow.core.cooperative import Task
from sow.core.definitions import BackPressure, ConflatedTopic, QueueSettings, Topic, View
from sow.core.paths import parse_path
from sow.core.security_definitions import OF_TOPICS
from sow.engine.engine import Engine
from sow.engine.patterns import PatternTopic
from sow.engine.rates import RATE_STEP_US, RateKeeper
from sow.engine.running_topics import CopyTopic, LiveTopic, SourceTopic, ViewTopic
from sow.errors import UnknownTopic
from sow.protocol.replies import timestamp
from sow.query import Query
from sow.security.authorization import EVERYTHING, Permissions
from sow.security.row_level_security import RowPolicy
from sow.server.api.response_schemas import RatesAnswered, TopicDescribed
from sow.server.http.authn_middleware import permissions_of
from sow.server.http.chunked_response import answer_array
from sow.server.http.responses import LOG_HEADER, json_response
from sow.server.http.route import (
    no_such_record,
    operation,
    parameters_of,
    read_count,
    read_flag,
    route,
)
from sow.server.loop.runtime import ServerRuntime
from sow.sessions.queries.access_control import row_policy_for, shows
from sow.topic.series import TopicEvents

TOPIC_PATH = "/v1/topics/{topic}"
TOPICS_PARAMETERS = ("prefix", "top_n", "names", "members")
LOOKED_AT_ONCE = 500
"""Topics whose permissions one step checks: some microseconds each with a few Allows."""
NO_COUNTS: Mapping[str, int] = {}

Listed = LiveTopic | PatternTopic


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


class TopicsHandler:
    """`/v1/topics`, `/v1/topics/{topic}` and `/v1/message-types` of one server."""

    def __init__(self, runtime: ServerRuntime, engine: Engine) -> None:
        self._runtime = runtime
        self._engine = engine

    @route("GET", "/v1/topics", "logon", "All topics, or some by their names", TOPICS_PARAMETERS)
    @operation("list_topics", list[TopicDescribed | str], tagged=True)
    async def topics(self, request: web.Request) -> web.StreamResponse:
        """`GET /v1/topics`: all topics, in the order of the configuration, each as of the moment at
        which it is written. `prefix`, `top_n` and `members` select some; `names` gives names only.
        """
        catalog, rights = self._engine.catalog, permissions_of(request)
        requested = parameters_of(request)
        listing = there_for(
            rights,
            [*catalog.listed(), *catalog.patterns.values()],
            requested.get("prefix", ""),
            read_count(requested, "top_n"),
            requested.get("members") is None or read_flag(requested, "members"),
        )
        turns, headers = self._runtime.turns, {LOG_HEADER: self._runtime.journal.log_id}
        listed = await turns.run("a list of topics", listing)
        if read_flag(requested, "names"):
            return await answer_array(turns, request, listed, lambda one: one.name, headers)
        describe = await self._describing(listed, rights)
        return await answer_array(turns, request, listed, describe, headers)

    @route("GET", TOPIC_PATH, "see", "One topic: definition, counts, conflation", ("expected",))
    @operation("describe_topic", TopicDescribed)
    async def topic(self, request: web.Request) -> web.Response:
        """`GET /v1/topics/{topic}`: one topic or pattern; with `expected` also a topic that a
        pattern would create."""
        rights = permissions_of(request)
        name, catalog = request.match_info["topic"], self._engine.catalog
        found: Listed
        if name in catalog.patterns and name not in self._engine.topics:
            found = catalog.patterns[name]
        else:
            is_expected = read_flag(parameters_of(request), "expected")
            found = catalog.expected(name) if is_expected else catalog.topic(name)
        described = (await self._describing([found], rights))(found)
        verbs = OF_TOPICS if isinstance(found, SourceTopic) else OF_TOPICS[:1]
        described["may"] = [verb for verb in verbs if rights.may(verb, found.name)]
        if "key_domain" in described:  # it takes batches
            described["batch_bytes"] = self._engine.configuration.limits.batch_bytes_max
        return json_response(described)

    async def _describing(
        self, listed: Sequence[Listed], rights: Permissions
    ) -> Callable[[Listed], dict[str, Any]]:
        """How to describe these topics and patterns, once what the user sees of them is counted."""
        turns, now_us, counts = self._runtime.turns, self._runtime.now_us, NO_COUNTS
        if not rights.is_open:
            counts = await turns.run("a count", counting(self._engine, rights, listed))
        members = await turns.run("a list of topics", members_of(rights, listed, counts))

        def describe(one: Listed) -> dict[str, Any]:
            if isinstance(one, PatternTopic):
                return describe_pattern(one, members[one.name], now_us(), rights)
            return describe_topic(one, now_us(), rights, counts)

        return describe

    @route("GET", "/v1/message-types", "logon", "The message types of the configuration")
    @operation("list_message_types", list[dict[str, Any]])
    async def message_types(self, _request: web.Request) -> web.Response:
        """`GET /v1/message-types`: the message types of the configuration."""
        return json_response(self._engine.configuration.message_types)


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
        "queue": _of_queues(definition, guard),
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
    if isinstance(definition, Topic) and definition.queue is not None:
        described |= _of_messages(topic, definition.queue, rights)
    if records.events is not None:
        described["series"] = _of_events(records.events, is_hidden=topic.name in counts)
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
            "oldest_pending_ms": waits_ms(oldest_us, now_us),
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


def _of_messages(topic: LiveTopic, queue: QueueSettings, rights: Permissions) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if isinstance(topic, SourceTopic) and topic.queue is not None:  # who follows knows no leases
        leased = len(topic.records.indexes.hidden)
        found["leased"], found["waiting"] = leased, len(topic.records.table) - leased
    if rights.sees(queue.underlying):
        found["underlying"] = queue.underlying
    return found


def _of_events(events: TopicEvents, is_hidden: bool) -> dict[str, Any]:
    retain = events.retain
    return {
        "limit": retain.events_max,
        "last_ms": None if retain.age_us is None else retain.age_us / 1000,
        "events": None if is_hidden else events.count,
        "bytes": None if is_hidden else events.size_bytes,
    }


def _of_queues(definition: BackPressure, guard: RowPolicy | None) -> dict[str, Any]:
    """What queues may do with its updates, as far as that names no hidden field."""
    paths = [*definition.match, *(one.field for one in definition.merges)]
    names = guard is None or not any(guard.hides(parse_path(path)) for path in paths)
    return {
        "conflation_policy": definition.conflation_policy,
        "placement": definition.placement,
        "match": definition.match if names else (),
        "merges": [asdict(one) for one in definition.merges] if names else [],
        "merger": definition.merger if guard is None else None,
    }


def waits_ms(oldest_us: int | None, now_us: int) -> float:
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
            "oldest_pending_ms": waits_ms(members.oldest_us, now_us),
        }
    assert isinstance(definition, Topic)
    return described | {"keys": list(definition.keys), "pattern": definition.pattern}


TAKING_RATES = "taking the rates"
"""The name of this work in metrics."""


class RatesHandler:
    """`/v1/topics/{topic}/rates` of one server."""

    def __init__(self, runtime: ServerRuntime, engine: Engine) -> None:
        self._runtime = runtime
        self._engine = engine
        self._rates = RateKeeper(engine)

    def begin(self) -> None:
        """Take the figures once a second, until the runtime closes."""
        self._runtime.begin(self._take())

    async def _take(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(RATE_STEP_US / 1e6)

    async def look(self) -> None:
        """Take the figures of the seconds since the last look."""
        await self._runtime.turns.run(TAKING_RATES, self._rates.look(self._runtime.now_us()))

    @route("GET", TOPIC_PATH + "/rates", "read", "Updates in each of the last seconds", ("k",))
    @operation("get_rates", RatesAnswered)
    async def rates(self, request: web.Request) -> web.Response:
        """`GET …/rates`: up to 120 figures in and out; with `k` of one record, by its SowKey, which
        is watched from now on."""
        topic = self._engine.topic(request.match_info["topic"])
        guard = row_policy_for(permissions_of(request), topic.records)
        sow_key = parameters_of(request).get("k")
        if sow_key is not None:
            table = topic.records.table
            slot = table.find(sow_key)
            if slot is None or not shows(guard, topic.records, table.bodies[slot] or b""):
                raise no_such_record(topic.name, sow_key)
            identity = table.identities[slot] or ""
            found = self._rates.of_record(topic, identity, self._runtime.now_us())
        else:
            found = self._rates.of_topic(topic.name)
            if guard is not None and guard.rows is not None:
                found = found._replace(taken=(), given=())
        return json_response(
            {
                "step_ms": RATE_STEP_US // 1000,
                "end": timestamp(found.end_us),
                "in": [*found.taken],
                "out": [*found.given],
            }
        )
