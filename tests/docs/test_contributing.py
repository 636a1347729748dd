"""What the pages say of the code is so: how much there is to read, and which files there are."""

import ast
import io
import re
import tokenize
from functools import cache
from pathlib import Path

import pytest

from tests.test_layers import table

ROOT = Path(__file__).parents[2]
HISTORY = ROOT / "CHANGELOG.md"  # says what was
PAGES = sorted({*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")} - {HISTORY})
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
MODULES = {
    str(path.relative_to(ROOT))
    for folder in ("sow", "conflated_topics", "tests", "docs")
    for path in (ROOT / folder).rglob("*.py")
} | {path.name for path in ROOT.glob("*.py")}
NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def code_lines(source):
    """Lines of code: not blank, no comment, no text that stands for itself."""
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            lines.difference_update(range(node.lineno, node.end_lineno + 1))
    return len(lines)


@cache  # each file is asked for as one of its floor, of the core, of the spine
def length_of(file):
    return code_lines(file.read_text())


def counted(*modules):
    """Lines of code of modules and packages, by their dotted names."""
    found = 0
    for name in modules:
        path = ROOT.joinpath(*name.split("."))
        files = path.rglob("*.py") if path.is_dir() else [path.with_suffix(".py")]
        found += sum(map(length_of, files))
    return found


def said(pattern):
    """A number of CONTRIBUTING.md."""
    return int(re.search(pattern, TEXT)[1].replace(",", ""))


def test_code_lines_are_those_that_do_something():
    assert (
        code_lines('"""What."""\n\n# Why.\nA = 1  # how\n"""What A is."""\nB = (\n    2\n)\n') == 4
    )


def core():
    """The rooms below the edges, by floor: all of 3a to 3f are 3."""
    floors = {}
    for row in table():
        floors.setdefault(row.floor[0], []).extend(row.rooms)
    del floors["4"]
    return floors


@pytest.mark.parametrize("floor", core())
def test_a_floor_is_about_as_long_as_is_said(floor):
    found = counted(*core()[floor])
    assert found == pytest.approx(said(rf"\| {floor} \| ([\d,]+) \|"), rel=0.15)


def test_the_core_and_the_edges_are_about_as_long_as_is_said():
    found = counted(*(room for rooms in core().values() for room in rooms))
    assert found == pytest.approx(said(r"It is ([\d,]+) lines of code"), rel=0.15)
    edges = counted("sow.server", "sow.client", "sow.spark", "sow.cli")
    assert edges == pytest.approx(said(r"the edges, ([\d,]+) more"), rel=0.15)


def spine():
    """The files that CONTRIBUTING.md wants read first."""
    folder = ""
    for row in re.findall(r"^\d\. (.*?):", TEXT, re.M | re.S):
        for name in re.findall(r"`([\w/]+\.py)`", row):
            folder = name.rpartition("/")[0] or folder
            yield f"{folder}/{name.rpartition('/')[2]}"


def test_the_spine_is_about_as_long_as_is_said():
    total = sum(length_of(ROOT / name) for name in spine())
    assert total == pytest.approx(said(r"about ([\d,]+) lines of code"), rel=0.15)


def test_the_spine_is_the_reading_order_of_the_architecture():
    text = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
    order = re.findall(r"`([\w/]+\.py)`", re.search(r"\*\*Reading order:.*?\n\n", text, re.S)[0])
    read = list(spine())
    assert len(read) == len(order)
    assert all(path.endswith(f"/{name}") for path, name in zip(read, order, strict=True))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_names_files_that_are_there(page):
    named = re.findall(r"`((?:[\w.]+/)*\w+\.py)`", page.read_text())
    assert not {n for n in named if not any(m == n or m.endswith(f"/{n}") for m in MODULES)}
