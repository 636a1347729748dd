"""The rule of validity, case by case, and over everything that several writers can do."""

from random import Random

import pytest

from sow.errors import StoreError
from sow.shared_log.chain import REPLACED_MAX, ChainState, LogChain
from sow.shared_log.entry import GENESIS, EntryKind, Lead, LogEnvelope, Reload
from sow.shared_log.protocol import StoredBlock
from tests.effort import seeds
from tests.shared_log.simulation import Model

LEAD = Lead("a", "http://a:8080", 1_000_000)


class Written:
    """Writes entries to a log and has a chain read them."""

    def __init__(self, state=None):
        self.chain = LogChain(state)
        self.position = self.chain.state.position

    def write(self, kind, content=b"", *, prev=None, term=None, time_us=0, **more):
        """The next entry, valid unless it is said otherwise."""
        state = self.chain.state
        term = state.term + (kind == EntryKind.LEAD) if term is None else term
        prev = state.hash if prev is None else prev
        token = b"%016d" % self.position
        return self.put(LogEnvelope(kind, term, time_us, prev, token, content, **more).encode()[0])

    def put(self, block):
        self.position += 1
        return self.chain.take(self.position, block)

    def lead(self, **more):
        return self.write(EntryKind.LEAD, LEAD.encode(), **more)

    def records(self, content=b"r", **more):
        return self.write(EntryKind.RECORDS, content, **more)


@pytest.fixture
def written():
    written = Written()
    written.lead()
    return written


def test_a_lead_opens_a_term_and_entries_follow():
    written = Written()
    led = written.lead(time_us=5)
    assert (led.is_valid, led.lead) == (True, LEAD)
    assert written.chain.state == ChainState(1, led.hash, 1, 5, LEAD)
    found = written.records(b"first", time_us=7)
    assert (found.is_valid, found.group.content) == (True, b"first")
    assert (found.group.kind, found.group.time_us, found.group.term) == (EntryKind.RECORDS, 7, 1)
    assert written.write(EntryKind.BEAT).group is None
    assert written.chain.state.term == 1
    assert written.lead().is_valid
    assert written.chain.state.term == 2


def test_nothing_is_valid_before_somebody_leads():
    written = Written()
    assert not written.records().is_valid
    assert not written.records(term=1).is_valid
    assert written.chain.state == ChainState(position=2)


def test_what_does_not_follow_the_last_valid_entry_is_void(written):
    before = written.chain.state
    assert not written.records(prev=GENESIS).is_valid
    assert not written.records(term=0).is_valid
    assert not written.records(term=2).is_valid
    assert not written.lead(prev=GENESIS).is_valid
    assert not written.lead(term=1).is_valid
    assert not written.lead(term=3).is_valid
    assert not written.write(EntryKind.LEAD, b"{}").is_valid
    assert written.put(b"what another program has written").hash is None
    assert written.chain.state == before._replace(position=9)
    assert written.chain.void_count == 8
    assert written.records().is_valid


def test_the_second_copy_of_an_entry_is_void(written):
    block, _ = LogEnvelope(
        EntryKind.RECORDS, 1, 0, written.chain.state.hash, b"t" * 16, b"once"
    ).encode()
    assert written.put(block).is_valid
    assert not written.put(block).is_valid


def test_what_was_on_its_way_behind_a_foreign_lead_is_void(written):
    first = LogEnvelope(EntryKind.RECORDS, 1, 0, written.chain.state.hash, b"1" * 16, b"1")
    second = LogEnvelope(EntryKind.RECORDS, 1, 0, first.encode()[1], b"2" * 16, b"2")
    written.lead()
    assert [written.put(one.encode()[0]).is_valid for one in (first, second)] == [False, False]


def test_a_block_that_was_read_before_is_passed_over(written):
    found = written.records()
    state = written.chain.state
    assert found.is_valid
    assert written.chain.take(2, b"again") is None
    assert written.chain.state is state


def test_time_never_goes_back(written):
    written.records(time_us=9)
    assert written.records(time_us=3).group.time_us == 9
    assert written.chain.state.time_us == 9


def test_a_group_of_several_entries_counts_once_it_is_complete(written):
    settled = written.chain.settled
    assert written.records(b"a", goes_on=True).group is None
    written.put(b"void")
    assert written.write(EntryKind.BEAT).group is None
    assert written.records(b"b", goes_on=True).group is None
    assert written.chain.settled is settled
    assert written.records(b"c").group.content == b"abc"
    assert written.chain.settled is written.chain.state


