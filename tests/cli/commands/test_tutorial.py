"""`sow tutorial`: each step runs, shows what it says, and touches nothing of the user's."""

import json
import os

import pytest
from click.testing import CliRunner

from sow.cli import main
from sow.cli.commands.tutorial import STEPS, environment

pytestmark = pytest.mark.edge


@pytest.fixture(scope="module")
def steps(tmp_path_factory):
    """What a run reports, in an environment of another server."""
    away = {"SOW_URL": "http://127.0.0.1:1", "SOW_TOKEN": "secret"}
    away["TMPDIR"] = str(tmp_path_factory.mktemp("scratch"))
    result = CliRunner().invoke(main, ["tutorial", "--json"], env=away)
    assert result.exit_code == 0, result.stderr
    assert os.listdir(away["TMPDIR"]) == []
    return [one["output"] for one in json.loads(result.stdout)["steps"]]


def test_every_step_shows_what_it_says(steps):
    assert len(steps) == len(STEPS)
    assert "published 3 messages to orders" in steps[0]
    assert all(name in steps[1] for name in ("id", "IBM", "ACME"))
    assert ("ACME" in steps[2], steps[2].index("100") < steps[2].index("101.7")) == (False, True)
    assert "107" in steps[3]
    assert [json.loads(line)["d"]["id"] for line in steps[6].splitlines()] == [1, 2, 3]
    assert [json.loads(line)["d"]["qty"] for line in steps[7].splitlines()] == [70, 71, 72]
    assert "orders-C" in steps[9]
    assert "deleted 2 records from orders" in steps[10]


def test_a_command_is_shown_as_it_is_typed():
    assert (
        STEPS[2].typed
        == 'sow query orders "--filter" "/symbol = \'IBM\'"'.replace('"--filter"', "--filter")
        + ' --order-by "/qty DESC"'
    )
    assert STEPS[0].typed.splitlines()[0] == "sow publish orders << END"
    assert STEPS[0].typed.splitlines()[-1] == "END"


def test_commands_have_no_server_and_no_credential_of_the_users():
    found = environment("http://here", {"SOW_TOKEN": "t", "SOW_URL": "http://there", "PATH": "p"})
    assert found == {"PATH": "p", "SOW_URL": "http://here"}
