"""The table beside a dictionary: records, their order, what they take, and what a slot is worth."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.core import containers
from sow.core.containers import KeyTable, ShardedDict
from sow.core.keys import sow_keys
from sow.store import columns, memory
from sow.store.memory import RECORD_BYTES, Table, Usage
from sow.store.protocols import Slice, numbers
from tests.core.keys_in_python import KEY_INDEX

names = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=5)
steps = st.lists(st.tuples(st.sampled_from(["put", "drop"]), names), max_size=20)


@pytest.fixture(
    autouse=True, scope="module", params=[1, containers.INDEXED_KEYS], ids=["many", "few"]
)
def indexed_from(request):
    """From so many keys on tables have an index of them."""
    with pytest.MonkeyPatch.context() as patch:
        loops = containers.INNER_LOOPS._replace(key_index=KEY_INDEX)
        patch.setattr(containers, "INNER_LOOPS", loops)
        patch.setattr(containers, "INDEXED_KEYS", request.param)
        yield request.param


class Beside:
    """A table, and a dictionary in order of first publication that says what it ought to hold."""

    def __init__(self, **more):
        self.usage = Usage()
        self.table = Table(sow_keys, "t", usage=self.usage, **more)
        self.model = {}
        self.seq = 0

    def put(self, identities, bodies=None):
        bodies = bodies or [f"{n}{self.seq}".encode() for n in identities]
        seqs = range(self.seq + 1, self.seq + 1 + len(identities))
        self.seq = seqs[-1]
        wanted = []
        for identity, body in zip(identities, bodies, strict=True):
            wanted.append(self.model.get(identity))
            self.model[identity] = body
        slots, olds = self.table.put(identities, bodies, seqs, [self.seq] * len(seqs))
        assert olds == wanted
        assert slots == [self.table.slots[identity] for identity in identities]

    def drop(self, identities):
        wanted = {n: self.model.pop(n) for n in dict.fromkeys(identities) if n in self.model}
        gone, _, olds = self.table.drop(identities)
        assert dict(zip(gone, olds, strict=True)) == wanted

    def held(self):
        live = self.table.live().tolist()
        return {self.table.identities[slot]: self.table.bodies[slot] for slot in live}


@given(steps, st.booleans())
def test_a_table_holds_what_a_dictionary_holds_in_its_order(log, by_arrival):
    beside = Beside(by_arrival=by_arrival)
    for step, identities in log:
        getattr(beside, step)(identities)
        beside.table.check()
        assert list(beside.held().items()) == list(beside.model.items())
        size = sum(map(len, beside.model.values()))
        assert beside.table.bytes == size
        assert beside.usage.bytes == size + RECORD_BYTES * len(beside.model)
        named = 0 if beside.table._arrivals is not None else sum(map(len, beside.model))
        assert beside.usage.named_bytes == named
        assert len(beside.table) == len(beside.model)


@given(steps, st.integers(0, 20), st.integers(1, 3))
def test_names_of_a_moment_are_sent_whatever_comes_while_they_are(log, began, count):
    beside = Beside()
    found, wanted, names_of_then = [], set(), iter(())
    for at, (step, identities) in enumerate([*log, ("put", ["a"])]):
        if at == min(began, len(log)):
            wanted, names_of_then = set(beside.model), beside.table.held_names(count)
        found += next(names_of_then, [])
        getattr(beside, step)(identities)
    found += [name for some in names_of_then for name in some]
    assert sorted(found) == sorted(wanted)


@given(steps, st.booleans())
def test_a_table_with_many_records_is_no_other(indexed_from, log, by_arrival):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(containers, "LONG_KEYS", 1)
        beside = Beside(by_arrival=by_arrival)
        beside.put(["a", "b"])
        beside.put(["c"])
        assert isinstance(beside.table.slots, KeyTable if indexed_from == 1 else ShardedDict)
        for step, identities in log:
            getattr(beside, step)(identities)
            beside.table.check()
            assert list(beside.held().items()) == list(beside.model.items())
            assert len(beside.table) == len(beside.model)


@given(st.lists(st.lists(st.integers(0, 120), min_size=1, max_size=7), max_size=60), st.booleans())
def test_long_columns_grow_beside_those_in_use_with_equal_contents(log, bears):
    """At any moment all numbers are those of a table whose columns are copied at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "COPIED_AT_ONCE", 3)
        tables = [Table(sow_keys, "t", by_arrival=bears) for _ in range(2)]
        for step, places in enumerate(log):
            identities = [str(place) for place in dict.fromkeys(places)]
            seqs = range(step * 7 + 1, step * 7 + 1 + len(identities))
            for table, long in zip(tables, (20, 10**9), strict=True):
                patch.setattr(memory, "LONG_COLUMNS", long)
                if step % 5 == 4:
                    table.drop(identities)
                    continue
                slots, _ = table.put(identities, [b""] * len(seqs), seqs, [step] * len(seqs))
                if bears:
                    table.bear(slots, [10_000 - int(name) for name in identities])
            grown, whole = (table.slice(0, 1_000) for table in tables)
            assert grown == whole
        assert tables[1]._larger is None


