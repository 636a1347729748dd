"""Seeded runs of what conflated topics and views send: it is sent again to whoever asks later.

Real subscribers follow them through restarts and reloads: after a restart each goes on from the
bookmark of its last line. In the end a new one begins where each has begun, and has to be sent the
same lines, byte for byte apart from the names of the subscriptions.
"""

import json
from unittest.mock import patch

from sow.protocol.wire import read_frame
from sow.sessions.queries import replay_starts
from tests.executing import execute_all
from tests.simulation.configurations import MS
from tests.simulation.past import WRITTEN, Lives

WANTED = (
    {"opts": "oof"},
    {"opts": "oof,timestamp", "filter": "/v > 4"},
    {"opts": "", "filter": "/v > 4"},
    {"opts": "oof,no_empties", "c": "delta_subscribe"},
)


class Follower:
    """A subscriber: the topic, what it requested, where it began, and the lines it was sent."""

    def __init__(self, lives, name, wanted):
        self.lives, self.name, self.wanted = lives, name, {"c": "subscribe", **wanted}
        self.lines = []
        self.client = lives.world.client()
        command = f"sow_and_{self.wanted['c']}"
        *_, end = self.client.say(**{**self.wanted, "c": command, "t": name})
        assert end["c"] == "group_end", end
        self.start = self.reached = end["bm"]
        self.is_over = False

    def read(self):
        """Take in what was sent."""
        for line in map(json.loads, texts(self.client)):
            if line["c"] == "unsubscribed":
                self.is_over = True
            elif line["c"] in ("p", "oof") and not self.is_over:
                self.reached = line["bm"]
                self.lines.append(line)

    def go_on(self):
        """The server has been started again."""
        if self.name not in self.lives.world.engine.topics:
            self.is_over = True
        if not self.is_over:
            self.client = self.lives.world.client()
            self._ask(self.client, self.reached)

    def _ask(self, client, bookmark):
        command = {**self.wanted, "t": self.name, "bm": bookmark}
        commands = read_frame(json.dumps(command).encode())
        execute_all(self.lives.world.executor, client.session, commands, self.lives.world.now)
        self.lives.world.settle()

    def compare(self):
        """Ask for all of it once more: from near places, and with the whole log."""
        for few in (0, 2**63):
            with patch.object(replay_starts, "FEW", few):
                self._compare()

    def _compare(self):
        client = self.lives.world.client()
        self._ask(client, self.start)
        found = [json.loads(line) for line in texts(client)]
        told, again = shown(self.lines), shown(found)
        assert again == told, f"{self.name} {self.wanted} from {self.start}:\n{told}\n{again}"


def texts(client):
    """The lines that a client can read now."""
    return [json.dumps(line) for line in client.lines()]


def shown(lines):
    """Lines without the names of their subscriptions."""
    return [{name: one for name, one in line.items() if name != "s"} for line in lines]


class Followed(Lives):
    """The same lives, with subscribers."""

    def __init__(self, seed):
        super().__init__(seed)
        self.followers = []

    def _write(self):
        if self.random.random() < 0.3:
            self._burst()
        super()._write()
        self._read()

    def _burst(self):
        """What several clients publish before views release it: in one turn of the loop, or while
        the request of one of them goes on."""
        if self.random.random() < 0.5:
            for _ in range(self.random.choice((2, 3))):
                self._publish(self.random.choice(WRITTEN))
        else:
            name = self.random.choice(WRITTEN)
            for _ in self.world.engine.requests.together(self._publishing(name)):
                for _ in range(self.random.choice((0, 1, 2))):
                    self._publish(name)
                self.world.settle()
                self._pass(self.random.choice((1, 10 * MS, 150 * MS)))
        self.world.settle()
        self._pass(1)

    def _publishing(self, name):
        for _ in range(3):
            self._publish(name)
            yield

    def _publish(self, name):
        bodies = [json.dumps(one).encode() for one in self._documents()]
        self.world.engine.publish(name, bodies, self.world.now)
        self.world.clock.advance(1)

    def _ask(self):
        derived = [one for one in self.world.engine.catalog.listed() if one.kind != "topic"]
        if derived and len(self.followers) < 8:
            topic = self.random.choice(derived)
            follower = Follower(self, topic.name, self.random.choice(WANTED))
            self.followers.append(follower)
        self._pass(1)

    def _pass(self, by_us):
        super()._pass(by_us)
        self._read()

    def _read(self):
        for follower in self.followers if not self.is_restarting else ():
            follower.read()

    is_restarting = False

    def _restart(self, topics=None):
        self._read()
        self.is_restarting = True
        super()._restart(topics)
        self.is_restarting = False
        for follower in self.followers:
            follower.go_on()
        self._read()

    def _compare(self):
        self._read()
        for follower in self.followers:
            if not follower.is_over:
                follower.compare()


def run(seed):
    """Run one seed; what fails names it."""
    try:
        Followed(seed).run()
    except AssertionError as error:
        raise AssertionError(f"seed {seed} of what was sent: {error}") from error
