"""Files of users: their lines, read and written.

Three files have a thing of each line: users with hashes, groups with names, tokens. They are read
here up to the line; what stands in it is the business of `htpasswd` and `tokens`. They are written
as a whole, beside, and then moved to their place: whoever reads at that time sees the old or the
new.
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
    """Why a file cannot be read; of one that is for somebody else alone, how that is mended."""
    why = f"{file}: {os.strerror(error.errno or 0).lower()}"
    if error.errno != errno.EACCES:
        return why
    try:
        user = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        user = str(os.geteuid())
    return f"{why} for {user}, as whom the server runs: chown {user} {shlex.quote(file)}"


def numbered(text: str) -> Iterator[tuple[int, str]]:
    """Lines that say something, from 1; those that are empty or begin with # say nothing."""
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            yield number, stripped


@contextlib.contextmanager
def held(file: str) -> Iterator[None]:
    """Keep others who ask for the same from changing files beside this one meanwhile."""
    directory = os.open(os.path.dirname(os.path.realpath(file)), os.O_RDONLY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        yield
    finally:
        os.close(directory)


def edited(text: str, edit: Callable[[str], str | None]) -> str:
    """The text with each line that says something as `edit` has it, or without it: None; comments
    and empty lines stay."""
    kept: list[str] = []
    for line in text.splitlines():
        said = line.strip()
        changed = line if not said or said.startswith("#") else edit(said)
        if changed is not None:
            kept.append(changed)
    return "".join(f"{line}\n" for line in kept)


def replace(file: str, text: str) -> None:
    """Write a file as a whole; it can be read by its owner alone, or by whom it could before.

    Where it is a link, what that leads to is written. It stays its owner's: an administrator who
    adds a user is not to take the file away from the server.
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
