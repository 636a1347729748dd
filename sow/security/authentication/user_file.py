"""Files of users: their lines, read and written.

Three files have one entry a line: users with hashes, groups with names, tokens. They are split into
lines here; `htpasswd` and `tokens` parse the lines. A file is written as a whole under a temporary
name and then renamed: a concurrent reader sees the old or the new one.
"""

import contextlib
import errno
import fcntl
import os
import pwd
import re
import shlex
import tempfile
from collections.abc import Callable, Iterator

from sow.errors import ConfigError

USER_NAME = re.compile(r"[^\s:,#][^\s:,]*")
NAME_SAID = "a name has no space, ':' or ',', and does not begin with '#'"
LARGEST_BYTES = 64 << 20
"""Half a million users. They are held in memory."""


MADE_BY = {"Users": "sow user add NAME", "Tokens": "sow token create NAME"}


def read(file: str, of: str) -> str:
    """The text of a file that `of` names in the configuration. Raises ConfigError."""
    try:
        if os.path.getsize(file) > LARGEST_BYTES:
            raise ConfigError(f"the file of {of} is over {LARGEST_BYTES >> 20} MiB: {file}")
        with open(file, encoding="utf-8") as opened:
            return opened.read()
    except FileNotFoundError:
        made = f"; `{MADE_BY[of]}` makes it" if of in MADE_BY else ""
        raise ConfigError(f"the file of {of} is not there: {file}{made}") from None
    except OSError as error:
        raise ConfigError(f"the file of {of} cannot be read: {unreadable(file, error)}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"the file of {of} is not text in UTF-8: {file}") from None


def unreadable(file: str, error: OSError) -> str:
    """Why a file cannot be read; for a file of another owner, how to fix that."""
    why = f"{file}: {os.strerror(error.errno or 0).lower()}"
    if error.errno != errno.EACCES:
        return why
    try:
        user = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        user = str(os.geteuid())
    return f"{why} for {user}, the user of the server: chown {user} {shlex.quote(file)}"


def numbered(text: str) -> Iterator[tuple[int, str]]:
    """The lines with entries, numbered from 1; empty lines and comments (#) are skipped."""
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            yield number, stripped


@contextlib.contextmanager
def held(file: str) -> Iterator[None]:
    """Hold a lock against others that change files of the same directory."""
    directory = os.open(os.path.dirname(os.path.realpath(file)), os.O_RDONLY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        yield
    finally:
        os.close(directory)


def edited(text: str, edit: Callable[[str], str | None]) -> str:
    """The text with each entry replaced by the result of `edit`, or removed for None; comments and
    empty lines stay."""
    kept: list[str] = []
    for line in text.splitlines():
        said = line.strip()
        changed = line if not said or said.startswith("#") else edit(said)
        if changed is not None:
            kept.append(changed)
    return "".join(f"{line}\n" for line in kept)


def replace(file: str, text: str) -> None:
    """Write a file as a whole; a new one is readable by its owner alone, an existing one keeps its
    mode.

    The target of a link is written. The file keeps its owner: an administrator who adds a user must
    not lock the server out.
    """
    file = os.path.realpath(file)
    directory = os.path.dirname(file)
    handle, beside = tempfile.mkstemp(prefix=os.path.basename(file) + ".", dir=directory)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as opened:
            opened.write(text)
            opened.flush()
            os.fsync(opened.fileno())
        with contextlib.suppress(FileNotFoundError):
            was = os.stat(file)
            if (was.st_uid, was.st_gid) != (os.geteuid(), os.getegid()):
                with contextlib.suppress(PermissionError):
                    os.chown(beside, was.st_uid, was.st_gid)
            os.chmod(beside, was.st_mode & 0o777)
        os.replace(beside, file)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(beside)
        raise
