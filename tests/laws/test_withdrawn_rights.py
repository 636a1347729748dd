"""Rights that shrink while lines wait: from that moment on nothing leaves that may not be seen.

A user that is slow, away or coming back goes through a random history of publishes, deletes and
reloads, on the path of a real reload. Each line is checked when it leaves, against the rights of
that moment and against the user's state: a naive copy, built from the lines alone. In the end the
user holds exactly what he may see.
"""

import json
import random
import sys

import pytest

from sow.core.definitions import ConflatedTopic, SessionSettings, Topic
from sow.sessions.subscriptions import pending_updates
from sow.sessions.subscriptions.pending_updates import UnsentUpdates
from sow.sessions.subscriptions.reapply_permissions import PreparedPermissions
from sow.streaming.outbox import outbox
from sow.streaming.sessions import Session
from tests.effort import seeds
from tests.laws.guarding import guarded, reading, rights
from tests.laws.harness import SECOND, World

DESKS = ("a", "b", "c")
FIELDS = ("note", "size")
"""Those that may be hidden."""
FILTERS = (None, None, "/px > 2")
WAYS = (
    ("sow_and_subscribe", "oof"),
    ("sow_and_delta_subscribe", "oof"),
    ("sow_and_delta_subscribe", "oof,no_empties"),
    ("sow_and_subscribe", "oof,conflation=1s"),
    ("sow_and_delta_subscribe", "oof,conflation=1s"),
    ("sow_and_subscribe", "oof,pattern"),
    ("sow_and_subscribe", "live,top_n=3"),
    ("sow_and_subscribe", "live,top_n=9,positions"),
    ("subscribe", "oof"),
    ("delta_subscribe", "oof"),
    ("sow_and_subscribe", ""),
    ("subscribe", ""),
    ("subscribe", "conflation=1s"),
)
POLICIES = ("conflate", "always", "off")
OUTCOMES = ("entitlement", "recovery buffer exceeded")


class Sight:
    """What the user may see."""

    def __init__(self, desks, hidden):
        self.desks, self.hidden = desks, hidden

    @staticmethod
    def at_random(chance):
        desks = tuple(chance.sample(DESKS, chance.choice((0, 1, 2, 2, 3, 3))))
        return Sight(desks, tuple(chance.sample(FIELDS, chance.choice((0, 0, 1, 2)))))

    def rights(self, topic):
        guard = f"/desk IN ({', '.join(repr(one) for one in (*self.desks, 'none'))})"
        select = tuple(f"-/{name}" for name in self.hidden) or None
        return rights(reading(topic, filter=guard, **({"select": select} if select else {})))

    def shown(self, document):
        return {name: value for name, value in document.items() if name not in self.hidden}


class User:
    """A client that reads on demand, and checks each line."""

    def __init__(self, history):
        self.history = history
        self.held = {}
        self.seen = 0
        self.name = None

    def hear(self, line):
        kind, key, sight = line["c"], line.get("k"), self.history.sight
        if kind == "ack" and line.get("session"):
            return
        self.seen += 1
        if kind not in ("sow", "p", "oof"):
            return
        document = line["d"]
        assert not set(sight.hidden) & set(document), f"a field that may not be seen: {line}"
        if kind == "oof":
            before = self.held.pop(key, None)
            assert before is not None or not self.history.reports_all, f"never sent: {line}"
            if line["reason"] == "match":
                assert document["desk"] in sight.desks, f"out of sight: {line}"
            elif before is not None:
                known = {name: document[name] for name in document if name in before}
                assert known.items() <= before.items(), f"never sent in this state: {line}"
                # Without a snapshot a wider right sends nothing again.
                exact = self.history.way[0].startswith("sow") and self.history.reports_all
                assert not exact or document == sight.shown(before), f"never sent so: {line}"
            return
        if line.get("delta"):
            assert key in self.held, f"a delta of what is not held: {line}"
            document = {**self.held[key], **document}
        assert document["desk"] in sight.desks, f"out of sight: {line}"
        self.held[key] = document


