"""What a bare machine has, and what README's two commands install on it."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.bare import ADDED, ROOT, bare_environment

MISSING = ("curl", "node", "java", "chromium", "gcc", "cc", "openssl", "pip", "sow")


@pytest.fixture
def bare(tmp_path):
    return bare_environment(tmp_path)


def ran(bare, *words):
    """What a command writes there; it ends well."""
    path = Path(bare["PATH"]) / words[0]
    done = subprocess.run([path, *words[1:]], cwd=ROOT, env=bare, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_python_git_make_and_the_base_tools_are_found_and_nothing_else(bare):
    there = {path.name for path in Path(bare["PATH"]).iterdir()}
    assert {"python3", "bash", "cat", "grep", "sed", *ADDED} <= there
    assert not there & set(MISSING)
    assert ran(bare, "bash", "-c", "command -v curl || echo none") == "none\n"


def test_its_python_is_of_no_environment_and_makes_one_that_outlives_the_folder(bare):
    asking = "import sys; print(sys.prefix == sys.base_prefix, sys.executable)"
    is_own, program = ran(bare, "python3", "-c", asking).split()
    assert is_own == "True"
    assert not program.startswith(bare["PATH"])


def installed(bare, target):
    """The extras that `make` installs where there is no environment yet."""
    said = ran(bare, "make", "--dry-run", "--always-make", target)
    return [
        one for names in re.findall(r"--editable '\.\[(.*?)\]'", said) for one in names.split(",")
    ]


def test_the_demo_waits_for_the_server_alone_and_the_tests_for_the_rest_as_well(bare):
    assert installed(bare, "demo") == ["server"]
    assert installed(bare, "test") == [
        "server", "dev", "spark", "polars", "notebook", "console-test", "java",
    ]  # fmt: skip


@pytest.mark.parametrize("target", ["demo", "test"])
def test_pip_shows_how_far_it_is(bare, target):
    said = ran(bare, "make", "--dry-run", "--always-make", target)
    lines = [line for line in said.splitlines() if "pip install" in line]
    assert lines
    assert not [line for line in lines if "--quiet" in line]
