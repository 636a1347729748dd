"""`sow user`: users are added, changed, listed and removed, by the configuration or a file."""

import json

import pytest
from click.testing import CliRunner

from sow.cli import main
from sow.security.authentication.htpasswd import Users


@pytest.fixture
def file(tmp_path):
    return tmp_path / "users.htpasswd"


@pytest.fixture
def sow(file):
    def run(*words, **more):
        return CliRunner().invoke(main, ["user", *words, "--file", str(file)], **more)

    return run


def test_a_user_is_added_changed_listed_and_removed(sow, file):
    added = sow("add", "ann", "--group", "desk", "--group", "risk", input="s3cret\n")
    assert (added.exit_code, added.stderr) == (0, f"{file}: ann was added\n")
    assert sow("add", "bob", "--group", "desk", input="other\r\n").exit_code == 0
    assert "ann has another password" in sow("add", "ann", input="n3w\n").stderr
    users = Users.read(str(file))
    assert users.is_password("ann", "n3w")
    assert users.is_password("bob", "other")
    assert not users.is_password("ann", "s3cret")
    assert sow("list").stdout == "ann desk,risk\nbob desk\n"
    sow("add", "ann", "--group", "risk", input="n3w\n")
    assert json.loads(sow("list", "--json").stdout)[0] == {"name": "ann", "groups": ["risk"]}
    assert sow("remove", "ann").exit_code == 0
    assert sow("list").stdout == "bob desk\n"
    assert file.with_suffix(".groups").read_text() == "desk: bob\n"
    assert file.stat().st_mode & 0o777 == 0o600


def test_what_others_wrote_stays(sow, file):
    sow("add", "ann", input="a\n")
    file.write_text("# of the desk\n" + file.read_text() + "\n")
    sow("add", "bob", input="b\n")
    assert file.read_text().startswith("# of the desk\nann:$argon2id$")
    assert [line[:4] for line in file.read_text().splitlines()[1:]] == ["ann:", "", "bob:"]


@pytest.mark.parametrize(
    ("words", "typed", "said"),
    [
        (("add", "a:b"), "x\n", "'a:b' cannot be a name here"),
        (("add", "ann", "--group", "a b"), "x\n", "'a b' cannot be a name here"),
        (("add", "ann"), "\n", "the password is empty"),
        (("add", "ann"), "", "the password is empty"),
        (("remove", "ann"), "", "users.htpasswd has no ann"),
    ],
)
def test_what_cannot_be_is_one_sentence_and_changes_nothing(sow, file, words, typed, said):
    file.write_text("")
    found = sow(*words, input=typed)
    assert (found.exit_code, said in found.stderr) == (1, True)
    assert file.read_text() == ""


def test_a_file_that_is_wrong_is_left_alone(sow, file):
    file.write_text("ann:plain\n")
    found = sow("add", "bob", input="x\n")
    assert (found.exit_code, "line 1 of" in found.stderr) == (1, True)
    assert file.read_text() == "ann:plain\n"