class History:
    """A world, its user, and what befalls them by a seed."""

    def __init__(self, seed):
        self.chance = chance = random.Random(seed)
        self.way, self.own = chance.choice(WAYS), chance.choice(FILTERS)
        self.topic = chance.choice(("orders", "orders", "slow"))
        self.sight = Sight.at_random(chance)
        policy = chance.choice(POLICIES)
        self.reports_all = "oof" in self.way[1] or "live" in self.way[1]
        self.world = World(
            Topic("orders", "json", keys=("/id",), conflation_policy=policy),
            ConflatedTopic("slow", "json", "orders", interval_us=SECOND, conflation_policy=policy),
            sessions=SessionSettings(queue_messages_max=chance.choice((12, 1000))),
        )
        self.user = User(self)
        self.version = 0
        self.settling = []
        self.away = False
        self.over = None

    def run(self):
        self.publish(*range(5))
        self.world.advance(2 * SECOND)
        self.client = guarded(self.world, self.sight.rights(self.topic))
        (ack,) = self.client.say(c="logon", cid="0")
        self.user.name = ack["session"]
        kind, opts = self.way[0], self.way[1].removesuffix(",pattern")
        topic = f"^{self.topic}$" if opts != self.way[1] else self.topic
        more = {} if self.own is None else {"filter": self.own}
        if "live" in opts:
            more["order_by"] = "/px"
        self.client.execute(json.dumps({"c": kind, "t": topic, "opts": opts, **more}).encode())
        if self.chance.random() < 0.8:
            self.read(99)
        for _ in range(self.chance.randrange(5, 40)):
            deed = self.chance.choices(
                ("change", "delete", "wait", "shrink", "step", "fold", "read", "leave", "back"),
                (12, 2, 2, 3, 4, 3, 3, 2, 3),
            )[0]
            getattr(self, deed)()
            self.world.check()
            if self.is_over():
                return
        self.end()

    def is_over(self):
        if self.over is None and self.client.session.ended is not None:
            self.over = self.client.session.ended
        return self.over is not None

    def end(self):
        self.step(99)
        self.back()
        for _ in range(3):
            self.read(999)
            self.world.advance(5 * SECOND)
        self.read(999)
        if self.is_over() or not (self.reports_all and self.way[0].startswith("sow")):
            return
        expected = [
            self.sight.shown(one)
            for one in self.world.records(self.topic)
            if one["desk"] in self.sight.desks and (self.own is None or one["px"] > 2)
        ]
        if "live" in self.way[1]:
            top_n = 3 if "top_n=3" in self.way[1] else 9
            expected = sorted(expected, key=lambda one: one["px"])
            assert sorted(one["px"] for one in self.user.held.values()) == [
                one["px"] for one in expected[:top_n]
            ]
            assert all(one in expected for one in self.user.held.values())
        else:
            by_id = sorted(self.user.held.values(), key=lambda one: one["id"])
            assert by_id == sorted(expected, key=lambda one: one["id"])
        self.over = "lived to the end"

    # Deeds.

    def publish(self, *ids):
        documents = []
        for at in ids:
            self.version += 1
            document = {"id": at, "desk": self.chance.choice(DESKS), "px": self.chance.randrange(6)}
            document |= {"n": self.version, "note": self.version, "size": self.chance.randrange(2)}
            documents.append(document)
        self.world.publish("orders", *documents)

    def change(self):
        self.publish(*self.chance.sample(range(6), self.chance.randrange(1, 4)))

    def delete(self):
        self.world.delete("orders", f"/id = {self.chance.randrange(6)}")

    def wait(self):
        self.world.advance(self.chance.choice((SECOND // 3, SECOND, 2 * SECOND)))

    def shrink(self):
        """Roles are read again."""
        session, self.sight = self.client.session, Sight.at_random(self.chance)
        prepared = PreparedPermissions(session.rights, session.shown, self.sight.rights(self.topic))
        executor = self.world.executor
        for one in executor.go_on_under(executor.role_set, {session: prepared}):
            self.settling.append(executor.settle(one))

    def step(self, count=1):
        for _ in range(count):
            for steps in [*self.settling]:
                if next(steps, self) is self:
                    self.settling.remove(steps)
                self.world.settle()

    def fold(self):
        if self.chance.random() < 0.5:
            self.client.session.conflate(self.world.now)
        self.client.session.fold_some(self.world.now)

    def read(self, frames=None):
        if self.away:
            return
        for frame in self.frames(frames or self.chance.randrange(1, 5)):
            for line in frame.split(b"\n"):
                self.user.hear(json.loads(line))

    def frames(self, count):
        """So many frames leave."""
        for _ in range(count):
            frame = self.client.pull()
            if frame is None:
                self.world.executor.subscriptions.drained(self.client.session)
                self.world.settle()
                frame = self.client.pull()
            if frame is None:
                return
            if frame:
                size = frame[1]
                yield frame[2 if size < 126 else 4 if size == 126 else 10 :]

    def leave(self):
        """The socket breaks; a socket may have taken what never arrives."""
        if not self.away:
            for _ in self.frames(self.chance.choice((0, 0, 1, 2))):
                pass
            self.away = self.world.executor.sessions.drop(self.client.session, self.world.now)

    def back(self):
        if not self.away:
            return
        self.away, old = False, self.client.session
        self.client = guarded(self.world, old.rights)
        requested = {"c": "logon", "cid": "0", "session": self.user.name, "seen": self.user.seen}
        self.client.execute(json.dumps(requested).encode())
        if self.client.session is not old:
            said = [line for line in self.client.lines() if line["c"] == "ack"]
            assert said[0]["reason"] in OUTCOMES, said
            self.over = said[0]["reason"]


def run_all(some):
    """The histories of many seeds, in small steps; returns how they ended."""
    ends = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outbox, "GATHERED_MAX", 2)
        patch.setattr(outbox, "FOLDED_AT_ONCE", 3)
        patch.setattr(pending_updates, "LOOKED_AT_ONCE", 2)
        for seed in some:
            history = History(seed)
            try:
                history.run()
            except BaseException as error:
                error.add_note(f"seed {seed}: {history.way}")
                raise
            ends[history.over] = ends.get(history.over, 0) + 1
    return ends


SEEDS = 12
"""As a program, `python -m tests.laws.test_withdrawn_rights 0 10000`, it runs more."""
SEEDS_OF_A_BUG = 200


def test_histories_of_seeds():
    ends = run_all(seeds(SEEDS))
    assert ends["lived to the end"] > SEEDS // 10


# Bugs that the law has to find.


def lets_all_leave(patch):
    patch.setattr(UnsentUpdates, "taken", lambda _self, _sees: [])


def looks_at_no_state(patch):
    patch.setattr(UnsentUpdates, "_may_see", lambda *_: True)


def shows_hidden_fields(patch):
    patch.setattr(UnsentUpdates, "leave_rest", lambda *_: None)


def sends_again_what_was_sent(patch):
    patch.setattr(Session, "is_withdrawn", lambda *_: False)
    patch.setattr("sow.streaming.recovery_buffer.RecoveryBuffer.withdraw", lambda _self: None)


def says_answers_of_before(patch):
    patch.setattr(Session, "has_found_records", False)


BUGS = {
    lets_all_leave: 32,
    looks_at_no_state: 58,
    shows_hidden_fields: 10,
    sends_again_what_was_sent: 26,
    says_answers_of_before: 1,
}
"""Each with the first seed that finds it; the search begins there."""


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_bug_is_found(bug, monkeypatch):
    bug(monkeypatch)
    with pytest.raises(AssertionError):
        run_all(range(BUGS[bug], SEEDS_OF_A_BUG))


if __name__ == "__main__":
    begin, end = map(int, sys.argv[1:])
    print(run_all(range(begin, end)))
