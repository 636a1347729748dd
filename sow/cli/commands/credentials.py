"""`sow user` and `sow token`: credentials, in the files that the configuration names, or in --file.

A token is shown once, when it is created: the file holds its hash. `sow reload` applies changes to
a running server.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import Any

import click

from sow.cli.options import example, json_option, variables_option
from sow.cli.output import show
from sow.config import require
from sow.config.diagnostics import MistakeError
from sow.config.value_types import duration_us
from sow.errors import ClientError, clipped
from sow.security.authentication import htpasswd, tokens


def config_options(field: str, element: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Passes a command the file in `field` of Authentication, whose element is `element`."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def found(
            config: str, variables: dict[str, str], file: str | None, *given: Any, **named: Any
        ) -> Any:
            return command(*given, file=file or _file(config, variables, field, element), **named)

        with_file = click.option(
            "--file", type=click.Path(), help="The file, instead of the configuration's."
        )
        with_config = click.option(
            "--config",
            default="config.xml",
            show_default=True,
            type=click.Path(),
            help="The configuration that names the file.",
        )
        return with_config(variables_option(with_file(found)))

    return decorate


def _file(config: str, variables: dict[str, str], field: str, element: str) -> str:
    security = require(config, variables, os.environ).security
    file = str(getattr(security.authentication, field, ""))
    if not file:
        raise ClientError(
            f"{config} names no file of {element}: add <{element}><File>…</File></{element}> to "
            "Authentication in Security, or give --file"
        )
    return file


def file_named(file: str, name: str) -> ClientError:
    """The error for a name that is not in a file."""
    return ClientError(f"{file} has no {clipped(name)}")


@contextmanager
def refused() -> Iterator[None]:
    """Report an invalid value as a mistake of the user's."""
    try:
        yield
    except ValueError as error:
        raise ClientError(str(error)) from None


@click.group(epilog=example("sow user add ann --group desk", "sow user list"))
def user() -> None:
    """Add, remove and list users and their passwords."""


@user.command("add", epilog=example("sow user add ann --group desk"))
@click.argument("name")
@click.option(
    "--group",
    "groups",
    multiple=True,
    metavar="GROUP",
    help="A group of the user, in place of earlier ones; repeated.",
)
@config_options("users_file", "Users")
def add(name: str, groups: tuple[str, ...], file: str) -> None:
    """Add a user, or change a user's password; prompts for it."""
    with refused():
        there = htpasswd.put(file, name, _password(name), list(groups) or None)
    click.echo(f"{file}: {name} {'has another password' if there else 'was added'}", err=True)


@user.command("remove", epilog=example("sow user remove ann"))
@click.argument("name")
@config_options("users_file", "Users")
def remove_user(name: str, file: str) -> None:
    """Remove a user from the file and from all groups."""
    if not htpasswd.remove(file, name):
        raise file_named(file, name)
    click.echo(f"{file}: {name} was removed", err=True)


@user.command("list", epilog=example("sow user list --config desk.xml"))
@config_options("users_file", "Users")
@json_option
def list_users(file: str) -> None:
    """List the users and their groups."""
    users = htpasswd.Users.read(file)
    found = [{"name": name, "groups": sorted(users.groups(name))} for name in users.hashes]
    _show(found)


def _password(name: str) -> str:
    """A password that a user types twice, or a program writes once."""
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\r\n")
    typed: str = click.prompt(
        f"Password of {name}", hide_input=True, confirmation_prompt=True, err=True
    )
    return typed


@click.group(epilog=example("sow token create feed --expires 90d", "sow token list"))
def token() -> None:
    """Create, remove and list tokens."""


@token.command("create", epilog=example("sow token create feed --group feeds --expires 90d"))
@click.argument("name")
@click.option("--group", "groups", multiple=True, metavar="GROUP", help="A group; repeated.")
@click.option(
    "--expires",
    default="",
    metavar="WHEN",
    help="Lifetime, such as 90d, or end, such as 2027-01-31T00:00:00Z.",
)
@config_options("tokens_file", "Tokens")
def create(name: str, groups: tuple[str, ...], expires: str, file: str) -> None:
    """Create a token for NAME and write it to stdout, only once."""
    with refused():
        made = tokens.create(file, name, groups, expires and _time(expires))
    of = f"of {', '.join(groups)}" if groups else "of no group; add groups by --group"
    click.echo(f"{file}: a token of {name} was added, {of}", err=True)
    click.echo(made)


@token.command("remove", epilog=example("sow token remove feed"))
@click.argument("name")
@config_options("tokens_file", "Tokens")
def remove_tokens(name: str, file: str) -> None:
    """Take all tokens of NAME out of the file."""
    found = tokens.remove(file, name)
    if not found:
        raise file_named(file, name)
    click.echo(f"{file}: {found} of {name} removed", err=True)


@token.command("list", epilog=example("sow token list --json"))
@config_options("tokens_file", "Tokens")
@json_option
def list_tokens(file: str) -> None:
    """List users with tokens, their groups, and when the tokens expire."""
    _show(
        [
            {"name": one.name, "groups": one.groups, "expires": one.expires or None}
            for one in tokens.read_lines(file)
        ]
    )


def _show(found: list[dict[str, Any]]) -> None:
    """Write users or tokens, one per line."""
    lines = [
        " ".join(filter(None, (one["name"], ",".join(one["groups"]), one.get("expires"))))
        for one in found
    ]
    show(found, lines)


def _time(text: str) -> str:
    """When a token expires, as its line has it."""
    if "T" in text:
        tokens.time_us(text)
        return text
    try:
        us = duration_us(text)
    except MistakeError:
        raise ValueError(
            f"{text} is neither a duration such as 90d nor {tokens.TIME_SAID}"
        ) from None
    ends = datetime.now(UTC) + timedelta(microseconds=us)
    return ends.strftime("%Y-%m-%dT%H:%M:%SZ")
