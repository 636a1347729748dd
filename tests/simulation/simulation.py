"""One seeded run: random traffic and random clients on the real engine, beside the model.

Everything random comes from the seed: traffic, clients, the configuration and its changes, when the
process ends, what its clock says and what its disk refuses. What is written to topics is in
`traffic.py`; what must be true of every line is in `views.py`, and what must be true in the end in
`outcome.py`.
"""

from dataclasses import replace
from random import Random

from sow.core.definitions import SessionSettings
from sow.engine.live_topic import is_hidden
from sow.engine.recovery.redo import stored_slices
from tests.laws.harness import SECOND
from tests.simulation.configurations import (
    FILTERS,
    MS,
    TOPICS,
    varied,
)
from tests.simulation.groups import GroupView
from tests.simulation.machine import Disk, Machine, MachineClock, Time
from tests.simulation.model import Model
from tests.simulation.outcome import Outcome
from tests.simulation.subscriber import Subscriber
from tests.simulation.taste import Taste
from tests.simulation.tight import tightened
from tests.simulation.traffic import Traffic
from tests.simulation.views import FOLDED, View
from tests.simulation.windows import WindowView
from tests.topic.views.recomputation import shown

SELECTS = (("/id", "/n", "/v"), ("/id", "/n", "/w/x"), ("-/w/x", "-/v"), ("/id", "/v"))
FAVOURITES = 3
"""The number of subscriptions that are requested again and again, so that sessions share feeds."""


