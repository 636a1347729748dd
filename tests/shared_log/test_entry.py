"""The envelope: what is written is read, and what is no entry is none.

The rule of validity, case by case, and over everything that several writers can do.
"""

import random
from random import Random
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.errors import StoreError
from sow.shared_log import BLOCK_BYTES_MAX, StoredBlock
from sow.shared_log import entry as module
from sow.shared_log.entry import (
    CONTENT_BYTES_MAX,
    ENTRY_FORMAT,
    ENVELOPE,
    GENESIS,
    REPLACED_MAX,
    SIZE,
    ChainState,
    EntryKind,
    Lead,
    LogChain,
    LogEnvelope,
    Reload,
    decode,
    decode_lead,
    decode_reload,
    digest,
    pack,
    parts_of,
    unpack,
)
from tests.cases import all_cases
from tests.effort import examples, seeds
from tests.shared_log.simulation import Model

HASHES = st.binary(min_size=16, max_size=16)
ENTRIES = st.builds(
    LogEnvelope,
    kind=st.integers(0, 255),
    term=st.integers(0, 2**64 - 1),
    time_us=st.integers(0, 2**64 - 1),
    prev=HASHES,
    token=HASHES,
    content=st.binary(max_size=300),
    goes_on=st.booleans(),
    format=st.integers(0, 255),
)
ENTRY = LogEnvelope(EntryKind.RECORDS, 3, 1_700_000_000_000_000, GENESIS, b"t" * 16, b"content")
LEAD = Lead("a", "http://a:8080", 1_000_000, "f00d")


@given(ENTRIES)
@examples(50)
def test_what_is_written_is_read(entry):
    block, entry_hash = entry.encode()
    assert decode(block) == (entry, entry_hash)


@given(ENTRIES, st.data())
@examples(50)
def test_an_entry_that_was_changed_or_cut_is_none_or_another_one(entry, data):
    block, entry_hash = entry.encode()
    at = data.draw(st.integers(0, len(block) - 1))
    assert decode(block[:at]) is None
    assert decode(block + b"x") is None
    changed = bytearray(block)
    changed[at] ^= data.draw(st.integers(1, 255))
    found = decode(bytes(changed))
    # A change of the envelope gives another hash, also of a bit that means nothing yet.
    assert found is None or (at < ENVELOPE.size and found[1] != entry_hash)


def test_the_bytes_of_an_entry_stay_what_they_are():
    # Other releases read them.
    block, entry_hash = ENTRY.encode()
    assert block[:24].hex() == "534f574c" + "01" + "03" + "0000" + f"{3:016x}" + "00060a24181e4000"
    assert block[24:56] == GENESIS + b"t" * 16
    assert block[56:72] == digest(b"content")
    assert block[72:] == b"\0\0\0\7content"
    assert entry_hash == digest(block[:76])
    assert digest(b"").hex() == "cae66941d9efbd404e4d88758ea67670"


TEXT = b"".join(b'{"id":%d,"symbol":"S%d"}' % (n, n % 7) for n in range(1000))


def test_long_content_is_packed_and_read_as_it_was():
    entry = ENTRY._replace(content=TEXT, goes_on=True)
    block, entry_hash = entry.encode()
    assert len(block) < len(TEXT) / 3
    assert block[4:8].hex() == "02" + "03" + "0003"
    assert decode(block) == (entry._replace(format=2), entry_hash)
    assert entry_hash == digest(block[:76])
    plain, _ = ENTRY._replace(content=random.Random(1).randbytes(5000)).encode()
    assert plain[4:8].hex() == "01" + "03" + "0000"


def test_who_leads_is_read_by_releases_that_unpack_nothing():
    lead = Lead("a", "", 1, configuration=TEXT.decode())
    block, _ = ENTRY._replace(kind=EntryKind.LEAD, content=lead.encode()).encode()
    assert block[4:8].hex() == "01" + "01" + "0000"
    assert decode_lead(block[76:]) == lead
    assert lead.format == 2


def test_packed_content_stays_what_it_is():
    # Other releases read it.
    packed = "000007d0" + "1f000100ffffffffffffffbe500000000000"
    assert pack(bytes(2000)).hex() == packed
    assert unpack(bytes.fromhex(packed)) == bytes(2000)


