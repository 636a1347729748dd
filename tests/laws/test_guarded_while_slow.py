"""Rights that change while a session lags: slow to read, folded in slices, held back, dropped.

Two worlds run the same history, as in `tests.laws.test_guarded_as_filtered`. Here the
user's session is read a frame at a time or not at all, its queue is folded in small steps, it is
dropped with what was on its way and taken up again, and its rights change in steps, once more
before that is done, with all the rest in between. In the end both hold the same; and each line is
checked against a naive history: a version of a record may be sent to users that could see it at any
time since it was published, and to no others.
"""

import json
import random
import sys

import pytest

from sow.sessions.subscriptions.pending_updates import ReportedSince
from sow.streaming.outbox import outbox
from sow.streaming.sessions import Session
from tests.effort import seeds
from tests.laws.guarding import guarded
from tests.laws.harness import SECOND
from tests.laws.test_guarded_as_filtered import DESKS, FILTERS, WAYS, Pair, Reader, start

FORGETFUL = (
    ("sow_and_subscribe", "send_keys"),
    ("sow_and_delta_subscribe", "send_keys"),
    ("sow_and_subscribe", "conflation=1s"),
    ("sow_and_subscribe", "conflation=1s,conflation_key=[/px]"),
    ("sow_and_subscribe", "send_keys,pattern"),
)
"""Without oof a client keeps removed records, so its state proves little: its lines are checked."""


class History:
    """Which desks were open from which version on."""

    def __init__(self, desks):
        self.version = 0
        self.grants = [(-1, desks)]

    def grant(self, desks):
        self.grants.append((self.version, desks))

    def may_see(self, document):
        """Whether its desk was open when it was published, or at any time since."""
        before = [desks for version, desks in self.grants if version < document["n"]][-1:]
        since = [desks for version, desks in self.grants if version >= document["n"]]
        return any(document["desk"] in desks for desks in before + since)


class Judged(Reader):
    """A reader that knows what it may be sent, and counts its lines."""

    def __init__(self, client, history):
        super().__init__(client)
        self.history = history
        self.name = None
        self.seen = 0
        self.ended = None
        self.refused = False

    def hear(self, line):
        kind, key, document = line["c"], line.get("k"), line.get("d")
        if kind == "ack" and line.get("session"):
            return
        self.seen += 1
        if kind in ("unsubscribed", "close"):
            self.ended = line
        if document is None or not str(line.get("s", "f")).startswith("f"):
            # An answer to a question beside what is followed.
            assert document is None or self.history.may_see(document), line
            return
        whole = {**self.held.get(key, {}), **document} if line.get("delta") else document
        if "n" in whole and whole != self.held.get(key):
            assert self.history.may_see(whole), f"hidden, and sent: {line}"
        super().hear(line)

    def take_some(self, frames):
        """Read so many frames."""
        world, session = self.client.world, self.client.session
        for _ in range(frames):
            frame = session.pull(world.engine.sequencer.released, world.now)
            if not frame:
                return
            size = frame[1]
            text = frame[2 if size < 126 else 4 if size == 126 else 10 :]
            for line in text.split(b"\n"):
                self.hear(json.loads(line))

    def lose_some(self, frames):
        """So many are handed to a socket that never delivers them."""
        for _ in range(frames):
            self.client.session.pull(
                self.client.world.engine.sequencer.released, self.client.world.now
            )


class SlowPair(Pair):
    """A guarded world in which the user is slow, and an open one in which he is not."""

    def __init__(self, topic, own, way, desks, eager):
        super().__init__(topic, own, way, desks, eager)
        self.lazy = False
        self.compares = way not in FORGETFUL
        self.history = History(desks)
        self.user = Judged(self.user.client, self.history)
        self.other.desks = DESKS
        self.granting = []
        self.dropped = False
        self.name_of = None

    def begin(self):
        (ack,) = self.user.client.say(c="logon", cid="0")
        self.name_of = ack["session"]
        super().begin()

    def numbered(self, records):
        found = []
        for one in records:
            self.history.version += 1
            found.append({**one, "n": self.history.version})
        return found

    def publish(self, records):
        records = self.numbered(records)
        secrets = [one | {"secret": one["px"] % 4} for one in records]
        for world, some in zip(self.worlds, (secrets, records), strict=True):
            world.publish("orders", *some)
        self.others_take()

    def do(self, act):
        for world in self.worlds:
            act(world)
        self.others_take()

    def others_take(self):
        self.open.take()
        self.other.take()

    def moment(self, desks):
        """From now on other rights hold; what the user follows goes over to them by and by."""
        self.desks = desks
        self.history.grant(desks)
        client = self.user.client
        self.granting.append(client.world.executor.reguard(client.session, self.rights(desks)))

    def step(self, chance):
        if self.granting:
            steps = chance.choice(self.granting)
            try:
                next(steps)
            except StopIteration:
                self.granting.remove(steps)
            self.worlds[0].settle()

    def finish(self):
        """All rights are in force, and the open world filters accordingly."""
        while self.granting:
            for _ in self.granting.pop(0):
                pass
        self.worlds[0].settle()
        if not self.compares:
            return
        if "projection" in self.opts or "live" in self.opts:
            self.open.client.say(c="unsubscribe", s="all")
            self.open.held = {}
            lines = self.open.client.say(**self.requested, filter=self.both())
        else:
            requested = {**self.requested, "opts": self.opts + ",replace"}
            lines = self.open.client.say(**requested, s=self.name, filter=self.both())
        for line in lines:
            self.open.hear(line)

    def drop(self, lost):
        if self.dropped:
            return
        self.user.lose_some(lost)
        session = self.user.client.session
        self.dropped = self.worlds[0].executor.sessions.drop(session, self.worlds[0].now)
        assert self.dropped

    def come_back(self):
        if not self.dropped:
            return
        self.dropped = False
        old = self.user.client.session
        self.user.client = client = guarded(self.worlds[0], old.rights)
        client.execute(
            b'{"c":"logon","cid":"0","session":"%s","seen":%d}'
            % (self.name_of.encode(), self.user.seen)
        )
        self.user.refused = client.session is not old


