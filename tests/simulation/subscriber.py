"""A simulated client: what it requests, when it reads, how it disconnects and comes back.

It reads on demand, may lose its socket with lines under way, and comes back with the number of
lines it has seen, or as a new session, with the bookmarks it has seen. It sends requests without
waiting for responses: a response takes effect at its place among the lines.
"""

import itertools
import json

from sow.protocol.wire import read_frame
from tests.laws.harness import Client, alone


class Subscriber:
    """A named client. `lazy` ones read seldom; prompt ones whenever something may have come.

    `folds`: its queue may be folded when it is full. `between` is what others do between two steps
    of its requests.
    """

    def __init__(self, world, model, name, lazy, folds=True, between=lambda: None):
        self.between = between
        self.world = world
        self.model = model
        self.name = name
        self.lazy = lazy
        self.folds = folds
        self.numbers = itertools.count(1)
        self._connect()

    def _connect(self):
        self.client = Client(self.world)
        self.client.session.allow_folding(self.folds)
        (ack,) = self.client.say(c="logon", client=self.name)
        self.session, self.seen, self.views, self.answers = ack["session"], 0, {}, {}
        self.wanted = 0
        self.dropped = self.dead = False

    # Requests. A response is looked up by the number of its command.

    def subscribe(self, view, bookmark=None):
        """Follow something from now on, or from a bookmark."""
        view.from_bookmark = bookmark is not None
        view.folds, view.folded_before = self.folds, self._folded
        self.wanted += 1

        def begun(ack):
            view.name = ack["s"]
            assert view.name not in self.views, f"two subscriptions of one name: {ack}"
            self.views[view.name] = view
            # What comes with this ack may have been folded before the ack was read.
            view.folded |= self._folded > view.folded_before

        def joined():
            view.start = self.model.seq if bookmark is None else bookmark
            view.reached = view.start if view.resumable and not view.complete else None

        self._ask(view.command(bookmark), begun, joined)

    def unsubscribe(self, view):
        """Follow something no more; lines on their way are still of the view."""

        def ended(_ack):
            del self.views[view.name]

        self.wanted -= 1
        self._ask({"c": "unsubscribe", "s": view.name}, ended)

    def replace(self, view, filter_text):
        """Replace a subscription under the same name; the state is kept until lines change it."""

        def changed(_ack):
            view.filter, view.complete, view.replaced = filter_text, True, True
            view.released_us.clear()
            view.reached = None

        command = {**view.command(), "s": view.name}
        command["c"] = "sow_and_delta_subscribe" if view.delta else "sow_and_subscribe"
        command["opts"] = ",".join(("replace", *view.opts))
        command.pop("filter", None)
        if filter_text is not None:
            command["filter"] = filter_text
        self._ask(command, changed)

    def _ask(self, command, on_answer, on_done=lambda: None):
        number = str(next(self.numbers))
        self.answers[number] = on_answer
        frame = read_frame(json.dumps({**command, "cid": number}).encode())
        session = self.client.session
        said = len(session.lines)
        for _ in alone(self.world.executor.carry_out(session, frame, lambda: self.world.now)):
            if len(session.lines) == said:
                self.between()  # until it is answered
        on_done()
        self.world.settle()
        if not self.lazy:
            self.read()

    @property
    def settled(self):
        """Views without a pending request."""
        return [] if self.answers else list(self.views.values())

    # Reading.

    @property
    def _folded(self):
        return self.client.session.outbox.folded

    def read(self):
        """Read everything there is."""
        if not self.dropped and not self.dead:
            self._keep(self.client.lines())

    def _keep(self, lines, limit=None, prompt=True):
        """Take lines in, all of them or the first `limit`."""
        assert self.folds or not self._folded, "a queue was folded that must not be"
        for view in self.views.values():
            view.folded |= self._folded > view.folded_before
        for line in lines[:limit]:
            self.seen += 1
            self._hear(line, prompt and not self.lazy)

    def _hear(self, line, prompt):
        kind = line["c"]
        if kind == "ack":
            answered = self.answers.pop(line["cid"], lambda _ack: None)
            if line["status"] == "success":
                answered(line)
            else:
                # The server has given it up already; that was said, but not read.
                assert line["reason"] == "subscription does not exist", line
        elif kind == "close":
            assert "slow client" in line["reason"] or "disk full" in line["reason"], line
            self.dead = True
        elif kind == "unsubscribed":
            assert line["reason"] in ("BACK_PRESSURE", "REMOVAL"), line
            self.views.pop(line["s"])
            self.wanted -= 1
        elif kind in ("sow", "p", "oof"):
            assert line["s"] in self.views, f"a line of no subscription that is there: {line}"
            self.views[line["s"]].hear(line, self.world.now, prompt)
        elif kind == "group_end":
            view = self.views[line["s"]]
            is_kept = view.resumable and not view.replaced
            view.reached = int(line["bm"].partition(".")[0]) if is_kept else None

    # Going and coming.

    def drop(self, random):
        """Lose the socket, and with it some of what it had been handed."""
        lines = self.client.lines()
        self._keep(lines, random.randint(0, len(lines)))
        self.world.executor.sessions.drop(self.client.session, self.world.now)
        self.world.settle()
        self.dropped = True

    def back(self):
        """Resume the session, or start from scratch if it is gone."""
        command = {"c": "logon", "client": self.name, "session": self.session, "seen": self.seen}
        if self.seen % 2:
            # The first socket that takes it up is lost before anything was read from it.
            lost = Client(self.world)
            lost.execute(json.dumps(command).encode())
            self.world.executor.sessions.drop(lost.session, self.world.now)
            self.world.settle()
        self.client = Client(self.world)
        (ack, *lines) = self.client.say(**command)
        self.dropped = False
        if ack["resumed"]:
            assert ack["session"] == self.session
            for view in self.views.values():
                view.released_us.clear()
        else:
            assert ack["reason"], ack
            self.client.session.allow_folding(self.folds)
            self.session, self.seen, self.views, self.answers = ack["session"], 0, {}, {}
        # What was missed comes all at once.
        self._keep(lines, prompt=False)

    def reborn(self, world, model):
        """The server has been started again, or has closed this session: start from scratch.

        Subscriptions that can resume at their bookmarks do; the rest is forgotten.
        """
        views = list(self.views.values())
        self.world, self.model = world, model
        self._connect()
        for view in views:
            if view.resumable and view.reached is not None:
                self._take_up(view)

    def _take_up(self, view):
        start = view.start
        view.complete = False
        view.released_us.clear()
        if not view.is_exact:
            # A folded line may be newer than its bookmark.
            view.newest.clear()
        self.subscribe(view, view.reached)
        view.start = start
