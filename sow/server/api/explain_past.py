"""What a subscriber had been sent of a record by a moment of the past, and the window behind it.

Nothing is kept for this. The topic is replayed (`sow.engine.replay`) to a feed such as that of the
subscriber, with the rights that its user had by the roles of then, groups and claims being those of
now. Where rights change, the record leaves or enters, as for a session. The
caller sees nothing beyond present permissions. `explain.py` answers with it, and has the windows of
the present.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import orjson

from sow.core.definitions import Configuration, Schedule
from sow.engine.replay import Replay
from sow.engine.running_topics import CopyTopic, LiveTopic
from sow.errors import invalid_options
from sow.expressions import Filter
from sow.protocol.commands import Command, Options, read_options
from sow.protocol.replies import LINES, timestamp
from sow.security.authorization import EVERYTHING, Permissions
from sow.security.row_level_security import DENY_ALL, RowPolicy
from sow.sessions.queries.access_control import restrict_key, restrict_shape, row_policy_for, shows
from sow.sessions.queries.query_planning import feed_key, shape_of
from sow.streaming.channel import DirectChannel
from sow.streaming.conflated_channel import ConflatedChannel
from sow.streaming.feeds import ChangeFeed
from sow.topic.batch import Batch
from sow.topic.records import Records
from sow.topic.rendering import LineColumns

SENT_UPDATES = 100
"""Updates of a window that are listed; all are counted."""

OTHER_LINES = (
    "live", "positions", "top_n", "skip_n", "projection", "grouping", "conflation_key", "replace",
)  # fmt: skip
"""Options of subscriptions whose lines are about more than one record, or replace others."""


@dataclass(frozen=True, slots=True)
class RecordUpdate:
    """An update of the record; `counts`: the topic's filter passes it."""

    bookmark: int
    at_us: int
    counts: bool


@dataclass(slots=True)
class RecordWindow:
    """Updates that are conflated: the window opened at the first of them, and ends at `ends_us`.
    `left_out` are counted only, those before the last one."""

    opened_us: int
    ends_us: int
    updates: list[RecordUpdate] = field(default_factory=list)
    left_out: int = 0

    def __len__(self) -> int:
        return len(self.updates) + self.left_out


