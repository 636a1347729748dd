"""`GET /v1/topics/{topic}/records/{key}/why`: explains the state of a record.

For a conflated topic: which updates were conflated, in which window, what is pending, and which
subscriptions get it. Nothing is kept for this while messages come in: the windows follow from the
times in the log (docs/semantics.md, Rule 1), which is read on request, in steps. Where they touch
each other, the start of the first one is unknown: the result begins with one that certainly opened,
since no update came for an interval before it. A user who may not read the whole underlying topic
does not see its updates.

With `as_of` the answer is what a subscriber had been sent of the record then
(`sow.server.api.explain_past`).
"""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from aiohttp import web

from sow.core.cooperative import Task
from sow.core.definitions import Configuration, Schedule
from sow.engine.running_topics import CopyTopic, LiveTopic
from sow.errors import ClientError
from sow.expressions import Filter
from sow.history.bookmarks import last_before
from sow.history.log_rows import Extent, LogRows, log_pieces
from sow.protocol.replies import timestamp
from sow.security.authorization import EVERYTHING, Permissions, RoleSet
from sow.server.api.explain_past import (
    HeldRecord,
    PastSubscriber,
    RecordUpdate,
    RecordWindow,
    Story,
    end_us,
    options_of,
    passes,
    sentences_of,
    state_of,
    window_described,
)
from sow.server.api.record_resource import RECORD_PATH
from sow.server.api.response_schemas import RecordStory
from sow.server.api.sessions import is_of
from sow.server.api.snapshots import AsOfQueries
from sow.server.http.authn_middleware import permissions_of
from sow.server.http.responses import json_response
from sow.server.http.route import no_such_record, operation, parameters_of, route, sow_key_of
from sow.server.loop.runtime import ServerRuntime
from sow.sessions.commands.executor import Executor
from sow.sessions.queries.access_control import row_policy_for, shows
from sow.topic.records import Records


def windows_of(
    came: Iterable[RecordUpdate], schedule: Schedule, interval_us: int, since_us: int | None
) -> list[RecordWindow]:
    """The windows of a record with these updates, in order, and no others since `since_us` (None:
    ever); only those whose beginning is certain."""
    found: list[RecordWindow] = []
    # Until then an unknown window may be open; one that opens meanwhile is unknown, too.
    unknown_until_us = 0 if since_us is None else end_us(since_us, schedule, interval_us)
    # Whether a record that existed before is held is unknown.
    held: bool | None = False if since_us is None else None
    last: RecordUpdate | None = None
    for one in came:
        if found and one.at_us < found[-1].ends_us:
            found[-1].updates.append(one)
        elif one.at_us < unknown_until_us:
            unknown_until_us = end_us(one.at_us, schedule, interval_us)
        else:
            if last is not None:
                # The window that took it in, if any, has ended with it.
                held = last.counts
            # An update that does not pass, of a record that is not held, opens no window.
            if held or one.counts:
                ends_us = end_us(one.at_us, schedule, interval_us)
                found.append(RecordWindow(one.at_us, ends_us, [one]))
            elif held is None:
                unknown_until_us = end_us(one.at_us, schedule, interval_us)
        last = one
    return found


LOG_ROWS_MAX = 100_000
"""Rows of the log that are scanned: some tenths of a second, in steps. On a server with more rows
in twenty intervals, fewer windows are found, or none."""
INTERVALS = 20
"""How far back the scan goes: in so many intervals nearly every record has a pause."""
SENT_WINDOWS = 3
"""The open one, and two to compare it with."""
EXPLAIN = "Explain a record: its windows and followers, or what was sent of it then"
FOLLOWERS_MAX = 100
"""Followers that are listed: as many as a person reads. Each may have a filter to evaluate."""


