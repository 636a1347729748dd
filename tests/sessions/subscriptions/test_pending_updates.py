"""What waits in windows, made known in steps while it changes."""

import random

import pytest

from sow.core.cooperative import run_to_completion
from sow.core.definitions import Topic
from sow.protocol.replies import LINES
from sow.sessions.subscriptions import pending_updates
from sow.sessions.subscriptions.pending_updates import (
    NO_WAITING,
    SLOTLESS,
    PendingKnown,
    PendingUpdates,
    UnsentUpdates,
    oldest_of,
)
from sow.streaming.channel import DirectChannel
from sow.streaming.conflated_channel import ConflatedChannel, Newcomer
from sow.topic.batch import Update
from sow.topic.rendering import Shape
from tests.cases import all_cases
from tests.laws.guarding import desk, guarded, reading, regrant, rights
from tests.laws.harness import World, short
from tests.streaming.making import SECOND, Subscription, session
from tests.topic.making import put


def update(identity, seq, known=True, new=b"{}"):
    return Update(identity, known, new, seq, seq, seq, seq + 100, old=b"{}")


def test_columns_have_what_waits_and_nothing_else():
    rows = PendingUpdates()
    rows.put(("never",), None)
    rows.put(("a",), update("a", 3, new=None), 7)
    rows.put(("b",), update("b", 2))
    rows.put(("c",), update("c", 1, known=False))
    rows.put(("b",), None)
    found = rows.columns()
    assert found.slots.tolist() == [7, SLOTLESS]
    assert (found.held.tolist(), found.to_come.tolist()) == ([True, False], [False, True])
    assert (found.first_seqs.tolist(), found.first_ts_us.tolist()) == ([3, 1], [103, 101])
    assert [one.identity for one in found.all()] == ["c", "a"]
    assert found.in_order().slots.tolist() == [SLOTLESS, 7]
    assert oldest_of([found, NO_WAITING], 9) == 1
    assert oldest_of([NO_WAITING], 9) == 9
    rows.put(("b",), update("b", 5, known=False, new=None), 2)
    found = rows.columns()
    assert (found.slots.tolist(), found.held.tolist()) == ([7, 2, SLOTLESS], [True, False, False])
    assert (found.to_come.tolist(), found.first_seqs.tolist()) == ([False, False, True], [3, 5, 1])
    run_to_completion(rows.settle())


def test_where_nothing_waits_nothing_is_known():
    known = PendingKnown()
    channel = DirectChannel("sub", LINES)
    assert known.is_behind(channel)
    assert [*known.catch_up(channel, session())] == []
    assert not known.is_behind(channel)
    assert known.as_of_now() == {}
    run_to_completion(known.settle())


