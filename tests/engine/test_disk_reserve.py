"""DiskReserve: what may be taken when the disk is full, or refuses."""

import pytest

from sow.engine.disk_reserve import DiskReserve
from sow.engine.wal import CommitSequencer
from sow.errors import DiskFull, StoreError, StoreFailing
from sow.store.protocols import LogEntry


class Disk:
    """A disk that is full or not, with a reserve."""

    def __init__(self):
        self.is_full, self.reserve_bytes, self.lost = False, 10, None
        self.ledger = CommitSequencer()
        self.room = DiskReserve(
            self.ledger,
            lambda _size_bytes: not self.is_full,
            lambda size_bytes: size_bytes <= self.reserve_bytes,
            lambda: self.lost,
        )


@pytest.fixture
def disk():
    return Disk()


def test_a_full_disk_takes_no_messages_but_what_fits_into_its_reserve(disk):
    disk.room.check()
    disk.is_full = True
    with pytest.raises(DiskFull, match="nothing was stored"):
        disk.room.check()
    disk.room.check_reserve(lambda: 10)
    with pytest.raises(DiskFull, match="and so is its reserve"):
        disk.room.check_reserve(lambda: 11)


def test_a_disk_that_has_lost_what_it_had_is_not_called_full(disk):
    disk.is_full, disk.lost = True, StoreFailing("it has gone")
    for check in (
        disk.room.check,
        lambda: disk.room.check_whole(1),
        lambda: disk.room.check_reserve(lambda: 11),
    ):
        with pytest.raises(StoreFailing, match="it has gone"):
            check()


def test_what_is_on_its_way_has_its_part_of_the_reserve(disk):
    disk.is_full = True
    disk.ledger.write(LogEntry("delete", "t", 1, 0, ["four"], ()))
    disk.room.check_reserve(lambda: 6)
    with pytest.raises(DiskFull):
        disk.room.check_reserve(lambda: 7)


def test_the_size_is_only_requested_for_on_a_full_disk(disk):
    disk.room.check_reserve(lambda: pytest.fail("asked"))


def test_a_removal_takes_the_bytes_of_its_identities(disk):
    disk.is_full = True
    disk.room.check_removal(["äöü", "four"])
    with pytest.raises(DiskFull):
        disk.room.check_removal(["äöü", "fives"])


def test_while_the_disk_refuses_nothing_is_taken(disk):
    failure = StoreError("the disk is on fire")
    disk.room.fail(failure)
    assert disk.room.failure is failure
    for ask in (disk.room.check, lambda: disk.room.check_removal(["a"])):
        with pytest.raises(StoreError, match="on fire"):
            ask()
    disk.room.recover()
    disk.room.check()
    disk.room.check_removal(["a"])
    assert disk.room.failure is None
