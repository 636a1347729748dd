"""Clients of the server at --url, with the credentials and trust that the options give."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

import click

from sow.cli.options import (
    ACCESS,
    CA_OPTION,
    CERTIFICATE_KEY_OPTION,
    CERTIFICATE_OPTION,
    TOKEN_OPTION,
    USER_OPTION,
)
from sow.cli.plain_output import printable
from sow.cli.report import AS_JSON
from sow.cli.wait_notice import NotifyingClient, WaitNotice
from sow.client import Client, Unreachable
from sow.errors import ClientError

NO_SERVER = (
    "; for data without a server: start one with sow serve FILE --data-dir DIRECTORY --port 0 and "
    "give the address it prints as --url, or copy the whole data directory while it is stopped"
)
"""The way for a user who needs stored data and has only the directory."""


def connected(url: str, name: str) -> Client:
    """A client of the server at `url`, connected under `name`.

    Prompts for the password of a user unless it is in the environment. Raises ClientError for a key
    without its certificate.
    """
    given = {option: click.get_current_context().meta.get(option) for option in ACCESS}
    user, password = given[USER_OPTION], os.environ.get("SOW_PASSWORD")
    if user is not None and password is None:
        password = click.prompt(f"Password of {user}", hide_input=True, err=True)
    token = given[TOKEN_OPTION] if user is None else None
    certificate, key = given[CERTIFICATE_OPTION], given[CERTIFICATE_KEY_OPTION]
    if key is not None and certificate is None:
        raise ClientError("there is a --certificate-key, but no certificate; give --certificate")
    # Programs expect errors on stderr, and nothing else.
    is_quiet = click.get_current_context().meta.get(AS_JSON)
    return NotifyingClient(
        url,
        None if is_quiet else WaitNotice(url, lambda text: click.echo(printable(text), err=True)),
        name=name,
        token=token,
        user=user,
        password=user and password,
        certificate=certificate,
        key=key,
        ca=given[CA_OPTION],
    )


@contextmanager
def of_a_server() -> Iterator[None]:
    """For commands that store what a server holds: if none runs, the error names an alternative."""
    try:
        yield
    except Unreachable as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.ECONNREFUSED:
            error.detail += NO_SERVER
        raise