def end_us(at_us: int, schedule: Schedule, interval_us: int) -> int:
    """When a window ends that opens at this time; none that was open by then ends later."""
    if schedule == "tick":
        return (at_us // interval_us + 1) * interval_us
    return at_us + interval_us


Story = dict[str, Any]


@dataclass(frozen=True, slots=True)
class HeldRecord:
    """The current state of a record in a topic."""

    topic: Records
    identity: str
    body: bytes
    bookmark: int
    ts_us: int

    def passes(self, condition: Filter | None) -> bool:
        """Whether it matches a filter."""
        return condition is None or passes(
            condition, self.topic, self.identity, self.body, self.bookmark, self.ts_us
        )

    def described(self) -> dict[str, str]:
        """The update that made it."""
        return {"bookmark": str(self.bookmark), "ts": timestamp(self.ts_us)}


def state_of(topic: Records, key: str) -> HeldRecord | None:
    """A record of a topic as it is."""
    table = topic.table
    slot = table.find(key)
    if slot is None:
        return None
    body, identity = table.bodies[slot] or b"", table.identities[slot] or ""
    return HeldRecord(topic, identity, body, int(table.seqs[slot]), int(table.ts_us[slot]))


def passes(
    condition: Filter, topic: Records, identity: str, body: bytes, seq: int, ts_us: int
) -> bool:
    """Whether a state of a record matches a filter."""
    columns = topic.decoder(condition.paths).columns([body])
    messages = topic.messages([identity], [body], [seq], [ts_us])
    return bool(condition.matches_messages(columns, messages)[0])


class RecordLine(msgspec.Struct):
    """A record line, as far as it is shown again."""

    c: str
    k: str = ""
    reason: str | None = None
    bm: str | None = None
    d: msgspec.Raw = msgspec.Raw(b"null")


class PastSubscriber:
    """A subscriber to the topic `name` with these `options`, as far as the record `key` goes.

    A replay of the topic reports to `hear`, and `look` is called between its steps. `rights_by`
    gives the permissions by the roles of a configuration; nothing is shown that `limit` does not
    permit.
    """

    def __init__(
        self,
        name: str,
        key: str,
        options: Options,
        rights_by: Callable[[Configuration], Permissions],
        limit: Permissions = EVERYTHING,
    ) -> None:
        self._name = name
        self._key = key
        options = replace(options, no_sowkey=False)
        self._command = Command("sow_and_subscribe", topic=name, options=options)
        self._rights_by = rights_by
        self._limit = limit
        interval_us = options.conflation
        self.own_us = interval_us if isinstance(interval_us, int) else None
        self._channel = (
            DirectChannel("", LINES)
            if self.own_us is None
            else ConflatedChannel("", LINES, self.own_us)
        )
        self._feed: ChangeFeed | None = None
        self._under: Configuration | None = None
        self._rights: Permissions = EVERYTHING
        self._seq = 0
        self._own: str | None = None
        """The identity of the record, once something was heard of it."""
        self._replay: Replay | None = None
        self.last: Story | None = None
        """The last line."""
        self.window: RecordWindow | None = None
        """The last window."""
        self.waiting = False
        """Whether an update waits for the end of it."""
        self.held: HeldRecord | None = None
        """The record at the end, if the subscriber may see it."""

    def begin(self, replay: Replay) -> None:
        """The replay stands where it begins; what it has reported before does not count."""
        self._replay = replay
        self.look()

    def end(self) -> None:
        """The replay has come to the moment."""
        self.look()
        topic = self._topic(self._name)
        if topic is None or self._feed is None:
            return
        self.release()
        if self._sees(topic):
            self.held = state_of(topic.records, self._key)
        if isinstance(self._channel, ConflatedChannel):
            self.waiting = self._own is not None and self._waits(self._own) is not None
        elif isinstance(topic, CopyTopic) and self._own is not None:
            self.waiting = bool(topic.copy.conflation.waiting_among({self._own}))

    @property
    def _at_work(self) -> Replay:
        assert self._replay is not None, "it has not begun"
        return self._replay

    def _topic(self, name: str) -> LiveTopic | None:
        return self._at_work.engine.topics.get(name)

    # Lines.

    def look(self) -> None:
        """Go on by the permissions in force, and with the records of another start."""
        found, configuration = self._topic(self._name), self._at_work.configuration
        if configuration is not self._under:
            saw = None if self._under is None or found is None else self._sees(found)
            self._under = configuration
            self._rights = self._rights_by(self._under)
            self._feed = None
            if found is not None:
                self._enter_or_leave(found, saw)
        if found is not None and (self._feed is None or self._feed.topic is not found.records):
            self._feed = self._made(found)

    def _guards(self, topic: LiveTopic) -> list[RowPolicy] | None:
        """The row policies that apply, of then and of now; None: nothing may be seen."""
        found: dict[str, RowPolicy] = {}
        for rights in (self._rights, self._limit):
            guard = row_policy_for(rights, topic.records)
            if guard is DENY_ALL or not rights.may("read", topic.name):
                return None
            if guard is not None:
                found[guard.text] = guard
        return [*found.values()]

    def _made(self, topic: LiveTopic) -> ChangeFeed | None:
        guards, condition = self._guards(topic), None
        if guards is None:
            return None
        key = feed_key(self._command, LINES, complete=True)
        for guard in guards:
            key, condition = restrict_key(key, guard), guard.condition(condition)
        feed = topic.router.make(self._channel, key, condition)
        assert isinstance(feed, ChangeFeed)
        return feed

    def _sees(self, topic: LiveTopic) -> bool:
        """Whether the subscriber may see the record as it is."""
        held, guards = state_of(topic.records, self._key), self._guards(topic)
        if held is None or guards is None:
            return False
        return all(shows(guard, topic.records, held.body) for guard in guards)

    def _enter_or_leave(self, topic: LiveTopic, saw: bool | None) -> None:
        """Send what the record is to begin with, or what follows from other permissions."""
        held, sees = state_of(topic.records, self._key), self._sees(topic)
        if held is None or sees == bool(saw):
            return
        self._seq = held.bookmark
        renderer, kind = topic.records.renderer, "sow" if saw is None else "p"
        columns = LineColumns([self._key], [held.body], [held.bookmark], [held.ts_us])
        if sees:
            shape = shape_of(self._command)
            for guard in self._guards(topic) or ():
                shape = restrict_shape(shape, guard)
            lines = renderer.lines("p", shape, columns, renderer.head(kind, ""))
            self._send(lines, held.ts_us if saw is None else self._at_work.now_us)
        elif self._command.options.oof:
            line = RecordLine("oof", self._key, "entitlement")
            self._send([msgspec.json.encode(line)], self._at_work.now_us)

    def hear(self, topic: LiveTopic, batch: Batch) -> None:
        """The replay reports changes of a topic."""
        if self._replay is None:
            return
        self.look()
        if topic.name != self._name:
            self._merge(topic, batch)
        elif self._feed is not None and self._key in (keys := batch.keys()):
            places = [at for at, key in enumerate(keys) if key == self._key]
            now_us, feed = self._at_work.now_us, self._feed
            self.release()
            feed.on_records(batch, places, now_us)
            self._seq = int(batch.changes.seqs[places[-1]])
            self._own = batch.changes.identities[places[-1]]
            if self.own_us is None:
                self._send(self._channel.collect(), now_us)
            elif self._waits(self._own) == self._seq:
                self._add("per-key", self.own_us, self._seq)

    def release(self) -> None:
        """Send what the subscription's own windows have released by now."""
        channel, now_us = self._channel, self._at_work.now_us
        if not isinstance(channel, ConflatedChannel):
            return
        while (due_us := channel.due_us()) is not None and due_us <= now_us:
            channel.advance(due_us)
            self._send(channel.collect(), due_us)

    def _send(self, lines: Iterable[bytes], at_us: int) -> None:
        for line in lines:
            sent = msgspec.json.decode(line, type=RecordLine)
            if sent.k == self._key:
                self.last = {
                    "c": sent.c,
                    "reason": sent.reason,
                    "d": orjson.Fragment(bytes(sent.d)),
                    "bm": sent.bm or str(self._seq),
                    "at": timestamp(at_us),
                }

    # Windows.

    def _merge(self, topic: LiveTopic, batch: Batch) -> None:
        """The underlying topic of a conflated one has changed."""
        copy = self._topic(self._name)
        if self.own_us is None and isinstance(copy, CopyTopic) and topic.name == copy.underlying:
            definition, now_us = copy.definition, self._at_work.now_us
            for at, key in enumerate(batch.keys()):
                identity = batch.changes.identities[at]
                if key == self._key and copy.copy.conflation.is_open(identity, now_us):
                    self._own = identity
                    self._add(definition.schedule, definition.interval_us, batch.changes.seqs[at])

    def _add(self, schedule: Schedule, interval_us: int, seq: int) -> None:
        """An update came in a window."""
        now_us = self._at_work.now_us
        if self.window is None or now_us >= self.window.ends_us:
            self.window = RecordWindow(now_us, end_us(now_us, schedule, interval_us))
        updates = self.window.updates
        if len(updates) > SENT_UPDATES:  # of a long window only the count grows
            updates.pop()
            self.window.left_out += 1
        updates.append(RecordUpdate(int(seq), now_us, True))

    def _waits(self, identity: str) -> int | None:
        """The update of a record that waits in the subscription's own windows."""
        if self._feed is None or not isinstance(self._channel, ConflatedChannel):
            return None
        waiting = self._channel.conflator.newest((self._feed.encoder, (identity,)))
        return None if waiting is None else waiting.update.seq


def window_described(window: RecordWindow) -> dict[str, Any]:
    """A window as JSON."""
    return {
        "opened": timestamp(window.opened_us),
        "ends": timestamp(window.ends_us),
        "updates": len(window),
        "bookmarks": [str(one.bookmark) for one in window.updates[:SENT_UPDATES]],
    }


def options_of(requested: Mapping[str, str]) -> Options:
    """The options of a subscription that is about single records; raises ClientError."""
    options = read_options(requested.get("opts", ""))
    given = [name for name in OTHER_LINES if getattr(options, name) != getattr(Options(), name)]
    if options.conflation == "auto":
        given.append("conflation=auto")
    if given:
        raise invalid_options(
            f"option {given[0]} depends on other records, or on how fast a client read: what was "
            "sent of this one does not follow from it; leave it out"
        )
    return options


def sentences_of(past: PastSubscriber, window: RecordWindow | None, time_us: int) -> Iterator[str]:
    """What was sent by then, in sentences."""
    by, last = timestamp(time_us), past.last
    if last is None:
        yield f"by {by} nothing of it had been sent"
    elif last["c"] == "oof":
        yield f"by {by} the last line said that it left ({last['reason']}), at {last['at']}"
    else:
        yield f"by {by} the last line was update {last['bm']}, at {last['at']}"
    if window is not None:
        first, final, count = window.updates[0], window.updates[-1], len(window)
        one = f"update {final.bookmark}"
        came = one if count == 1 else f"{count} updates, {first.bookmark} to {final.bookmark},"
        did = "waited in a window" if past.waiting else "came in its last window,"
        yield f"{came} {did} from {timestamp(window.opened_us)} to {timestamp(window.ends_us)}"
