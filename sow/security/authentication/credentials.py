"""Credentials, as received and as files of users hold them.

Received ones never appear in a log, an error or a traceback.

Three files have one entry a line: users with hashes, groups with names, tokens. They are split into
lines here; `htpasswd` and `tokens` parse the lines. A file is written as a whole under a temporary
name and then renamed: a concurrent reader sees the old or the new one.
"""

import base64
import binascii
import contextlib
import errno
import fcntl
import os
import pwd
import re
import shlex
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from ssl import cert_time_to_seconds
from typing import Self

from sow.core.clock import SECOND_US
from sow.core.security_definitions import User
from sow.errors import ConfigError, Unauthenticated

LONGEST = 16_384
"""Characters of a header, a token or a password. Signed tokens with some hundred groups are about
as long."""


@dataclass(frozen=True, slots=True, repr=False)
class Credentials:
    """A name with a password, or a token, or a certificate that the socket was opened with.

    `certificate` is as `ssl.SSLObject.getpeercert` gives it: it has been verified. Several may be
    present; a token takes precedence, then the password, then the certificate.
    """

    user: str = ""
    password: str = ""
    token: str = ""
    certificate: Mapping[str, object] | None = None

    def __repr__(self) -> str:
        return "Credentials(…)"

    def __bool__(self) -> bool:
        """Whether anything is shown."""
        return bool(self.token or self.user or self.password or self.certificate)

    @classmethod
    def of_header(cls, authorization: str, certificate: Mapping[str, object] | None = None) -> Self:
        """Those of a header ``Authorization``: Bearer or Basic; empty: none.

        Raises Unauthenticated for one that cannot be read.
        """
        if not authorization:
            return cls(certificate=certificate)
        if len(authorization) > LONGEST:
            raise Unauthenticated(f"the header Authorization is longer than {LONGEST} characters")
        scheme, _, rest = authorization.partition(" ")
        rest = rest.strip()
        if scheme.lower() == "bearer" and rest:
            return cls(token=rest, certificate=certificate)
        if scheme.lower() == "basic" and rest:
            user, password = _basic(rest)
            return cls(user=user, password=password, certificate=certificate)
        raise Unauthenticated(
            "the header Authorization is neither `Bearer TOKEN` nor `Basic` with user and password"
        )

    @property
    def header(self) -> str:
        """The header ``Authorization`` that shows the token, or the name with the password; empty
        for neither. Raises Unauthenticated for a token that no header can hold."""
        if self.token:
            if not self.token.isprintable():
                raise Unauthenticated("the token has characters that no token has; copy it again")
            return f"Bearer {self.token}"
        shown = f"{self.user}:{self.password}".encode()
        return f"Basic {base64.b64encode(shown).decode()}" if self.user else ""


def _basic(text: str) -> tuple[str, str]:
    """User and password from base64 of `user:password` (RFC 7617, in UTF-8)."""
    try:
        user, colon, password = base64.b64decode(text, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        colon = ""
    if not colon:
        raise Unauthenticated("the header Authorization: Basic is not base64 of USER:PASSWORD")
    return user, password


def user_of(certificate: Mapping[str, object]) -> User | None:
    """The user of a client certificate that the socket has verified; None without exactly one
    common name. The common name of its subject is the user's name, each organizational unit a
    group. `certificate` is as `ssl.SSLObject.getpeercert` returns it."""
    names: list[str] = []
    groups: list[str] = []
    subject = certificate.get("subject")
    for parts in subject if isinstance(subject, tuple) else ():
        for key, value in parts:
            if key == "commonName":
                names.append(value)
            elif key == "organizationalUnitName":
                groups.append(value)
    if len(names) != 1 or not names[0]:
        return None
    ends = certificate.get("notAfter")
    expires_us = int(cert_time_to_seconds(ends)) * SECOND_US if isinstance(ends, str) else None
    return User(names[0], frozenset(groups), expires_us=expires_us)


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
