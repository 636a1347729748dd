"""Static tokens: secrets of programs, stored only as digests.

A line is `NAME SHA-256 [group,…] [expires]`. A token is random and long, so a plain digest cannot
be reversed, and is found by a lookup; its timing reveals nothing, since a digest cannot be chosen.
"""

import hashlib
import os
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from sow.core.security_definitions import User
from sow.errors import ConfigError, clipped
from sow.security.authentication import credentials
from sow.security.authentication.credentials import NAME_SAID, USER_NAME

PREFIX = "sow_"
"""The prefix by which secret scanners recognise a token."""
TOKEN_BYTES = 32
"""256 random bits: a token cannot be guessed."""
SUM = re.compile(r"[0-9a-fA-F]{64}")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z", re.ASCII)
DAY = re.compile(r"\d{4}-\d", re.ASCII)
"""How a time begins, also one that is cut off."""
TIME_SAID = "a time in UTC such as 2027-01-31T00:00:00Z"


@dataclass(frozen=True, slots=True)
class TokenLine:
    """A line of the file: the holder of a token, and its expiry."""

    name: str
    sum: str
    groups: tuple[str, ...] = ()
    expires: str = ""

    def __str__(self) -> str:
        groups = ",".join(self.groups)
        return " ".join(part for part in (self.name, self.sum, groups, self.expires) if part)

    def user(self) -> User:
        """The user that it names."""
        expires_us = time_us(self.expires) if self.expires else None
        return User(self.name, frozenset(self.groups), expires_us=expires_us)


class Tokens:
    """Users by the sums of their tokens."""

    def __init__(self, users: Mapping[str, User]) -> None:
        self._users = users

    @classmethod
    def read(cls, file: str) -> "Tokens":
        """Those of a file. Raises ConfigError with the line."""
        return cls({line.sum: line.user() for line in read_lines(file)})

    def user(self, token: str) -> User | None:
        """The user of a token, expired or not."""
        return self._users.get(sum_of(token))

    def groups(self, name: str) -> frozenset[str]:
        """The groups of all tokens of a name."""
        named = (user.groups for user in self._users.values() if user.name == name)
        return frozenset[str]().union(*named)


def sum_of(token: str) -> str:
    """The digest of a token."""
    return hashlib.sha256(token.encode(errors="surrogatepass")).hexdigest()


def new_token() -> str:
    """A new random token."""
    return PREFIX + secrets.token_urlsafe(TOKEN_BYTES)


def read_lines(file: str) -> list[TokenLine]:
    """The lines of a file. Raises ConfigError with the number of an invalid one."""
    found: dict[str, TokenLine] = {}
    for number, text in credentials.numbered(credentials.read(file, "Tokens")):
        try:
            line = _line(text)
        except ValueError as error:
            raise ConfigError(f"line {number} of {file}: {error}") from None
        if line.sum in found:
            raise ConfigError(
                f"line {number} of {file} has the token of {clipped(found[line.sum].name)} for a "
                "second time"
            )
        found[line.sum] = line
    return [*found.values()]


def create(file: str, name: str, groups: Sequence[str], expires: str) -> str:
    """Create a token and append its line to a file, which may be new. `expires` is as in a line, or
    empty. Raises ConfigError, ValueError for an invalid name, group or expiry.
    """
    for one in (name, *groups):
        if not USER_NAME.fullmatch(one):
            raise ValueError(f"{clipped(one)!r} cannot be a name here: {NAME_SAID}")
    token = new_token()
    line = TokenLine(name, sum_of(token), tuple(groups), expires)
    if _line(str(line)) != line:
        raise ValueError("such groups would be read as the end of the token")
    with credentials.held(file):
        text = ""
        if os.path.exists(file):
            read_lines(file)
            text = credentials.edited(credentials.read(file, "Tokens"), str)
        credentials.replace(file, f"{text}{line}\n")
    return token


def remove(file: str, name: str) -> int:
    """Take the tokens of this name out of a file; returns how many there were.

    Raises ConfigError.
    """
    with credentials.held(file):
        found = sum(line.name == name for line in read_lines(file))
        if found:
            text = credentials.read(file, "Tokens")
            kept = credentials.edited(text, lambda line: None if line.split()[0] == name else line)
            credentials.replace(file, kept)
    return found


def time_us(text: str) -> int:
    """A time such as 2027-01-31T00:00:00Z in microseconds since 1970. Raises ValueError."""
    if not TIME.fullmatch(text):
        raise ValueError(f"{clipped(text)} is not {TIME_SAID}")
    try:
        moment = datetime.fromisoformat(text.removesuffix("Z")).replace(tzinfo=UTC)
    except ValueError:
        raise ValueError(f"{text} is no day or time that there is") from None
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _line(text: str) -> TokenLine:
    name, *rest = text.split()
    if not rest or not USER_NAME.fullmatch(name):
        raise ValueError(f"write NAME SHA-256 [group,…] [expires]; {NAME_SAID}")
    kept, *rest = rest
    if not SUM.fullmatch(kept):
        raise ValueError(
            f"after {clipped(name)} write the SHA-256 of the token in 64 hexadecimal digits, "
            "never the token itself; `sow token create` writes such a line"
        )
    groups: list[str] = []
    expires = ""
    for part in rest:
        if expires:
            raise ValueError(f"{clipped(part)} stands after the end, which is the last")
        if DAY.match(part) or (part[:1].isdigit() and "T" in part):
            # As a group, a day would be a token that never ends.
            time_us(part)
            expires = part
        elif groups:
            raise ValueError(f"{clipped(part)} is not {TIME_SAID}")
        else:
            groups = [group for group in part.split(",") if group]
    return TokenLine(name, kept.lower(), tuple(groups), expires)
