"""The `newest` file: the last number that was marked, or 0 rather than a wrong one."""

import pytest

from sow.store.high_water_mark import HighWaterMark, read_high_water_mark


@pytest.fixture
def path(tmp_path):
    return tmp_path / "newest"


def test_the_last_mark_is_read(path):
    newest = HighWaterMark(path)
    for seq in (5, 2**40, 7):
        newest.mark(seq)
        assert read_high_water_mark(path) == seq
    newest.close()
    assert read_high_water_mark(path) == 7


def test_without_a_file_there_is_no_mark(path):
    assert read_high_water_mark(path) == 0
    newest = HighWaterMark(path)
    assert read_high_water_mark(path) == 0
    newest.close()


def test_a_truncated_or_changed_file_has_no_number(path):
    newest = HighWaterMark(path)
    newest.mark(0x0102030405060708)
    newest.close()
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        assert read_high_water_mark(path) == 0, length
    for at in range(len(content)):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        assert read_high_water_mark(path) == 0, at


def test_a_mark_that_cannot_be_written_stops_no_commit(path):
    newest = HighWaterMark(path)
    newest.mark(3)
    newest.close()
    newest.mark(4)
    newest.close()
    assert read_high_water_mark(path) == 3
