"""The writes of a run: publishes and deletes, whole or a step at a time.

Each is applied to the model as it is done, so that the model holds what the server should.
"""

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from sow.core.cooperative import run_to_completion
from sow.engine import bulk_delete
from sow.engine.bulk_publish import reading
from sow.errors import DiskFull, SowError
from sow.protocol.wire import read_frame
from tests.laws.harness import Client
from tests.simulation.commits import Commits
from tests.simulation.configurations import DELETED_FROM, EXPIRES_US
from tests.simulation.model import Going, test_of

PUBLISHED_SLOWLY = 100
"""What the keys of large publishes are raised by."""
OVER = object()
"""Stands for no further step."""


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


class Traffic(Commits):
    """The part of a simulation that writes; the subclass has a random, a world, a model."""

    def __init__(self, random, model):
        super().__init__(random, model)
        self.numbers = 0
        self.deletes = []
        self.publishes = []

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
        self._let_commit_by(name.__eq__)
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
            merged = self.model.publish(name, document, self.world.now, delta, name != "through")
            if name == "e" and not merged:
                self.model.expire_at(name, document, self.world.now + EXPIRES_US)
        (self.world.settle if settle else self.world.wait)()

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
        self._let_commit_by(name.__eq__)
        client = self.world.client()
        (said,) = client.say(c="sow_delete", t=name, filter=f"/v > {bound}", cid="d")
        # One that the disk refused when it was taken already is not acknowledged, but holds.
        if said["c"] == "close" or said["status"] == "success":
            self.model.delete(name, test_of(f"/v > {bound}"))
        else:
            assert said["reason"] == "disk full", said

    def _begin_delete(self):
        """A delete that others advance by a step now and then."""
        name, bound = self.random.choice(self.taste.published), self.random.randrange(10)
        there = name in DELETED_FROM and name in self.world.engine.topics
        if not there or self.world.journal.full or self.world.unstored:
            return
        self._let_commit_by(name.__eq__)
        client = self.world.client()
        command = {"c": "sow_delete", "t": name, "filter": f"/v > {bound}", "cid": "d"}
        commands = read_frame(json.dumps(command).encode())
        steps = self.world.executor.carry_out(client.session, commands, lambda: self.world.now)
        going = self.model.begin_delete(
            name, test_of(command["filter"]), bulk_delete.RECORDS_AT_ONCE
        )
        self.deletes.append(Deleting(client, steps, going))
        self._delete_more(self.deletes[-1])

    def _begin_publish(self):
        """A publish of many messages that others advance by a step now and then."""
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
        read = run_to_completion(
            reading(bodies, lambda part: engine.read(topic, part, now_us=self.world.now))
        )
        steps = engine.publications.carry_out(name, read, self.world.now, delta=delta)
        self.publishes.append(Publishing(name, documents, delta, steps))
        self._publish_more(self.publishes[-1])

    def _go_on_publishing(self):
        for publishing in list(self.publishes):
            if self.random.random() < 0.3:
                self._publish_more(publishing)

    def _publish_more(self, publishing):
        """One step of a publish; of some the client goes, and the server goes on with it."""
        self._let_commit_by(publishing.name.__eq__)
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
        self._hear_of_commit()
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
            if self.world.engine.publications.left:
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
        self._hear_of_commit()
        if self.commit and self.commit.name == going.topic:
            # It would be given the steps that are left of it.
            self._end_commit()
        refused = self.world.unstored and going.chunks
        over = next(steps, OVER) is OVER
        # A step may be spent on work that comes before further output, and remove nothing.
        while not refused and going.chunks and (over or self.model.seq < self.world.engine.seq):
            self.model.delete_more(going)
        self.world.settle()
        said = [line for line in client.lines() if line["c"] == "ack"]
        if refused and said and not any(going.chunks):
            # Its last step before the disk failed may have been the one that removed the rest.
            refused = said[0]["status"] == "failure"
        assert over or refused or not said or not any(going.chunks), "said before it is done"
        if refused or over:
            steps.close()
            self._end_delete(deleting)
        for ack in said:
            assert ack["status"] == ("failure" if refused else "success"), ack
            assert refused or ack["deleted"] == going.removed, ack

    def _end_delete(self, deleting):
        self.deletes.remove(deleting)
        self.model.end_delete(deleting.going)
