"""Runs of actions that have not ended: records of the server's own (`ACTION_RUNS`).

A run is stored in the step of what has set it off, so one transaction of the journal has both; it
is removed, or its next deed stored, in the step of a deed. So a restart goes on where the process
died, and a deed whose effect is in the log is not done again. Beside the runs stands when each
schedule has run last, by its name and text: what was missed meanwhile is one run.

Runs of one action are carried out in their order, by `sow.sessions.commands.actions`. What waits is
bounded, in runs and in bytes.
"""

from collections import Counter, deque
from collections.abc import Collection, Iterable
from typing import Any

import orjson

from sow.core.action_definitions import TriggerKind
from sow.core.definitions import ACTION_RUNS
from sow.engine.engine import Engine
from sow.messages.json import json_text
from sow.topic.records import Records

RUNS_MAX = 10_000
"""Runs of one action that wait: a web hook that is away for an hour gets the first of them."""
RUN_BYTES_MAX = 64 * 1024**2
"""Bytes of messages in all runs: a message may have sixteen megabytes. One action has at most half
of it, so that what one waits for leaves out nothing of others; a run without a message is none of
these."""
COMMITTED_RUNS_MAX = 3_000
"""Rows of one batch commit, each with a run: they are stored in one step, ten microseconds each."""
RUN_BYTES = 700
"""What a run takes beside its message."""


class ActionRun:
    """A run: what has set it off, and which of the deeds is next."""

    __slots__ = ("action", "data", "deed", "due_us", "key", "number", "topic", "tries", "trigger")

    def __init__(
        self,
        number: int,
        action: str,
        trigger: TriggerKind,
        topic: str = "",
        key: str = "",
        data: bytes = b"",
        deed: int = 0,
    ) -> None:
        self.number = number
        """Later ones have higher numbers, also after a restart: about when it was set off."""
        self.action = action
        self.trigger: TriggerKind = trigger
        self.topic = topic
        self.key = key
        self.data = data
        self.deed = deed
        self.tries = 0
        """How often its deed has failed."""
        self.due_us: int | None = 0
        """When it goes on; None: another says."""

    @property
    def size_bytes(self) -> int:
        """What it takes in memory, about."""
        return RUN_BYTES + len(self.data)

    def wait(self, due_us: int | None) -> None:
        """Go on at a time, or when another says so (None)."""
        self.due_us = due_us

    def fail(self, due_us: int) -> None:
        """Its deed has failed, and is tried again at a time."""
        self.tries += 1
        self.due_us = due_us

    def next(self) -> None:
        """Its deed is done."""
        self.deed += 1
        self.tries = self.due_us = 0

    def noted(self) -> dict[str, Any]:
        """What is stored of it."""
        return {
            "place": f"run {self.number}",
            "number": self.number,
            "action": self.action,
            "trigger": self.trigger,
            "topic": self.topic,
            "key": self.key,
            "data": self.data.decode("latin-1"),
            "deed": self.deed,
        }


