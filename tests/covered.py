"""What the tests reach, by folder: ``python -m tests.covered [--modules] [--write] [FOLDER ...]``.

`make coverage` runs the tests and combines what they leave; this reads it. Two shares are told: of
the lines of functions, how many ran under any test, and how many under the module's own test file.
Lines outside functions run when a module is imported, whoever imports it, and say nothing. With
`--modules` those modules are named whose own tests reach less than half, and it fails if one of
them was above it: `BELOW` has those that were below already, and only gets shorter. With `--write`
the table goes into docs/testing.md, or the rows of the folders that are named, if only their tests
were run.
"""

import argparse
import ast
import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from coverage import Coverage

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "testing.md"
BEGIN, END = "<!-- coverage: written by make coverage -->\n", "<!-- end of coverage -->"
BELOW = ROOT / "tests" / "few_own_tests.txt"
OWN_MIN = 0.5


class Share(NamedTuple):
    """Lines of functions: how many there are, under any test, under the module's own."""

    lines: int = 0
    reached: int = 0
    own: int = 0

    def __add__(self, other):
        return Share(*map(sum, zip(self, other, strict=True)))


def lines_of_functions(source):
    """The numbers of the lines that stand in the body of a function."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            body = node.body if isinstance(node.body, list) else [node.body]
            for part in body:
                found |= set(range(part.lineno, part.end_lineno + 1))
    return found


def own_tests(module):
    """The test file of a module, given by its path below the root."""
    *folders, name = Path(module).parts
    if folders[0] == "sow":
        folders = folders[1:]
    return "/".join(["tests", *folders, f"test_{name}"])


def share(coverage, path):
    """What was reached of one module."""
    module = Path(path).relative_to(ROOT).as_posix()
    _, statements, _, missing, _ = coverage.analysis2(path)
    lines = set(statements) & lines_of_functions(Path(path).read_text())
    data, own = coverage.get_data(), own_tests(module)
    under = data.contexts_by_lineno(path)
    mine = {
        line
        for line, contexts in under.items()
        if any(context.startswith(f"{own}::") for context in contexts)
    }
    return module, Share(len(lines), len(lines - set(missing)), len(lines & mine))


def modules():
    """What was reached of each module that was measured and has functions."""
    coverage = Coverage()
    coverage.load()
    found = dict(share(coverage, path) for path in sorted(coverage.get_data().measured_files()))
    return {module: of for module, of in found.items() if of.lines}


def folders(found):
    """The same for each folder, those that stand flat in sow/ as one, and for all together."""
    together = defaultdict(Share)
    for module, of in found.items():
        together[Path(module).parent.as_posix()] += of
        together["all"] += of
    return together


def rows_of(found):
    """The shares of folders as lines of Markdown, by folder."""
    return {
        folder: f"| {'all' if folder == 'all' else f'`{folder}`'} | {of.lines:,} "
        f"| {of.reached / of.lines:.1%} | {of.own / of.lines:.0%} |"
        for folder, of in folders(found).items()
    }


def table(rows):
    """Lines of folders as a table, all together at its end."""
    head = ["| folder | lines of functions | reached | by own tests |", "| --- | --- | --- | --- |"]
    return "\n".join(
        [*head, *(rows[name] for name in sorted(rows, key=lambda one: (one == "all", one)))]
    )


def written_rows(text):
    """The lines that a table has already, by folder."""
    return dict(re.findall(r"^(?=\| `?([\w/]+)`? \| \d)(.*)$", text, re.MULTILINE))


def fallen(found, known):
    """The modules that are below the minimum and were not, and those that stay known as such."""
    below = {module for module, of in found.items() if of.own < OWN_MIN * of.lines}
    return sorted(below - known), sorted(known - (found.keys() - below))


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.covered")
    parser.add_argument("folders", nargs="*", help="what was measured; all, where none is named")
    parser.add_argument("--modules", action="store_true", help="name those with few own tests")
    parser.add_argument("--write", action="store_true", help="into docs/testing.md")
    requested = parser.parse_args()
    found = modules()
    if requested.folders:
        found = {
            name: of for name, of in found.items() if str(Path(name).parent) in requested.folders
        }
    rows = rows_of(found)
    print(table(rows))
    if requested.modules:
        print("\nReached for the most part by others' tests:")
        for module, of in sorted(found.items(), key=lambda item: item[1].own / item[1].lines):
            if of.own < OWN_MIN * of.lines:
                print(f"  {of.own / of.lines:4.0%} of {of.reached / of.lines:4.0%}  {module}")
    if requested.write:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        old, _, after = rest.partition(END)
        if requested.folders:
            rows = {**written_rows(old), **{name: rows[name] for name in requested.folders}}
        PAGE.write_text(f"{before}{BEGIN}{table(rows)}\n{END}{after}")
    if requested.modules:
        judge(found, requested.write)


def judge(found, writes):
    """Fail if a module has fallen below the minimum; the first time, note which are below it."""
    known = set(BELOW.read_text().split()) if BELOW.exists() else found.keys()
    new, stay = fallen(found, known)
    if writes:
        BELOW.write_text("".join(f"{module}\n" for module in stay))
    if new:
        sys.exit(f"less than half of these is reached by their own tests: {', '.join(new)}")


if __name__ == "__main__":
    main()
