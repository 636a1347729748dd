"""Commands call the server that their options say, and trust it by what these say."""

import asyncio
import json
import socket

import click
import pytest
from click.testing import CliRunner

from sow.cli import connecting, main
from sow.cli.connecting import (
    NotifyingClient,
    WaitNotice,
    connected,
    of_a_server,
    server_command,
)
from sow.client import Unreachable
from sow.security.authentication.tokens import sum_of
from tests.cli.conftest import TOPICS
from tests.edge.serving import Running, configuration


@server_command()
async def asking(client):
    """A command that talks to a server."""
    access = client._access
    shown = [client.url, client.name, access.ca, access.token, access.user, access.password]
    click.echo(" ".join(map(str, shown)))


def said(*words, **environment):
    return CliRunner().invoke(asking, words, env=environment).output.replace("sow ", "").split()


def test_a_client_is_of_the_address_and_trusts_by_the_file():
    assert said()[:3] == ["http://127.0.0.1:8080", "asking", "None"]
    assert said("--url", "https://a", "--ca", "x.pem")[:3] == ["https://a", "asking", "x.pem"]
    assert said(SOW_URL="https://b", SOW_CA="y.pem")[:3] == ["https://b", "asking", "y.pem"]


def test_who_asks_is_said_by_a_token_or_a_user_with_a_password():
    assert said()[3:] == ["None", "None", "None"]
    assert said("--token", "t")[3:] == said(SOW_TOKEN="t")[3:] == ["t", "None", "None"]
    assert said("--user", "ann", SOW_PASSWORD="p")[3:] == ["None", "ann", "p"]
    assert said("--user", "ann", SOW_PASSWORD="p", SOW_TOKEN="t")[3:] == ["None", "ann", "p"]
    requested = CliRunner().invoke(asking, ["--user", "ann"], input="typed\n")
    assert requested.output.split()[-2:] == ["ann", "typed"]
    assert requested.stderr.startswith("Password of ann:")


@server_command()
def showing():
    """A command that says by which certificate it asks."""
    access = connected()._access
    click.echo(f"{access.certificate} {access.key}")


def test_who_asks_is_said_by_a_certificate_too():
    def shown(*words, **environment):
        return CliRunner().invoke(showing, words, env=environment)

    words = ("--certificate", "a.pem", "--certificate-key", "a.key")
    assert shown(*words).output == "a.pem a.key\n"
    assert shown(SOW_CERTIFICATE="b.pem").output == "b.pem None\n"
    assert shown(SOW_CERTIFICATE="b.pem", SOW_CERTIFICATE_KEY="b.key").output == "b.pem b.key\n"
    assert "give --certificate" in str(shown("--certificate-key", "a.key").exception)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """A server that asks who asks: ann may read one topic, and root everything."""
    place = tmp_path_factory.mktemp("guarded")
    (place / "tokens").write_text(f"ann {sum_of('of-ann')}\nroot {sum_of('of-root')}\n")
    security = f"""<Security><Authentication><Tokens><File>{place}/tokens</File></Tokens>
    </Authentication><Role><Name>some</Name><Member>user:ann</Member><Allow><Topic>orders</Topic>
    <Read/></Allow></Role><Role><Name>all</Name><Member>user:root</Member><Allow><Topic>.*</Topic>
    <Read/></Allow><Allow><Admin/></Allow></Role></Security>"""
    running = Running(configuration(TOPICS, security), place / "data")
    yield running
    running.close()


def requested(guarded, words, token=None):
    environment = {"SOW_URL": guarded.url, "SOW_TOKEN": token}
    return CliRunner().invoke(main, words.split(), env=environment)


EACH = (
    "topics", "sessions", "sessions s1", "why --session s1", "why orders --query", "query orders",
    "top --count 1 --interval 0.1", "ping --topic orders", "watch orders --count 1",
)  # fmt: skip


@pytest.mark.edge
@pytest.mark.parametrize("words", EACH)
def test_who_has_not_said_who_he_is_is_sent_how_to(guarded, words):
    result = requested(guarded, words)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("sow: ")
    assert "token" in result.stderr, "what to give is said"


