"""Atomic output files: a command writes a whole file or none.

The data goes to a temporary file in the same directory, which is renamed when everything is on the
disk. A command that is interrupted leaves no partial file, and an older file stays as it was.
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
"""Stands for standard input or output in place of a file name."""


def check_is_new(path: str, force: bool) -> None:
    """Refuse to overwrite a file unless `force` allows it; raises ClientError."""
    if path == STANDARD:
        return
    if Path(path).is_dir():
        raise ClientError(f"{path} is a directory; name a file in it")
    if Path(path).exists() and not force:
        raise ClientError(f"{path} is there already; --force writes over it")


@contextmanager
def new_file(path: str, force: bool = False) -> Iterator[BinaryIO]:
    """The file at `path`, or standard output, for writing (`with`); raises ClientError, StoreError
    if the disk is full, OSError."""
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
        check_is_new(path, force)  # another process may have created it meanwhile
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
