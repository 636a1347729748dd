"""A whole engine under a clock moved by hand: no sockets, no threads, no sleeping.

`World` is the engine with a journal in memory; `World.client()` a session whose lines are read
back as dictionaries. `advance` moves time from one due moment to the next, as a server would.
"""

import itertools
import json
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from conflated_topics.recorded import State, step
from sow.core.cooperative import RESTS, run_to_completion
from sow.core.definitions import (
    WRITES,
    WRITES_BEFORE,
    Configuration,
    ConflatedTopic,
    Limits,
    SessionSettings,
    Topic,
)
from sow.engine.engine import Engine
from sow.errors import DiskFull
from sow.protocol.publish_batching import read_frames
from sow.protocol.replies import LINES
from sow.server.http.tables import SCHEMA, of_log, rows_of
from sow.sessions.commands.commit_plan import read
from sow.sessions.commands.executor import Executor
from sow.sessions.commands.staged_writes import StagedWrites
from sow.spark.pipeline_conflation import SparkConflation
from tests.executing import execute_all
from tests.history.reading import extent, log_rows
from tests.laws.held import check_queue_memory
from tests.store.in_memory import MemoryCheckpoint, MemoryJournal
from tests.virtual_clock import VirtualClock

MS = 1000
SECOND = 1_000_000

ORDERS = Topic("orders", "json", keys=("/id",), hash_indexes=(("/symbol",),))
SLOW = ConflatedTopic("orders-C", "json", "orders", interval_us=SECOND)


class World:
    """An engine, its journal and its clock."""

    def __init__(
        self,
        *topics,
        journal=None,
        checkpoints=None,
        sessions=None,
        start_us=1_000 * SECOND,
        clock=None,
        message_types=(),
        limits=None,
        actions=(),
    ):
        self.clock = clock or VirtualClock(start_us)
        self.journal = journal or MemoryJournal()
        self.configuration = Configuration(
            "test",
            topics or (ORDERS, SLOW),
            message_types=message_types,
            sessions=sessions or SessionSettings(),
            limits=limits or Limits(),
            actions=actions,
        )
        self.unstored = []
        """What the disk has refused although there was room when it was taken."""
        self.engine = Engine(
            self.configuration,
            lambda size_bytes: not self.unstored and self.journal.has_room(size_bytes),
            lambda size_bytes: not self.unstored and self.journal.takes(size_bytes),
        )
        self.failures = None
        """What has failed for single clients, where a test wants that; else it fails the test."""
        self.engine.on_stopped(self._stop)
        if checkpoints is None:
            checkpoints = {
                topic.name: MemoryCheckpoint()
                for topic in self.configuration.topics
                if isinstance(topic, Topic) and topic.durability == "persistent"
            }
        self.checkpoints = checkpoints
        after = min((c.seq for c in checkpoints.values()), default=0)
        after = max(min(after, self.journal.last_seq - 1), self.journal.first_seq - 1)
        log, last_seq = self.journal.read(after), self.journal.last_seq
        run_to_completion(self.engine.restore(checkpoints, log, last_seq, before=self.windows()))
        self.engine.restore_accounts(self.journal.accounts())
        numbers = itertools.count(1)
        self.executor = Executor(self.engine, self.journal, lambda: f"name-{next(numbers)}")
        self.executor.on_internal_error(self._fail)
        self.clock.go_on_from(self.engine.now_us)
        self.engine.sequencer.moment(self.now)
        self.executor.actions.begin()

    @property
    def now(self):
        return self.clock.now_us()

    def restart(self, *topics, start_us=None, clock=None, actions=None):
        """A new process on the same store, perhaps with other definitions.

        Its machine's clock may have been set, or be another one.
        """
        return type(self)(
            *(topics or self.configuration.topics),
            journal=self.journal,
            checkpoints=self.checkpoints,
            sessions=self.configuration.sessions,
            start_us=self.now if start_us is None else start_us,
            clock=clock,
            message_types=self.configuration.message_types,
            limits=self.configuration.limits,
            actions=self.configuration.actions if actions is None else actions,
        )

    def windows(self):
        """The topics whose windows go on, at a start; None: all have ended."""

    def client(self):
        return Client(self)

    def _fail(self, line):
        assert self.failures is not None, line
        self.failures.append(line)

    def _stop(self, line):
        """A view may exceed its limits; a copy or a view on which the engine fails is a bug."""
        if "the server failed" in line:
            self._fail(line)

    def settle(self):
        """What a server does between events: store the group, then release its lines.

        Sockets take nothing by themselves: a client reads when a test reads. A disk that refuses is
        handled as in `sow.server.loop.runtime`: waiting commands get no ack, new ones are refused,
        and accepted ones are stored once the disk takes them. It goes on until nobody is late.
        """
        self.settle_once()
        while self.engine.output.late or self.engine.output.waiting:
            self.settle_once()

    def settle_once(self):
        """One flush of a server: who is late may stay so."""
        group = self.engine.flush()
        refused, self.unstored = self.unstored, []
        entries = refused + group.entries
        try:
            if entries:
                self.journal.append(entries)
        except DiskFull as error:
            self.unstored = entries
            for session in group.sessions if not refused else ():
                session.end(error.reason, self.now)
        self.engine.sequencer.release(group)
        for session in group.sessions:
            self.executor.sessions.apply_back_pressure(session, self.now)
        self.executor.sessions.fold_some(self.now)

    def due_us(self):
        """When something next happens by itself, or None."""
        return self.engine.due_us()

    def advance(self, by_us):
        """Let time pass, stopping wherever the engine is due."""
        target = self.now + by_us
        while (due := self.due_us()) is not None and due <= target:
            self.clock.advance(max(0, due - self.now))
            self.engine.advance(self.now)
            self.settle()
        self.clock.advance(target - self.now)

    def publish(self, topic, *documents, **options):
        bodies = [json.dumps(document, separators=(",", ":")).encode() for document in documents]
        bookmark = self.engine.publish(topic, bodies, self.now, **options)
        self.settle()
        return bookmark

    def delete(self, topic, condition):
        client = self.client()
        client.say(c="sow_delete", t=topic, filter=condition)
        return client

    def records(self, topic):
        """The documents of a topic in order of first publication."""
        table = self.engine.topics[topic].records.table
        return [json.loads(table.bodies[slot]) for slot in table.live().tolist()]

    def sow_key(self, topic, identity):
        table = self.engine.topics[topic].records.table
        return table.sow_key(table.slots[identity])

    def check(self):
        """Every invariant of every part."""
        self.engine.check()
        for session in self.executor.sessions:
            session.check()
        self.executor.subscriptions.check()
        self.executor.queues.check_parts()
        self.executor.actions.check()
        self.executor.chains.check()
        check_queue_memory(self)


