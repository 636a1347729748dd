"""What waits in windows, made known in steps while it changes."""

import random

import pytest

from sow.core.cooperative import run_to_completion
from sow.protocol.encodings import LINES
from sow.sessions import pending_updates
from sow.sessions.pending_updates import (
    NO_WAITING,
    SLOTLESS,
    PendingKnown,
    PendingUpdates,
    oldest_of,
)
from sow.streaming.channel import Channel
from sow.streaming.conflated_channel import ConflatedChannel, Newcomer
from sow.topic.updates import Update
from tests.streaming.making import SECOND, Subscription, session
from tests.topic.making import put


def update(identity, seq, told=True, new=b"{}"):
    return Update(identity, told, new, seq, seq, seq, seq + 100, old=b"{}")


def test_columns_have_what_waits_and_nothing_else():
    rows = PendingUpdates()
    rows.put(("never",), None)
    rows.put(("a",), update("a", 3, new=None), 7)
    rows.put(("b",), update("b", 2))
    rows.put(("c",), update("c", 1, told=False))
    rows.put(("b",), None)
    found = rows.columns()
    assert found.slots.tolist() == [7, SLOTLESS]
    assert (found.held.tolist(), found.to_come.tolist()) == ([True, False], [False, True])
    assert (found.first_seqs.tolist(), found.first_ts_us.tolist()) == ([3, 1], [103, 101])
    assert [one.identity for one in found.all()] == ["c", "a"]
    assert found.in_order().slots.tolist() == [SLOTLESS, 7]
    assert oldest_of([found, NO_WAITING], 9) == 1
    assert oldest_of([NO_WAITING], 9) == 9
    rows.put(("b",), update("b", 5, told=False, new=None), 2)
    found = rows.columns()
    assert (found.slots.tolist(), found.held.tolist()) == ([7, 2, SLOTLESS], [True, False, False])
    assert (found.to_come.tolist(), found.first_seqs.tolist()) == ([False, False, True], [3, 5, 1])
    run_to_completion(rows.settle())


def test_where_nothing_waits_nothing_is_known():
    known = PendingKnown()
    channel = Channel("sub", LINES)
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
            self.channel.release(self.now_us)
            self.channel.flush(0, self.now_us)

    def tell(self, batch):
        self.hear(batch, self.now_us)
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
    told = [(find(one.identity, SLOTLESS), one.told, one.new is not None) for one in updates]
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


@pytest.mark.parametrize(
    "key",
    [
        {},
        {"oof": True},
        {"condition": "/v > 30 AND /k > 2", "oof": True},
        {"conflation_key": ("/k",)},
    ],
)
@pytest.mark.parametrize("seed", range(12))
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
