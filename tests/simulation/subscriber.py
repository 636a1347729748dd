"""A simulated client: what it asks for, what it holds, and what must be true of every line.

It reads when it is told to, may lose its socket with lines under way, and comes back with the
number of lines it has seen. A line that could not come from a correct server fails at once.
"""

import json
from dataclasses import dataclass, field

from sow.delta import merged
from sow.wire import read_frame
from tests.engine.harness import Client

GATHER_US = 20_000


@dataclass
class View:
    """One subscription and the records that the client holds because of it."""

    topic: str
    filter: str | None
    opts: tuple[str, ...] = ()
    complete: bool = False
    delta: bool = False
    interval_us: int | None = None
    from_bookmark: bool = False
    name: str = ""
    held: dict = field(default_factory=dict)
    sequence: list = field(default_factory=list)
    newest: dict = field(default_factory=dict)
    released_us: dict = field(default_factory=dict)
    bookmark: int = 0

    @property
    def oof(self):
        return "oof" in self.opts

    def test(self, document):
        """The filters of the simulation, as Python."""
        if self.filter is None:
            return True
        name, operator, number = self.filter.split()
        value = document.get(name.removeprefix("/"))
        return value is not None and (
            value > int(number) if operator == ">" else value == int(number)
        )

    def shown(self, document):
        if not any(opt.startswith("select") for opt in self.opts):
            return document
        return {name: document[name] for name in ("id", "n", "v") if name in document}

    def hear(self, line, now_us, prompt):
        """Take one record line in."""
        key = (line["t"], line["k"])
        if line["c"] == "oof":
            assert self.oof, f"an oof that nobody asked for: {line}"
            assert key in self.held, f"an oof of a record that is not held: {line}"
            del self.held[key]
            return
        document = line["d"]
        if line.get("delta"):
            assert self.delta, f"a delta that nobody asked for: {line}"
            assert key in self.held, f"a delta of a record that is not held: {line}"
            document = merged(self.held[key], document)
        if line["c"] == "p":
            self._check_order(key, line, document)
            if prompt:
                self._check_rate(key, line, now_us)
        self.held[key] = document

    def _check_order(self, key, line, document):
        # Every publish has a number of its own, so a record's numbers only grow.
        number = document["n"]
        assert number >= self.newest.get(key, 0), f"{key} went backwards: {line}"
        self.newest[key] = number
        self.sequence.append(number)

    def _check_rate(self, key, line, now_us):
        if self.interval_us is not None and not self.from_bookmark:
            before = self.released_us.get(key)
            assert before is None or now_us - before >= self.interval_us, f"too soon: {line}"
            self.released_us[key] = now_us


class Subscriber:
    """A named client. `lazy` ones read seldom; prompt ones whenever something may have come."""

    def __init__(self, world, name, lazy):
        self.world = world
        self.name = name
        self.lazy = lazy
        self.views = {}
        self.seen = 0
        self.dropped = False
        self.dead = False
        self.gave_up = 0
        self._connect()

    def _connect(self):
        self.client = Client(self.world)
        (ack,) = self.client.say(c="logon", client=self.name)
        self.session, self.seen, self.views = ack["session"], 0, {}
        self.dropped = self.dead = False

    # Asking.

    def subscribe(self, view, bookmark=None):
        """Follow something; returns the view, or None when the server has refused."""
        name = ("sow_and_" if view.complete else "") + (
            "delta_subscribe" if view.delta else "subscribe"
        )
        command = {"c": name, "t": view.topic, "cid": "s", "opts": ",".join(view.opts)}
        if view.filter is not None:
            command["filter"] = view.filter
        if bookmark is not None:
            command["bm"] = bookmark
        self._ask(command, view)
        return view if view.name else None

    def replace(self, view, filter_text):
        """Look at something else under the same name; what is held stays until it is told."""
        self.read()
        if view.name not in self.views:
            return
        view.filter, view.complete = filter_text, True
        view.released_us.clear()
        command = {
            "c": "sow_and_delta_subscribe" if view.delta else "sow_and_subscribe",
            "t": view.topic,
            "s": view.name,
            "cid": "s",
            "opts": ",".join(("replace", *view.opts)),
        }
        if filter_text is not None:
            command["filter"] = filter_text
        self._ask(command, view)

    def unsubscribe(self, view):
        self.read()
        if view.name not in self.views:
            return
        self.client.execute(json.dumps({"c": "unsubscribe", "s": view.name}).encode())
        self.read()
        self.views.pop(view.name, None)

    def _ask(self, command, view):
        # What was under way is read first, so that the answer is at hand afterwards.
        self.read()
        if self.dead:
            return
        self.world.executor.execute_all(
            self.client.session, read_frame(json.dumps(command).encode()), self.world.now
        )
        self.world.settle()
        self._asked = view
        self.read()
        self._asked = None

    _asked = None

    # Reading.

    def read(self):
        """Read everything there is."""
        if not self.dropped and not self.dead:
            self.keep(self.client.lines())

    def keep(self, lines, limit=None):
        """Take lines in, all of them or the first `limit`."""
        for line in lines[:limit]:
            self.seen += 1
            self._hear(line)

    def _hear(self, line):
        kind = line["c"]
        if kind == "ack":
            assert line["status"] == "success", line
            if line.get("cid") == "s" and self._asked is not None:
                self._asked.name = line["s"]
                self.views[line["s"]] = self._asked
        elif kind == "close":
            assert "slow client" in line["reason"], line
            self.dead = True
        elif kind == "unsubscribed":
            assert line["reason"] in ("BACK_PRESSURE", "REMOVAL"), line
            self.gave_up += 1
            self.views.pop(line["s"], None)
        elif kind in ("sow", "p", "oof"):
            view = self.views.get(line["s"])
            if view is not None:
                view.hear(line, self.world.now, not self.lazy)

    # Going and coming.

    def drop(self, random):
        """Lose the socket, and with it some of what it had been handed."""
        lines = self.client.lines()
        self.keep(lines, random.randint(0, len(lines)))
        self.world.executor.drop(self.client.session, self.world.now)
        self.world.settle()
        self.dropped = True

    def back(self):
        """Take the session up again, or begin anew if it is gone."""
        self.client = Client(self.world)
        command = {"c": "logon", "client": self.name, "session": self.session, "seen": self.seen}
        (ack, *lines) = self.client.say(**command)
        self.dropped = False
        if ack["resumed"]:
            assert ack["session"] == self.session
            for view in self.views.values():
                view.released_us.clear()
        else:
            assert ack["reason"], ack
            self.session, self.seen, self.views = ack["session"], 0, {}
        # What was missed comes all at once.
        lazy, self.lazy = self.lazy, True
        self.keep(lines)
        self.lazy = lazy

    def reborn(self, world):
        """The server has been started again, or has closed this session: begin anew."""
        self.world = world
        self._connect()