class ExplainHandler:
    """`/v1/topics/{topic}/records/{key}/why` of one server."""

    def __init__(self, runtime: ServerRuntime, executor: Executor, past: AsOfQueries) -> None:
        self._runtime = runtime
        self._executor = executor
        self._engine = executor.engine
        self._past = past

    @route("GET", RECORD_PATH + "/why", "read", EXPLAIN, ("as_of", "user", "opts"))
    @operation("explain_record", RecordStory)
    async def handle(self, request: web.Request) -> web.Response:
        """`GET …/why`: the record, its source, its windows, and its followers, or what was sent of
        it then; raises UnknownTopic, UnknownRecord."""
        rights = permissions_of(request)
        topic = self._engine.topic(request.match_info["topic"])
        key, named = sow_key_of(request, topic.records), request.match_info["key"]
        if requested := parameters_of(request):
            return json_response(await self._then(request, topic, key, rights, named, requested))
        await self._runtime.settled()
        explaining = self._explain(topic, key, rights, named)
        return json_response(await self._runtime.turns.run("the story of a record", explaining))

    async def _then(
        self,
        request: web.Request,
        topic: LiveTopic,
        key: str,
        rights: Permissions,
        named: str,
        requested: Mapping[str, str],
    ) -> Story:
        """What a subscriber had been sent of a record by a moment of the past."""
        if "as_of" not in requested:
            raise ClientError("user and opts are about a moment of the past: give as_of, too")
        other, user = requested.get("user"), rights.user
        if other is not None:
            rights.check("admin")
            user = self._executor.user_named(other)

        def rights_by(configuration: Configuration) -> Permissions:
            if other is None and rights.is_open:
                return rights
            return RoleSet(configuration.security).rights(user)

        limit = rights if other is None else EVERYTHING
        past = PastSubscriber(topic.name, key, options_of(requested), rights_by, limit)
        moment = await self._past.listen(request, topic.name, requested["as_of"], past)
        is_known = past.last is not None or past.held is not None
        if not is_known and not self._is_there(topic, key, rights_by(self._engine.configuration)):
            raise no_such_record(topic.name, named)
        window = past.window
        if past.own_us is None and self._source(topic, rights) is None:
            window = None
        return {
            "topic": topic.name,
            "key": key,
            "kind": topic.kind,
            "held": None if past.held is None else past.held.described(),
            "told": past.last,
            "window": None if window is None else window_described(window),
            "waiting": past.waiting,
            "followers": [],
            "why": [*sentences_of(past, window, moment.time_us)],
        }

    def _is_there(self, topic: LiveTopic, key: str, rights: Permissions) -> bool:
        """Whether a user who may see all records of a topic finds this one, if only below it."""
        if not rights.may("read", topic.name) or row_policy_for(rights, topic.records) is not None:
            return False
        source = self._source(topic, rights)
        records = [topic.records, *([] if source is None else [source.records])]
        return any(state_of(one, key) is not None for one in records)

    def _explain(self, topic: LiveTopic, key: str, rights: Permissions, named: str) -> Task[Story]:
        held = state_of(topic.records, key)
        guard = row_policy_for(rights, topic.records)
        if held is not None and not shows(guard, topic.records, held.body):
            held = None
        source = self._source(topic, rights)
        newest = held if source is None else state_of(source.records, key)
        # A user with a row policy must not learn whether a hidden record exists.
        if held is None and (newest is None or guard is not None):
            raise no_such_record(topic.name, named)
        story: Story = {"topic": topic.name, "key": key, "kind": topic.kind}
        story["held"] = None if held is None else held.described()
        if not isinstance(topic, CopyTopic):
            story["why"] = [f"{topic.name} is not conflated: each update is sent as it comes"]
        else:
            story |= yield from self._conflated(topic, key, held, source, newest)
        story["followers"] = _followers(topic, held, rights)
        return story

    def _source(self, topic: LiveTopic, rights: Permissions) -> LiveTopic | None:
        """The underlying topic of a conflated one, if the user may read all of it."""
        if not isinstance(topic, CopyTopic):
            return None
        found = self._engine.topics.get(topic.underlying)
        if found is None or not rights.may("read", found.name):
            return None
        return found if row_policy_for(rights, found.records) is None else None

    def _conflated(
        self,
        topic: CopyTopic,
        key: str,
        held: HeldRecord | None,
        source: LiveTopic | None,
        newest: HeldRecord | None,
    ) -> Task[Story]:
        definition = topic.definition
        story: Story = {
            "interval_ms": definition.interval_us / 1000,
            "schedule": definition.schedule,
            "underlying": None if source is None else source.name,
            "newest": None if source is None or newest is None else newest.described(),
            "waits": None,
            "windows": None,
        }
        unknown = _why_not(topic, source)
        if unknown or source is None:
            return story | {"why": [unknown]}
        identity = (newest or held).identity  # type: ignore[union-attr]  # there is one of them
        waits = bool(topic.copy.conflation.waiting_among({identity}))
        windows = yield from self._windows(topic, source, key, held, waits)
        story |= {"waits": waits, "windows": [*map(window_described, reversed(windows))]}
        return story | {"why": [*_sentences(topic, held, newest, waits, windows)]}

    def _windows(
        self, topic: CopyTopic, source: LiveTopic, key: str, held: HeldRecord | None, waits: bool
    ) -> Task[list[RecordWindow]]:
        """The last windows of a record, as far as the log goes back."""
        journal, definition = self._runtime.journal, topic.definition
        until = journal.last_seq if waits or held is None else held.bookmark
        around_us = self._runtime.now_us() if waits or held is None else held.ts_us
        since_us = around_us - INTERVALS * definition.interval_us
        oldest = journal.first_seq - 1
        after = max(oldest, last_before(since_us, journal))
        if until - after > LOG_ROWS_MAX:
            after = until - LOG_ROWS_MAX
            entry = next(journal.read(after), None)
            since_us = since_us if entry is None else entry.ts_us
        came: list[RecordUpdate] = []
        rows = log_pieces(journal, Extent(after, until, 0), {source.name: source.records})
        for piece in rows:
            if piece is not None and key in piece.keys:
                came += _came(piece, key, source.records, topic.copy.condition)
            yield
        known_us = None if after == 0 else since_us
        found = windows_of(came, definition.schedule, definition.interval_us, known_us)
        return found[-SENT_WINDOWS:]


