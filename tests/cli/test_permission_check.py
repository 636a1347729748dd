"""`sow check --as`: what a user would see, and why."""

import json

import pytest
from click.testing import CliRunner

from sow.cli import main, permission_check
from sow.security.authentication.tokens import sum_of

CONFIG = """<SOWConfig><Name>desk</Name>
<SOW><Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic></SOW>
<Security><Authentication><Tokens><File>tokens</File></Tokens></Authentication>
<Role><Name>desk</Name><Member>group:desk</Member>
  <Allow><Topic>orders.*</Topic><Read/><Filter>/desk = ${user.desk}</Filter>
    <Select>-/client</Select></Allow>
  <Allow><Topic>orders</Topic><Write/><Check>/desk = 'fx'</Check></Allow></Role>
<Role><Name>small</Name><Member>*</Member>
  <Allow><Topic>orders</Topic><Read/><Filter>/qty &lt; 10</Filter></Allow></Role>
</Security></SOWConfig>"""


@pytest.fixture
def check(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.xml").write_text(CONFIG)
    (tmp_path / "tokens").write_text(f"ann {sum_of('a')} desk\nbob {sum_of('b')}\n")
    return lambda *words: CliRunner().invoke(main, ["check", *words])


def test_each_allow_is_said_and_what_they_come_to(check):
    found = check("orders", "--as", "ann", "--claim", "desk=o'fx")
    assert found.exit_code == 0, found.stderr
    assert found.stdout.splitlines() == [
        "ann (desk) may read, write orders",
        "  role desk allows to read orders.*; rows /desk = 'o\\'fx'; fields -/client",
        "  role desk allows to write orders; check /desk = 'fx'",
        "  role small allows to read orders; rows /qty < 10",
        "rows: /desk = 'o\\'fx' OR /qty < 10",
        "fields: all",
    ]


def test_what_is_not_known_of_a_user_gives_nothing(check):
    found = check("config.xml", "orders", "--as", "ann")
    assert "by a claim that this user lacks: it grants nothing" in found.stdout
    assert "rows: /qty < 10" in found.stdout


def test_a_filter_is_joined_as_his_own_would_be(check):
    found = check("orders", "--as", "bob", "--filter", "/qty > 5", "--json")
    said = json.loads(found.stdout)
    assert said["rows"] == "/qty < 10 AND /qty > 5"
    assert (said["user"], said["groups"], said["may"]) == ("bob", [], ["read"])


def test_what_he_does_not_see_does_not_exist(check):
    assert check("secret", "--as", "bob").stdout == "bob does not see secret\n"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--as", "ann"), 2, "--as needs a TOPIC: sow check CONFIG TOPIC --as USER"),
        (("a", "b", "c", "--as", "ann"), 2, "unexpected argument 'c'"),
        (("config.xml", "orders"), 2, "unexpected argument 'orders'"),
        (("orders", "--as", "eve"), 1, "no file of users or tokens has 'eve'"),
        (("orders", "--as", "ann", "--filter", "/a >"), 1, "position"),
        (("orders", "--as", "ann", "--claim", "desk"), 2, "'desk' is not NAME=VALUE"),
    ],
)
def test_what_cannot_be_said_is_one_sentence(check, words, code, said):
    found = check(*words)
    assert (found.exit_code, said in found.stderr) == (code, True), found.stderr


def test_a_configuration_that_asks_nobody_says_so(check, tmp_path):
    (tmp_path / "config.xml").write_text("<SOWConfig><Name>open</Name></SOWConfig>")
    assert "everybody sees everything" in check("orders", "--as", "ann").stderr


def test_a_server_counts_what_he_would_see(check, monkeypatch):
    requested = []

    async def count(*given):
        requested.append(given)
        return 12

    monkeypatch.setattr(permission_check, "_count", count)
    found = check("orders", "--as", "bob", "--count", "--url", "http://there")
    assert found.stdout.splitlines()[-1] == "matches: 12"
    assert requested == [("http://there", "orders", "/qty < 10")]
