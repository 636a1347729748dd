"""One seeded run: random traffic and random clients on the real engine, beside the model."""

import json
from dataclasses import replace
from random import Random

from sow.topics import ConflatedTopic, SessionSettings, Topic
from tests.engine.harness import SECOND, World
from tests.simulation.model import Model
from tests.simulation.subscriber import Subscriber, View

MS = 1000
KEYS = 6
EXPIRES_US = 3 * SECOND


def topic(name, **more):
    return Topic(name, "json", keys=("/id",), **more)


def copy(name, underlying, interval_us, **more):
    return ConflatedTopic(name, "json", underlying, interval_us=interval_us, **more)


TOPICS = (
    topic("t"),
    topic("e", expires=True, expiration_us=EXPIRES_US),
    topic("off", conflation_policy="off"),
    topic("news", conflation_policy="unsubscribe"),
    topic("always", conflation_policy="always"),
    topic("end", placement="append"),
    topic("through", retain=False),
    topic("desks", pattern="^/desk/[0-9]$"),
    copy("t-C", "t", SECOND),
    copy("t-tick", "t", 500 * MS, schedule="tick", filter="/v > 4"),
    copy("t-CC", "t-C", SECOND),
    copy("desks-C", "desks", 500 * MS, topic_format="%n-C"),
)
SOURCES = {"t-C": "t", "t-tick": "t", "t-CC": "t"}
PUBLISHED = ("t", "t", "t", "e", "off", "news", "always", "end", "through", "/desk/1", "/desk/2")
FOLLOWED = ("t", "e", "news", "always", "end", "t-C", "t-tick", "t-CC", "^/desk/.$", "^/desk/.-C$")


