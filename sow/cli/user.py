"""`sow user`: names and passwords of users, in the file that the configuration names.

`sow reload` applies changes to a running server.
"""

import sys

import click

from sow.cli.credential_files import config_options, file_named, refused
from sow.cli.options import example, json_option
from sow.cli.plain_output import json_text
from sow.security.authentication import htpasswd


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
def remove(name: str, file: str) -> None:
    """Remove a user from the file and from all groups."""
    if not htpasswd.remove(file, name):
        raise file_named(file, name)
    click.echo(f"{file}: {name} was removed", err=True)


@user.command("list", epilog=example("sow user list --config desk.xml"))
@config_options("users_file", "Users")
@json_option
def list_users(file: str, as_json: bool) -> None:
    """List the users and their groups."""
    users = htpasswd.Users.read(file)
    found = [{"name": name, "groups": sorted(users.groups(name))} for name in users.hashes]
    if as_json:
        click.echo(json_text(found))
        return
    for one in found:
        click.echo(" ".join([str(one["name"]), ",".join(one["groups"])]).rstrip())


def _password(name: str) -> str:
    """A password that a user types twice, or a program writes once."""
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\r\n")
    typed: str = click.prompt(
        f"Password of {name}", hide_input=True, confirmation_prompt=True, err=True
    )
    return typed