@pytest.mark.edge
def test_who_may_see_some_sees_that_and_hears_of_nothing_else(guarded):
    listed = json.loads(requested(guarded, "topics --json", "of-ann").stdout)
    assert [one["name"] for one in listed] == ["orders"]
    shown = json.loads(requested(guarded, "top --count 1 --interval 0.1 --json", "of-ann").stdout)
    assert [one["name"] for one in shown["topics"]] == ["orders"]
    assert shown["longest_step"] is None, "the metrics are for administrators"
    refused = requested(guarded, "why orders-C --query", "of-ann")
    assert (refused.exit_code, "no topic 'orders-C'" in refused.stderr) == (1, True)
    assert len(json.loads(requested(guarded, "topics --json", "of-root").stdout)) > 10


@pytest.mark.parametrize("words", [("backup",), ("dump", "orders")])
def test_who_wants_what_is_stored_and_has_no_server_is_sent_what_to_do(words, tmp_path):
    target = tmp_path / "to.ndjson"
    result = CliRunner().invoke(main, [*words, str(target), "--url", "http://127.0.0.1:1"])
    assert result.exit_code == 1
    assert "no server answers at http://127.0.0.1:1" in result.stderr
    assert "sow serve FILE --data-dir DIRECTORY --port 0" in result.stderr
    assert "copy the whole data directory while it is stopped" in result.stderr
    assert not target.exists()


def test_who_does_not_trust_a_server_is_sent_nothing_of_that():
    with pytest.raises(Unreachable) as told, of_a_server():
        raise Unreachable("the certificate of the server is not trusted")
    assert told.value.detail == "the certificate of the server is not trusted"


class Put:
    """What was put off, and whether it still stands."""

    def __init__(self, after_s, do):
        self.after_s, self.do, self.stands = after_s, do, True

    def cancel(self):
        self.stands = False


def test_it_is_said_once_what_does_not_answer_and_how_it_ends():
    said, put = [], []
    unanswered = WaitNotice(
        "http://a", said.append, lambda *given: put.append(Put(*given)) or put[-1]
    )
    unanswered.begin()
    unanswered.begin()
    assert (said, [one.after_s for one in put]) == ([], [connecting.PATIENCE_S] * 2)
    for one in put:
        one.do()
    assert said == ["sow: no answer from http://a yet; Ctrl-C ends"]


def test_requests_of_a_command_wait_until_they_are_answered(tmp_path):
    put, said = [], []

    def later(after_s, do):
        put.append(Put(after_s, do))
        assert put[-1].stands
        do()
        return put[-1]

    async def ask(url):
        async with NotifyingClient(url, WaitNotice(url, said.append, later)) as client:
            await client.http.json("GET", "/v1/topics")

    running = Running(configuration(TOPICS), tmp_path)
    try:
        asyncio.run(ask(running.url))
    finally:
        running.close()
    assert said == [f"sow: no answer from {running.url} yet; Ctrl-C ends"]
    assert put
    assert not any(one.stands for one in put)


@pytest.mark.edge
def test_a_command_gets_a_client_that_is_closed_when_it_ends(guarded):
    kept = []

    @server_command("listing --json")
    @click.argument("kind")
    async def listing(client, kind):
        """List the topics of a kind."""
        kept.append((client, client._session.opened()))
        found = await client.topics()
        click.echo(sum(one["kind"] == kind for one in found))

    words = ["pattern", "--url", guarded.url, "--token", "of-root"]
    assert CliRunner().invoke(listing, words).stdout == "1\n"
    ((client, session),) = kept
    assert (client.name, session.closed) == ("sow listing", True)


@pytest.mark.edge
def test_a_command_takes_several_addresses_and_goes_to_the_first_that_answers(running):
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        away = f"http://127.0.0.1:{bound.getsockname()[1]}"
        done = CliRunner().invoke(main, ["topics", "--url", f"{away},{running.url}", "--json"])
        assert (done.exit_code, done.stderr) == (0, "")
        lost = CliRunner().invoke(main, ["topics", "--url", f"{away},{away}/x"])
    assert lost.exit_code == 1
    assert "none of 2 addresses can be used" in lost.stderr
    wrong = CliRunner().invoke(main, ["topics", "--url", f"{running.url},"])
    assert wrong.exit_code == 1
    assert "has an empty one; write for example http://a:8080,http://b:8080" in wrong.stderr
