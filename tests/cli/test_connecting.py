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
    access = client._access
    shown = [client.url, client.name, access.ca, access.token, access.user, access.password]
    click.echo(" ".join(map(str, shown)))


def said(*words, **environment):
    return CliRunner().invoke(asking, words, env=environment).output.split()


def test_a_client_is_of_the_address_and_trusts_by_the_file():
    assert said()[:3] == ["http://127.0.0.1:8080", "asking", "None"]
    assert said("--url", "https://a", "--ca", "x.pem")[:3] == ["https://a", "asking", "x.pem"]
    assert said(SOW_URL="https://b", SOW_CA="y.pem")[:3] == ["https://b", "asking", "y.pem"]


def test_who_asks_is_said_by_a_token_or_a_user_with_a_password():
    assert said()[3:] == ["None", "None", "None"]
    assert said("--token", "t")[3:] == said(SOW_TOKEN="t")[3:] == ["t", "None", "None"]
    assert said("--user", "ann", SOW_PASSWORD="p")[3:] == ["None", "ann", "p"]
    assert said("--user", "ann", SOW_PASSWORD="p", SOW_TOKEN="t")[3:] == ["None", "ann", "p"]
    asked = CliRunner().invoke(asking, ["--user", "ann"], input="typed\n")
    assert asked.output.split()[-2:] == ["ann", "typed"]
    assert asked.stderr.startswith("Password of ann:")
