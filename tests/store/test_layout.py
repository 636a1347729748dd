from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.store.layout import (
    GROUP,
    RECORD_BYTES_MIN,
    SLICE,
    decode_entries,
    decode_slice,
    encode_entries,
    encode_slice,
    seal,
    split,
    unseal,
)
from sow.store.protocols import EventOrigin, LogEntry, numbers, part_of
from tests.store.entries import entry_lists, group, publish, records, slices


def sealed(entries):
    return seal(GROUP, encode_entries(entries), seq=1, count=1)[0]


@given(entry_lists())
def test_entries_come_back_as_they_were(entries):
    assert records(decode_entries(sealed(entries))) == records(entries)


@given(entry_lists())
def test_decoding_keeps_how_entries_were_cut(entries):
    assert [len(e) for e in decode_entries(sealed(entries))] == [len(e) for e in entries]


@given(entry_lists())
def test_an_entry_that_keeps_its_bytes_is_written_as_it_was_read(entries):
    block = sealed(entries)
    kept = [*decode_entries(block, keeps=True)]
    assert kept == [*decode_entries(block)]
    assert encode_entries(kept) == encode_entries(entries)
    for one in kept:
        one.topic = "none of this is looked at"
    assert encode_entries(kept) == encode_entries(entries)


def test_what_is_made_of_an_entry_has_bytes_of_its_own():
    (kept,) = decode_entries(sealed([publish(1, b"x", b"yy")]), keeps=True)
    for made in (part_of(kept, 1, 2), replace(kept, seq=5)):
        (found,) = decode_entries(sealed([made]))
        assert (found.seq, found.bodies) == (made.seq, made.bodies)


@given(slices())
def test_a_slice_comes_back_as_it_was(part):
    assert decode_slice(seal(SLICE, encode_slice(part), seq=1, count=0)[0]) == part


@given(slices())
def test_sow_keys_stand_where_an_earlier_release_does_not_look(part):
    earlier = encode_slice(replace(part, sow_keys=None))
    assert encode_slice(part).startswith(earlier)
    assert len(encode_slice(part)) - len(earlier) == 8 * len(part.sow_keys or ())


def test_times_of_each_record_stand_where_an_earlier_release_does_not_look():
    entry = publish(1, b"x", b"yy", topic="of-its-own")
    plain, timed = encode_entries([entry]), encode_entries([replace(entry, expires_us=[7, 8])])
    found = plain[plain.index(b"of-its-own") :]
    assert timed[timed.index(b"of-its-own") :] == found + numbers([7, 8]).tobytes()


def test_an_edit_comes_back_with_its_author_and_its_event():
    origin = EventOrigin("ann", 2**40)
    entry = LogEntry("edit", "prices", 9, 1, ["k"], [b"x"], origin=origin)
    (found,) = decode_entries(sealed([entry]))
    assert (found.op, found.origin, len(found)) == ("edit", origin, 1)
    assert (found.identities, found.bodies, found.expires_us) == (["k"], [b"x"], 0)


@pytest.mark.parametrize("op", ["publish", "delete"])
@pytest.mark.parametrize("identities", [None, ["k", "\u00e9"]])
def test_an_entry_comes_back_with_its_turn(op, identities):
    """Behind its identities, where earlier releases do not read."""
    if op == "delete" and identities is None:
        identities = ["one"]
    bodies = [b"x", b"yz"] if op == "publish" else []
    entry = LogEntry(op, "prices", 9, 1, identities, bodies, turn=2**40)
    plain = replace(entry, turn=0)
    found = [*decode_entries(sealed([entry, replace(plain, seq=9 + len(entry))]))]
    assert [one.turn for one in found] == [2**40, 0]
    assert [(one.identities, one.bodies) for one in found] == [(identities, bodies)] * 2
    assert len(encode_entries([entry])) - len(encode_entries([plain])) == 16


@given(entry_lists(), st.integers(1, 100))
def test_splitting_changes_no_record(entries, bytes_max):
    pieces = [e for group in split(entries, bytes_max) for e in group]
    assert records(pieces) == records(entries)


@given(entry_lists(), st.integers(1, 100))
def test_no_group_is_over_the_bound_unless_it_is_one_record(entries, bytes_max):
    for pieces in split(entries, bytes_max):
        size = sum(sum(map(len, e.bodies)) + sum(map(len, e.identities or ())) for e in pieces)
        assert size <= bytes_max or sum(map(len, pieces)) == 1


def test_a_record_of_a_few_bytes_counts_as_more():
    (entries,) = ([publish(1, *[b"{}"] * 1000)],)
    groups = list(split(entries, 10 * RECORD_BYTES_MIN))
    assert [len(entry) for (entry,) in groups] == [10] * 100


def test_an_entry_of_a_few_bytes_counts_as_more():
    entries = [publish(number, b"{}") for number in range(1, 101)]
    groups = split(entries, 10 * RECORD_BYTES_MIN)
    assert [len(group) for group in groups] == [10] * 10


@given(entry_lists(), st.integers(0, 40))
def test_entries_before_a_record_are_passed_over(entries, after_seq):
    found = records(decode_entries(sealed(entries), after_seq))
    wanted = [entry for entry in entries if entry.seq + len(entry) - 1 > after_seq]
    assert found == records(wanted)


def test_adjacent_surrogates_stay_apart():
    entries = [publish(1, b"x", b"y")]
    entries[0].identities = ["\ud83d", "\ude00"]
    (back,) = decode_entries(sealed(entries))
    assert back.identities == ["\ud83d", "\ude00"]


def test_line_breaks_are_characters_like_any_other():
    entries = [publish(1, b"\r\nx", b"\r", b"")]
    entries[0].identities = ["\r\na", "\n\r", "\u2028"]
    (back,) = decode_entries(sealed(entries))
    assert back.identities == ["\r\na", "\n\r", "\u2028"]
    assert back.bodies == [b"\r\nx", b"\r", b""]


@given(st.integers(0), st.integers(1, 255))
def test_any_changed_byte_is_noticed(position, change):
    block = bytearray(sealed(group(1, 3)))
    block[position % len(block)] ^= change
    with pytest.raises(ValueError, match=r"block|checksum"):
        unseal(bytes(block), GROUP)


@given(st.integers(0, 10_000))
def test_a_shortened_block_is_noticed(length):
    block = sealed(group(1, 3))
    with pytest.raises(ValueError, match="block"):
        unseal(block[: length % len(block)], GROUP)


def test_a_block_of_another_kind_is_refused():
    with pytest.raises(ValueError, match="kind 1 stands where 3"):
        unseal(sealed(group(1, 3)), SLICE)
