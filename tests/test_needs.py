"""What a run leaves out, it says; what it must not leave out, it fails for."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.needs import NEEDS, NODE_VERSION, LeftOut, Need, node, version_of

ROOT = Path(__file__).parents[1]
LINE = r"not run: \d+ tests that need a Chromium, which is not here; apt-get install "


class Item:
    def __init__(self, *marks):
        self.marks = marks

    def get_closest_marker(self, mark):
        return mark if mark in self.marks else None


def needing(**found):
    return {
        mark: Need(lambda there=there: there, f"a {mark}", "install it", required_by="SOW_TRY")
        for mark, there in found.items()
    }


def test_what_lacks_a_program_is_left_out_counted_and_named():
    left_out = LeftOut(needing(browser=None, node="/bin/node"))
    items = [Item(), Item("browser"), Item("node"), Item("node", "browser")]
    plain, _, of_node, _ = items
    assert len(left_out.leave_out(items)) == 2
    assert items == [plain, of_node]
    assert left_out.lines() == [
        "not run: 2 tests that need a browser, which is not here; install it"
    ]


def test_where_everything_is_there_nothing_is_said():
    left_out = LeftOut(needing(browser="/bin/chromium"))
    assert (left_out.leave_out([Item("browser")]), left_out.lines(), left_out.fails) == (
        [],
        [],
        False,
    )


def test_processes_of_one_run_are_not_added_up():
    left_out = LeftOut(needing(browser=None))
    for _ in range(3):
        left_out.hear({"browser": 1})
    assert left_out.lines() == [
        "not run: 1 test that needs a browser, which is not here; install it"
    ]


@pytest.mark.parametrize(("asked", "fails"), [("", False), ("0", False), ("1", True)])
def test_a_run_fails_for_what_it_has_to_run(asked, fails, monkeypatch):
    monkeypatch.setenv("SOW_TRY", asked)
    left_out = LeftOut(needing(browser=None))
    assert left_out.fails is False, "nothing was left out"
    left_out.leave_out([Item("browser")])
    assert left_out.fails is fails


def test_every_mark_is_known_and_only_the_browser_is_ever_a_must():
    marks = (ROOT / "pyproject.toml").read_text()
    assert all(f'"{mark}: ' in marks for mark in NEEDS)
    assert [mark for mark, need in NEEDS.items() if need.required_by] == ["browser"]


@pytest.mark.node
def test_the_node_that_is_found_has_a_websocket():
    command = node()
    assert version_of(command[0]) >= NODE_VERSION
    said = subprocess.run(
        [*command, "--eval", "console.log(typeof WebSocket)"], capture_output=True, text=True
    )
    assert said.stdout == "function\n"


def run_without_programs(*arguments, **environment):
    """pytest on a machine that has none of them; the last line it writes, and its exit code."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
        cwd=ROOT,
        env={**os.environ, "PATH": os.devnull, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.splitlines()[-1], done.returncode, done.stdout


@pytest.mark.parametrize(
    "processes",
    [
        pytest.param((), id="one process"),
        # That what cores say is heard is shown above.
        pytest.param(("-n", "1"), id="cores", marks=pytest.mark.slow),
    ],
)
def test_a_run_without_a_browser_passes_and_its_last_line_says_so(processes):
    last, code, said = run_without_programs(
        "tests/browser", "tests/test_lists.py", *processes, SOW_REQUIRE_BROWSER=""
    )
    assert code == 0, said
    assert re.match(LINE, last), said


def test_where_a_browser_is_required_it_fails():
    last, code, said = run_without_programs("tests/browser", SOW_REQUIRE_BROWSER="1")
    assert code == 1, said
    assert re.match(LINE, last), said
