"""What is said where a disk has no room for a whole file."""

import errno

import pytest

from sow.core.disk_full import written_whole
from sow.errors import Damaged, DiskFull, StoreError


class OfLmdb(Exception):
    code = errno.ENOSPC


def sent_as_cause():
    try:
        raise OfLmdb
    except OfLmdb as error:
        raise StoreError("x cannot be opened") from error


def raising(error):
    raise error


FULL = [
    lambda: raising(OSError(errno.ENOSPC, "No space left on device")),
    lambda: raising(OSError(errno.EDQUOT, "Disk quota exceeded")),
    lambda: raising(DiskFull("nothing of the request is acknowledged")),
    sent_as_cause,
]


@pytest.mark.parametrize("write", FULL)
def test_a_full_disk_is_said_with_the_place_and_what_to_do(write):
    with pytest.raises(StoreError, match="nothing of it is") as raised, written_whole("backups/a"):
        write()
    assert str(raised.value).startswith("backups/a: the disk has no room")


@pytest.mark.parametrize(
    "error", [OSError(errno.EACCES, "no"), ConnectionResetError(), Damaged("x"), ValueError()]
)
def test_anything_else_is_what_it_is(error):
    with pytest.raises(type(error)) as raised, written_whole("backups/a"):
        raise error
    assert raised.value is error
