"""A file that a command writes: there as a whole, or not at all.

It is written beside its place and put there in one step when all of it is on the disk. So a command
that ends half leaves nothing that passes for a whole file, and what stood there stays.
"""

import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from sow.core.disk_full import written_whole
from sow.errors import ClientError

STANDARD = "-"
"""What stands for standard input or output in place of a file's name."""


def check_is_new(path: str, force: bool) -> None:
    """Refuse to write over a file that nobody said may go; raises ClientError."""
    if path == STANDARD:
        return
    if Path(path).is_dir():
        raise ClientError(f"{path} is a directory; name a file in it")
    if Path(path).exists() and not force:
        raise ClientError(f"{path} is there already; --force writes over it")


@contextmanager
def new_file(path: str, force: bool = False) -> Iterator[BinaryIO]:
    """The file at `path`, or standard output, to write (`with`); raises ClientError, StoreError
    where the disk has no room for it, OSError."""
    check_is_new(path, force)
    if path == STANDARD:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    unfinished = Path(f"{path}.{secrets.token_hex(4)}.unfinished")
    try:
        with written_whole(path), unfinished.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        check_is_new(path, force)  # another one may have come meanwhile
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
