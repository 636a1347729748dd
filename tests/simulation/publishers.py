"""Seeded runs of publishers that number their messages, on the real engine.

Publishers send frames, lose their replies, come back, have two connections, are refused; the server
is killed with groups on their way to the disk and publishes half done; clocks are set and names
expire. The model is naive: what a publisher has sent is a list, and in the end the log has each
message of it once, in order, and none is missing that was acknowledged.
"""

import itertools
import json
from random import Random
from unittest.mock import patch

from sow.core.definitions import PUBLISHERS, JournalSettings, Topic
from sow.protocol.publish_batching import read_frames
from sow.sessions.commands import executor
from sow.sessions.commands.publishers import RENEWED_PART
from tests.laws.harness import SECOND
from tests.simulation.machine import Disk, Machine, MachineClock, Time
from tests.simulation.tight import tightened

TOPIC = Topic("t", "json", keys=("/id",))
HOUR = 3600 * SECOND
LASTS_US = JournalSettings().sequence_expiration_us
MARGIN_US = LASTS_US // RENEWED_PART + HOUR


class Client:
    """A publisher: what it has sent and not seen acknowledged, and its connection.

    A message is (number, command, document); an `epoch` ends when the server has forgotten it.
    """

    def __init__(self, run, name):
        self.run, self.name = run, name
        self.random = run.random
        self.connection = self.former = None
        self.epoch, self.next = 0, 1
        self.pending = []
        self.sent = {}
        """By (epoch, number), the messages that count."""
        self.acked = 0
        self.used_us = None

    # Its connection.

    def connect(self):
        """Log on, with a second connection beside one that may live still."""
        world = self.run.world
        self._used()
        self.former, self.connection = self.connection, world.client()
        lines = self.connection.say(c="logon", cid="on", client=self.name, sequence=True)
        ack = next((line for line in lines if line.get("cid") == "on"), None)
        if ack is None:
            return self.lose()
        highest, idle_us = ack["sequence"], 0
        if self.used_us is not None:
            idle_us = world.now - self.used_us
            assert highest or not self.acked or idle_us >= LASTS_US, f"{self.name} has expired"
            assert not highest or idle_us <= LASTS_US + MARGIN_US, f"{self.name} never expires"
        assert highest in (0, *range(self.acked, self.next)), (highest, self.acked, self.next)
        if highest < self.acked or (not highest and idle_us >= LASTS_US):
            self._begin_anew()
        self.used_us = world.now
        return self._send_again(max(highest, self.acked))

    def _begin_anew(self):
        """The server has forgotten this name: what it has not acknowledged is numbered anew."""
        waiting, self.pending = self.pending, []
        self.epoch, self.next, self.acked = self.epoch + 1, 1, 0
        for _, command, document in waiting:
            self._add(command, document)

    def _send_again(self, highest):
        """All that was pending, or what the server does not have."""
        again, self.acked = list(self.pending), highest
        self.pending = [message for message in again if message[0] > highest]
        self._say(self._frames(again if self.random.random() < 0.5 else self.pending))

    def lose(self):
        """The connection breaks; what was answered and not read is lost."""
        for one in (self.connection, self.former):
            if one is not None and self.run.world.executor.sessions.has(one.session):
                self.run.world.executor.sessions.drop(one.session, self.run.world.now)
        self._used()
        self.connection = self.former = None

    def _used(self):
        """A connection has kept the name until now."""
        if self.connection is not None and self.used_us is not None:
            self.used_us = self.run.world.now

    def killed(self):
        self._used()
        self.connection = self.former = None

    # Its messages.

    def _add(self, command, document):
        number, self.next = self.next, self.next + 1
        if document is not None and "p" in document:
            document = {**document, "p": self.name, "e": self.epoch, "s": number}
        self.pending.append((number, command, document))
        self.sent[self.epoch, number] = command, document

    def publish(self):
        """Some messages, mostly in frames of several."""
        if self.connection is None:
            return
        before = len(self.pending)
        for _ in range(self.random.choice((1, 1, 2, 5, 9))):
            command = self.random.choice(("publish", "publish", "delta_publish", "sow_delete"))
            identity = f"{self.name}-{self.random.randint(1, 4)}"
            if command == "sow_delete":
                self._add(command, {"id": identity})
            elif self.random.random() < 0.05:
                self._add(command, {"p": "", "bad": True})
            else:
                self._add(command, {"id": identity, "p": ""})
        self._say(self._frames(self.pending[before:]))

    def _frames(self, messages):
        """Runs of one command as frames of their own; a delete has one number."""
        frames = []
        for command, run in itertools.groupby(messages, lambda message: message[1]):
            run = list(run)
            size = 1 if command == "sow_delete" else self.random.choice((1, 3, len(run)))
            for at in range(0, len(run), size):
                some = run[at : at + size]
                head = {"c": command, "t": "t", "n": len(some), "seq": some[0][0]}
                head["cid"] = f"{some[0][0]} {some[-1][0]}"
                lines = [json.dumps(head, separators=(",", ":"))]
                lines += [json.dumps(document) for _, _, document in some]
                frames.append("\n".join(lines).encode())
        return frames

    def _say(self, frames):
        """Send frames at once; now and then the connection or the server ends meanwhile."""
        if not frames:
            return
        run, world, connection = self.run, self.run.world, self.connection
        reads = read_frames(frames)
        if self.random.random() < 0.5 and world.executor.publish_at_once(
            connection.session, reads, world.now
        ):
            steps = iter(())
        else:
            steps = world.executor.carry_out(connection.session, reads, lambda: world.now)
        for _ in steps:
            chance = self.random.random()
            if chance < 0.1:
                world.pass_on()
            elif chance < 0.15:
                steps.close()
                self.lose()
                return
            elif chance < 0.18:
                run.kill()
                return
        if self.random.random() < 0.7:
            world.settle()
            self._hear(connection.lines())
        elif self.random.random() < 0.5:
            world.pass_on()

    def _hear(self, lines):
        """Acks; after one that is refused the rest is numbered anew and sent again."""
        for line in lines:
            if line["c"] != "ack":
                assert line["c"] == "close"
                continue
            first, last = map(int, line["cid"].split())
            if line["status"] == "failure":
                self._refused(first, last, line)
                return
            if self.pending and last >= self.pending[0][0]:
                self.pending = [message for message in self.pending if message[0] > last]
                self.acked = max(self.acked, last)
                self.used_us = self.run.world.now

    def _refused(self, first, last, line):
        assert line["reason"] in ("bad message", "sequence gap"), line
        if line["reason"] == "sequence gap":
            assert line["expected"] < first
        waiting, self.pending = self.pending, []
        self.next = waiting[0][0]
        for number, *_ in waiting:
            self.sent.pop((self.epoch, number), None)
        for number, command, document in waiting:
            if not (first <= number <= last) or "bad" not in document:
                self._add(command, document)
        # What was not acknowledged may have been applied: the server says which.
        self.lose()

    def speak_on_the_former(self):
        """The older of two connections still sends: nothing of that counts."""
        if self.former is None:
            return
        seq = self.run.world.engine.seq
        body = json.dumps({"id": f"{self.name}-1", "p": "former"})
        line = {"c": "publish", "t": "t", "d": json.loads(body), "seq": self.next, "cid": "0 0"}
        self.former.execute(json.dumps(line, separators=(",", ":")).encode())
        assert self.run.world.engine.seq == seq, "the older connection was heard"


