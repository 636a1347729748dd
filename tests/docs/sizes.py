"""How much code there is to read, by the floors of the architecture.

A line of code is not blank, no comment and no string that stands for itself.
"""

import ast
import io
import re
import tokenize
from functools import cache
from pathlib import Path

from tests.test_layers import table as floors

ROOT = Path(__file__).parents[2]
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
EDGES = "4"
NAMED_MIN = 500
"""A room with at least so many lines is named in the row of its floor."""
OFF_MAX = 0.1
"""The share by which figures may be off: they are rounded, of small floors to a twentieth."""
NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def code_lines(source: str) -> int:
    """Lines of code: not blank, no comment, no string that stands for itself."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


@cache
def length_of(file: Path) -> int:
    """Lines of code of a file."""
    return code_lines(file.read_text())


def room_lines(room: str) -> int:
    """Lines of code of a module or package, by its dotted name."""
    path = ROOT.joinpath(*room.split("."))
    files = path.rglob("*.py") if path.is_dir() else [path.with_suffix(".py")]
    inner = {"conflated_topics": path / "spark"}.get(room, Path("/nowhere"))
    return sum(length_of(file) for file in files if not file.is_relative_to(inner))


def spine() -> list[Path]:
    """The files that CONTRIBUTING.md suggests to read first."""
    reading = CONTRIBUTING.read_text().partition("\n## Reading\n")[2].partition("\n## ")[0]
    return [ROOT / name for name in re.findall(r"`([\w/]+\.py)`", reading)]


def table() -> str:
    """The spine, the floors of the core, the whole core and the edges, in lines of code."""
    rooms: dict[str, list[str]] = {}
    for row in floors():
        rooms.setdefault(row.floor[0], []).extend(row.rooms)
    edges = rooms.pop(EDGES)
    rows = [_row("the spine", sum(map(length_of, spine())), "")]
    rows += [_row(f"floor {name}", *_named(members)) for name, members in rooms.items()]
    core = sum(room_lines(room) for members in rooms.values() for room in members)
    rows += [_row("the core: these floors", core, ""), _row("the edges", *_named(edges))]
    return "\n".join(["| part | lines of code | rooms |", "| --- | ---: | --- |", *rows])


def _named(rooms: list[str]) -> tuple[int, str]:
    lengths = {room: room_lines(room) for room in rooms}
    large = sorted((room for room in rooms if lengths[room] >= NAMED_MIN), key=lengths.__getitem__)
    words = [f"`{room.removeprefix('sow.')}` {_rounded(lengths[room])}" for room in large[::-1]]
    if rest := len(rooms) - len(large):
        words.append(f"{rest} more" if large else f"{rest} small modules")
    return sum(lengths.values()), ", ".join(words)


def _row(part: str, lines: int, rooms: str) -> str:
    return f"| {part} | {_rounded(lines)} | {rooms} |"


def _rounded(lines: int) -> str:
    return f"{round(lines, -2):,}"


def numbers(text: str) -> dict[str, int]:
    """The number of lines of each part, as a table has it."""
    found = re.findall(r"^\| ([^|]+) \| ([\d,]+) \|", text, re.M)
    return {part: int(lines.replace(",", "")) for part, lines in found}


def are_about(written: str, found: str) -> bool:
    """Whether two tables have the same parts and rooms, with figures that differ by little."""
    before, now = numbers(written), numbers(found)
    return (
        before.keys() == now.keys()
        and set(re.findall("`.*?`", written)) == set(re.findall("`.*?`", found))
        and all(abs(before[part] - now[part]) <= OFF_MAX * now[part] for part in now)
    )