def _came(piece: LogRows, key: str, topic: Records, condition: Filter | None) -> list[RecordUpdate]:
    """The updates of one record among rows of the log; a removal passes no filter."""
    found = []
    for at, one in enumerate(piece.keys if piece.op != "edit" else ()):
        if one == key:
            counts = piece.op == "publish"
            if counts and condition is not None:
                seq, body = piece.seqs[at], piece.bodies[at]
                counts = passes(condition, topic, key, body, seq, piece.ts_us)
            found.append(RecordUpdate(piece.seqs[at], piece.ts_us, counts))
    return found


def _why_not(topic: CopyTopic, source: LiveTopic | None) -> str:
    """Why its windows cannot be shown; empty if they can."""
    if topic.stopped:
        return "the conflated topic has stopped" if source is None else topic.stopped
    if source is None:
        return (
            "you may not read its whole underlying topic, and so not see which updates became one"
        )
    if topic.definition.engine != "embedded":
        return f"its windows are made by {topic.definition.engine} and not known here"
    if not source.is_logged:
        return f"the updates of {source.name} are in no log, and so cannot be shown"
    return ""


def _sentences(
    topic: CopyTopic,
    held: HeldRecord | None,
    newest: HeldRecord | None,
    waits: bool,
    windows: list[RecordWindow],
) -> list[str]:
    """The story in sentences."""
    why, closed = [], windows[:-1] if waits else windows
    if held is None:
        passes = newest is not None and newest.passes(topic.copy.condition)
        if not passes:
            why.append(f"{topic.name} does not have it: it does not match the topic's Filter")
        elif waits:
            why.append(f"{topic.name} does not have it yet: it is sent when its window ends")
    elif closed and closed[-1].updates[-1].bookmark == held.bookmark:
        why.append(f"what {topic.name} holds is {_as_one(closed[-1])}")
    else:
        why.append(f"what {topic.name} holds is update {held.bookmark}")
    if waits and windows:
        opened, ends = timestamp(windows[-1].opened_us), timestamp(windows[-1].ends_us)
        count = len(windows[-1])
        why.append(f"{count} wait{'s' * (count == 1)} in a window from {opened} to {ends}")
    elif waits:
        why.append("an update waits; they come so often that the start of its window is not known")
    return why


def _as_one(window: RecordWindow) -> str:
    last, count = window.updates[-1], len(window)
    if count == 1:
        return (
            f"update {last.bookmark}, alone in its window, which ended {timestamp(window.ends_us)}"
        )
    opened, ends = timestamp(window.opened_us), timestamp(window.ends_us)
    first = window.updates[0]
    return (
        f"{count} updates as one, {first.bookmark} to {last.bookmark}, which came in the window "
        f"from {opened} to {ends}"
    )


def _followers(
    topic: LiveTopic, held: HeldRecord | None, rights: Permissions
) -> list[Mapping[str, Any]]:
    """The visible subscriptions to the topic, and whether each gets this record."""
    members = ((feed, session) for feed in topic.router.feeds() for session in feed.members)
    seen = ((feed, session) for feed, session in members if is_of(session, rights))
    return [
        {
            "session": session.id,
            "client": session.client,
            "s": feed.name,
            "filter": feed.key.filter,
            "interval_ms": None if feed.key.interval_us is None else feed.key.interval_us / 1000,
            "auto": feed.key.auto,
            "told": held is not None and held.passes(feed.condition),
        }
        for feed, session in islice(seen, FOLLOWERS_MAX)
    ]