def test_what_nobody_has_packed_is_no_entry():
    head, packed = ENVELOPE.unpack(ENTRY._replace(content=TEXT).encode()[0][:76]), pack(TEXT)
    too_large = SIZE.pack(CONTENT_BYTES_MAX + 1) + packed[4:]
    sizes = [SIZE.pack(n) + packed[4:] for n in (0, 3, len(TEXT) - 1, len(TEXT) + 1, 10**6)]
    for wrong in (b"", b"\0\0\0", packed[:-9], *sizes, too_large, b"x" * 99):
        block = ENVELOPE.pack(*head[:-2], digest(wrong), len(wrong)) + wrong
        assert decode(block) is None
    later = ENVELOPE.pack(head[0], 9, *head[2:-2], digest(b"x"), 1) + b"x"
    found, _ = decode(later)
    assert (found.format, found.content) == (9, b"x")  # a later release has packed it otherwise


def test_two_attempts_of_one_content_have_two_hashes():
    other = ENTRY._replace(token=b"u" * 16)
    assert ENTRY.encode()[1] != other.encode()[1]


def test_what_is_no_entry_is_none():
    for block in (b"", b"SOWL", b"\0" * 76, b"SOWL" + b"\xff" * 72):
        assert decode(block) is None


def test_the_largest_content_fits_into_a_block():
    content = random.Random(1).randbytes(CONTENT_BYTES_MAX)
    block, _ = ENTRY._replace(content=content).encode()
    assert len(block) == BLOCK_BYTES_MAX
    packed, _ = ENTRY._replace(content=bytes(CONTENT_BYTES_MAX)).encode()
    assert decode(packed)[0].content == bytes(CONTENT_BYTES_MAX)


def test_a_lead_is_read_also_with_what_a_later_release_adds_or_an_earlier_one_has_not():
    assert decode_lead(LEAD.encode()) == LEAD
    assert decode_lead(b'{"node":"a","address":"b","lease_us":3}') == Lead("a", "b", 3)
    assert decode_lead(LEAD.encode()[:-1] + b',"more":[1]}') == LEAD
    assert LEAD.format == ENTRY_FORMAT


NO_LEADS = [
    b"",
    b"{",
    b"[]",
    b"1",
    b"{}",
    b'{"node":"a","address":"b"}',
    LEAD._replace(lease_us=0).encode(),
    LEAD._replace(lease_us=True).encode(),
    LEAD._replace(node=1).encode(),
    LEAD._replace(format=1.0).encode(),
]


@all_cases("content", NO_LEADS)
def test_what_says_not_who_leads_is_no_lead(content):
    assert decode_lead(content) is None


@given(st.binary(max_size=50), st.integers(1, 20))
@examples(50)
def test_parts_are_the_whole(content, size_max):
    with patch.object(module, "CONTENT_BYTES_MAX", size_max):
        parts = [*parts_of(content)]
    assert b"".join(part for part, _ in parts) == content
    assert [goes_on for _, goes_on in parts] == [True] * (len(parts) - 1) + [False]
    assert all(len(part) <= size_max for part, _ in parts)


@given(st.text(max_size=20), st.text(max_size=20), st.binary(max_size=50))
def test_a_reload_is_read_as_it_was_written(fingerprint, configuration, records):
    reload = Reload(fingerprint, configuration, records)
    assert decode_reload(reload.encode()) == reload
    for wrong in (b"", b"{}\n", b"[]", b'{"fingerprint":1,"configuration":""}\n', records):
        assert decode_reload(wrong) is None or wrong == records


LEAD_of_chain = Lead("a", "http://a:8080", 1_000_000)


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
        return self.write(EntryKind.LEAD, LEAD_of_chain.encode(), **more)

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
    assert (led.is_valid, led.lead) == (True, LEAD_of_chain)
    assert written.chain.state == ChainState(1, led.hash, 1, 5, LEAD_of_chain)
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
    later = LEAD_of_chain._replace(node="new", format=7)
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
        content = LEAD_of_chain.encode() if kind == EntryKind.LEAD else b"%d;" % len(groups)
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
    assert leads == LEAD_of_chain._replace(fingerprint="other", configuration="its text")
    assert written.chain.settled == written.chain.state
    written.write(EntryKind.RELOAD, b"no reload")
    assert written.chain.state.lead == leads
    written.lead()
    assert written.chain.state.lead == LEAD_of_chain


def test_what_reloads_have_replaced_is_known_until_all_start_under_another_one(written):
    def reload(fingerprint):
        written.write(EntryKind.RELOAD, Reload(fingerprint, "", b"").encode())
        return written.chain.state.replaced

    def lead(fingerprint):
        written.write(EntryKind.LEAD, LEAD_of_chain._replace(fingerprint=fingerprint).encode())
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
