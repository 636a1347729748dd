"""Actions: what the server does by itself, at times and because of what happens to its topics.

    schedule, startup, publish, …  ──> a run is stored, in the step of its cause
    due, in its action's order     ──> its deeds, one after the other ──> noted in the audit

They run where changes are made, and nowhere else: an engine that follows has none until it leads.
A publish to a topic feeds its actions as it feeds queues; what leaves a topic is seen in the batch
that is routed. Deeds are carried out later, in a step of their own: so no publisher waits for them,
and none happens inside the change that has caused it. Where a topic is in use by a long write, a
run waits. A web hook is called by what `post_by` gives, beside the loop; the run goes on when that
has an answer.

What an action needs of a configuration was checked (`sow.config.rules.action_rules`): it does not
set itself off. Runs are kept by `sow.engine.action_runs`.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple
from xml.sax.saxutils import escape

import orjson

from sow.config.elements.action import Moments, moments
from sow.core.action_definitions import (
    AMPS_DATA,
    AMPS_SOW_KEY,
    AMPS_TOPIC,
    ActionDeed,
    ActionDefinition,
    TriggerKind,
)
from sow.core.clock import SECOND_US
from sow.core.containers import Histogram
from sow.core.cooperative import Task, no_steps
from sow.core.definitions import ACTION_RUNS
from sow.engine.action_runs import COMMITTED_RUNS_MAX, ActionRun, ActionRuns
from sow.engine.engine import Engine
from sow.engine.queues import AGAIN_US
from sow.engine.running_topics import SourceTopic
from sow.errors import ClientError, SowError, StoreError, TooLarge, clipped, described
from sow.expressions import Filter, parse, with_texts
from sow.security.authorization import EVERYTHING
from sow.sessions.commands.audit import Audit
from sow.sessions.commands.record_ops import delete_selected
from sow.topic.batch import Batch

RUNS_AT_ONCE = 100
"""Deeds of one step: a publish or a delete takes some tens of microseconds."""
REFUSED_US = 1_000_000
"""What the server refuses for now, as while its disk is full, is tried again after this."""
PAUSE_US_MAX = 60_000_000
"""The pauses between calls of a web hook double from one second to this."""
SLOW_US = 1_000_000
"""Slow clients set an action off once in this time: what it sends may be what they do not read.
And so often it is reported that runs of one action are left out."""
VARIABLE = re.compile(rb"\{\{\s*(\w+)\s*\}\}")
REMOVALS = {"sow-expire-message": ("expired",), "oof-message": ("deleted", "expired")}
TYPES = {"deleted": "delete", "expired": "expire", "match": "match"}


class WebhookCall(NamedTuple):
    """A call of a web hook: a POST. `run` is the same whenever it is made again."""

    url: str
    body: bytes
    timeout_us: int
    run: str


Answered = Callable[[str, int], None]
"""What takes the answer: why the call has failed, "" if it has not, and the time."""
Post = Callable[[WebhookCall, Answered], None]


class ActionFigures:
    """What has become of the runs of one action since the server started."""

    def __init__(self) -> None:
        self.done = self.failed = self.left_out = 0
        self.times = Histogram()
        """From what has set a run off until it was done or has failed."""
        self._unsaid = self._said_us = 0

    def leave_out(self, count: int, now_us: int) -> int:
        """So many runs are left out; returns how many to report now, which is once a second: each
        publish of a client may be one."""
        self.left_out += count
        self._unsaid += count
        if not self._unsaid or now_us < self._said_us:
            return 0
        said, self._unsaid, self._said_us = self._unsaid, 0, now_us + SLOW_US
        return said

    def note(self, outcome: str, took_s: float) -> None:
        """A run is over."""
        if outcome.startswith("left out"):
            self.left_out += 1
            return
        self.done += outcome == "done"
        self.failed += outcome != "done"
        self.times.note(took_s)


class PublishTrigger:
    """Sets an action off by each publish to a topic: fed by it, as a queue is."""

    def __init__(
        self,
        topic: SourceTopic,
        condition: Filter | None,
        set_off: Callable[[Sequence[tuple[str, str, bytes]]], object],
    ) -> None:
        self.topic = topic
        self._condition = condition
        self._set_off = set_off

    def check_room(self, rows: int) -> None:
        """Raise TooLarge where a batch has more rows than one step makes runs of."""
        if rows > COMMITTED_RUNS_MAX:
            raise TooLarge(
                f"the batch has {rows} rows, and each sets off an action on {self.topic.name},"
                f" and {COMMITTED_RUNS_MAX} are the most of one: write it in several batches"
            )

    def take(
        self, keys: Sequence[str], bodies: Sequence[bytes], _seqs: Sequence[int], _now_us: int
    ) -> None:
        """Messages have been published, to records of these SowKeys."""
        hits: Sequence[bool] = [True] * len(bodies)
        condition = self._condition
        if condition is not None:
            columns = self.topic.records.decoder(condition.paths).columns(list(bodies))
            hits = condition.matches(columns, len(bodies))
        name = self.topic.name
        found = zip(keys, bodies, hits, strict=True)
        self._set_off([(name, key, body) for key, body, hit in found if hit])


class LeavingTrigger(NamedTuple):
    """Sets an action off by records that leave a topic, or its Filter."""

    definition: ActionDefinition
    condition: Filter | None

    def found(self, batch: Batch) -> list[int]:
        """Which changes of a batch set it off."""
        trigger, changes = self.definition.trigger, batch.changes
        if changes.news is None:
            reason = changes.reason or ""
            if reason not in REMOVALS[trigger.kind] or not self._means(reason):
                return []
            hits = batch.old_focus(self.condition)
        elif batch.edit is None and self.condition is not None and self._means("match"):
            was, now = batch.old_focus(self.condition), batch.new_focus(self.condition)
            hits = [before and not after for before, after in zip(was, now, strict=True)]
        else:
            return []
        return [at for at, hit in enumerate(hits) if hit]

    def _means(self, reason: str) -> bool:
        """Whether records that leave for this reason set it off."""
        kind, type_ = self.definition.trigger.kind, self.definition.trigger.type
        is_oof = kind == "oof-message" or reason != "match"
        return is_oof and type_ in ("all", TYPES.get(reason))


class Actions:
    """The actions of one engine, whose timer they are; `report` gets what fails inside."""

    def __init__(self, engine: Engine, audit: Audit, report: Callable[[str], None]) -> None:
        self._engine = engine
        self._audit = audit
        self._report = report
        self._echo: Callable[[str], object] = report
        self._warn: Callable[[str], object] = report
        self._post: Post | None = None
        self.runs = ActionRuns(engine)
        self.figures: dict[str, ActionFigures] = {}
        """Of each action that is configured, by its name."""
        self._all: dict[str, ActionDefinition] = {}
        self._moments: dict[str, Moments] = {}
        """Of each schedule, by its name."""
        self._next_us: dict[str, int] = {}
        self._fed: list[PublishTrigger] = []
        self._watched: dict[str, Callable[[Batch], None]] = {}
        self._slow_us = 0
        """When slow clients set actions off again."""
        self._has_begun = False

    def post_by(
        self, post: Post, echo: Callable[[str], object], warn: Callable[[str], object]
    ) -> None:
        """Call web hooks by `post`, and write lines by `echo`, and what has failed by `warn`."""
        self._post, self._echo, self._warn = post, echo, warn

    # The configuration.

    def begin(self) -> None:
        """Run actions from here on, if this server takes changes; else as soon as it does."""
        self._engine.on_lead(no_steps, self._lead)

    def _lead(self) -> None:
        if ACTION_RUNS.name in self._engine.topics:
            self._has_begun = True
            self.runs.restore()
            self.look()
            self._set_off_all("startup")

    def look(self) -> None:
        """Go by the configuration that is in force; runs that wait stay."""
        if not self._has_begun:
            return
        engine = self._engine
        self._all = {one.name: one for one in engine.configuration.actions}
        self.figures = {name: self.figures.get(name) or ActionFigures() for name in self._all}
        for fed in self._fed:
            fed.topic.feed_no_more(fed)
        self._fed.clear()
        for name, watch in self._watched.items():
            engine.unwatch(name, watch)
        self._moments.clear()
        self._next_us.clear()
        watched: dict[str, list[LeavingTrigger]] = {}
        for one in self._all.values():
            if one.trigger.every is not None:
                self._plan(one.name, one.trigger.every)
            if one.trigger.topic is not None:
                self._listen(one, one.trigger.topic, watched)
        self._kept(lambda: self.runs.forget_schedules(self._moments))
        self._watched = {name: partial(self._watch, those) for name, those in watched.items()}
        for name, watch in self._watched.items():
            engine.watch(name, watch)
        engine.timers.remove(self)
        if self._all or self.runs.waiting:
            engine.timers.add(self)
            engine.notify_work()

    def _plan(self, name: str, every: str) -> None:
        """Have a schedule run at its next moment; one that has passed since it last ran is next."""
        last_us = self.runs.last_us(name, every)
        if last_us is None:
            last_us = self._engine.now_us
            self._kept(lambda: self.runs.note_schedule(name, every, self._engine.now_us))
        self._moments[name] = moments(every)
        self._next_us[name] = self._moments[name](last_us)

    def _listen(
        self, one: ActionDefinition, name: str, watched: dict[str, list[LeavingTrigger]]
    ) -> None:
        topic, text = self._engine.topics[name], one.trigger.filter
        assert isinstance(topic, SourceTopic)
        condition = None if text is None else self._engine.filter(text)
        if one.trigger.kind == "publish-message":
            fed = PublishTrigger(topic, condition, partial(self.set_off, one))
            self._fed.append(fed)
            topic.feed(fed)
        else:
            watched.setdefault(name, []).append(LeavingTrigger(one, condition))

    # Triggers.

    def _watch(self, triggers: Iterable[LeavingTrigger], batch: Batch) -> None:
        for one in triggers:
            if hits := one.found(batch):
                topic, keys = batch.changes.topic, batch.keys()
                found = [(topic, keys[at], batch.parting(at)) for at in hits]
                self.set_off(one.definition, found)

    def _set_off_all(self, kind: TriggerKind, data: bytes = b"") -> bool:
        wanted = [one for one in self._all.values() if one.trigger.kind == kind]
        for one in wanted:
            self.set_off(one, [("", "", data)])
        return bool(wanted)

    def note_slow_client(self, sentence: str) -> None:
        """A client was slow: its queue was given up in part, or it was closed."""
        now_us = self._engine.now_us
        if now_us >= self._slow_us and self._set_off_all("slow-client", sentence.encode()):
            self._slow_us = now_us + SLOW_US

    def shut_down(self) -> None:
        """The server stops: what is to be done then begins."""
        if not self._engine.primary:
            self._set_off_all("shutdown")

    def waiting(self) -> dict[str, int]:
        """How many runs of each action have not ended."""
        return {name: len(self.runs.waiting.get(name, ())) for name in self._all}

    @property
    def ends(self) -> bool:
        """What is to be done at the stop has not ended."""
        return any(run.trigger == "shutdown" for line in self.runs.waiting.values() for run in line)

    def set_off(self, one: ActionDefinition, found: Sequence[tuple[str, str, bytes]]) -> bool:
        """Store a run for each of these messages: topic, SowKey and body. Returns whether the disk
        takes them."""
        if not found:
            return True
        add = self.runs.add
        left_out = self._kept(lambda: add(one.name, one.trigger.kind, found))
        figures = self.figures[one.name]
        if left_out is None and one.trigger.kind != "schedule":  # which is tried again
            figures.left_out += len(found)
        if left_out and (count := figures.leave_out(left_out, self._engine.now_us)):
            outcome = f"left out: too many runs of {one.name} wait, {count} found no room"
            self._audit.note_run(one.name, one.trigger.kind, outcome)
            self._warn(f"action {one.name}: {outcome}")
        self._engine.timers.note(self)
        self._engine.notify_work()
        return left_out is not None

    def _kept(self, store: Callable[[], int | None]) -> int | None:
        """Store something; None, with a sentence, where the disk does not take it."""
        try:
            return store() or 0
        except SowError as error:
            self._warn(f"an action is not run: {error.detail}")
            return None

    # Time.

    def due_us(self) -> int | None:
        """When the next deed or the next schedule is due."""
        if self._engine.primary:
            return None  # another server leads now
        runs = (line[0].due_us for line in self.runs.waiting.values())
        dues = [*self._next_us.values(), *(due for due in runs if due is not None)]
        return min(dues, default=None)

    def advance(self, now_us: int) -> None:
        """Set off schedules whose moment has come, and go on with some runs."""
        for name, next_us in [*self._next_us.items()]:
            if next_us <= now_us:
                self._fire(name, now_us)
        lines = [*self.runs.waiting.values()]
        for line in lines:
            left = max(1, RUNS_AT_ONCE // len(lines))  # who has many holds up no other
            while left and line and (due_us := line[0].due_us) is not None and due_us <= now_us:
                self._go_on(line[0], now_us)
                left -= 1

    def _fire(self, name: str, now_us: int) -> None:
        """A moment has come; of several that have passed, the newest counts."""
        one = self._all[name]
        every = one.trigger.every or ""
        if self.set_off(one, [("", "", b"")]):
            self._kept(lambda: self.runs.note_schedule(name, every, now_us))
            self._next_us[name] = self._moments[name](now_us)
        else:
            self._next_us[name] = now_us + REFUSED_US

    # Deeds.

    def _go_on(self, run: ActionRun, now_us: int) -> None:
        one = self._all.get(run.action)
        try:
            if one is None:
                self._end(run, "left out: the configuration has no such action any more")
            elif run.deed >= len(one.deeds):
                self._end(run, "done")
            else:
                DEEDS[one.deeds[run.deed].kind](self, run, one.deeds[run.deed], now_us)
        except Exception as error:
            self._settle(run, partial(self._fail, run, error), now_us)

    def _fail(self, run: ActionRun, error: Exception, now_us: int) -> None:
        """A deed has failed for good, or is refused for now."""
        if not isinstance(error, SowError):
            self._report(f"action {run.action}: {described(error)}")
            self._give_up(run, "the server failed on it; its log says why")
        elif isinstance(error, ClientError) and not isinstance(error, StoreError):
            self._give_up(run, error.detail)
        else:
            run.wait(now_us + REFUSED_US)

    def _give_up(self, run: ActionRun, why: str) -> None:
        self._end(run, f"failed: {why}")
        self._warn(f"action {run.action} has failed: {why}")

    def _done(self, run: ActionRun, now_us: int) -> None:
        """A deed is done: the next one follows."""
        run.next()
        one = self._all.get(run.action)
        if one is None or run.deed >= len(one.deeds):
            self._go_on(run, now_us)
        else:
            self._kept(lambda: self.runs.go_on(run))

    def _end(self, run: ActionRun, outcome: str) -> None:
        """A run is over; raises the error of a disk that has no room to say so."""
        self.runs.end(run)
        if (figures := self.figures.get(run.action)) is not None:
            figures.note(outcome, max(0, self._engine.now_us - run.number) / SECOND_US)
        self._audit.note_run(run.action, run.trigger, outcome)

    def _publish(self, run: ActionRun, deed: ActionDeed, now_us: int) -> None:
        engine, name = self._engine, deed.topic or ""
        if not engine.is_free(name):
            run.wait(now_us + AGAIN_US)
            return
        topic = engine.publishable(name)
        body = _composed(deed.data, run)
        messages, expires_us = (
            engine.read(topic, [body], now_us=now_us),
            topic.expiry_us(None, now_us),
        )
        put, delta = engine.publications.put_slice, deed.delta
        put(topic, messages, now_us, expires_us, delta, keeps=delta)
        self._done(run, now_us)

    def _delete(self, run: ActionRun, deed: ActionDeed, now_us: int) -> None:
        run.wait(None)
        self._engine.timers.go_on(self._deleting(run, deed, now_us))

    def _deleting(self, run: ActionRun, deed: ActionDeed, now_us: int) -> Task[None]:
        engine = self._engine
        try:
            yield from delete_selected(
                engine,
                self._audit,
                engine.catalog.deletable(deed.topic or ""),
                now_us,
                filter_text=_condition(deed.filter or "", run),
                sow_keys=None,
                identities=None,
                rights=EVERYTHING,
                check_still=lambda: None,
            )
        except Exception as error:
            self._settle(run, partial(self._fail, run, error), engine.now_us)
        else:
            self._settle(run, partial(self._done, run), engine.now_us)

    def _settle(self, run: ActionRun, go_on: Callable[[int], None], now_us: int) -> None:
        """Something that has taken its time is over."""
        try:
            go_on(now_us)
        except SowError:
            run.wait(now_us + REFUSED_US)  # the disk, which cannot note it
        self._engine.timers.note(self)
        self._engine.notify_work()

    def _write(self, run: ActionRun, deed: ActionDeed, now_us: int) -> None:
        text = _filled(deed.message, run).decode(errors="replace")
        self._echo(f"action {run.action}: {clipped(' '.join(text.split()))}")
        self._done(run, now_us)

    def _call(self, run: ActionRun, deed: ActionDeed, now_us: int) -> None:
        if self._post is None:
            run.wait(now_us + REFUSED_US)
            return
        run.wait(None)
        body, name = _composed(deed.data, run), f"{run.number}-{run.deed}"
        call = WebhookCall(deed.url or "", body, deed.timeout_us, name)
        self._post(call, partial(self._answered, run, deed))

    def _answered(self, run: ActionRun, deed: ActionDeed, why: str, now_us: int) -> None:
        now_us = self._engine.sequencer.moment(now_us)
        if not why:
            self._settle(run, partial(self._done, run), now_us)
        elif run.tries >= deed.retries:
            self._settle(run, lambda _: self._give_up(run, why), now_us)
        else:
            pause_us = min(PAUSE_US_MAX, REFUSED_US << run.tries)
            self._settle(run, lambda _: run.fail(now_us + pause_us), now_us)

    def check(self) -> None:
        """Assert what is always true of actions, between two steps."""
        if self._has_begun:
            self.runs.check()


Carried = Callable[[Actions, ActionRun, ActionDeed, int], None]
DEEDS: dict[str, Carried] = {
    "publish-message": Actions._publish,
    "delete-sow": Actions._delete,
    "echo-message": Actions._write,
    "webhook": Actions._call,
}


def _condition(text: str, run: ActionRun) -> str:
    """A filter whose texts have the values of their variables: in a pattern of LIKE a value is
    looked for as it is."""

    def changed(written: str, is_pattern: bool) -> str:
        put_in = re.escape if is_pattern else bytes
        return _filled(written, run, put_in, put_in).decode()

    return str(with_texts(parse(text), changed))


def _in_json(value: bytes) -> bytes:
    """A value as part of a text in JSON, which it does not end."""
    return orjson.dumps(value.decode(errors="replace"))[1:-1]


def _in_xml(value: bytes) -> bytes:
    """A value as a text of XML, or a part of an attribute."""
    return escape(value.decode(errors="replace"), QUOTES).encode()


def _composed(text: str | None, run: ActionRun) -> bytes:
    """What is published or sent. In JSON and XML only a message is more than a part of a text: else
    who chooses a key, or the name of a client, would write more fields."""
    inserted = INSERTED.get((text or "").lstrip()[:1], bytes)
    return _filled(text, run, inserted, inserted if run.trigger == "slow-client" else bytes)


INSERTED = {"{": _in_json, "[": _in_json, "<": _in_xml}
"""How values are put into a text, by its first character."""
QUOTES = {'"': "&quot;", "'": "&apos;"}


def _filled(
    text: str | None,
    run: ActionRun,
    inserted: Callable[[bytes], bytes] = bytes,
    of_data: Callable[[bytes], bytes] = bytes,
) -> bytes:
    """A text with the values of its variables, as they are `inserted`; without one, the message
    itself."""
    if text is None:
        return run.data
    known = {
        AMPS_DATA: lambda: of_data(run.data),
        AMPS_TOPIC: lambda: inserted(run.topic.encode()),
        AMPS_SOW_KEY: lambda: inserted(run.key.encode()),
    }
    return VARIABLE.sub(lambda found: known[found[1].decode()](), text.encode())