class PublisherRun:
    """One seed."""

    def __init__(self, seed, steps=80):
        self.random, self.steps = Random(seed), steps
        self.time = Time(1_000 * SECOND)
        self._together_max = self.random.choice((1, 3, 250))
        self._begin(Machine(TOPIC, PUBLISHERS, journal=Disk(), clock=MachineClock(self.time)))
        self.clients = [Client(self, name) for name in ("a", "b", "ü/ x")]

    def _begin(self, world):
        self.world = world
        self.left = []  # what others leave after they were killed is of no interest
        world.engine.publications.on_left(self.left.append)

    def run(self):
        with tightened(self.random), patch.object(executor, "TOGETHER_MAX", self._together_max):
            for _ in range(self.steps):
                self._step()
                self.world.engine.timers.check()
                self.world.executor.publishers.check()
            self._end()

    def _step(self):
        client, act = self.random.choice(self.clients), self.random.random()
        if client.connection is None or act < 0.1:
            client.connect()
        elif act < 0.65:
            client.publish()
        elif act < 0.75:
            client.lose()
        elif act < 0.8:
            client.speak_on_the_former()
        elif act < 0.86:
            self.kill()
        elif act < 0.9:
            self.time.set(self.random.choice((-HOUR, -5 * SECOND, 5 * SECOND, HOUR)))
        elif act < 0.93:
            self._finish_left()
        else:
            hours = self.random.choice((1, 20, 24, 100, 200))
            self.world.settle()
            self._advance(hours * HOUR)

    def _advance(self, by_us):
        self._finish_left()
        world, end_us = self.world, self.time.monotonic_us + by_us
        while (left_us := end_us - self.time.monotonic_us) > 0:
            due_us = world.engine.due_us()
            wait_us = left_us if due_us is None else min(left_us, max(0, due_us - world.now))
            world.clock.advance(wait_us)
            world.engine.advance(world.now)
            world.settle()

    def _finish_left(self):
        """What the server does by itself with publishes whose clients have gone."""
        for publication in self.left:
            for _ in self.world.engine.publications.finish(publication):
                pass
        self.left.clear()

    def kill(self):
        """The process ends, whatever was on its way; another one begins."""
        if self.random.random() < 0.3:
            self.world.pass_on()
        for client in self.clients:
            client.killed()
        if self.random.random() < 0.2:
            self.time.set(self.random.choice((1, 30, 200)) * HOUR)
        self._begin(self.world.restart(clock=MachineClock(self.time)))
        self.world.engine.advance(self.world.now)
        self.world.settle()

    def _end(self):
        """Everybody comes back and sends what is pending, until nothing is."""
        while any(client.pending for client in self.clients):
            for client in self.clients:
                if client.pending:
                    client.lose()
                    client.connect()
        self._finish_left()
        self.world.settle()
        self._check_log()

    def _check_log(self):
        found = {}
        for entry in self.world.journal.read(0):
            for body in entry.bodies if entry.op == "publish" else ():
                document = json.loads(body)
                found.setdefault((document["p"], document["e"]), []).append(document["s"])
        for client in self.clients:
            for epoch in range(client.epoch + 1):
                sent = [
                    number
                    for (of, number), (command, document) in sorted(client.sent.items())
                    if of == epoch and command != "sow_delete" and "bad" not in document
                ]
                held = found.get((client.name, epoch), [])
                whole = sent if epoch == client.epoch else sent[: len(held)]
                assert held == whole, f"{client.name} in epoch {epoch}: {held}, not {whole}"


def run(seed, steps=80):
    """Run one seed; what fails names it."""
    try:
        PublisherRun(seed, steps).run()
    except AssertionError as error:
        raise AssertionError(f"publishers, seed {seed}, {steps} steps\n{error}") from error
