"""Clients of the server that a command was told to talk to, as its options say who asks and what to
trust.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

import click

from sow.cli.options import (
    ACCESS,
    CA_SAID,
    CERTIFICATE_KEY_SAID,
    CERTIFICATE_SAID,
    TOKEN_SAID,
    USER_SAID,
)
from sow.cli.plain_output import printable
from sow.cli.report import AS_JSON
from sow.cli.wait_notice import NotifyingClient, WaitNotice
from sow.client import Client, Unreachable
from sow.errors import ClientError

NO_SERVER = (
    "; of data that no server has: start one with sow serve FILE --data-dir DIRECTORY --port 0 and "
    "give the address that it says as --url, or copy the whole data directory while it is stopped"
)
"""What to do who wants what is stored, and has only the directory."""


def connected(url: str, name: str) -> Client:
    """A client of the server at `url`, which lists it under `name`.

    A user whose password is not in the environment is asked for it. Raises ClientError for a key
    without its certificate.
    """
    said = {option: click.get_current_context().meta.get(option) for option in ACCESS}
    user, password = said[USER_SAID], os.environ.get("SOW_PASSWORD")
    if user is not None and password is None:
        password = click.prompt(f"Password of {user}", hide_input=True, err=True)
    token = said[TOKEN_SAID] if user is None else None
    certificate, key = said[CERTIFICATE_SAID], said[CERTIFICATE_KEY_SAID]
    if key is not None and certificate is None:
        raise ClientError("there is a --certificate-key, but no certificate; give --certificate")
    # Programs read errors there, and nothing else.
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
        ca=said[CA_SAID],
    )


@contextmanager
def of_a_server() -> Iterator[None]:
    """For commands that write down what a server has: where none runs they say besides what to do
    instead."""
    try:
        yield
    except Unreachable as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.ECONNREFUSED:
            error.detail += NO_SERVER
        raise
