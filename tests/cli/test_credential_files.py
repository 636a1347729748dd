"""Files of users and tokens are found by the configuration."""

import pytest
from click.testing import CliRunner

from sow.cli import main

ASKING = """<Authentication><Tokens><File>${WHERE}/tokens</File></Tokens></Authentication>
<Role><Name>all</Name><Member>*</Member><Allow><Admin/></Allow></Role>"""


@pytest.fixture
def config(tmp_path):
    def written(security):
        (tmp_path / "config.xml").write_text(
            f"<SOWConfig><Name>s</Name><Security>{security}</Security></SOWConfig>"
        )
        return str(tmp_path / "config.xml")

    return written


def run(*words):
    return CliRunner().invoke(main, words)


def test_the_configuration_names_the_file(config, tmp_path):
    (tmp_path / "secret").mkdir()
    path = config(ASKING)
    made = run("token", "create", "feed", "--config", path, "--set", "WHERE=secret")
    assert made.exit_code == 0, made.output
    assert (tmp_path / "secret" / "tokens").read_text().startswith("feed ")


def test_a_configuration_without_the_element_says_what_to_write(config):
    found = run("user", "list", "--config", config(""))
    assert found.exit_code == 1
    assert "add <Users><File>…</File></Users> to Authentication" in found.stderr


def test_check_warns_of_files_without_which_the_server_would_not_start(tmp_path):
    config = tmp_path / "config.xml"
    config.write_text(
        "<SOWConfig><Name>n</Name><Security>"
        "<TLS><Certificate>c.pem</Certificate><PrivateKey>k.pem</PrivateKey></TLS>"
        "<Authentication><Users><File>users</File></Users><Tokens><File>tokens</File></Tokens>"
        "<JWT><Issuer>i</Issuer><Audience>a</Audience><Keys>keys.json</Keys></JWT>"
        "</Authentication><Role><Name>all</Name><Member>*</Member>"
        "<Allow><Topic>.*</Topic><Read/></Allow></Role></Security><SOW>"
        "<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>"
        "</SOW></SOWConfig>"
    )
    result = CliRunner().invoke(main, ["check", str(config)])
    assert result.exit_code == 0, "where roles are checked the secrets need not be"
    elements = [line.split(": ")[1] for line in result.stdout.splitlines()[:-1]]
    assert elements == ["TLS", "Users", "Tokens", "JWT"]
    assert "`sow user add NAME` makes it" in result.stdout
    assert "`sow token create NAME` makes it" in result.stdout
    (tmp_path / "tokens").write_text("nonsense\n")
    assert "line 1 of" in CliRunner().invoke(main, ["check", str(config)]).stdout
