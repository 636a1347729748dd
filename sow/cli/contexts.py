"""Contexts: servers that a user has given names, in `~/.config/sow/contexts.toml`.

A context has an address and, if the server wants credentials, the name of a user or a command that
writes a token. One of them is the current one: commands use it where neither an option nor the
environment says otherwise. Its credentials go to its own address and to no other, wherever the
address of a command comes from. The file holds no secrets, but a command that `sow` runs: only its
owner may write it.

This module reads and writes the file; `sow.cli.options` decides what of it counts.
"""

import json
import os
import re
import stat
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from sow.core.addresses import DEFAULT_PORTS, listed
from sow.errors import ClientError, shown

NAME = re.compile(r"[\w.-]{1,64}", re.ASCII)
"""The name of a context: one word for a shell, and a key of TOML with quotes."""
KEYS_OF_CONTEXT = ("address", "user", "token_command")


class Context(NamedTuple):
    """A server, and who the user is there."""

    address: str
    user: str | None = None
    token_command: str | None = None

    def has(self, url: str) -> bool:
        """Whether all addresses in `url`, separated by commas, are its own."""
        own = {*map(_place, listed(self.address))}
        return {*map(_place, listed(url))} <= own


class Contexts(NamedTuple):
    """The contexts of the file by name, and the name of the current one."""

    current: str | None
    by_name: Mapping[str, Context]

    @property
    def chosen(self) -> Context | None:
        """The current one."""
        return None if self.current is None else self.by_name[self.current]


NONE = Contexts(None, {})


def _place(url: str) -> tuple[object, ...]:
    """An address in its one spelling."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port or DEFAULT_PORTS.get(parts.scheme)
    except ValueError:
        return (url,)
    return parts.scheme, parts.hostname, port, parts.path.rstrip("/")


def file_path() -> Path:
    """The file of this user's contexts."""
    return Path("~/.config/sow/contexts.toml").expanduser()


def read(path: Path) -> Contexts:
    """The contexts of a file, none if it is missing; raises ClientError, with what to mend."""
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            data = file.read()
    except (FileNotFoundError, NotADirectoryError):
        return NONE
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ClientError(
            f"{path} may be written by others, and sow runs commands of it; chmod 600 {path}"
        )
    import tomllib  # few commands find a file

    try:
        found = tomllib.loads(data.decode())
    except ValueError as error:
        raise ClientError(f"{path} is not TOML ({error}); mend it or remove it") from None
    return _checked(path, found)


def _checked(path: Path, found: dict[str, object]) -> Contexts:
    tables = found.get("contexts", {})
    if not isinstance(tables, dict) or not found.keys() <= {"current", "contexts"}:
        raise ClientError(f"{path}: has `current` and [contexts.NAME], nothing else; mend it")
    by_name = {name: _context(path, name, table) for name, table in tables.items()}
    current = found.get("current")
    if current is not None and current not in by_name:
        raise ClientError(
            f"{path}: current is {shown(str(current))}, which is no context there; choose one by "
            "sow use NAME"
        )
    return Contexts(None if current is None else str(current), by_name)


def _context(path: Path, name: str, table: object) -> Context:
    where = f"{path}: context {shown(name)}"
    if not isinstance(table, dict) or "address" not in table:
        raise ClientError(f"{where} has no address; add one, or sow use {name} --address URL")
    for key, value in table.items():
        if key not in KEYS_OF_CONTEXT or not isinstance(value, str):
            raise ClientError(
                f"{where} has texts, {', '.join(KEYS_OF_CONTEXT)}, and not {shown(str(key))}"
            )
    return Context(**table)


def write(path: Path, contexts: Contexts) -> None:
    """Replace the file, in one step and for its owner alone."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Its mode is 0600, whatever the umask.
    handle, beside = tempfile.mkstemp(dir=path.parent, prefix=".contexts-")
    try:
        with open(handle, "w", encoding="utf-8") as file:
            file.write(as_toml(contexts))
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        os.unlink(beside)
        raise


def as_toml(contexts: Contexts) -> str:
    """The text of the file."""
    lines = [] if contexts.current is None else [f"current = {_text(contexts.current)}"]
    for name, context in contexts.by_name.items():
        values = context._asdict().items()
        lines += ["", f"[contexts.{_text(name)}]"]
        lines += [f"{key} = {_text(value)}" for key, value in values if value is not None]
    return "".join(f"{line}\n" for line in lines).lstrip("\n")


def _text(value: str) -> str:
    # A text of JSON is one of TOML, but for a character that `checked` refuses.
    return json.dumps(value, ensure_ascii=False)


def checked(name: str, context: Context) -> None:
    """Raises ClientError for what a file of contexts cannot hold."""
    if not NAME.fullmatch(name):
        raise ClientError(f"{shown(name)} is no name of a context; write letters, digits, . _ -")
    for value in context:
        if value is not None and not value.isprintable():
            raise ClientError(f"{shown(value)} has control characters; write it without")


def token_of(name: str, token_command: str) -> str:
    """What the command of a context writes, run by a shell; raises ClientError if that is no
    token."""
    command = f"the token command of context {name}"
    done = subprocess.run(token_command, shell=True, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        raise ClientError(
            f"{command} failed with exit code {done.returncode}: {shown(token_command)}; run it by "
            "itself, or give another: sow use NAME --address URL --token-command C"
        )
    token = done.stdout.decode(errors="replace").strip()
    if not token or not token.isprintable():
        # What it wrote may hold a secret, and is not shown.
        raise ClientError(f"{command} did not write one line, the token, to its standard output")
    return token
