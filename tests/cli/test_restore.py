"""`sow restore`: the moment, and what it refuses."""

import json

import pytest
from click.testing import CliRunner

from sow.cli import main
from tests.edge.lives import NOW_US, ORDERS, backed_up, lives_on


def run(*words):
    return CliRunner().invoke(main, ["restore", *map(str, words)])


@pytest.fixture
def backup(tmp_path):
    with lives_on(tmp_path / "data")(ORDERS) as life:
        life.publish("orders", {"id": 1})
        life.publish("orders", {"id": 2}, now_us=NOW_US + 10**6)
        backed_up(life, tmp_path / "b")
    return tmp_path / "b"


def ids(path):
    with lives_on(path)(ORDERS) as life:
        return [one["id"] for one in life.records("orders")]


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ((), [1, 2]),
        (("--as-of", "1"), [1]),
        (("--as-of", "0"), []),
        (("--as-of", "2023-11-14T22:13:20Z"), [1]),
        (("--as-of", "20300101T000000"), [1, 2]),
    ],
)
def test_it_is_as_it_was_at_that_moment(backup, tmp_path, words, wanted):
    result = run(backup, tmp_path / "new", *words)
    assert result.exit_code == 0, result.stderr
    assert ids(tmp_path / "new") == wanted


def test_of_a_log_that_has_gone_no_earlier_time_is_restored(tmp_path):
    with lives_on(tmp_path / "data")(ORDERS) as life:
        life.publish("orders", {"id": 1})
        life.checkpoint()
        while life.journal.trim(NOW_US, life.journal.last_seq + 1, beyond=True):
            pass
        backed_up(life, tmp_path / "b")
    result = run(tmp_path / "b", tmp_path / "new", "--as-of", "2010-01-01T00:00:00Z")
    assert (result.exit_code, "has given way" in result.stderr) == (1, True)
    assert not (tmp_path / "new").exists()
    assert run(tmp_path / "b", tmp_path / "new", "--as-of", "20300101T000000").exit_code == 0
    assert ids(tmp_path / "new") == [1]


def test_the_bookmarks_of_the_moment_are_said(backup, tmp_path):
    said = json.loads(run(backup, tmp_path / "new", "--json").stdout)
    assert said["was"] == "2"
    with lives_on(tmp_path / "new")(ORDERS) as life:
        assert said["bookmark"] == str(life.journal.last_seq)


def test_an_empty_directory_is_taken_and_a_full_one_refused(backup, tmp_path):
    (tmp_path / "new").mkdir()
    assert run(backup, tmp_path / "new").exit_code == 0
    result = run(backup, tmp_path / "new")
    assert (result.exit_code, "is not empty" in result.stderr) == (1, True)
    assert ids(tmp_path / "new") == [1, 2]


def test_a_damaged_backup_is_not_restored(backup, tmp_path):
    file = backup / "log.blocks"
    file.write_bytes(file.read_bytes()[:-1])
    result = run(backup, tmp_path / "new")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"sow: {file}: it has ")
    assert "nothing was restored" in result.stderr
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("moment", ["yesterday", "9" * 30, ""])
def test_what_is_no_moment_is_wrong_usage(backup, tmp_path, moment):
    result = run(backup, tmp_path / "new", "--as-of", moment)
    assert (result.exit_code, "is neither a bookmark nor a time" in result.stderr) == (2, True)


def test_what_is_no_backup_is_a_sentence(tmp_path):
    result = run(tmp_path, tmp_path / "new")
    assert (result.exit_code, "holds no backup" in result.stderr) == (1, True)
