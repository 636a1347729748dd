"""`sow use`: contexts, and which server and credentials a command uses then."""

import json
import re

import pytest
from click.testing import CliRunner

from sow.cli import contexts, main
from tests.cli.terminal import Terminal
from tests.cli.test_connecting import asking


@pytest.fixture(autouse=True)
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
def test_what_it_cannot_do_is_said_and_nothing_is_written(home, words, said):
    result = use(*words.split())
    assert result.exit_code in (1, 2)
    assert said in result.stderr
    assert "secret" not in result.output
    assert not (home / ".config").exists()


def test_an_option_stands_over_the_environment_and_that_over_the_context():
    use("prod", "--address", "https://p")
    assert used()[0] == "https://p"
    assert used(SOW_URL="http://e")[0] == "http://e"
    assert used("--url", "http://o", SOW_URL="http://e")[0] == "http://o"


def test_credentials_go_to_their_own_address_only(home):
    use("prod", "--address", "https://p", "--token-command", f"echo x >> {home}/ran; echo t0ken")
    assert used() == ["https://p", "t0ken", "None", "None"]
    assert used("--url", "https://p:443/") == ["https://p:443", "t0ken", "None", "None"]
    assert (home / "ran").read_text() == "x\n" * 2
    for other in ("http://p", "https://p:8443", "https://q", "https://p,https://q"):
        assert used("--url", other)[-3:] == used(SOW_URL=other)[-3:] == ["None"] * 3
    assert (home / "ran").read_text() == "x\n" * 2


def test_credentials_that_are_given_stand_over_those_of_the_context():
    use("prod", "--address", "https://p", "--user", "ann", "--token-command", "echo t0ken")
    assert used("--token", "mine")[1:] == used(SOW_TOKEN="mine")[1:] == ["mine", "None", "None"]
    assert used("--user", "bob", SOW_PASSWORD="p")[1:] == ["None", "bob", "p"]
    use("prod", "--address", "https://p", "--user", "ann")
    assert used(SOW_PASSWORD="p")[1:] == ["None", "ann", "p"]


def test_a_token_command_that_fails_is_said():
    use("prod", "--address", "http://127.0.0.1:1", "--token-command", "exit 4")
    result = CliRunner().invoke(main, ["topics"])
    assert (result.exit_code, "failed with exit code 4" in result.stderr) == (1, True)


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


def test_without_a_terminal_nothing_is_asked(server, orders):
    orders({"id": 1})
    result = CliRunner().invoke(main, ["delete", "orders", "--key", "1", "--url", server.url])
    assert (result.exit_code, result.stderr) == (0, "")
    assert "deleted 1 record from orders" in result.output


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
