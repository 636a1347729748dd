"""What a run leaves out, it says; what it must not leave out, it fails for."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.needs import BROWSER_FOLDERS, NEEDS, NODE_VERSION, LeftOut, Need, node, version_of

ROOT = Path(__file__).parents[1]
LINE = r"not run: \d+ tests that need a Chromium(, .*)?; to run them: apt-get install "


class Item:
    def __init__(self, *marks):
        self.marks = marks

    def get_closest_marker(self, mark):
        return mark if mark in self.marks else None


def needing(**found):
    return {
        mark: Need(lambda there=there: there, f"a {mark}", "get", mark, required_by="SOW_TRY")
        for mark, there in found.items()
    }


def test_what_lacks_a_program_is_left_out_counted_and_named():
    left_out = LeftOut(needing(browser=None, node="/bin/node"))
    items = [Item(), Item("browser"), Item("node"), Item("node", "browser")]
    plain, _, of_node, _ = items
    assert len(left_out.leave_out(items)) == 2
    assert items == [plain, of_node]
    assert left_out.line() == "not run: 2 tests that need a browser; to run them: get browser"


def test_one_line_names_all_that_is_missing_and_all_that_installs_it():
    needs = needing(browser=None, curl=None, node=None)
    needs["node"] = needs["node"]._replace(install="make")
    left_out = LeftOut(needs)
    left_out.leave_out([Item("curl"), Item("browser"), Item("browser"), Item("node")])
    assert left_out.line() == (
        "not run: 2 tests that need a browser, 1 test that needs a curl, 1 test that needs a node; "
        "to run them: get browser curl && make node"
    )


def test_where_everything_is_there_nothing_is_said():
    left_out = LeftOut(needing(browser="/bin/chromium"))
    assert (left_out.leave_out([Item("browser")]), left_out.line(), left_out.fails) == (
        [],
        "",
        False,
    )


def test_processes_of_one_run_are_not_added_up():
    left_out = LeftOut(needing(browser=None))
    for _ in range(3):
        left_out.hear({"browser": 1})
    assert left_out.line() == "not run: 1 test that needs a browser; to run them: get browser"


@pytest.mark.parametrize(("requested", "fails"), [("", False), ("0", False), ("1", True)])
def test_a_run_fails_for_what_it_has_to_run(requested, fails, monkeypatch):
    monkeypatch.setenv("SOW_TRY", requested)
    left_out = LeftOut(needing(browser=None))
    assert left_out.fails is False, "nothing was left out"
    left_out.leave_out([Item("browser")])
    assert left_out.fails is fails


def test_every_mark_is_known_and_only_the_browser_is_ever_a_must():
    marks = (ROOT / "pyproject.toml").read_text()
    assert all(f'"{mark}: ' in marks for mark in NEEDS)
    assert [mark for mark, need in NEEDS.items() if need.required_by] == ["browser"]


def browser_marks():
    """The test files with the mark, by their folder."""
    tests = ROOT / "tests"
    for path in sorted(tests.rglob("test_*.py")):
        if "mark.browser" not in (text := path.read_text()):
            continue
        nodes = ast.walk(ast.parse(text))
        names = {ast.unparse(node) for node in nodes if isinstance(node, ast.Attribute)}
        if "pytest.mark.browser" in names:
            yield path.parent.relative_to(tests).as_posix()


def test_nothing_outside_the_browser_folders_needs_a_browser():
    assert set(browser_marks()) == set(BROWSER_FOLDERS)


def test_a_test_without_the_mark_is_given_no_browser_wherever_it_runs(request, pages):
    for opening in (lambda: request.getfixturevalue("browser"), pages):
        with pytest.raises(AssertionError, match="a test that opens a page is marked `browser`"):
            opening()


@pytest.mark.node
def test_the_node_that_is_found_has_a_websocket():
    command = node()
    assert version_of(command[0]) >= NODE_VERSION
    said = subprocess.run(
        [*command, "--eval", "console.log(typeof WebSocket)"], capture_output=True, text=True
    )
    assert said.stdout == "function\n"


BROWSING = "tests/browser/test_slider.py"
"""One of the files that need a browser: reading all of them shows no more."""


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
        BROWSING, "tests/core/test_comma_lists.py", *processes, SOW_REQUIRE_BROWSER=""
    )
    assert code == 0, said
    assert re.match(LINE, last), said


def test_where_a_browser_is_required_it_fails():
    last, code, said = run_without_programs(BROWSING, SOW_REQUIRE_BROWSER="1")
    assert code == 1, said
    assert re.match(LINE, last), said
