"""Commands call the server that their options say, and trust it by what these say."""

import click
from click.testing import CliRunner

from sow.cli.connecting import connected
from sow.cli.options import url_option


@click.command()
@url_option
def asking(url):
    """A command that talks to a server."""
    client = connected(url, "asking")
    click.echo(f"{client.url} {client.name} {client._ca}")


def said(*words, **environment):
    return CliRunner().invoke(asking, words, env=environment).output.split()


def test_a_client_is_of_the_address_and_trusts_by_the_file():
    assert said() == ["http://127.0.0.1:8080", "asking", "None"]
    assert said("--url", "https://a", "--ca", "x.pem") == ["https://a", "asking", "x.pem"]
    assert said(SOW_URL="https://b", SOW_CA="y.pem") == ["https://b", "asking", "y.pem"]