class SlowDisk(World):
    """A world whose last `lag` groups are on their way to the disk, and all while `held` is set."""

    held = False
    lag = 0

    def settle(self):
        on_their_way = self.__dict__.setdefault("on_their_way", [])
        on_their_way.append(self.engine.flush())
        while not self.held and len(on_their_way) > self.lag:
            group = on_their_way.pop(0)
            if group.entries:
                self.journal.append(group.entries)
            self.engine.sequencer.release(group)
            for session in group.sessions:
                self.executor.sessions.apply_back_pressure(session, self.now)
        self.executor.sessions.fold_some(self.now)

    def catch_up(self):
        """Everything is on the disk, and what follows is at once."""
        self.lag = 0
        self.settle()

    def say_later(self, topic, document):
        """Publish and leave the group open."""
        self.engine.publish(topic, [json.dumps(document).encode()], self.now)


class SparkWorld(World):
    """The same, but its conflated topics are conflated as Spark conflates them: from the log, in
    batches, by the vectorised core. Here a batch is made whenever time moves or a window ends; the
    query that makes them for real is tested in tests/spark."""

    def __init__(self, *topics, **more):
        topics = tuple(
            replace(topic, engine="spark") if is_run_by_spark(topic, topics) else topic
            for topic in topics
        )
        super().__init__(*topics, WRITES, WRITES_BEFORE, **more)
        self.writes = StagedWrites(self.engine)
        self.batches = 0
        self.runs = {
            topic.name: Run(SparkConflation(topic), self.engine.topics[topic.name].copy.filled_seq)
            for topic in topics
            if isinstance(topic, ConflatedTopic) and topic.engine == "spark"
        }

    def advance(self, by_us):
        target = self.now + by_us
        self.conflate()
        while (due := self.due_us()) is not None and due <= target:
            self.clock.advance(max(0, due - self.now))
            self.engine.advance(self.now)
            self.settle()
            self.conflate()
        self.clock.advance(target - self.now)
        self.conflate()

    def due_us(self):
        dues = [self.engine.due_us(), *(run.due_us() for run in self.runs.values())]
        return min((due for due in dues if due is not None), default=None)

    def conflate(self):
        """One batch of every topic: what is new in the log, and what has ended by now."""
        for name, run in self.runs.items():
            records = self.engine.topics[run.conflation.definition.underlying].records
            part = extent(self.journal, run.reached, None, 10**6, {records.name: records})
            rows = [of_log(rows) for rows in log_rows(self.journal, part, {records.name: records})]
            run.reached = part.until
            out = run.step(rows, self.now)
            if len(out):
                topic = self.engine.topics[name]
                content = out.select(["op", "key", "value", "bookmark", "ts"])
                staged = rows_of(topic.records, content)
                steps = [read(topic.records, piece) for piece in staged.runs()]
                self.batches += 1
                self.writes.apply(f"engine of {name}", self.batches, name, steps, self.now)
                self.settle()


