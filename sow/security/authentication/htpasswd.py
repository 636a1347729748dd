"""Names and passwords, as Apache's htpasswd keeps them: `NAME:HASH` in each line.

The hash is bcrypt's or argon2's: both are made to be slow, so that a stolen file does not give the
passwords away. What htpasswd can write besides (MD5, SHA-1, crypt) is refused, since it does.
Groups are in a separate file beside it: `GROUP: NAME NAME`. A check takes the same work for every
name, also an unknown one: a hash of each kind in the file.
"""

import os
import re
from collections.abc import Mapping, Sequence

import argon2
import bcrypt

from sow.errors import ConfigError, clipped
from sow.security.authentication import credentials
from sow.security.authentication.credentials import NAME_SAID, USER_NAME

GROUPS_SUFFIX = ".groups"
BCRYPT = re.compile(r"\$2[abxy]\$(?P<cost>\d\d)\$[./A-Za-z0-9]{53}", re.ASCII)
BCRYPT_COST_MAX = 15
"""Takes some seconds. Twice as much with each further one, so that 31 takes a day."""
BCRYPT_BYTES = 72
"""Of a password bcrypt looks at no more; htpasswd cuts there."""
ARGON2_MEMORY_MAX_KIB = 1 << 20
"""Beyond a GiB one logon takes the memory of the server."""
ARGON2_TIME_MAX = 32
"""Beyond this one logon takes seconds."""
HASHER = argon2.PasswordHasher(time_cost=2, memory_cost=19_456, parallelism=1)
"""What OWASP recommends at the least: 20 ms and 19 MiB."""


class Users:
    """Hashes by name, and groups by name."""

    def __init__(self, hashes: Mapping[str, str], groups: Mapping[str, frozenset[str]]) -> None:
        self.hashes = hashes
        self._groups = groups
        kinds = {_kind_of(kept): kept for kept in hashes.values()}
        self._dummies = kinds or {"": HASHER.hash("")}
        """A hash of each kind, for users without one of it."""

    @classmethod
    def read(cls, file: str) -> "Users":
        """Those of a file, with the groups of the file beside. Raises ConfigError."""
        return cls(read_hashes(file), _of_names(read_groups(file)))

    def groups(self, name: str) -> frozenset[str]:
        """The groups of a user."""
        return self._groups.get(name, frozenset())

    def is_password(self, name: str, password: str) -> bool:
        """Whether it is this user's password. Slow, and equally slow for an unknown user, or one
        with a hash of another kind."""
        kept = self.hashes.get(name)
        dummies = self._dummies if kept is None else self._dummies | {_kind_of(kept): kept}
        found = [one for one in dummies.values() if matches(one, password)]
        return kept in found


def groups_file(file: str) -> str:
    """The file of groups of a file of users: users.htpasswd has users.groups."""
    stem, dot, suffix = file.rpartition(".")
    return (stem if dot and "/" not in suffix else file) + GROUPS_SUFFIX


def read_hashes(file: str) -> dict[str, str]:
    """Names and hashes of a file, in its order. Raises ConfigError with the line."""
    found: dict[str, str] = {}
    for number, line in credentials.numbered(credentials.read(file, "Users")):
        name, colon, kept = line.partition(":")
        if not colon or not USER_NAME.fullmatch(name):
            raise ConfigError(f"line {number} of {file} is not NAME:HASH; {NAME_SAID}")
        if name in found:
            raise ConfigError(f"line {number} of {file} names {clipped(name)} for a second time")
        if wrong := _wrong_of(kept):
            raise ConfigError(
                f"line {number} of {file}: the password of {clipped(name)} {wrong}; create "
                f"it again with `sow user add {clipped(name)}` or `htpasswd -B`"
            )
        found[name] = kept
    return found


def read_groups(file: str) -> dict[str, list[str]]:
    """Names by group, of the file beside a file of users; none if there is no such file."""
    beside = groups_file(file)
    if not os.path.exists(beside):
        return {}
    found: dict[str, list[str]] = {}
    for number, line in credentials.numbered(credentials.read(beside, "groups")):
        group, colon, names = line.partition(":")
        if not colon or not USER_NAME.fullmatch(group.strip()):
            raise ConfigError(f"line {number} of {beside} is not `GROUP: NAME NAME`; {NAME_SAID}")
        found.setdefault(group.strip(), []).extend(names.split())
    return found