class Simulation:
    """A world, its model and its clients; everything random comes from the seed."""

    def __init__(self, seed, clients=6, steps=120):
        self.random = Random(seed)
        self.steps = steps
        self.model = Model()
        self.numbers = 0
        bound = self.random.choice((12, 40, 200))
        self.settings = SessionSettings(
            queue_messages_max=bound,
            recovery_messages_max=self.random.choice((5, 1000)),
            reconnect_timeout_us=4 * SECOND,
        )
        self.world = World(*TOPICS, sessions=self.settings)
        self.clients = [
            Subscriber(self.world, f"c{number}", lazy=number % 2 == 1) for number in range(clients)
        ]

    def run(self):
        for _ in range(self.steps):
            self._step()
            self._read()
            self.world.check()
        self.drain()

    def _step(self):
        act = self.random.choices(
            (self._publish, self._delta, self._delete, self._wait, self._subscribe,
             self._unsubscribe, self._replace, self._drop, self._back, self._restart,
             self._checkpoint, self._reconfigure),
            (30, 10, 4, 20, 14, 2, 4, 4, 6, 1, 1, 1),
        )[0]  # fmt: skip
        act()

    # Traffic.

    def _documents(self):
        for _ in range(self.random.choice((1, 1, 2, 5, 12))):
            self.numbers += 1
            document = {"id": self.random.randrange(KEYS), "n": self.numbers}
            document["v"] = self.random.randrange(10)
            if self.random.random() < 0.5:
                document["w"] = {"x": self.random.randrange(3), "y": [self.numbers % 2]}
            yield document

    def _publish(self, delta=False):
        name, documents = self.random.choice(PUBLISHED), list(self._documents())
        if name == "off":
            documents = documents[:2]
        for document in documents:
            if delta and self.random.random() < 0.3:
                document.pop("v")
            self.model.publish(name, document, delta and name != "through")
            if name == "e":
                self.model.expire_at(name, document, self.world.now + EXPIRES_US)
        self.world.publish(name, *documents, delta=delta)

    def _delta(self):
        self._publish(delta=True)

    def _delete(self):
        name = self.random.choice(("t", "e", "always", "end", "/desk/1"))
        bound = self.random.randrange(10)
        if name in self.world.engine.topics:
            self.world.delete(name, f"/v > {bound}")
            self.model.delete(name, lambda d: d.get("v", -1) > bound)

    def _wait(self):
        self._advance(self.random.choice((1, 20, 100, 400, 1500)) * MS)

    def _advance(self, by_us):
        """Let time pass from due moment to due moment; prompt clients read at each."""
        world, target = self.world, self.world.now + by_us
        while (due := world.engine.due_us()) is not None and due <= target:
            world.clock.advance(max(0, due - world.now))
            world.engine.advance(world.now)
            world.settle()
            self._read(prompt_only=True)
        world.clock.advance(target - world.now)
        self.model.expire(self.world.now)

    def _checkpoint(self):
        for name, checkpoint in self.world.checkpoints.items():
            checkpoint.write(self.world.engine.seq, self.world.engine.catalog.slices(name, 3))

    def _reconfigure(self):
        """Another interval, schedule or index, or one conflated topic less or more."""
        random, changed = self.random, []
        for definition in TOPICS:
            if definition.name == "t-tick":
                definition = replace(definition, schedule=random.choice(("tick", "per-key")))
            elif definition.name == "t" and random.random() < 0.5:
                definition = replace(definition, hash_indexes=(("/v",),))
            elif definition.name == "t-CC" and random.random() < 0.5:
                continue
            changed.append(definition)
        configuration = replace(self.world.configuration, topics=tuple(changed))
        self.world.executor.reconfigure(configuration, self.world.now)
        self.world.configuration = configuration
        self.world.settle()
        for client in self.clients:
            for view in client.views.values():
                # A key may be let go twice within an interval of the old kind.
                view.released_us.clear()

    def _restart(self):
        """The process ends, now and then with a change that had not reached the disk."""
        if self.random.random() < 0.5:
            self.world.engine.publish("t", [b'{"id":0,"n":0,"lost":true}'], self.world.now)
        clock, self.world = self.world.clock, self.world.restart()
        self.world.clock = clock
        self.world.engine.advance(self.world.now)
        self.world.settle()
        for client in self.clients:
            client.reborn(self.world)

    # Clients.

    def _client(self, dropped=False):
        found = [c for c in self.clients if c.dropped is dropped and not c.dead]
        return self.random.choice(found) if found else None

    def _filter(self):
        return self.random.choice((None, None, "/v > 4", "/v > 7", "/v = 3", "/id = 2"))

    def _subscribe(self):
        client = self._client()
        if client is None or len(client.views) >= 4:
            return
        random = self.random
        if random.random() < 0.25:
            self._follow_log(client)
            return
        opts = [opt for opt in ("oof", "timestamp") if random.random() < 0.4]
        delta, complete = random.random() < 0.4, random.random() < 0.7
        if delta and random.random() < 0.3:
            opts.append("no_empties")
        if random.random() < 0.2:
            opts.append("select=[/id,/n,/v]")
        interval_us = None
        if random.random() < 0.4:
            interval_us = random.choice((100 * MS, 500 * MS, None))
            opts.append(f"conflation={'auto' if interval_us is None else f'{interval_us // MS}ms'}")
        followed = [name for name in FOLLOWED if name != "t-CC" or name in self.world.engine.topics]
        view = View(
            random.choice(followed), self._filter(), tuple(opts), complete, delta, interval_us
        )
        client.subscribe(view)

    def _follow_log(self, client):
        """Follow a topic that loses nothing, from a bookmark or from now on."""
        view = View("off", self._filter(), ())
        bookmark = None
        if self.random.random() < 0.6:
            bookmark = str(self.random.randint(0, self.world.engine.seq))
            view.from_bookmark = True
        view.bookmark = self.world.engine.seq if bookmark is None else int(bookmark)
        client.subscribe(view, bookmark)

    def _view(self):
        client = self._client()
        views = [] if client is None else [v for v in client.views.values() if v.topic != "off"]
        return (client, self.random.choice(views)) if views else (None, None)

    def _unsubscribe(self):
        client, view = self._view()
        if view is not None:
            client.unsubscribe(view)

    def _replace(self):
        client, view = self._view()
        if view is not None:
            client.replace(view, self._filter())

    def _drop(self):
        client = self._client()
        if client is not None:
            client.drop(self.random)

    def _back(self):
        client = self._client(dropped=True)
        if client is not None:
            client.back()

    def _read(self, prompt_only=False):
        for client in self.clients:
            if not client.lazy or (not prompt_only and self.random.random() < 0.1):
                client.read()
            if client.dead and not prompt_only:
                client.reborn(self.world)

    # What must hold once everything has been read.

    def drain(self):
        for client in self.clients:
            if client.dropped:
                client.back()
            client.read()
        for _ in range(4):
            self._advance(SECOND)
            for client in self.clients:
                client.read()
        self._check_copies()
        for client in self.clients:
            assert not client.dead, "a session that reads was closed"
            for view in client.views.values():
                if view.topic == "off":
                    self._check_sequence(view)
                else:
                    self._check_state(view)

    def _expected(self, name, view):
        """The records of a topic that a view should hold."""
        base = name.removesuffix("-C") if name.startswith("/desk/") else SOURCES.get(name, name)
        records = self.model.matching(base, view.test)
        if name == "t-tick":
            records = {k: d for k, d in records.items() if d.get("v", -1) > 4}
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
        pattern = view.topic.startswith("^")
        names = [n for n in self.world.engine.topics if n.startswith("/desk/")]
        names = [n for n in names if n.endswith("-C") == view.topic.endswith("-C$")]
        followed = [view.topic] if view.topic in self.world.engine.topics else []
        for name in names if pattern else followed:
            held, expected = by_topic.pop(name, {}), self._expected(name, view)
            for key, document in held.items():
                if view.oof or key in expected:
                    assert document == expected.get(key), f"{view} holds {document} of {name}"
            if view.complete:
                assert expected.keys() <= held.keys(), f"{view} lacks records of {name}"
        assert not by_topic, f"{view} was told of {list(by_topic)}"

    def _check_sequence(self, view):
        entries = [e for e in self.world.journal.read(view.bookmark) if e.topic == "off"]
        expected = [
            document["n"]
            for entry in entries
            for document, seq in self._rows(entry)
            if seq > view.bookmark and view.test(document)
        ]
        assert view.sequence == expected, f"{view} lost, repeated or reordered something"

    @staticmethod
    def _rows(entry):
        return [(json.loads(body), entry.seq + at) for at, body in enumerate(entry.bodies)]


def run(seed, clients=6, steps=120):
    """Run one seed; what fails says how to see it again."""
    try:
        Simulation(seed, clients, steps).run()
    except AssertionError as error:
        again = f"python -m tests.simulation --seed {seed} --clients {clients} --steps {steps}"
        raise AssertionError(f"{again}\n{error}") from error