class Simulation(Traffic):
    """A world, its model and its clients; everything random comes from the seed."""

    def __init__(self, seed, clients=6, steps=120):
        super().__init__(Random(seed), Model())
        self.steps = steps
        self.durable = None
        """The model as a restart would find it, while the disk refuses what was taken."""
        self.time = Time(1_000 * SECOND)
        settings = SessionSettings(
            queue_messages_max=self.random.choice((6, 12, 40, 200)),
            recovery_messages_max=self.random.choice((5, 1000)),
            reconnect_timeout_us=4 * SECOND,
        )
        self.world = Machine(
            *TOPICS, journal=Disk(), sessions=settings, clock=MachineClock(self.time)
        )
        self.taste = Taste(self.random)
        self.favourites = [self._view() for _ in range(FAVOURITES)]
        self.clients = [
            Subscriber(self.world, self.model, f"c{n}", n % 2 == 1, n % 6 != 4, self._beside)
            for n in range(clients)
        ]

    def run(self):
        with tightened(self.random):
            for _ in range(self.steps):
                self._step()
                self._go_on_deleting()
                self._go_on_publishing()
                self._go_on_committing()
                self._read()
                self._check()
            self.drain()

    def _step(self):
        act = self.random.choices(*zip(*self.taste.acts.items(), strict=True))[0]
        getattr(self, f"_{act}")()

    def _beside(self):
        """What others do between two steps of a client's request."""
        if self.random.random() < 0.6:
            self._publish(settle=False)

    def _check(self):
        self._hear_of_commit()
        self.world.check()
        Outcome(self.world, self.model).check_rows()
        assert self.world.engine.seq == self.model.seq
        if not self.world.unstored and not self.world.journal.refusals:
            self.durable = None

    def _wait(self):
        self._advance(self.random.choice((1, 20, 100, 400, 1500)) * MS)

    def _advance(self, by_us):
        """Let time pass from due moment to due moment; prompt clients read at each."""
        world, end_us = self.world, self.time.monotonic_us + by_us
        while True:
            left_us, due_us = end_us - self.time.monotonic_us, world.engine.due_us()
            wait_us = left_us if due_us is None else max(0, due_us - world.now)
            if wait_us < left_us or (due_us is not None and due_us <= world.now):
                world.clock.advance(wait_us)
                world.engine.advance(world.now)
                world.settle()
                self._read(prompt_only=True)
            elif left_us:
                # Somebody may have set the clock meanwhile.
                world.clock.advance(left_us)
            else:
                break
        self.model.expire(world.now)

    def _checkpoint(self):
        if not self.world.unstored:
            for name, checkpoint in self.world.checkpoints.items():
                seq = self.world.engine.atomic.whole_seq
                checkpoint.write(seq, stored_slices(self.world.engine.catalog, name, 3))

    # What happens to the server.

    def _reconfigure(self):
        """Other intervals, filters, schedules, policies, indexes; a copy less or more."""
        topics = varied(self.random)
        configuration = replace(self.world.configuration, topics=topics)
        self._let_commit_by(lambda _name: self.random.random() < 0.5)
        self.world.executor.reconfigure(configuration, self.world.now)
        self.world.configuration = configuration
        self.world.settle()
        for client in self.clients:
            for view in client.views.values():
                # A key may be released twice within an interval of the old kind.
                view.released_us.clear()

    def _restart(self):
        """The process ends, now and then with a change that had not reached the disk.

        The next one may find another configuration, and another time.
        """
        random, disk = self.random, self.world.journal
        before = self._rows()
        if random.random() < 0.5 and not disk.full and not self.world.unstored:
            self.world.engine.publish("t", [b'{"id":0,"n":0,"lost":true}'], self.world.now)
        lost = bool(self.world.unstored)
        if lost:
            self.model = self.durable
        rows = {} if lost or self.publishes or self.deletes or self.commit else before
        self.deletes.clear()
        self.publishes.clear()
        self.commit = None
        self.model.going.clear()
        disk.full, disk.refusals = False, 0
        if random.random() < 0.3:
            self.time.set(random.choice((-3600, -5, 5, 3600)) * SECOND)
        topics = varied(random) if random.random() < 0.5 else ()
        self.world = self.world.restart(*topics, clock=MachineClock(self.time))
        if not topics:
            again = self._rows()
            for name, before in rows.items():
                assert again[name] == before, f"{name} is another one after a restart"
        self.world.advance(0)
        self.world.settle()
        self.model.expire(self.world.now)
        for client in self.clients:
            if lost:
                # While the disk refuses, bookmarks are sent that it may never hold.
                client.views.clear()
            client.reborn(self.world, self.model)

    def _rows(self):
        """The rows of each view, in their order, that waits for nothing, as do all that it is made
        of; but for those over copies, of which a window may be open."""
        topics = self.world.engine.topics
        dirty = {name for name, one in topics.items() if one.kind == "view" and one.view.is_dirty}
        return {
            name: [*shown(one).items()]
            for name, one in topics.items()
            if one.kind == "view"
            and one.is_listed
            and name not in dirty
            and not any(of in dirty or topics[of].kind == "conflated" for of in one.view.sources)
        }

    def _set_clock(self):
        self.time.set(self.random.choice((-3600, -1, 1, 3600)) * SECOND)

    def _break_disk(self):
        """The disk says that it has room, and then refuses to write."""
        if not self.world.unstored:
            self.durable = self.model.copied()
            self.world.journal.refusals = self.random.randint(1, 3)

    def _fill_disk(self):
        """Room runs out, or there is some again."""
        self.world.journal.full = not self.world.journal.full

    # Clients.

    def _client(self, dropped=False):
        found = [c for c in self.clients if c.dropped is dropped and not c.dead]
        return self.random.choice(found) if found else None

    def _view(self):
        """A random subscription."""
        random, wants = self.random, self.taste.wants
        name = random.choice(self.taste.followed)
        text = random.choice(FILTERS) if wants("filter", random) else None
        if not any(map(View(name, None).follows, FOLDED)):
            return View(name, text)
        opts = [opt for opt in ("oof", "timestamp") if wants(opt, random)]
        delta, complete = wants("delta", random), wants("complete", random)
        if delta and wants("no_empties", random):
            opts.append("no_empties")
        interval_us = None
        if wants("paced", random):
            interval_us = random.choice((100 * MS, 500 * MS, None))
            opts.append(f"conflation={'auto' if interval_us is None else f'{interval_us // MS}ms'}")
        select = random.choice(SELECTS) if wants("select", random) else None
        view = View(name, text, tuple(opts), complete, delta, interval_us, select)
        if "^" not in name and "/" not in name and wants("groups", random):
            return GroupView.at_random(view, random)
        if "^" not in name and "/" not in name and wants("window", random):
            return WindowView.at_random(view, random)
        return view

    def _subscribe(self):
        client = self._client()
        if client is not None and client.wanted < 4:
            favourite = self.random.random() < 0.5
            view = self.random.choice(self.favourites).again() if favourite else self._view()
            if self._is_there(view):
                self._let_commit_by(view.follows)
                client.subscribe(view)

    def _is_there(self, view):
        return view.topic.startswith("^") or view.topic in self.world.engine.topics

    def _follow(self):
        """Follow the log from some bookmark on."""
        client, view = self._client(), self._view()
        sound = not self.world.unstored
        if sound and client is not None and client.wanted < 4 and view.resumable:
            view.complete = False
            self._let_commit_by(view.follows)
            client.subscribe(view, self.random.randint(0, self.model.seq))

    def _some_view(self):
        client = self._client()
        views = [] if client is None else client.settled
        return (client, self.random.choice(views)) if views else (None, None)

    def _unsubscribe(self):
        client, view = self._some_view()
        if view is not None:
            client.unsubscribe(view)

    def _resubscribe(self):
        """End a subscription and request the same again, whatever still waits of it."""
        client, view = self._some_view()
        if view is not None and self._is_there(view):
            self._let_commit_by(view.follows)
            client.unsubscribe(view)
            client.subscribe(view.again())

    def _replace(self):
        client, view = self._some_view()
        if view is not None and self._is_there(view) and any(map(view.follows, FOLDED)):
            client.replace(view, self.random.choice(FILTERS))

    def _drop(self):
        client = self._client()
        if client is not None:
            client.drop(self.random)

    def _back(self):
        client = self._client(dropped=True)
        if client is not None:
            client.back()

    def _go_on(self):
        """Lose the socket and come back as somebody new, with the bookmarks that were seen."""
        client = self._client()
        if client is not None and not self.world.unstored:
            client.drop(self.random)
            client.reborn(self.world, self.model)

    def _read(self, prompt_only=False):
        for client in self.clients:
            if not client.lazy or (not prompt_only and self.random.random() < self.taste.reads):
                client.read()
            if client.dead and not prompt_only:
                client.reborn(self.world, self.model)

    # What must hold once everything has been read.

    def drain(self):
        """Bring everybody back, and look whether all is well."""
        self.world.journal.full, self.world.journal.refusals = False, 0
        self.world.settle()
        self._end_commit()
        while self.publishes:
            self._publish_more(self.publishes[0])
        while self.deletes:
            self._delete_more(self.deletes[0])
        for client in self.clients:
            if client.dropped:
                client.back()
            client.read()
            if client.dead:
                client.reborn(self.world, self.model)
        self._look()
        self._leave_groups()

    def _leave_groups(self):
        """When groups have no followers any more, nothing is kept of them."""
        for client in self.clients:
            for view in list(client.views.values()):
                if isinstance(view, GroupView) and self.random.random() < 0.5:
                    client.unsubscribe(view)
        for session in list(self.world.executor.sessions):
            self.world.executor.sessions.close(session)
        self.clients.clear()
        self._advance(SECOND)
        kept = [topic.name for topic in self.world.engine.catalog if is_hidden(topic.name)]
        assert not kept, f"{len(kept)} views without a follower"

    def _look(self):
        """Let all connected clients read everything, until nothing waits."""
        if self.world.unstored or self.world.journal.refusals:
            return
        self._end_commit()
        for _ in range(4):
            for client in self.clients:
                client.read()
            self._advance(SECOND)
        for client in self.clients:
            client.read()
        outcome = Outcome(self.world, self.model)
        outcome.check_copies()
        for client in self.clients:
            if not client.dropped and not client.dead:
                for view in client.views.values():
                    view.check_sequence(self.model)
                    view.check_sums(self.model)
                    outcome.check(view)


def run(seed, clients=6, steps=120):
    """Run one seed; what fails says how to see it again."""
    try:
        Simulation(seed, clients, steps).run()
    except AssertionError as error:
        again = f"python -m tests.simulation --seed {seed} --clients {clients} --steps {steps}"
        raise AssertionError(f"{again}\n{error}") from error