def put(file: str, name: str, password: str, groups: Sequence[str] | None = None) -> bool:
    """Give a user a password, in a file that may be new, and put him into exactly these groups;
    None: those he is in. Returns whether he was there. Raises ConfigError, ValueError for names
    that cannot be, or no password.
    """
    for one in (name, *(groups or ())):
        if not USER_NAME.fullmatch(one):
            raise ValueError(f"{clipped(one)!r} cannot be a name here: {NAME_SAID}")
    if not password:
        raise ValueError("the password is empty")
    line = f"{name}:{hashed(password)}"
    with credentials.held(file):
        text, there = "", False
        if os.path.exists(file):
            there = name in read_hashes(file)
            text = credentials.read(file, "Users")
        text = credentials.edited(text, lambda old: line if _names(old, name) else old)
        credentials.replace(file, text if there else f"{text}{line}\n")
        if groups is not None:
            _put_groups(file, name, groups)
    return there


def remove(file: str, name: str) -> bool:
    """Take a user out of a file, and out of his groups; whether he was there.

    Raises ConfigError.
    """
    with credentials.held(file):
        there = name in read_hashes(file)
        if there:
            text = credentials.read(file, "Users")
            credentials.replace(
                file, credentials.edited(text, lambda old: None if _names(old, name) else old)
            )
            _put_groups(file, name, ())
    return there


def _names(line: str, name: str) -> bool:
    return line.partition(":")[0] == name


def _put_groups(file: str, name: str, groups: Sequence[str]) -> None:
    """Put a user into exactly these groups. Groups without members are removed."""
    members = read_groups(file)
    beside = groups_file(file)
    wanted = dict.fromkeys(groups)

    def edit(line: str) -> str | None:
        group = line.partition(":")[0].strip()
        names = [one for one in line.partition(":")[2].split() if one != name]
        if group in wanted:
            del wanted[group]
            names.append(name)
        return f"{group}: {' '.join(names)}" if names else None

    text = credentials.edited(credentials.read(beside, "groups"), edit) if members else ""
    text += "".join(f"{group}: {name}\n" for group in wanted)
    if members or text:
        credentials.replace(beside, text)


def matches(kept: str, password: str) -> bool:
    """Whether a password is the one that a hash was made of. Slow."""
    secret = password.encode(errors="surrogatepass")
    try:
        if kept.startswith("$2"):
            return bcrypt.checkpw(secret[:BCRYPT_BYTES], kept.encode())
        return HASHER.verify(kept, secret)
    except (ValueError, argon2.exceptions.VerificationError, argon2.exceptions.InvalidHashError):
        return False


def _kind_of(kept: str) -> str:
    """What checking a hash costs: its algorithm and that one's parameters."""
    return kept[4:6] if kept.startswith("$2") else kept.rsplit("$", 2)[0]


def hashed(password: str) -> str:
    """The hash to keep of a password."""
    return HASHER.hash(password)


def _wrong_of(kept: str) -> str:
    """What is wrong with a hash; empty: nothing."""
    if found := BCRYPT.fullmatch(kept):
        return "" if int(found["cost"]) <= BCRYPT_COST_MAX else "takes too long to check"
    if not kept.startswith("$argon2"):
        return "is kept in a form that can be guessed back, or none: neither bcrypt nor argon2"
    try:
        parameters = argon2.extract_parameters(kept)
    except argon2.exceptions.InvalidHashError:
        return "is no hash of argon2"
    if parameters.memory_cost > ARGON2_MEMORY_MAX_KIB or parameters.time_cost > ARGON2_TIME_MAX:
        return "takes too long to check"
    return ""


def _of_names(groups: Mapping[str, list[str]]) -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for group, names in groups.items():
        for name in names:
            found.setdefault(name, set()).add(group)
    return {name: frozenset(of) for name, of in found.items()}