def test_long_columns_begin_to_grow_before_they_are_full(monkeypatch):
    monkeypatch.setattr(memory, "LONG_COLUMNS", 100)
    table, copied = Table(sow_keys, "t"), []
    monkeypatch.setattr(columns, "grown", lambda *_: copied.append(1))
    table._use(np.zeros((4, 160), np.int64))
    for at in range(1_000):
        table.put([str(at)], [b""], [at + 1], [0])
    assert copied == [], "nothing was copied at once"
    assert table.seqs[:1_000].tolist() == [*range(1, 1_001)]
    table.check()


def test_a_copy_orders_records_by_when_they_came():
    by_seq, by_arrival = Table(sow_keys, "t"), Table(sow_keys, "t", by_arrival=True)
    for table in (by_seq, by_arrival):
        table.put(["late"], [b""], [9], [0])
        table.drop(["late"])
        table.put(["late"], [b""], [9], [0])  # in a slot that was freed
        table.put(["early"], [b""], [4], [0])
    assert [by_arrival.identities[slot] for slot in by_arrival.live()] == ["late", "early"]


@given(st.data())
def test_records_that_are_given_births_stand_by_them(data):
    """Whichever slots they have: a copy is in the order of what it is a copy of."""
    table, births = Table(sow_keys, "t", by_arrival=True), {}
    for _ in range(data.draw(st.integers(1, 8))):
        some = data.draw(st.lists(st.sampled_from("abcdefgh"), min_size=1, unique=True))
        if data.draw(st.booleans()):
            table.drop(some)
            births = {name: born for name, born in births.items() if name not in some}
            continue
        free = [number for number in range(20) if number not in births.values()]
        given = data.draw(st.permutations(free))[: len(some)]
        stood = [births.get(name, born) for name, born in zip(some, given, strict=True)]
        assert table.places_of([*map(table.slots.get, some)], given) == stood
        is_born_so = data.draw(st.booleans())
        births_of = (lambda given=given: given) if is_born_so else None
        slots, _ = table.put(some, [b""] * len(some), given, given, births=births_of)
        if not is_born_so or given != stood:
            table.bear(slots, given)
        births.update(zip(some, given, strict=True))
        assert table.places_of([*map(table.slots.get, some)], given) == given
        assert table.is_arranged
        assert not table.shares_places
        table.check()
        found = [table.identities[slot] for slot in table.live()]
        assert found == sorted(births, key=births.__getitem__)


def test_a_table_knows_whether_each_record_was_born_when_it_was_first_put():
    table = Table(sow_keys, "t")
    table.put(["a", "b"], [b"1", b"2"], [1, 2], [0, 0])
    table.put(["a"], [b"3"], [3], [0], births=None)
    assert not table.drop(["c"])[0]
    assert table.keeps_all
    table.drop(["a"])
    table.put(["a"], [b"4"], [4], [0])
    assert not table.keeps_all
    copy = Table(sow_keys, "t", by_arrival=True)
    copy.put(["a"], [b"1"], [1], [0], births=lambda: [1])
    assert not copy.keeps_all, "its births are those of others"


def test_a_lifetime_goes_with_the_state_that_had_it():
    table = Table(sow_keys, "t")
    table.put(["a"], [b"1"], [1], [0])
    assert table.expires_us is None
    table.put(["b"], [b"1"], [2], [0], expires_us=50)
    table.put(["b"], [b"2"], [3], [0])
    assert table.expires_us.tolist()[:2] == [0, 0]


@given(steps, st.integers(1, 4))
def test_what_is_cut_in_slices_is_put_back_as_it_was(log, size):
    beside = Beside()
    for step, identities in log:
        getattr(beside, step)(identities)
    back, usage = None, Usage()
    back = Table(sow_keys, "t", usage=usage)
    parts = range(0, len(beside.table.bodies) + 1, size)
    for start in reversed(parts):  # slices of a checkpoint may come in any order
        back.restore(beside.table.slice(start, size))
    back.settle()
    back.check()
    live = back.live().tolist()
    assert [back.identities[slot] for slot in live] == list(beside.model)
    assert [back.bodies[slot] for slot in live] == list(beside.model.values())
    assert (usage.bytes, usage.named_bytes) == (beside.usage.bytes, beside.usage.named_bytes)


@given(steps, st.booleans())
def test_a_table_that_is_rebuilt_from_the_log_is_the_one_that_was(log, by_arrival):
    beside, usage = Beside(by_arrival=by_arrival), Usage()
    back = Table(sow_keys, "t", by_arrival=by_arrival, usage=usage)
    for step, identities in log:
        first = beside.seq + 1
        getattr(beside, step)(identities)
        if step == "drop":
            back.drop(identities)
            continue
        seqs = range(first, beside.seq + 1)
        bodies = [f"{name}{first - 1}".encode() for name in identities]
        back.replay(
            identities, bodies, seqs, [beside.seq] * len(seqs), [beside.seq % 3] * len(seqs)
        )
    back.settle()
    back.check()
    live, lived = back.live().tolist(), beside.table.live().tolist()
    assert [back.identities[slot] for slot in live] == list(beside.model)
    assert [back.bodies[slot] for slot in live] == list(beside.model.values())
    for column in ("seqs", "ts_us", "born"):
        there, then = getattr(back, column)[live], getattr(beside.table, column)[lived]
        assert there.tolist() == then.tolist()
    assert back.sow_keys(live, []) == beside.table.sow_keys(lived, [])
    assert (usage.bytes, usage.named_bytes) == (beside.usage.bytes, beside.usage.named_bytes)


