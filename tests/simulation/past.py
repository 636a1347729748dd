"""Seeded runs of the past: what a query has answered is answered again as of that moment.

Records change, clocks move, the configuration is read again, and processes end. In between each
conflated topic and view is asked for what it holds, and every answer is kept. In the end the same
is asked as of the times and bookmarks at which it was answered, and has to be the same lines.
"""

import json
from datetime import UTC, datetime, timedelta
from itertools import chain, islice
from random import Random
from unittest.mock import patch

from sow.core.cooperative import run_to_completion
from sow.core.definitions import CONFIGURATIONS
from sow.engine.configurations import noted
from sow.engine.following import pinned_windows
from sow.engine.recovery.redo import stored_slices
from sow.sessions.queries import replay_starts
from sow.sessions.queries.replay_starts import open_windows
from sow.store.log_indexes import seal_windows
from sow.store.protocols import OpenWindows, WindowsPlace
from tests.laws.harness import SECOND, World
from tests.simulation.configurations import MS, TOPICS, varied

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
WRITTEN = ("t", "t", "e", "/desk/1", "/desk/2", "end")
STEPS = 60
ASKED_MAX = 150
"""So much of what was answered is asked again: each takes all of the log."""


class NotingWorld(World):
    """A world that notes its starts, as a server does."""

    def __init__(self, *topics, **more):
        self.goes_on = False
        super().__init__(*topics, **more)
        self.engine.sequencer.moment(self.now)
        self.engine.configurations.note(True, self.journal.first_seq - 1, self.goes_on)
        self.executor.subscriptions.past.checkpoints = self.checkpoints
        self.settle()
        self._slices = None

    def windows(self):
        history = noted(self.journal.accounts() or ())
        now_us = max(self.now, *(one.time_us for one in history), 0)
        steps = open_windows(history, self.configuration, self.journal, now_us, self.checkpoints)
        before = run_to_completion(steps)
        self.goes_on = before is not None
        return before and before.catalog

    @property
    def is_keeping(self):
        """Whether a place is being kept."""
        return self._slices is not None

    def begin_place(self):
        """Begin to keep a place, as a checkpoint begins: with some of the records."""
        self._slices = {}
        for name in self.checkpoints:
            if self.engine.catalog.members(name):
                slices = stored_slices(self.engine.catalog, name, 2)
                self._slices[name] = self.engine.seq, [*islice(slices, 2)], slices

    def end_place(self):
        """The rest of the records, and what is open."""
        self.settle()
        slices, self._slices = self._slices or {}, None
        for name, (seq, first, rest) in slices.items():
            moment = self.engine.seq, self.engine.now_us
            self.checkpoints[name].write(seq, chain(first, rest), lambda moment=moment: moment)
        if slices:
            windows = pinned_windows(self.engine)()
            place = WindowsPlace(self.engine.seq, self.engine.now_us)
            self.journal.windows.put(place, seal_windows(OpenWindows(*place, windows)))


class Lives:
    """The lives of a server, and what was asked in them."""

    def __init__(self, seed):
        self.random = Random(seed)
        self.few = seed % 2 * replay_starts.FEW
        """Whether the past is computed from places near its moments, or with the whole log."""
        self.world = NotingWorld(*TOPICS, CONFIGURATIONS)
        self.said = []
        """What was asked, as of which moment, and the answer."""

    def run(self):
        for _ in range(STEPS):
            acts = {"write": 12, "delete": 2, "wait": 5, "reload": 1, "restart": 1, "ask": 4}
            acts["keep_place"] = 4
            act = self.random.choices([*acts], [*acts.values()])[0]
            getattr(self, f"_{act}")()
        self._restart(TOPICS)
        with patch.object(replay_starts, "FEW", self.few):
            self._compare()

    # What happens.

    def _pass(self, by_us):
        self.world.advance(by_us)
        self.world.settle()

    def _write(self):
        random = self.random
        bookmark = self.world.publish(random.choice(WRITTEN), *self._documents())
        if random.random() < 0.5:
            self._keep(str(bookmark))
        self._pass(random.choice((1, 1, 10 * MS, 150 * MS)))

    def _documents(self):
        random = self.random
        return [
            {"id": random.randrange(6), "v": random.randrange(9), "n": random.randrange(50)}
            for _ in range(random.choice((1, 1, 2, 5)))
        ]

    def _delete(self):
        self.world.delete(self.random.choice(("t", "e")), f"/id = {self.random.randrange(6)}")
        self._pass(1)

    def _wait(self):
        self._pass(self.random.choice((20 * MS, 300 * MS, 900 * MS, 2 * SECOND)))

    def _reload(self):
        self._pass(1)
        world, topics = self.world, (*varied(self.random), CONFIGURATIONS)
        world.executor.reconfigure(_with(world.configuration, topics), world.now)
        world.configuration = _with(world.configuration, topics)
        world.settle()

    def _restart(self, topics=None):
        self._pass(self.random.choice((1, 200 * MS, 3 * SECOND)))
        if topics is None and self.random.random() < 0.5:
            topics = varied(self.random)
        topics = () if topics is None else (*topics, CONFIGURATIONS)
        self.world = self.world.restart(*topics)
        self._pass(1)

    def _ask(self):
        time = EPOCH + timedelta(microseconds=self.world.now)
        self._keep(time.isoformat())
        self._pass(1)

    def _keep_place(self):
        """Begin to keep a place, or end it."""
        if self.world.is_keeping:
            self.world.end_place()
        else:
            self.world.begin_place()
        self._pass(1)

    # What is asked.

    def _keep(self, moment):
        for topic in self.world.engine.catalog.listed():
            if topic.kind != "topic":
                opts = self.random.choice(("", "timestamp"))
                self.said.append((topic.name, opts, moment, self._answer(topic.name, opts)))

    def _answer(self, name, opts, **more):
        lines = self.world.client().say(c="sow", t=name, opts=opts, **more)
        # Queries are named as they come.
        return [json.dumps({**line, "s": "q"}) for line in lines]

    def _compare(self):
        some = self.random.sample(self.said, min(ASKED_MAX, len(self.said)))
        for name, opts, moment, answer in some:
            if name in self.world.engine.topics:
                found = self._answer(name, opts, as_of=moment)
                assert found == answer, f"{name} as of {moment}:\n{found}\nand it was\n{answer}"


def _with(configuration, topics):
    return type(configuration)(
        configuration.name,
        topics,
        sessions=configuration.sessions,
        limits=configuration.limits,
    )


def run(seed):
    """Run one seed; what fails names it."""
    try:
        Lives(seed).run()
    except AssertionError as error:
        raise AssertionError(f"seed {seed} of the past: {error}") from error