def is_run_by_spark(topic, topics):
    """What config.xml would allow: an own window for each key, over a topic that has a log."""
    names = {other.name for other in topics if isinstance(other, Topic)}
    return (
        isinstance(topic, ConflatedTopic)
        and topic.underlying in names
        and topic.schedule == "per-key"
        and topic.topic_format is None
    )


class Run:
    """One conflated topic's stream: its state, and how far it has read the log."""

    def __init__(self, conflation, reached):
        self.conflation = conflation
        self.reached = reached
        self.state = State(conflation.spec)

    def step(self, batches, now_us):
        prepared = [self.conflation.prepare(batch) for batch in batches]
        empty = self.conflation.prepare(
            pa.RecordBatch.from_pylist([], schema=SCHEMA)
        ).schema.empty_table()
        table = pa.Table.from_batches(prepared) if prepared else empty
        self.state, out = step(self.state, table, now_us)
        return out

    def due_us(self):
        """When the next window ends."""
        pending = self.state.pending
        if pending is None or not len(pending):
            return None
        first = pc.min(pending["window_start"]).cast(pa.int64()).as_py()
        return first + self.conflation.definition.interval_us


def alone(steps):
    """The steps of a task that waits for nobody: those that it would wait for do not go on."""
    step = None
    while True:
        try:
            step = steps.send(RESTS if step is RESTS else None)
        except StopIteration:
            return
        yield


class Client:
    """A session that reads whatever it may."""

    def __init__(self, world):
        self.world = world
        self.session = world.executor.sessions.open(LINES, world.now)

    @property
    def subscriptions(self):
        return self.world.executor.subscriptions.of(self.session)

    @property
    def first_frame(self):
        """The frame that waits at the head of its outbox."""
        return self.session.outbox.queue.entries[0].frame

    def say(self, **header):
        """Send one line; returns the lines that came back, its acks among them."""
        return self.send(json.dumps(header).encode())

    def send(self, frame):
        self.execute(frame)
        return self.lines()

    def execute(self, frame):
        """Send a frame and read nothing."""
        execute_all(self.world.executor, self.session, read_frames([frame]), self.world.now)
        self.session = self.session.successor or self.session
        self.world.settle()

    def say_in_steps(self, meanwhile, **header):
        """The same as `say`, with something else happening between two steps of it."""
        frame = json.dumps(header).encode()
        commands = read_frames([frame])
        for _ in self.world.executor.carry_out(self.session, commands, lambda: self.world.now):
            meanwhile()
        self.world.settle()
        return self.lines()

    def pull(self):
        """The next frame, as a socket pulls it."""
        released, now_us = self.world.engine.sequencer.released, self.world.now
        alone = self.session.pull_alone(released, now_us)
        return self.session.pull(released, now_us) if alone is None else alone

    def raw(self):
        """Frames that may leave, without their WebSocket heads."""
        frames, settled = [], False
        while True:
            frame = self.pull()
            if frame:
                frames.append(_without_head(frame))
                settled = False
            elif frame is None:
                self.world.executor.sessions.apply_back_pressure(self.session, self.world.now)
                self.world.executor.subscriptions.drained(self.session)
                engine = self.world.engine
                # Views wait for the end of an atomic change, whose steps the caller takes.
                if not engine.has_work or (settled and engine.atomic.topic is not None):
                    return frames
                self.world.settle()
                settled = True
            elif self.world.unstored:
                return frames  # a replay that waits for the disk

    def lines(self):
        """Everything that has come since the last call, as dictionaries."""
        return [json.loads(line) for frame in self.raw() for line in frame.split(b"\n")]

    def sent(self):
        """What has been sent so far, as dictionaries, while others may be late."""
        frames = []
        while frame := self.pull():
            frames.append(_without_head(frame))
        return [json.loads(line) for frame in frames for line in frame.split(b"\n")]

    def data(self):
        """The record lines since the last call, shortened to (kind, document)."""
        return short(self.lines())


def _without_head(frame):
    size = frame[1]
    return frame[2 if size < 126 else 4 if size == 126 else 10 :]


def short(lines):
    """Record lines as (kind or oof reason, document)."""
    return [(line.get("reason", line["c"]), line["d"]) for line in lines if line["c"] in DATA_LINES]


DATA_LINES = ("sow", "p", "oof")
