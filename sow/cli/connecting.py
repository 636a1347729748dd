"""Clients of the server that a command was told to talk to, as its options say who asks and what to
trust.
"""

import os

import click

from sow.cli.options import ACCESS, CA_SAID, TOKEN_SAID, USER_SAID
from sow.client import Client


def connected(url: str, name: str) -> Client:
    """A client of the server at `url`, which lists it under `name`.

    A user whose password is not in the environment is asked for it.
    """
    said = {option: click.get_current_context().meta.get(option) for option in ACCESS}
    user, password = said[USER_SAID], os.environ.get("SOW_PASSWORD")
    if user is not None and password is None:
        password = click.prompt(f"Password of {user}", hide_input=True, err=True)
    token = said[TOKEN_SAID] if user is None else None
    return Client(
        url, name=name, token=token, user=user, password=user and password, ca=said[CA_SAID]
    )
