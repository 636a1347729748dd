"""Commands call the server that their options say, and trust it by what these say.

`sow use`: contexts, and which server and credentials a command uses then.
"""

import asyncio
import json
import re
import socket

import click
import pytest
from click.testing import CliRunner

from sow.cli import connecting, contexts, main
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
from tests.cli.terminal import Terminal
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


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home of one's own."""
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def use(*words):
    return CliRunner().invoke(main, ["use", *words])


def used(*words, **environment):
    """The address, token, user and password of a command."""
    result = CliRunner().invoke(asking, words, env=environment, catch_exceptions=False)
    url, _sow, _name, _ca, *who = result.output.split()
    return [url, *who]


@pytest.mark.usefixtures("home")
def test_one_that_is_made_is_chosen_and_listed(home):
    assert use().output == "no contexts; sow use NAME --address URL makes one\n"
    assert use("dev", "--address", "localhost:8080").output == "using dev: http://localhost:8080\n"
    made = use("prod", "--address", "https://p", "--user", "ann", "--token-command", "pass prod")
    assert made.output == "using prod: https://p as ann, token by pass prod\n"
    assert use("dev").output == "using dev: http://localhost:8080\n"
    assert use().output.splitlines() == [
        "* dev: http://localhost:8080",
        "  prod: https://p as ann, token by pass prod",
    ]
    assert json.loads(use("--json").output)["contexts"]["prod"]["user"] == "ann"
    assert use("dev", "--remove").output == "removed dev\n"
    assert json.loads(use("--json").output)["current"] is None
    assert contexts.file_path() == home / ".config/sow/contexts.toml"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("prod", "sow use prod --address URL makes it"),
        ("prod --remove", "there is no context 'prod'"),
        ("prod --user ann", "sow use NAME --address URL"),
        ("--address http://x", "sow use NAME --address URL"),
        ("--remove", "sow use NAME --remove"),
        ("prod --remove --address http://x", "sow use NAME --remove"),
        ("prod --address ftp://x", "is not an address"),
        ("prod --address http://ann:secret@x", "has a user in it"),
        ("a/b --address http://x", "is no name of a context"),
    ],
)
@pytest.mark.usefixtures("home")
def test_what_it_cannot_do_is_said_and_nothing_is_written(home, words, said):
    result = use(*words.split())
    assert result.exit_code in (1, 2)
    assert said in result.stderr
    assert "secret" not in result.output
    assert not (home / ".config").exists()


@pytest.mark.usefixtures("home")
def test_an_option_stands_over_the_environment_and_that_over_the_context():
    use("prod", "--address", "https://p")
    assert used()[0] == "https://p"
    assert used(SOW_URL="http://e")[0] == "http://e"
    assert used("--url", "http://o", SOW_URL="http://e")[0] == "http://o"


@pytest.mark.usefixtures("home")
def test_credentials_go_to_their_own_address_only(home):
    use("prod", "--address", "https://p", "--token-command", f"echo x >> {home}/ran; echo t0ken")
    assert used() == ["https://p", "t0ken", "None", "None"]
    assert used("--url", "https://p:443/") == ["https://p:443", "t0ken", "None", "None"]
    assert (home / "ran").read_text() == "x\n" * 2
    for other in ("http://p", "https://p:8443", "https://q", "https://p,https://q"):
        assert used("--url", other)[-3:] == used(SOW_URL=other)[-3:] == ["None"] * 3
    assert (home / "ran").read_text() == "x\n" * 2


@pytest.mark.usefixtures("home")
def test_credentials_that_are_given_stand_over_those_of_the_context():
    use("prod", "--address", "https://p", "--user", "ann", "--token-command", "echo t0ken")
    assert used("--token", "mine")[1:] == used(SOW_TOKEN="mine")[1:] == ["mine", "None", "None"]
    assert used("--user", "bob", SOW_PASSWORD="p")[1:] == ["None", "bob", "p"]
    use("prod", "--address", "https://p", "--user", "ann")
    assert used(SOW_PASSWORD="p")[1:] == ["None", "ann", "p"]


@pytest.mark.usefixtures("home")
def test_a_token_command_that_fails_is_said():
    use("prod", "--address", "http://127.0.0.1:1", "--token-command", "exit 4")
    result = CliRunner().invoke(main, ["topics"])
    assert (result.exit_code, "failed with exit code 4" in result.stderr) == (1, True)


@pytest.mark.usefixtures("home")
def test_a_terminal_is_asked_what_is_deleted_where(server, orders):
    orders({"id": 1}, {"id": 2})
    use("test", "--address", server.url)
    asked = f"delete records of orders by key 1 at context test, {server.url}? [y/N]:"
    with Terminal("delete", "orders", "--key", "1", columns=200) as terminal:
        terminal.wait_for(re.escape(asked))
        terminal.type("n\n")
        code, text = terminal.end()
    assert (code, "answered no; nothing was changed" in text) == (1, True)
    with Terminal("delete", "orders", "--key", "1", columns=200) as terminal:
        terminal.wait_for(re.escape(asked))
        terminal.type("y\n")
        assert terminal.end()[0] == 0
    with Terminal("delete", "orders", "--key", "2", "--yes", columns=200) as terminal:
        code, text = terminal.end()
    assert (code, "?" in text) == (0, False)
    assert server.get("/v1/topics/orders/records").json == []


@pytest.mark.usefixtures("home")
def test_without_a_terminal_nothing_is_asked(server, orders):
    orders({"id": 1})
    result = CliRunner().invoke(main, ["delete", "orders", "--key", "1", "--url", server.url])
    assert (result.exit_code, result.stderr) == (0, "")
    assert "deleted 1 record from orders" in result.output


@pytest.mark.usefixtures("home")
def test_a_session_is_disconnected_after_a_question(server, sow):
    with server.socket() as socket:
        socket.ask({"c": "logon", "client": "grid"})
        (found,) = json.loads(sow.ok("sessions", "--json"))
        words = ("sessions", found["id"], "--disconnect", "--url", server.url)
        with Terminal(*words, columns=200) as terminal:
            terminal.wait_for(re.escape(f"session {found['id']} at {server.url}? [y/N]:"))
            terminal.type("n\n")
            assert terminal.end()[0] == 1
        assert json.loads(sow.ok("sessions", "--json")) != []
        done = sow.ok("sessions", found["id"], "--disconnect", "--yes")
        assert done == f"disconnected session {found['id']}\n"
    assert json.loads(sow.ok("sessions", "--json")) == []
    assert sow("sessions", found["id"], "--disconnect").exit_code == 1
    assert sow("sessions", "--disconnect").exit_code == 2
