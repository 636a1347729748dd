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
