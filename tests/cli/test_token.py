"""`sow token`: tokens are made, listed and taken out; nobody sees one twice."""

import json
from datetime import UTC, datetime

import pytest
from click.testing import CliRunner

from sow.cli import main
from sow.security.authentication.tokens import Tokens, sum_of, time_us


@pytest.fixture
def file(tmp_path):
    return tmp_path / "tokens"


@pytest.fixture
def sow(file):
    def run(*words):
        return CliRunner().invoke(main, ["token", *words, "--file", str(file)])

    return run


def test_a_token_is_made_and_shown_once(sow, file):
    made = sow("create", "feed", "--group", "desk", "--group", "risk")
    token = made.stdout.strip()
    assert made.exit_code == 0
    assert token not in file.read_text() + made.stderr
    assert file.read_text() == f"feed {sum_of(token)} desk,risk\n"
    assert Tokens.read(str(file)).user(token).groups == {"desk", "risk"}
    assert file.stat().st_mode & 0o777 == 0o600
    assert sow("list").stdout == "feed desk,risk\n"


def test_a_token_ends_after_a_while_or_at_a_time(sow):
    sow("create", "a", "--expires", "2027-01-31T00:00:00Z")
    sow("create", "b", "--expires", "90d")
    first, second = json.loads(sow("list", "--json").stdout)
    assert first == {"name": "a", "groups": [], "expires": "2027-01-31T00:00:00Z"}
    days = (time_us(second["expires"]) / 1e6 - datetime.now(UTC).timestamp()) / 86_400
    assert 89 < days <= 90


def test_all_tokens_of_a_name_are_taken_out(sow, file):
    file.write_text("# programs\n")
    for name in ("feed", "desk", "feed"):
        sow("create", name)
    assert sow("remove", "feed").stderr == f"{file}: 2 of feed removed\n"
    assert sow("list").stdout == "desk\n"
    assert file.read_text().startswith("# programs\ndesk ")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("create", "a b"), "'a b' cannot be a name here"),
        (("create", "a", "--group", "b,c"), "'b,c' cannot be a name here"),
        (("create", "a", "--group", "2T"), "2T is not a time in UTC"),
        (("create", "a", "--expires", "soon"), "soon is neither a duration such as 90d nor a time"),
        (("create", "a", "--expires", "2027-99-31T00:00:00Z"), "no day or time that there is"),
        (("remove", "a"), "tokens has no a"),
    ],
)
def test_what_cannot_be_is_one_sentence_and_changes_nothing(sow, file, words, said):
    file.write_text("")
    found = sow(*words)
    assert (found.exit_code, found.stdout) == (1, "")
    assert said in found.stderr
    assert file.read_text() == ""
