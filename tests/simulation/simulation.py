"""One seeded run: random traffic and random clients on the real engine, beside the model.

Everything random comes from the seed: traffic, clients, the configuration and its changes, when the
process ends, what its clock says and what its disk refuses. What must be true of every line is
`views.py`'s; what must be true in the end, that everybody holds what they asked for, is here.
"""

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import NamedTuple

from sow.definitions import SessionSettings
from sow.engine import removals
from sow.engine.publications import reading
from sow.errors import DiskFull, SowError
from sow.steps import at_once
from sow.wire import read_frame
from tests.core.harness import SECOND, Client, World
from tests.simulation.configurations import (
    COPIES,
    DELETED_FROM,
    EXPIRES_US,
    FILTERS,
    FOLLOWED,
    MS,
    PUBLISHED,
    TOPICS,
    behind,
    varied,
)
from tests.simulation.machine import Disk, MachineClock, Time
from tests.simulation.model import Going, Model, test_of
from tests.simulation.subscriber import Subscriber
from tests.simulation.tight import tightened
from tests.simulation.views import FOLDED, FOLDED_BY_OTHERS, View

SELECTS = (("/id", "/n", "/v"), ("/id", "/n", "/w/x"), ("-/w/x", "-/v"), ("/id", "/v"))
PUBLISHED_SLOWLY = 100
"""What the keys of large publishes are raised by."""
OVER = object()
"""Stands for no further step."""
FAVOURITES = 3
"""So many subscriptions are asked for again and again, so that sessions share their feeds."""


ACTS = {
    "publish": 30, "burst": 8, "delta": 12, "delete": 4, "begin_delete": 6, "wait": 20,
    "begin_publish": 6, "subscribe": 14, "follow": 4, "unsubscribe": 2, "resubscribe": 8,
    "replace": 5, "drop": 4, "back": 6, "go_on": 3, "restart": 1, "checkpoint": 1,
    "reconfigure": 2, "set_clock": 1, "break_disk": 1, "fill_disk": 1, "look": 2,
}  # fmt: skip
"""What may happen, and how often."""


class Deleting(NamedTuple):
    """A delete that is taken step by step: whose, what is left to do, and the model's side."""

    client: Client
    steps: Iterator[None]
    going: Going


@dataclass(eq=False)
class Publishing:
    """A publish under way: what is still to come of it, and whether its client has gone."""

    name: str
    documents: list
    delta: bool
    steps: Iterator[None]
    is_left: bool = False


class Taste:
    """What one run does much of, and what it leaves alone.

    Runs that do a little of everything meet in none of its corners: each one has a few topics, its
    own liking for options, and acts that it does often or never.
    """

    def __init__(self, random):
        self.acts = {act: often * random.choice((0, 1, 1, 3)) for act, often in ACTS.items()}
        self.acts |= {act: ACTS[act] for act in ("publish", "subscribe", "wait")}
        self.published = random.sample(PUBLISHED, random.randint(1, 4))
        there = {*self.published, *(c for name in self.published for c in COPIES.get(name, ()))}
        self.followed = [name for name in FOLLOWED if any(map(View(name, None).follows, there))]
        self.followed = self.followed or ["t"]
        self.keys = random.choice((2, 4, 8))
        self.reads = random.choice((0.03, 0.1, 0.3))
        names = ("oof", "timestamp", "no_empties", "delta", "complete", "paced", "select", "filter")
        self.options = {name: random.choice((0, 0.3, 0.7, 1)) for name in names}

    def wants(self, option, random):
        return random.random() < self.options[option]


