"""Secure files: files and directories that only the server's user can open.

The server decides which records a client may read, not the file system: files are created as 0600
and directories as 0700, so the umask can only remove permissions. Wider permissions, of an older
version or set by hand, are narrowed when a file is opened again; an error reports where that fails.
"""

import logging
import os
import stat
from pathlib import Path
from typing import BinaryIO

log = logging.getLogger("sow")

FILE_MODE = 0o600
"""What is stored is for the server's user alone (docs/security.md)."""
DIRECTORY_MODE = 0o700
"""The same for a directory, which its user has to enter."""
OTHERS = stat.S_IRWXG | stat.S_IRWXO


def make_directory(path: Path) -> None:
    """The directory at `path`, and those above it that are not there yet, for us alone."""
    if path.is_dir():
        close_to_others(path)
        return
    if not path.parent.exists():
        make_directory(path.parent)
    path.mkdir(mode=DIRECTORY_MODE, exist_ok=True)


def open_file(path: Path, flags: int = 0) -> int:
    """A file to read and write, made if it is not there, as a descriptor of the system's."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | flags, FILE_MODE)
    close_to_others(path)
    return descriptor


def rewrite(path: Path) -> BinaryIO:
    """A file to write from its beginning, whatever is there."""
    return os.fdopen(open_file(path, os.O_TRUNC), "wb")


def is_open_to_others(path: Path) -> bool:
    """Whether other users have any right to it."""
    return bool(path.stat().st_mode & OTHERS)


def close_to_others(path: Path) -> bool:
    """Take what rights other users have to a file or directory; True if they had any."""
    if not is_open_to_others(path):
        return False
    try:
        path.chmod(stat.S_IMODE(path.stat().st_mode) & ~OTHERS)
    except OSError as error:
        log.warning("other users can open %s, and that cannot be changed: %s", path, error.strerror)
    return True
