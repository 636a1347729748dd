"""Clients of the server that a command was told to talk to, with what its options say of trust."""

import click

from sow.cli.options import CA
from sow.client import Client


def connected(url: str, name: str) -> Client:
    """A client of the server at `url`, which lists it under `name`."""
    return Client(url, name=name, ca=click.get_current_context().meta.get(CA))