class Simulation:
    """A world, its model and its clients; everything random comes from the seed."""

    def __init__(self, seed, clients=6, steps=120):
        self.random = Random(seed)
        self.steps = steps
        self.model = Model()
        self.durable = None
        """The model as a restart would find it, while the disk refuses what was taken."""
        self.numbers = 0
        self.deletes = []
        self.publishes = []
        self.time = Time(1_000 * SECOND)
        settings = SessionSettings(
            queue_messages_max=self.random.choice((6, 12, 40, 200)),
            recovery_messages_max=self.random.choice((5, 1000)),
            reconnect_timeout_us=4 * SECOND,
        )
        self.world = World(
            *TOPICS, journal=Disk(), sessions=settings, clock=MachineClock(self.time)
        )
        self.taste = Taste(self.random)
        self.favourites = [self._view() for _ in range(FAVOURITES)]
        self.clients = [
            Subscriber(self.world, self.model, f"c{n}", lazy=n % 2 == 1, folds=n % 6 != 4)
            for n in range(clients)
        ]

    def run(self):
        with tightened(self.random):
            for _ in range(self.steps):
                self._step()
                self._go_on_deleting()
                self._go_on_publishing()
                self._read()
                self._check()
            self.drain()

    def _step(self):
        act = self.random.choices(*zip(*self.taste.acts.items(), strict=True))[0]
        getattr(self, f"_{act}")()

    def _check(self):
        self.world.check()
        assert self.world.engine.seq == self.model.seq
        if not self.world.unstored and not self.world.journal.refusals:
            self.durable = None

    # Traffic.

    def _documents(self):
        random = self.random
        for _ in range(random.choice((1, 1, 2, 5, 12))):
            self.numbers += 1
            document = {"id": random.randrange(self.taste.keys), "n": self.numbers}
            document["v"] = random.randrange(10)
            document["q"] = random.randrange(100)
            if random.random() < 0.7:
                document["w"] = random.choice(
                    ({"x": random.randrange(3), "y": [self.numbers % 2]},
                     {"x": random.randrange(3)}, {"y": 1}, {}, 7, [1])
                )  # fmt: skip
            if random.random() < 0.7:
                document["g"] = random.choice("ab")
            yield document

    def _publish(self, delta=False, settle=True):
        name, documents = self.random.choice(self.taste.published), list(self._documents())
        if name in ("off", "/log/1", "/log/2"):
            documents = documents[:2]
        for document in documents:
            if delta and self.random.random() < 0.3:
                document.pop("v")
        bodies = [json.dumps(document).encode() for document in documents]
        try:
            self.world.engine.publish(name, bodies, self.world.now, delta=delta)
        except DiskFull:
            assert self.world.journal.full or self.world.unstored
            return
        assert not self.world.journal.full, "a full disk has taken messages"
        for document in documents:
            self.model.publish(name, document, self.world.now, delta, name != "through")
            if name == "e":
                self.model.expire_at(name, document, self.world.now + EXPIRES_US)
        if settle:
            self.world.settle()

    def _delta(self):
        self._publish(delta=True)

    def _burst(self):
        """Publishes to several topics that one group holds."""
        for _ in range(self.random.randint(2, 4)):
            self._publish(settle=False)
        self.world.settle()

    def _delete(self):
        name, bound = self.random.choice(self.taste.published), self.random.randrange(10)
        if name not in DELETED_FROM or name not in self.world.engine.topics:
            return
        client = self.world.client()
        (said,) = client.say(c="sow_delete", t=name, filter=f"/v > {bound}", cid="d")
        # One that the disk refused when it was taken already is not acknowledged, but holds.
        if said["c"] == "close" or said["status"] == "success":
            self.model.delete(name, test_of(f"/v > {bound}"))
        else:
            assert said["reason"] == "disk full", said

    def _begin_delete(self):
        """A delete of which others take a step now and then."""
        name, bound = self.random.choice(self.taste.published), self.random.randrange(10)
        there = name in DELETED_FROM and name in self.world.engine.topics
        if not there or self.world.journal.full or self.world.unstored:
            return
        client = self.world.client()
        command = {"c": "sow_delete", "t": name, "filter": f"/v > {bound}", "cid": "d"}
        commands = read_frame(json.dumps(command).encode())
        steps = self.world.executor.carry_out(client.session, commands, lambda: self.world.now)
        going = self.model.begin_delete(name, test_of(command["filter"]), removals.RECORDS_AT_ONCE)
        self.deletes.append(Deleting(client, steps, going))
        self._delete_more(self.deletes[-1])

    def _begin_publish(self):
        """A publish of many messages, of which others take a step now and then."""
        name = self.random.choice(self.taste.published)
        documents = list(itertools.chain.from_iterable(self._documents() for _ in range(3)))
        if name not in DELETED_FROM or name in ("e", *(one.name for one in self.publishes)):
            return
        if self.world.journal.full or self.world.unstored:
            return
        for document in documents:
            # Of its own: views know by the order of numbers what is newer.
            document["id"] += PUBLISHED_SLOWLY
        engine, delta = self.world.engine, self.random.random() < 0.5
        topic = engine.publishable(name)
        bodies = [json.dumps(document).encode() for document in documents]
        read = at_once(reading(bodies, lambda part: engine.read(topic, part)))
        steps = engine.publications.carry_out(name, read, self.world.now, delta=delta)
        self.publishes.append(Publishing(name, documents, delta, steps))
        self._publish_more(self.publishes[-1])

    def _go_on_publishing(self):
        for publishing in list(self.publishes):
            if self.random.random() < 0.3:
                self._publish_more(publishing)

    def _publish_more(self, publishing):
        """One step of a publish; of some the client goes, and the server goes on with it."""
        if publishing.is_left:
            steps = self.world.engine.publications.finish_left(publishing.name)
        else:
            steps = publishing.steps
        over = False
        try:
            next(steps)
        except StopIteration:
            over = True
        except SowError:
            assert self.world.unstored or self.world.journal.full
            over = True
        # What it replaces may have waited to be deleted, which then came first.
        while self.model.seq < self.world.engine.seq:
            document = publishing.documents.pop(0)
            now_us = self.world.engine.now_us
            self.model.publish(publishing.name, document, now_us, publishing.delta)
        self.world.settle()
        if over:
            self.publishes.remove(publishing)
        elif not publishing.is_left and self.random.random() < 0.1:
            steps.close()
            if self.world.engine.publications.has_left:
                # Nothing else may come to the topic before it.
                publishing.is_left = True
                while publishing in self.publishes:
                    self._publish_more(publishing)
            else:
                self.publishes.remove(publishing)

    def _go_on_deleting(self):
        for deleting in list(self.deletes):
            if self.random.random() < 0.3:
                self._delete_more(deleting)

    def _delete_more(self, deleting):
        """One step of a delete; some clients go before all are taken."""
        client, steps, going = deleting
        if client.session.ended is not None or self.random.random() < 0.05:
            steps.close()
            self._end_delete(deleting)
            return
        refused = self.world.unstored and going.chunks
        over = next(steps, OVER) is OVER
        if not refused:
            self.model.delete_more(going)
        self.world.settle()
        said = [line for line in client.lines() if line["c"] == "ack"]
        assert over or refused or bool(said) <= (not going.chunks), "said before it is done"
        if refused or over:
            steps.close()
            self._end_delete(deleting)
        for ack in said:
            assert ack["status"] == ("failure" if refused else "success"), ack
            assert refused or ack["deleted"] == going.removed, ack

    def _end_delete(self, deleting):
        self.deletes.remove(deleting)
        self.model.end_delete(deleting.going)

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
                checkpoint.write(self.world.engine.seq, self.world.engine.catalog.slices(name, 3))

    # What happens to the server.

    def _reconfigure(self):
        """Other intervals, filters, schedules, policies, indexes; a copy less or more."""
        topics = varied(self.random)
        configuration = replace(self.world.configuration, topics=topics)
        self.world.executor.reconfigure(configuration, self.world.now)
        self.world.configuration = configuration
        self.world.settle()
        for client in self.clients:
            for view in client.views.values():
                # A key may be let go twice within an interval of the old kind.
                view.released_us.clear()

    def _restart(self):
        """The process ends, now and then with a change that had not reached the disk.

        The next one may find another configuration, and another time.
        """
        random, disk = self.random, self.world.journal
        if random.random() < 0.5 and not disk.full and not self.world.unstored:
            self.world.engine.publish("t", [b'{"id":0,"n":0,"lost":true}'], self.world.now)
        lost = bool(self.world.unstored)
        if lost:
            self.model = self.durable
        self.deletes.clear()
        self.publishes.clear()
        self.model.going.clear()
        disk.full, disk.refusals = False, 0
        if random.random() < 0.3:
            self.time.set(random.choice((-3600, -5, 5, 3600)) * SECOND)
        topics = varied(random) if random.random() < 0.5 else ()
        self.world = self.world.restart(*topics, clock=MachineClock(self.time))
        self.world.advance(0)
        self.world.settle()
        self.model.expire(self.world.now)
        for client in self.clients:
            if lost:
                # While the disk refuses, bookmarks are told that it may never hold.
                client.views.clear()
            client.reborn(self.world, self.model)

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
        """A subscription as somebody might ask for it."""
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
        return View(name, text, tuple(opts), complete, delta, interval_us, select)

    def _subscribe(self):
        client = self._client()
        if client is not None and client.wanted < 4:
            favourite = self.random.random() < 0.5
            view = self.random.choice(self.favourites).again() if favourite else self._view()
            if self._is_there(view):
                client.subscribe(view)

    def _is_there(self, view):
        return view.topic.startswith("^") or view.topic in self.world.engine.topics

    def _follow(self):
        """Follow the log from some bookmark on."""
        client, view = self._client(), self._view()
        sound = not self.world.unstored
        if sound and client is not None and client.wanted < 4 and view.resumable:
            view.complete = False
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
        """Let a subscription go and ask for the same again, whatever still waits of it."""
        client, view = self._some_view()
        if view is not None and self._is_there(view):
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

    def _look(self):
        """Let everybody who is connected read everything, until nothing waits."""
        if self.world.unstored or self.world.journal.refusals:
            return
        for _ in range(4):
            for client in self.clients:
                client.read()
            self._advance(SECOND)
        for client in self.clients:
            client.read()
        self._check_copies()
        for client in self.clients:
            if not client.dropped and not client.dead:
                for view in client.views.values():
                    view.check_sequence(self.model)
                    view.check_sums(self.model)
                    self._check_state(view)

    def _expected(self, name, view):
        """The records of a topic that a view should hold."""
        base, passed = behind(self.world.configuration.topics, name)
        records = self.model.matching(base, lambda d: passed(d) and view.test(d))
        return {key: view.shown(document) for key, document in records.items()}

    def _check_copies(self):
        whole = View("", None)
        for name, running in self.world.engine.topics.items():
            if running.definition.name == "through":
                continue
            held = {str(d["id"]): d for d in self.world.records(name)}
            assert held == self._expected(name, whole), f"{name} differs from the model"

    def _check_state(self, view):
        by_topic = {}
        for (name, _), document in view.held.items():
            by_topic.setdefault(name, {})[str(document["id"])] = document
        for name in filter(view.follows, list(self.world.engine.topics)):
            held, expected = by_topic.pop(name, {}), self._expected(name, view)
            for key, document in held.items():
                if name not in FOLDED_BY_OTHERS and (view.oof or key in expected):
                    assert document == expected.get(key), f"{view} holds {document} of {name}"
            for key, document in self._must_be_told(name, view).items():
                assert held.get(key) == document, f"{view} was not told {document} of {name}"
            if view.complete and name != "through":
                assert expected.keys() <= held.keys(), f"{view} lacks records of {name}"
        assert not view.oof or not by_topic, f"{view} holds records of {list(by_topic)}"

    def _must_be_told(self, name, view):
        """Records of a topic that clients publish to, as they came since the view began.

        Where an update may stand for one of another record, those that nothing can stand for.
        """
        if name in ("sums", "through") or view.replaced or (name == "match" and view.paced):
            return {}
        newest, by_match = {}, {}
        for entry in self.model.published_after(view.start, name.__eq__, view.test):
            newest[entry.key] = by_match[entry.document.get("g")] = entry.seq, entry.document
        if name == "match":
            alone = {None: 0, **{g: seq for g, (seq, _) in by_match.items() if g is not None}}
            newest = {
                key: (seq, document)
                for key, (seq, document) in newest.items()
                if "g" not in document or alone[document["g"]] == seq
            }
        records = self.model.records.get(name, {})
        return {
            key: view.shown(document)
            for key, (_, document) in newest.items()
            if records.get(key) == document
        }


def run(seed, clients=6, steps=120):
    """Run one seed; what fails says how to see it again."""
    try:
        Simulation(seed, clients, steps).run()
    except AssertionError as error:
        again = f"python -m tests.simulation --seed {seed} --clients {clients} --steps {steps}"
        raise AssertionError(f"{again}\n{error}") from error