class ActionRuns:
    """The runs of one engine, by their actions."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.waiting: dict[str, deque[ActionRun]] = {}
        self.size_bytes = 0
        """Of all of them."""
        self._sizes: Counter[str] = Counter()
        """By their actions."""
        self._number = 0
        self._last_us: dict[str, tuple[str, int]] = {}
        """By the name of a schedule: its text, and when it ran last."""

    @property
    def _records(self) -> Records:
        return self._engine.catalog.account(ACTION_RUNS).records

    def restore(self) -> None:
        """Take over what the engine has restored."""
        table = self._records.table
        held = [orjson.loads(table.bodies[slot] or b"") for slot in table.slots.values()]
        self.waiting, self.size_bytes, self._last_us = {}, 0, {}
        self._sizes.clear()
        for noted in held:
            if "every" in noted:
                self._last_us[noted["action"]] = noted["every"], noted["at"]
        runs = [noted for noted in held if "every" not in noted]
        for noted in sorted(runs, key=lambda one: one["number"]):
            noted.pop("place")
            self._queue(ActionRun(**{**noted, "data": noted["data"].encode("latin-1")}))

    def _queue(self, run: ActionRun) -> None:
        self.waiting.setdefault(run.action, deque()).append(run)
        self._count(run, run.size_bytes)
        self._number = max(self._number, run.number)

    def _count(self, run: ActionRun, size_bytes: int) -> None:
        self.size_bytes += size_bytes
        self._sizes[run.action] += size_bytes
        if not self._sizes[run.action]:
            del self._sizes[run.action]

    # Each raises the error of the disk where it has no room for them; then nothing has changed.

    def add(
        self, action: str, trigger: TriggerKind, found: Iterable[tuple[str, str, bytes]]
    ) -> int:
        """Add runs that were set off by messages: topic, SowKey and body. Returns how many had no
        room among those that wait."""
        runs: list[ActionRun] = []
        room = RUNS_MAX - len(self.waiting.get(action, ()))
        room_bytes = RUN_BYTES_MAX - self.size_bytes
        room_bytes = min(room_bytes, RUN_BYTES_MAX // 2 - self._sizes[action])
        left_out, number = 0, max(self._number, self._engine.now_us)
        for topic, key, data in found:
            run = ActionRun(number + 1, action, trigger, topic, key, data)
            if len(runs) >= room or (data and run.size_bytes > room_bytes):
                left_out += 1
                continue
            number, room_bytes = number + 1, room_bytes - run.size_bytes
            runs.append(run)
        self._put([run.noted() for run in runs])
        for run in runs:
            self._queue(run)
        return left_out

    def go_on(self, run: ActionRun) -> None:
        """A run has come to its next deed."""
        self._put([run.noted()])

    def end(self, run: ActionRun) -> None:
        """A run is over."""
        engine, name = self._engine, f"run {run.number}"
        engine.disk.check_removal([name])
        topic = engine.catalog.account(ACTION_RUNS)
        if name in topic.records.table.slots:
            engine.remove(topic, [name], "delete", engine.now_us)
        line = self.waiting[run.action]
        line.popleft()
        if not line:
            del self.waiting[run.action]
        self._count(run, -run.size_bytes)

    def _put(self, noted: list[dict[str, Any]]) -> None:
        if noted:
            engine, topic = self._engine, self._engine.catalog.account(ACTION_RUNS)
            bodies = [*map(json_text, noted)]
            engine.disk.check_reserve(lambda: sum(map(len, bodies)))
            engine.put(topic, topic.records.read(bodies), engine.now_us)

    # Schedules.

    def last_us(self, action: str, every: str) -> int | None:
        """When a schedule ran last; None where it is new, or was another one."""
        text, last_us = self._last_us.get(action, ("", 0))
        return last_us if text == every else None

    def note_schedule(self, action: str, every: str, at_us: int) -> None:
        """A schedule has run, or is new."""
        self._put([{"place": f"every {action}", "action": action, "every": every, "at": at_us}])
        self._last_us[action] = every, at_us

    def forget_schedules(self, kept: Collection[str]) -> None:
        """Keep nothing of schedules but these."""
        gone = [name for name in self._last_us if name not in kept]
        names = [f"every {name}" for name in gone]
        self._engine.disk.check_removal(names)
        if gone:
            topic = self._engine.catalog.account(ACTION_RUNS)
            self._engine.remove(topic, names, "delete", self._engine.now_us)
            for name in gone:
                del self._last_us[name]

    def check(self) -> None:
        """Assert that what waits is what is stored."""
        waiting = [run for line in self.waiting.values() for run in line]
        slots = self._records.table.slots
        assert {f"run {run.number}" for run in waiting} == {
            name for name in slots if name.startswith("run ")
        }, "a run that is not stored, or the reverse"
        assert self.size_bytes == sum(run.size_bytes for run in waiting) == self._sizes.total()
