"""A module may not fall below the share that its own tests have to reach."""

import pytest

from tests import covered
from tests.covered import Share, fallen, judge

FOUND = {"well.py": Share(10, 9, 5), "new.py": Share(10, 9, 4), "old.py": Share(10, 9, 0)}


def test_who_was_below_stays_known_until_it_is_above():
    assert fallen(FOUND, {"old.py", "well.py"}) == (["new.py"], ["old.py"])
    assert fallen(FOUND, {"old.py", "not_measured.py"})[1] == ["not_measured.py", "old.py"]


def test_it_fails_where_one_has_fallen_below(tmp_path, monkeypatch):
    monkeypatch.setattr(covered, "BELOW", tmp_path / "below")
    judge(FOUND, True)
    assert covered.BELOW.read_text() == "new.py\nold.py\n", "the first time"
    judge(FOUND, True)
    with pytest.raises(SystemExit, match=r"own tests: well\.py"):
        judge(FOUND | {"well.py": Share(10, 9, 4)}, True)
    assert "well.py" not in covered.BELOW.read_text()