def test_sow_keys_that_were_stored_are_taken_if_they_were_made_alike():
    table, requested = Table(sow_keys, "t"), []
    table.put(["a", "b", "c"], [b"1"] * 3, [1, 2, 3], [0] * 3)
    part = table.slice(0, 10)

    def counted(domain, identities):
        requested.extend(identities)
        return sow_keys(domain, identities)

    earlier = replace(part, sow_keys=None)
    for domain, stored, made in (("t", part, 1), ("other", part, 4), ("t", earlier, 4)):
        requested.clear()
        back = Table(counted, domain)
        back.restore(stored)
        assert list(back.sow_keys([0, 1, 2], "abc")) == list(map(str, sow_keys(domain, "abc")))
        assert len(requested) == made
        if domain == "t":
            assert back.find(table.sow_key(1)) == 1


def test_records_that_have_keys_of_their_own_store_no_sow_keys():
    table = Table(None)
    table.put(["a"], [b"1"], [1], [0])
    assert table.slice(0, 10).sow_keys is None


def test_the_newest_state_of_a_record_stays_however_slices_overlap():
    old, new = Table(sow_keys, "t"), Table(sow_keys, "t")
    old.put(["a"], [b"old"], [1], [0], expires_us=70)
    new.put(["a"], [b"newer"], [5], [0])
    for parts in ((old, new), (new, old)):
        back = Table(sow_keys, "t")
        for part in parts:
            back.restore(part.slice(0, 10))
        assert [back.bodies[slot] for slot in back.live()] == [b"newer"]
        assert back.bytes == 5
        assert back.expires_us is None or back.expires_us[0] == 0


def test_a_record_may_stand_twice_in_what_is_put_back():
    twice = Slice(
        ["a", "b", "a"],
        [b"old", b"b", b"new"],
        *map(numbers, ([1, 2, 3], [0] * 3, [1, 2, 3], [9, 0, 0])),
    )
    back = Table(sow_keys, "t", usage=Usage())
    back.restore(twice)
    back.restore(twice.at([0], str))
    back.settle()
    back.check()
    assert [back.bodies[slot] for slot in back.live()] == [b"b", b"new"]
    assert back.expires_us.tolist()[:2] == [0, 0]


def test_lifetimes_may_differ_within_a_batch():
    table = Table(sow_keys, "t")
    table.put(["a", "b"], [b"", b""], [1, 2], [0, 0], expires_us=[0, 70])
    assert table.expires_us.tolist()[:2] == [0, 70]


def test_a_table_that_is_forgotten_counts_no_more():
    usage = Usage()
    one, other = Table(sow_keys, "t", usage=usage), Table(sow_keys, "t", usage=usage)
    one.put(["a"], [b"12345"], [1], [0])
    other.put(["a"], [b"1"], [2], [0])
    one.forget()
    assert usage.bytes == 1 + RECORD_BYTES
    one.drop(["a"])
    assert usage.bytes == 1 + RECORD_BYTES


@pytest.mark.parametrize("spoil", ["bytes", "identities", "free"])
def test_a_check_finds_a_table_that_is_not_true(spoil):
    table = Table(sow_keys, "t")
    table.put(["a", "b"], [b"1", b"2"], [1, 2], [0, 0])
    if spoil == "bytes":
        table.bytes += 1
    elif spoil == "identities":
        table.identities[0] = "z"
    else:
        table._free = [0]
    with pytest.raises(AssertionError):
        table.check()


def test_what_it_takes_to_name_all_records_is_counted_but_for_copies():
    usage = Usage()
    table = Table(sow_keys, "t", usage=usage)
    table.put(["a", "bcd", "a"], [b"{}"] * 3, [1, 2, 3], [0] * 3)
    assert usage.named_bytes == 4
    table.drop(["a", "nobody"])
    assert usage.named_bytes == 3
    table.forget()
    assert usage.named_bytes == 0
    copy = Table(sow_keys, "t", by_arrival=True, usage=usage)
    copy.put(["a"], [b"{}"], [1], [0])
    assert usage.named_bytes == 0, "what leaves a copy is not logged"


@pytest.mark.parametrize("places", [range(200), range(100), [0]])
def test_records_that_were_given_places_stand_there_those_of_one_by_their_keys(places):
    rng, table, names = Random(len(places)), Table(sow_keys, "t"), [str(at) for at in range(200)]
    table.put(names, [b"{}"] * 200, range(1, 201), [0] * 200)
    table.arrange(names, rng.choices(places, k=200))
    table.drop(names[:9])
    slots = table.live()
    ties = table.ties(slots)
    assert ties == sorted(ties)
    assert sorted(slots.tolist()) == list(range(9, 200))
