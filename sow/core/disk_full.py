"""A full disk: recognised by its errors, and reported by code that leaves nothing half written.

What the server does about a full disk is another matter (`sow.engine.disk_reserve`, `sow.store`).
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from sow.errors import DiskFull, SowError, StoreError

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@contextmanager
def written_whole(path: object) -> Iterator[None]:
    """Raise StoreError that says what to do, where the disk has no room for what is written to
    `path`: as a whole, or not at all."""
    try:
        yield
    except (OSError, SowError) as error:
        if not _is_no_room(error):
            raise
        raise StoreError(
            f"{path}: the disk has no room for all of it, and nothing of it is left there; free "
            "some space, or name a place on another disk"
        ) from error


def _is_no_room(error: BaseException | None) -> bool:
    if error is None or isinstance(error, DiskFull):
        return error is not None
    # LMDB's errors have a code; a StoreError has the original as its cause.
    number = getattr(error, "errno", None) or getattr(error, "code", None)
    return number in NO_ROOM or _is_no_room(error.__cause__)
