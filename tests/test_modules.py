"""Each module has a test file of its own, in the place that mirrors its own place.

What a module promises is shown where it is made, so that a fault is found where it is, and not by
whoever happens to use it. Several modules together are another matter (docs/testing.md).
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

WITHOUT = {
    "sow/__main__.py": "calls main; tests/cli/test_main.py runs it as a process",
    "sow/cli/__main__.py": "calls main; tests/cli/commands/test_serve.py runs it as a process",
}
"""Modules that have none, and why."""


def modules():
    """All modules but those that make a package of a folder."""
    found = [*(ROOT / "sow").rglob("*.py"), *(ROOT / "conflated_topics").rglob("*.py")]
    return sorted(path.relative_to(ROOT).as_posix() for path in found if path.name != "__init__.py")


def test_file(module):
    """The test file of a module: its place below sow/, or that of conflated_topics/."""
    path = Path(module)
    folder = path.parent.relative_to("sow") if path.parts[0] == "sow" else path.parent
    return Path("tests") / folder / f"test_{path.name}"


test_file.__test__ = False  # pytest takes it for a test by its name


def has_tests(file):
    return file.is_file() and re.search(r"^(async )?def test_", file.read_text(), re.M)


def test_a_module_has_a_test_file_of_its_own():
    wanted = sorted(set(modules()) - WITHOUT.keys())
    missing = [str(test_file(one)) for one in wanted if not has_tests(ROOT / test_file(one))]
    assert not missing, f"write these test files, each with a test of its module: {missing}"


@pytest.mark.parametrize("module", WITHOUT)
def test_a_module_without_one_is_there_and_still_has_none(module):
    assert (ROOT / module).is_file()
    assert not (ROOT / test_file(module)).exists()


def test_places_mirror_each_other():
    assert test_file("sow/core/clock.py") == Path("tests/core/test_clock.py")
    assert test_file("sow/topic/batch.py") == Path("tests/topic/test_batch.py")
    assert test_file("conflated_topics/folds.py") == Path("tests/conflated_topics/test_folds.py")