class Windows(Subscription):
    """A conflated subscription to records that come, change and go."""

    def __init__(self, chance, **key):
        super().__init__(interval_us=SECOND, **key)
        self.chance, self.seq, self.now_us, self.there = chance, 0, 0, set()
        self.known = PendingKnown()

    def change(self):
        self.now_us += self.chance.randrange(SECOND // 20)
        kind, self.seq = self.chance.random(), self.seq + 1
        if kind < 0.2 and self.there:
            gone = self.chance.choice(sorted(self.there))
            self.there.discard(gone)
            stamp = lambda _count: ([self.seq], [self.now_us])  # noqa: E731
            self.tell(self.topic.drop([str(gone)], "deleted", stamp))
        elif kind < 0.9:
            one = self.chance.randrange(30)
            self.there.add(one)
            document = {"id": one, "v": self.seq, "k": self.chance.randrange(9)}
            self.tell(put(self.topic, document, seq=self.seq, ts_us=self.now_us))
        else:
            self.channel.advance(self.now_us)
            self.channel.flush(0, self.now_us)

    def tell(self, batch):
        self.on_batch(batch, self.now_us)
        self.known.hear(self.topic, batch.changes.identities)


def waiting_for(channel, member):
    """The naive model: all that waits, looked at in one step."""
    pending = channel.conflator.pending()
    newcomer = channel._newcomers.get(member)
    if newcomer is None:
        return [one.update for one in pending.values()]
    known = Newcomer(newcomer.seq, newcomer.number, newcomer.held)
    return [update for _, update in known.corrected(pending.items())]


def columns_of(topic, updates):
    find = topic.table.slots.get
    told = [(find(one.identity, SLOTLESS), one.known, one.new is not None) for one in updates]
    return sorted(zip(told, [(one.first_seq, one.first_ts_us) for one in updates], strict=True))


def known_of(topic, topics):
    rows = []
    for one in topics.values():
        found = one.columns()
        assert columns_of(topic, found.all()) == sorted(rows_of(found))
        rows += rows_of(found)
    return sorted(rows)


def rows_of(found):
    told = zip(found.slots.tolist(), found.held.tolist(), found.to_come.tolist(), strict=True)
    numbers = zip(found.first_seqs.tolist(), found.first_ts_us.tolist(), strict=True)
    return [*zip(told, numbers, strict=True)]


@all_cases(
    "key",
    [
        {},
        {"oof": True},
        {"condition": "/v > 30 AND /k > 2", "oof": True},
        {"conflation_key": ("/k",)},
    ],
)
@all_cases("seed", range(12))
def test_what_changes_between_steps_is_known_as_if_all_were_looked_at_in_one(
    monkeypatch, seed, key
):
    monkeypatch.setattr(pending_updates, "NOTED_AT_ONCE", 3)
    chance = random.Random(seed)
    windows, late = Windows(chance, **key), session("late")
    for _ in range(60):
        windows.change()
    windows.channel.join_at(late, windows.seq)
    for member in (late, windows.session) * 6:
        windows.known = known = PendingKnown()
        while known.is_behind(windows.channel):
            for _ in known.catch_up(windows.channel, member):
                for _ in range(chance.randrange(3)):
                    windows.change()
        naive = columns_of(windows.topic, waiting_for(windows.channel, member))
        assert known_of(windows.topic, known.as_of_now()) == naive
        known.close()
        assert windows.channel._noting == ()
        windows.change()
    windows.channel.check()


def test_it_comes_to_an_end_however_fast_others_publish(monkeypatch):
    """Each step looks at more places than have changed since the last one."""
    monkeypatch.setattr(pending_updates, "NOTED_AT_ONCE", 3)
    windows = Windows(random.Random(4))
    for _ in range(60):
        windows.change()
    for step, _ in enumerate(windows.known.catch_up(windows.channel, windows.session)):
        assert step < 2 * 30, "as many as there are places, and once more as they are noted"
        for _ in range(10):
            windows.change()
    assert not windows.known.is_behind(windows.channel)


def test_another_channel_is_looked_at_from_its_beginning():
    windows, other = Windows(random.Random(1)), Windows(random.Random(2))
    windows.change()
    known = PendingKnown()
    run_to_completion(known.catch_up(windows.channel, windows.session))
    assert known.is_behind(other.channel)
    run_to_completion(known.catch_up(other.channel, other.session))
    assert (known.as_of_now(), windows.channel._noting) == ({}, ())


def test_with_the_last_member_all_that_waits_is_forgotten_in_steps(monkeypatch):
    monkeypatch.setattr(pending_updates, "NOTED_AT_ONCE", 3)
    for is_over in (False, True):
        windows = Windows(random.Random(3))
        for _ in range(40):
            windows.change()
        known = PendingKnown()
        run_to_completion(known.catch_up(windows.channel, windows.session))
        assert known.as_of_now()
        waits = len(windows.channel.conflator)
        windows.channel.is_over = is_over
        assert len([*known.settle()]) > 3
        assert len(windows.channel.conflator) == (0 if is_over else waits)
        assert isinstance(windows.channel, ConflatedChannel)


A, B, C = ({"id": at, "desk": name, "px": 0} for at, name in enumerate("abc"))


def world_of(**more):
    return World(Topic("orders", "json", keys=("/id",), **more))


def follower(world, command="sow_and_subscribe", given=None, opts="oof", read=True):
    client = guarded(world, given or desk("a", "b", "c"))
    client.execute(b'{"c":"%s","t":"orders","opts":"%s"}' % (command.encode(), opts.encode()))
    if read:
        client.lines()
    return client


def told(lines):
    return [(line["c"], line["d"]["id"], line["d"].get("px")) for line in lines if "d" in line]


def test_of_a_topic_that_is_not_folded_every_line_that_may_be_seen_stays_where_it_stands():
    world = world_of(conflation_policy="off")
    client = follower(world)
    for px in range(3):
        world.publish("orders", *(one | {"px": px} for one in (A, B, C)))
    lines = regrant(client, desk("a", "c"))
    assert told(lines) == [("p", at, px) for px in range(3) for at in (0, 2)]
    marks = [int(line["bm"]) for line in lines if "bm" in line]
    assert marks == sorted(marks)


def test_who_was_sent_of_a_record_before_is_sent_that_it_left_in_the_state_that_he_has():
    world = world_of()
    world.publish("orders", A, B)
    client = follower(world)
    world.publish("orders", B | {"px": 7}, C)
    lines = regrant(client, desk("a"))
    assert short(lines) == [("entitlement", B)]


def test_a_record_that_has_come_back_into_sight_is_sent_from_what_the_client_has():
    """The line between the two said what may not be seen; the delta after it was of that."""
    world = world_of()
    world.publish("orders", A)
    client = follower(world, "sow_and_delta_subscribe")
    world.publish("orders", A | {"desk": "b", "px": 1})
    world.publish("orders", A | {"desk": "c", "px": 1})
    (line,) = regrant(client, desk("a", "c"))
    assert line["d"] == {"id": 0, "desk": "c", "px": 1}


def test_a_record_that_came_out_of_sight_and_has_gone_leaves_no_word():
    world = world_of()
    client = follower(world)
    world.publish("orders", B)
    world.delete("orders", "/id = 1")
    assert regrant(client, desk("a")) == []


def test_a_record_that_is_out_of_sight_now_is_not_sent_in_a_state_that_was_not():
    world = world_of()
    client = follower(world)
    world.publish("orders", A)
    world.publish("orders", A | {"desk": "b"})
    assert regrant(client, desk("a")) == []


@pytest.mark.parametrize("command", ["sow_and_subscribe", "sow_and_delta_subscribe"])
def test_what_waits_loses_a_field(command):
    world = world_of()
    client = follower(world, command)
    world.publish("orders", A)
    world.publish("orders", A | {"px": 1})
    lines = regrant(client, rights(reading(select=("-/px",))))
    assert lines
    assert all("px" not in line["d"] for line in lines)


def test_updates_that_were_folded_before_are_sent_apart_too():
    world = world_of(conflation_policy="always")
    client = follower(world)
    for px in range(3):
        world.publish("orders", *(one | {"px": px} for one in (A, B, C)))
    assert told(regrant(client, desk("a", "c"))) == [("p", 0, 2), ("p", 2, 2)]
    world.check()


@pytest.mark.parametrize("policy", ["conflate", "always"])
def test_what_waits_is_looked_at_in_steps(monkeypatch, policy):
    monkeypatch.setattr(pending_updates, "LOOKED_AT_ONCE", 2)
    world = world_of(conflation_policy=policy)
    client = follower(world)
    for at in range(7):
        world.publish("orders", {"id": at, "desk": "ab"[at % 2], "px": at})
    (name,) = client.subscriptions
    looking = UnsentUpdates(client.session, name, desk("a"), lambda _records: Shape())
    steps = 0
    while looking.is_behind:
        looking.look()
        steps += 1
    assert steps == 3
    taken = looking.taken(lambda _records, _slot: True)
    assert [update.identity for _, update in taken] == ["1", "3", "5"]
    looking.leave_rest(lambda _records: pytest.fail("they are worded as before"))
    assert told(client.lines()) == [("p", at, at) for at in (0, 2, 4, 6)]


def test_nothing_leaves_while_rights_change():
    world = world_of()
    client = follower(world)
    world.publish("orders", A, B)
    steps = world.executor.reguard(client.session, desk("a"))
    next(steps)
    assert client.lines() == []
    for _ in steps:
        pass
    world.settle()
    assert told(client.lines()) == [("p", 0, 0)]


@pytest.mark.parametrize("opts", ["oof", "oof,conflation=1s", "live,top_n=5"])
@pytest.mark.parametrize("waits", ["", "in the queue", "deleted"])
def test_what_he_never_saw_of_a_record_is_not_sent_when_it_goes(opts, waits):
    """Neither the old rights nor the new ones show him the note of this record."""
    world = world_of()
    world.publish("orders", A, B | {"note": "not for him"})
    before = rights(reading("orders", select=("-/note",)))
    client = follower(world, given=before, opts=opts)
    if waits == "in the queue":
        world.publish("orders", B | {"px": 7, "note": "nor this"})
    if waits == "deleted":
        world.delete("orders", "/id = 1")
    lines = regrant(client, desk("a"))
    left = [line["d"] for line in lines if line["c"] == "oof"]
    if not left:
        world.advance(1_000_000)
        left = [line["d"] for line in client.lines() if line["c"] == "oof"]
    assert left == [B]


def test_after_a_line_that_stays_the_last_state_is_what_that_line_has_sent():
    world = world_of(conflation_policy="off")
    client = follower(world, given=rights(reading("orders", select=("-/note",))))
    world.publish("orders", A | {"note": "seen"})
    world.delete("orders", "/id = 0")
    assert short(regrant(client, desk("a"))) == [
        ("p", A | {"note": "seen"}),
        ("deleted", A | {"note": "seen"}),
    ]
