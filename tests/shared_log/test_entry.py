"""The envelope: what is written is read, and what is no entry is none."""

import random
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from sow.shared_log import entry as module
from sow.shared_log.entry import (
    CONTENT_BYTES_MAX,
    ENTRY_FORMAT,
    ENVELOPE,
    GENESIS,
    SIZE,
    EntryKind,
    Lead,
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
from sow.shared_log.protocol import BLOCK_BYTES_MAX
from tests.cases import all_cases
from tests.effort import examples

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
