"""Named consumers of the log: how far each has come, so that what it has not read is kept.

A consumer is a record in a topic of the server's own, so it is as durable as any other. While it is
there, and advances now and then, retention keeps everything after its position. Any client may
create one, and most are abandoned; so waiting ends (`ConsumerPatience`): retention ignores a
consumer that has not advanced in `TransactionLog/ConsumerExpiration`. It keeps its position, and
may still find everything there. If not, it gets an error when it returns.

A name is meant for one reader. Where several use it, the one that is furthest behind counts, so
that none of them loses what it has not read; one that never returns holds the others up no longer
than retention waits for a consumer.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import orjson

from sow.core.cooperative import Task
from sow.core.definitions import CONSUMERS
from sow.engine.engine import Engine
from sow.errors import (
    ClientError,
    StoreError,
    TooLarge,
    UnknownRecord,
    clipped,
    invalid_bookmark,
    shown,
)
from sow.history.log_rows import cutting, first_time
from sow.messages.json import json_text
from sow.security.authorization import stored_owner
from sow.store.protocols import Journal
from sow.topic.records import Records

CONSUMERS_MAX = 1_000
"""Each is looked at once a second."""
NAME_CHARS_MAX = 255
"""As many as a topic's name may have."""
READERS_MAX = 20
"""Maximum number of readers that share a name: the ones that advanced last. Others have long
started again."""
CONSUMER_TOPICS_MAX = 100
"""Topics of a consumer: a query reads one, or a pattern, and each is named in its record."""
RENEWED_US = 60_000_000
"""One that stays where it is is written down again after so long, since it was there."""
CHANCE_US = 3_600_000_000
"""Grace period: no consumer could advance while the server was down, or while the clock was set
forward."""
SOON_PART = 0.75
"""The part of its time after which the operator is warned."""


class Consumer(NamedTuple):
    """What is known of one: the bookmark it has read up to, and when it last came forward."""

    name: str
    bookmark: int
    moved_us: int
    owner: str = ""
    """The user who created it, where there is authentication."""
    topics: tuple[str, ...] = ()
    """The topics and patterns that it reads; none: all."""


class Overtaken(ClientError):
    """A consumer came back, and the log was not kept for it."""

    reason = "consumer expired"
    status = 409