def test_a_lead_drops_half_a_group(written):
    written.records(b"half", goes_on=True)
    written.lead()
    assert written.chain.settled is written.chain.state
    assert written.records(b"whole").group.content == b"whole"


@pytest.mark.parametrize(
    ("more", "what"),
    [({"format": 3}, "format 3"), ({"kind": 99}, "kind 99")],
)
def test_a_valid_entry_of_a_later_release_is_refused_by_name(written, more, what):
    kind = more.pop("kind", EntryKind.RECORDS)
    with pytest.raises(StoreError, match=f"{what} at position 2, written by node a"):
        written.write(kind, **more)
    void = {"prev": GENESIS}
    assert not written.write(kind, **more, **void).is_valid


def test_a_lead_that_will_write_a_later_format_is_refused_at_once():
    later = LEAD._replace(node="new", format=7)
    with pytest.raises(StoreError, match="format 7 at position 1, written by node new"):
        Written().write(EntryKind.LEAD, later.encode())


@pytest.mark.parametrize("seed", seeds(20))
def test_it_is_the_rule_whatever_comes(seed):
    chance, model, states = Random(seed), Model(), []
    written = Written()
    hashes, groups = [GENESIS], []
    for _ in range(200):
        prev = chance.choice(hashes[-3:]) if chance.random() < 0.3 else None
        term = chance.randrange(5) if chance.random() < 0.1 else None
        kind = chance.choice((EntryKind.LEAD, *[EntryKind.RECORDS] * 8, EntryKind.BEAT))
        content = LEAD.encode() if kind == EntryKind.LEAD else b"%d;" % len(groups)
        entry = LogEnvelope(
            kind,
            written.chain.state.term + (kind == EntryKind.LEAD) if term is None else term,
            0,
            written.chain.state.hash if prev is None else prev,
            chance.randbytes(16),
            content,
        )
        block, entry_hash = entry.encode()
        model.see(StoredBlock(written.position + 1, block))
        found = written.put(block)
        hashes.append(entry_hash)
        groups += [found.group] if found.group else []
        states.append(written.chain.settled)
        assert (written.chain.state.hash, written.chain.state.term) == (model.hash, model.term)
        assert len(groups) == len(model.groups)
    assert written.chain.void_count == model.voids > 0


def test_a_reader_goes_on_from_where_it_was(written):
    blocks, states = [], []
    prev = written.chain.state.hash
    for number in range(20):
        entry = LogEnvelope(
            EntryKind.RECORDS, 1, number, prev, b"%016d" % number, b"x", goes_on=number % 3 > 0
        )
        block, prev = entry.encode()
        blocks += [b"void", block]
    for block in blocks:
        states.append(written.chain.settled)
        written.put(block)
    for state in states:
        reader = LogChain(state)
        for position, block in enumerate(blocks, 2):
            reader.take(position, block)
        assert reader.state == written.chain.state


def test_a_reload_changes_under_which_configuration_is_led(written):
    reload = Reload("other", "its text", b"records\nof it")
    found = written.write(EntryKind.RELOAD, reload.encode())
    assert (found.lead, found.group.kind) == (None, EntryKind.RELOAD)
    leads = written.chain.state.lead
    assert leads == LEAD._replace(fingerprint="other", configuration="its text")
    assert written.chain.settled == written.chain.state
    written.write(EntryKind.RELOAD, b"no reload")
    assert written.chain.state.lead == leads
    written.lead()
    assert written.chain.state.lead == LEAD


def test_what_reloads_have_replaced_is_known_until_all_start_under_another_one(written):
    def reload(fingerprint):
        written.write(EntryKind.RELOAD, Reload(fingerprint, "", b"").encode())
        return written.chain.state.replaced

    def lead(fingerprint):
        written.write(EntryKind.LEAD, LEAD._replace(fingerprint=fingerprint).encode())
        return written.chain.state.replaced

    assert lead("1") == ()
    assert reload("2") == ("1",)
    assert reload("3") == ("1", "2")
    assert lead("3") == ("1", "2")
    assert reload("1") == ("2", "3")
    for number in range(2 * REPLACED_MAX):
        reload(f"more {number}")
    assert len(written.chain.state.replaced) == REPLACED_MAX
    assert lead("other") == ()
