"""What the server does not take is set aside once, whatever attempts there were."""

import json

import pytest

from sow.spark.dead_letters import DeadLetters


def found(directory):
    """The rows that somebody who looks sees."""
    files = sorted(path for path in directory.iterdir() if not path.name.startswith("_"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


@pytest.fixture(params=["path", "scheme"])
def letters(request, tmp_path):
    place = str(tmp_path) if request.param == "path" else tmp_path.as_uri()
    return lambda epoch=1: DeadLetters(place, "orders", "a writer/with: a name", epoch)


def test_only_those_of_the_attempts_that_won_are_kept(letters, tmp_path):
    for part, attempt in ((0, "failed"), (0, "won"), (1, "won")):
        letters().put(part, attempt, [{"value": f"{part}-{attempt}", "reason": "bad"}])
    assert found(tmp_path) == []
    driver = letters()
    for part in (0, 1, 2):
        driver.keep(part, "won")
    driver.finish()
    assert [row["value"] for row in found(tmp_path)] == ["0-won", "1-won"]
    assert not list(tmp_path.glob("_*"))


def test_a_batch_that_is_written_again_replaces_what_it_has_set_aside(letters, tmp_path):
    for attempt in ("first", "again"):
        letters().put(0, attempt, [{"value": attempt}])
        letters().keep(0, attempt)
        letters().finish()
    letters(epoch=2).put(0, "first", [{"value": "next"}])
    letters(epoch=2).keep(0, "first")
    assert [row["value"] for row in found(tmp_path)] == ["again", "next"]


def test_what_is_let_go_leaves_nothing(letters, tmp_path):
    letters().put(0, "a", [{"value": "x"}])
    letters().finish()
    letters().finish()
    assert list(tmp_path.iterdir()) == []
