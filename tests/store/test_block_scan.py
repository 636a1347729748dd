"""Whole blocks are found in raw bytes wherever they lie, and those that follow each other put
together."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.store.block_scan import holds, read_blocks, scan, unbroken_run
from sow.store.layout import ACCOUNT, BASE, GROUP, encode_entries, seal
from tests.store.entries import group


def sealed(seq, count, chain=0, kind=GROUP):
    """A block, and its checksum."""
    return seal(kind, encode_entries(group(seq, count)), seq=seq, count=count, chain=chain)


def chained(*counts):
    """Blocks of groups, each of which is the next of the one before."""
    blocks, seq, chain = [], 1, 0
    for count in counts:
        block, chain = sealed(seq, count, chain)
        blocks.append(block)
        seq += count
    return blocks


@given(st.lists(st.binary(max_size=60), min_size=4, max_size=4))
def test_blocks_are_found_whatever_lies_around_them(tmp_path_factory, between):
    file = tmp_path_factory.getbasetemp() / "found"
    blocks = chained(3, 1, 2)
    file.write_bytes(
        b"".join(x for pair in zip(between, [*blocks, b""], strict=True) for x in pair)
    )
    found = list(scan(file))
    assert [(header.seq, header.last_seq) for header, _ in found] == [(1, 3), (4, 4), (5, 6)]
    assert [block for _, block in read_blocks(file, found)] == blocks


@pytest.mark.parametrize(
    "harm", [lambda b: b[:-1], lambda b: b[:40] + b"?" + b[41:], lambda b: b[1:]]
)
def test_what_is_not_whole_is_passed_over(tmp_path, harm):
    first, second = chained(2, 2)
    (tmp_path / "f").write_bytes(harm(first) + second)
    assert [header.seq for header, _ in scan(tmp_path / "f")] == [3]


def test_a_file_without_any_has_none(tmp_path):
    (tmp_path / "empty").touch()
    for name in ("none", "empty"):
        assert list(scan(tmp_path / name)) == []
        assert list(read_blocks(tmp_path / name, [])) == []


def test_a_file_holds_blocks_of_some_kinds(tmp_path):
    (tmp_path / "f").write_bytes(sealed(1, 1)[0])
    assert holds(tmp_path / "f", BASE, GROUP)
    assert not holds(tmp_path / "f", BASE, ACCOUNT)


def spans(run):
    return [(header.seq, header.last_seq) for header, _ in run]


def test_a_run_is_what_connects_with_the_record_that_is_wanted(tmp_path):
    blocks = chained(2, 2, 2, 2)
    (tmp_path / "f").write_bytes(b"".join([blocks[3], blocks[0], blocks[1]]))
    groups = list(scan(tmp_path / "f"))
    assert spans(unbroken_run(groups, 0)) == [(1, 2), (3, 4)]
    assert spans(unbroken_run(groups, 4)) == [(1, 2), (3, 4)], "what touches it is enough"
    assert spans(unbroken_run(groups, 5)) == []
    assert spans(unbroken_run(groups, 6)) == [(7, 8)]


def test_of_two_that_begin_alike_the_one_that_goes_on_is_taken(tmp_path):
    first, second = chained(2, 2)
    stale = sealed(1, 2, chain=7)[0]
    for order in ([stale, first, second], [second, first, stale]):
        (tmp_path / "f").write_bytes(b"".join(order))
        run = unbroken_run(list(scan(tmp_path / "f")), 0)
        assert [block for _, block in read_blocks(tmp_path / "f", run)] == [first, second]