def deeds(chance):
    """A history of one seed."""
    for _ in range(chance.randrange(5, 40)):
        yield chance.choices(
            ("publish", "delete", "wait", "moment", "step", "finish", "conflate", "fold", "read",
             "ask", "drop", "back", "check"),
            (12, 2, 2, 3, 6, 1, 3, 3, 4, 1, 1, 2, 1),
        )[0]  # fmt: skip


def change(pair, deed, chance):
    """What happens to the records of both worlds."""
    if deed == "publish":
        ids = chance.choices(range(6), k=chance.randrange(1, 4))
        pair.publish(
            [{"id": at, "desk": chance.choice(DESKS), "px": chance.randrange(7)} for at in ids]
        )
    elif deed == "delete":
        which = chance.randrange(6)
        pair.do(lambda world: world.delete("orders", f"/id = {which}"))
    elif deed == "wait":
        by_us = chance.choice((SECOND // 3, SECOND, 2 * SECOND))
        pair.do(lambda world: world.advance(by_us))


def grant(pair, deed, chance):
    """What happens to the user's rights."""
    if deed == "moment":
        pair.moment(tuple(chance.sample(DESKS, chance.randrange(4))))
    elif deed == "step":
        pair.step(chance)
    elif deed == "finish":
        pair.finish()


def lag(pair, deed, chance):
    """What happens to the user's session."""
    user, now_us = pair.user, pair.worlds[0].now
    if deed == "conflate":
        user.client.session.conflate(now_us)
    elif deed == "fold":
        user.client.session.fold_some(now_us)
    elif deed == "read" and not pair.dropped:
        user.take_some(chance.randrange(1, 6))
    elif deed == "ask" and not pair.dropped:
        topic = pair.topic.strip("^$").encode()
        user.client.execute(b'{"c":"sow","t":"%s","cid":"q"}' % topic)
    elif deed == "drop":
        pair.drop(chance.randrange(3))
    elif deed == "back":
        pair.come_back()


def run(seed):
    """The history of one seed."""
    chance = random.Random(seed)
    topic, own = chance.choice(("orders", "slow")), chance.choice(FILTERS)
    way = chance.choice(WAYS + FORGETFUL)
    desks = tuple(chance.sample(DESKS, chance.randrange(4)))
    pair = SlowPair(topic, own, way, desks, chance.random() < 0.3)
    pair.publish(start())
    pair.do(lambda world: world.advance(2 * SECOND))
    pair.begin()
    user = pair.user
    for deed in deeds(chance):
        for befalls in (change, grant, lag):
            befalls(pair, deed, chance)
        pair.worlds[0].check()
        if user.refused:
            return  # lines were lost while rights changed
    pair.finish()
    pair.come_back()
    for _ in range(2):
        pair.do(lambda world: world.advance(5 * SECOND))
    user.take()
    if user.refused:
        return
    assert user.client.session.ended is None
    assert user.ended is None
    assert user.held == pair.open.held or not pair.compares
    for world in pair.worlds:
        world.check()


def run_all(some):
    """The histories of many seeds, in small steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outbox, "GATHERED_MAX", 2)
        patch.setattr(outbox, "FOLDED_AT_ONCE", 3)
        for seed in some:
            try:
                run(seed)
            except BaseException as error:
                error.add_note(f"seed {seed}")
                raise


SEEDS = 12
"""As a program, `python -m tests.laws.test_guarded_while_slow 0 10000`, it runs more."""
SEEDS_OF_A_BUG = 100
"""As far as it is looked for."""


def test_histories_of_seeds():
    run_all(seeds(SEEDS))


# Bugs that the law has to find.


def reports_meanwhile(patch):
    patch.setattr(Session, "hold_back", lambda _self: None)


def forgets_what_was_said_since(patch):
    patch.setattr(ReportedSince, "look_at_all", lambda _self: None)


BUGS = {reports_meanwhile: 33, forgets_what_was_said_since: 2}
"""Each with the first seed that finds it; the search begins there."""


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_bug_is_found(bug, monkeypatch):
    bug(monkeypatch)
    with pytest.raises(AssertionError):
        run_all(range(BUGS[bug], SEEDS_OF_A_BUG))


if __name__ == "__main__":
    begin, end = map(int, sys.argv[1:])
    run_all(range(begin, end))
    print(f"{end - begin} histories")
