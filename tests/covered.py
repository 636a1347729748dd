"""What the tests reach, folder by folder: ``python -m tests.covered [--modules] [--write]``.

`make coverage` runs the tests and combines what they leave; this reads it. Two shares are told: of
the lines of functions, how many ran under any test, and how many under the module's own test file.
Lines outside functions run when a module is imported, whoever imports it, and say nothing. With
`--modules` those modules are named whose own tests reach less than half; with `--write` the table
goes into docs/testing.md.
"""

import ast
import sys
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from coverage import Coverage

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "testing.md"
BEGIN, END = "<!-- coverage: written by make coverage -->\n", "<!-- end of coverage -->"
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
    """The Python name of the test file of a module, given by its path below the root."""
    *folders, name = Path(module).with_suffix("").parts
    if folders[0] == "sow":
        folders = folders[1:]
    return ".".join(["tests", *folders, f"test_{name}"])


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
        if any(context.startswith(f"{own}.") for context in contexts)
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


def table(found):
    """The shares of folders as Markdown."""
    rows = [
        f"| {'all' if folder == 'all' else f'`{folder}`'} | {of.lines:,} "
        f"| {of.reached / of.lines:.1%} | {of.own / of.lines:.0%} |"
        for folder, of in folders(found).items()
    ]
    head = ["| folder | lines of functions | reached | by own tests |", "| --- | --- | --- | --- |"]
    return "\n".join([*head, *sorted(rows, key=lambda row: row.startswith("| all"))])


def main():
    found = modules()
    print(table(found))
    if "--modules" in sys.argv:
        print("\nReached for the most part by others' tests:")
        for module, of in sorted(found.items(), key=lambda item: item[1].own / item[1].lines):
            if of.own < OWN_MIN * of.lines:
                print(f"  {of.own / of.lines:4.0%} of {of.reached / of.lines:4.0%}  {module}")
    if "--write" in sys.argv:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}{table(found)}\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