class Consumers:
    """The consumers of one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def all(self) -> list[Consumer]:
        """Every consumer, by name."""
        table = self._engine.catalog.account(CONSUMERS).records.table
        found = [
            (orjson.loads(table.bodies[slot] or b""), int(table.ts_us[slot]))
            for slot in table.slots.values()
        ]
        return sorted(
            Consumer(
                one["name"],
                int(one["bookmark"]),
                ts,
                stored_owner(one.get("user", "")),
                tuple(one.get("topics", ())),
            )
            for one, ts in found
        )

    def owner(self, name: str) -> str | None:
        """The owner of a consumer; None if there is none of that name."""
        held = self._held(name)
        return None if held is None else stored_owner(held.get("user", ""))

    def topics(self, name: str) -> list[str]:
        """The topics of a consumer, as it named them last."""
        found: list[str] = (self._held(name) or {}).get("topics", [])
        return found

    def _held(self, name: str) -> dict[str, Any] | None:
        table = self._engine.catalog.account(CONSUMERS).records.table
        slot = table.slots.get(name)
        return None if slot is None else orjson.loads(table.bodies[slot] or b"")

    def positions(self) -> dict[str, int]:
        """The bookmark that each consumer has read up to."""
        return {one.name: one.bookmark for one in self.all()}

    def move(
        self,
        name: str,
        bookmark: int,
        now_us: int,
        oldest: int = 0,
        reader: str = "",
        owner: str = "",
        topics: Sequence[str] = (),
    ) -> int:
        """Note how far a consumer has come; one that is new is kept for from here on.

        `reader` distinguishes readers that share the name: the lowest position of those that
        advanced lately counts, and is returned. `oldest` is the first bookmark that the log can
        still continue from. `topics` are those that it reads; none: those that it named before.
        Raises Overtaken for a consumer that retention has overtaken.
        """
        if not 0 < len(name) <= NAME_CHARS_MAX or not name.isprintable():
            raise ClientError(
                f"{shown(name)} cannot be a consumer's name: "
                f"use 1 to {NAME_CHARS_MAX} printable characters"
            )
        if bookmark > self._engine.seq:
            raise invalid_bookmark(
                f"bookmark {bookmark} is not there yet; the newest is {self._engine.seq}"
            )
        table = self._engine.catalog.account(CONSUMERS).records.table
        slot = table.slots.get(name)
        if slot is None and len(table) >= CONSUMERS_MAX:
            raise TooLarge(
                f"there are {CONSUMERS_MAX} consumers, and no more are kept; delete those that "
                "are not wanted (DELETE /v1/log/consumers/{name})"
            )
        if slot is None and 0 < bookmark < oldest:
            raise invalid_bookmark(
                f"bookmark {bookmark} is not kept; the oldest to go on from is {oldest}"
            )
        if slot is not None and bookmark < oldest:
            raise Overtaken(
                f"the log after bookmark {bookmark} is not kept any more, the oldest to go on from "
                f"is {oldest}: consumer {clipped(name)} was not waited for. What is missing must "
                "come from elsewhere; then begin at a bookmark that is kept"
            )
        held = self._held(name) or {}
        readers = self._readers(held.get("readers", {}), reader, bookmark, now_us)
        bookmark = min([bookmark, *(position for position, _ in readers.values())])
        noted = {"name": name, "bookmark": str(bookmark), "readers": readers}
        more = {"user": owner, "topics": list(topics) or held.get("topics")}
        body = json_text(noted | {word: value for word, value in more.items() if value})
        renewed = slot is None or now_us - int(table.ts_us[slot]) >= RENEWED_US
        if slot is not None and table.bodies[slot] == body and not renewed:
            return bookmark
        self._engine.disk.check_removal([name])
        topic = self._engine.catalog.account(CONSUMERS)
        self._engine.put(topic, topic.records.read([body]), now_us)
        return bookmark

    def _readers(
        self, held: Mapping[str, list[int]], reader: str, bookmark: int, now_us: int
    ) -> dict[str, list[int]]:
        """The positions of readers that share a name, and since when, in minutes: a reader that has
        been silent for as long as retention waits for a consumer is dropped."""
        if not reader:
            return {}
        lasts_us = self._engine.configuration.journal.consumer_expiration_us
        now_min = now_us // RENEWED_US
        readers = {**held, reader: [bookmark, now_min]}
        if lasts_us is not None:
            oldest_min = now_min - lasts_us // RENEWED_US
            readers = {name: found for name, found in readers.items() if found[1] >= oldest_min}
        newest = sorted(readers, key=lambda name: readers[name][1])[-READERS_MAX:]
        return {name: readers[name] for name in newest}

    def remove(self, name: str, now_us: int) -> None:
        """Keep nothing for a consumer any more; raises UnknownRecord."""
        self._engine.disk.check_removal([name])
        topic = self._engine.catalog.account(CONSUMERS)
        if not self._engine.remove(topic, [name], "delete", now_us):
            raise no_consumer(name)


LAGS_AT_ONCE = 100
"""Consumers whose lag one look measures again: of each at most what has come and what it has read
since is counted, and at the edges a megabyte of the log is read."""
TOPICS_AT_ONCE = 5_000
"""Topics of a pattern that one step collects."""


class _Lag(NamedTuple):
    """The rows of `topics` after `bookmark`, up to `until`, and the time of the first one."""

    topics: tuple[str, ...]
    bookmark: int
    until: int
    rows: int
    since_us: int | None


class ConsumerLags:
    """How far each consumer is behind in the durable log, in rows of its topics.

    What was counted stays known, so that a backlog is counted once, and later only what comes and
    what the consumer reads. Of more than `LAGS_AT_ONCE` consumers those that were measured longest
    ago are measured, and the others keep their figures.
    """

    def __init__(self, engine: Engine, journal: Journal) -> None:
        self._engine = engine
        self._journal = journal
        self._lags: dict[str, _Lag] = {}
        """By name, the one measured longest ago first."""

    @property
    def rows(self) -> dict[str, int]:
        """The rows that each consumer has yet to read."""
        return {name: lag.rows for name, lag in self._lags.items()}

    def seconds(self, now_us: int) -> dict[str, float]:
        """The age of the oldest of them; 0 where there is none."""
        return {
            name: 0.0 if lag.since_us is None else max(0, now_us - lag.since_us) / 1e6
            for name, lag in self._lags.items()
        }

    def measure(self) -> Task[None]:
        """Measure again, in steps."""
        there = {one.name: one for one in Consumers(self._engine).all()}
        self._lags = {name: lag for name, lag in self._lags.items() if name in there}
        new = [name for name in there if name not in self._lags]
        topics: dict[tuple[str, ...], Mapping[str, Records]] = {}
        for one in [there[name] for name in [*new, *self._lags][:LAGS_AT_ONCE]]:
            if one.topics not in topics:
                topics[one.topics] = yield from self._topics(one.topics)
            lag: _Lag | None = None
            # Its beginning was removed meanwhile, if at all: the next look counts what is left.
            with suppress(StoreError):
                known = self._lags.get(one.name)
                lag = yield from self._measured(one, topics[one.topics], known)
            self._lags.pop(one.name, None)
            if lag is not None:
                self._lags[one.name] = lag

    def _measured(
        self, one: Consumer, topics: Mapping[str, Records], known: _Lag | None
    ) -> Task[_Lag]:
        newest, oldest = self._journal.last_seq, self._journal.first_seq - 1
        after = min(newest, max(one.bookmark, oldest))
        goes_on = known is not None and known.topics == one.topics
        if known is None or not (goes_on and oldest <= known.bookmark <= after <= known.until):
            known = _Lag(one.topics, after, after, 0, None)
        read = yield from self._rows(topics, known.bookmark, after)
        come = yield from self._rows(topics, known.until, newest)
        rows, since_us = known.rows - read + come, known.since_us
        if not rows:
            since_us = None
        elif since_us is None or after > known.bookmark:
            since_us = yield from first_time(self._journal, after, newest, topics)
        return _Lag(one.topics, after, newest, rows, since_us)

    def _topics(self, names: Sequence[str]) -> Task[dict[str, Records]]:
        """The topics that are logged of these, or of all."""
        catalog, found = self._engine.catalog, []
        for name in names:
            is_pattern = name in catalog.patterns and name not in self._engine.topics
            one = self._engine.topics.get(name)
            found += catalog.members(name) if is_pattern else [] if one is None else [one]
        logged: dict[str, Records] = {}
        for at, topic in enumerate(found if names else list(self._engine.topics.values()), 1):
            if at % TOPICS_AT_ONCE == 0:
                yield
            if topic.is_logged:
                logged[topic.name] = topic.records
        return logged

    def _rows(self, topics: Mapping[str, Records], after: int, until: int) -> Task[int]:
        if until <= after:
            return 0
        return (yield from cutting(self._journal, after, until, sys.maxsize, topics)).rows


def no_consumer(name: str) -> UnknownRecord:
    """No consumer of that name is visible to the user."""
    return UnknownRecord(f"no consumer {shown(name)}; GET /v1/log/consumers lists them")


class ConsumerPatience:
    """How long retention waits for each consumer. `notice` is called with sentences for the
    operator's log.

    Time in which no consumer could advance does not count: after a start, and after the clock was
    set forward, each has at least an hour.
    """

    def __init__(self, engine: Engine, now_us: int, notice: Callable[[str], None]) -> None:
        self._engine = engine
        self._notice = notice
        self._since_us = now_us
        self._stepped_us = 0
        self._reported: dict[str, str] = {}

    def waited_for(self, now_us: int, stepped_us: int) -> dict[str, int]:
        """The positions of those the log is kept for. `stepped_us` is by how much the clock was
        set forward, in all, since the start."""
        if stepped_us != self._stepped_us:
            self._stepped_us, self._since_us = stepped_us, now_us
        consumers = Consumers(self._engine).all()
        lasts_us = self._engine.configuration.journal.consumer_expiration_us
        if lasts_us is None:
            return {one.name: one.bookmark for one in consumers}
        found: dict[str, int] = {}
        before, self._reported = self._reported, {}
        for one in consumers:
            idle_us = now_us - one.moved_us
            has_had_a_chance = now_us - self._since_us > min(CHANCE_US, lasts_us)
            if idle_us <= lasts_us or not has_had_a_chance:
                found[one.name] = one.bookmark
            if idle_us > SOON_PART * lasts_us and one.bookmark < self._engine.seq:
                self._report_change(before, one, idle_us, lasts_us, one.name in found)
        return found

    def _report_change(
        self, before: dict[str, str], one: Consumer, idle_us: int, lasts_us: int, waits: bool
    ) -> None:
        becomes = "will not be kept" if waits else "is not kept any more"
        self._reported[one.name] = becomes
        if before.get(one.name) != becomes:
            self._notice(
                f"consumer {one.name}, which is {self._engine.seq - one.bookmark} records behind, "
                f"has not come forward for {idle_us // 1_000_000:,} s: the log {becomes} for it"
                + (f" after {lasts_us // 1_000_000:,} s" if waits else "")
                + " (TransactionLog/ConsumerExpiration)"
            )
