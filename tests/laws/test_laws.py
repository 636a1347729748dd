"""Each law of the table in README.md names tests and a planted bug that exist."""

import re
from pathlib import Path

from tests.cases import all_cases
from tests.simulation.mutations import MUTATIONS

PAGE = Path(__file__).with_name("README.md")
ROOT = Path(__file__).parents[2]
LAWS = {
    law: (re.findall(r"`([^`]+)`", tests), bug)
    for law, tests, bug in re.findall(
        r"^\| (\w[\w ]*) \| [^|]+ \| (`[^|]+) \| ([^|]+) \|$", PAGE.read_text(), re.M
    )
}


def is_there(test):
    """Whether `path::name` is a test, or a class of tests that Hypothesis makes of its rules."""
    path, _, name = test.partition("::")
    file = ROOT / path
    return file.is_file() and bool(
        re.search(rf"^((async )?def {name}\(|{name} = \w+\.TestCase$)", file.read_text(), re.M)
    )


def test_every_row_is_read():
    assert len(LAWS) == PAGE.read_text().count("\n| ") - 2 > 20


@all_cases("law", LAWS)
def test_a_law_has_its_tests_and_its_bug(law):
    tests, bug = LAWS[law]
    missing = [test for test in tests if not is_there(test)]
    assert not missing, f"tests/laws/README.md, {law}: there is no test {', '.join(missing)}"
    planted = {mutation.name for mutation in MUTATIONS}
    if bug.startswith('"'):
        assert bug.strip('"') in planted, f"tests/laws/README.md, {law}: nothing plants {bug}"
    else:
        assert is_there(bug.strip("`")), f"tests/laws/README.md, {law}: there is no test {bug}"


def test_a_test_that_is_gone_is_found():
    assert not is_there("tests/laws/test_laws.py::test_nothing")
    assert not is_there("tests/laws/test_nothing.py::test_nothing")
