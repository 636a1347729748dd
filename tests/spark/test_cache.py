"""Where the script and the file that Spark is started with stand."""

import os
import sys

import pytest

from sow.spark import cache, java
from sow.spark.session import _logging


@pytest.fixture
def own(tmp_path, monkeypatch):
    """The user's cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "sow" / "spark"


def test_it_is_in_the_users_cache_or_beside_the_python_that_runs(own):
    assert cache.candidates(os.environ)[0] == own
    (beside,) = cache.candidates({"XDG_CACHE_HOME": "relative"})
    assert beside.is_relative_to(sys.prefix)
    for _ in range(2):
        assert cache.private_directory() == own
        assert own.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("fault", ["open", "link", "foreign", "file"])
def test_one_that_others_may_have_written_to_is_passed_over(tmp_path, monkeypatch, fault):
    taken, other = tmp_path / "taken", tmp_path / "other"
    if fault == "file":
        taken.touch()
    elif fault == "link":
        (tmp_path / "elsewhere").mkdir(0o700)
        taken.symlink_to(tmp_path / "elsewhere")
    else:
        taken.mkdir(0o700)
    if fault == "open":
        taken.chmod(0o777)
    if fault == "foreign":
        user = os.getuid()
        monkeypatch.setattr(os, "getuid", lambda: user + 1)
        assert cache.first_private([taken, other]) is None
    else:
        assert cache.first_private([taken, other]) == other


def test_where_there_is_none_each_process_has_its_own(monkeypatch):
    monkeypatch.setattr(cache, "candidates", lambda _environment: [])
    one, other = cache.private_directory(), cache.private_directory()
    assert one != other
    assert one.stat().st_mode & 0o777 == 0o700


def test_the_script_and_sparks_log_settings_stand_there(own):
    assert java.find_java({"PATH": "/nowhere"}) in (None, own / "java")
    assert _logging() == own / "log4j2.properties"
