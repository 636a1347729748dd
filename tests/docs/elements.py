"""The elements of config.xml as a reference in Markdown: a part of docs/configuration.md.

Only what is implemented; docs/migration.md has all that AMPS has, and what becomes of it.
"""

from collections.abc import Iterator

from sow.config.elements.element import Element
from sow.config.elements.table import ROOT

HEADINGS_DEPTH = 2
"""Sections further down, which are short, are rows in the table of their parent section."""
ROWS_MIN = 3
"""So are those of this depth with fewer elements."""


def reference() -> str:
    """The implemented elements, section by section."""
    return "\n\n".join(_sections()) + "\n"


def _sections() -> Iterator[str]:
    shown: dict[str, str] = {}
    yield _section(" or ".join(ROOT.names), ROOT, 0, shown)
    for parent, element in ROOT.walk():
        place = f"{parent}/{element.name}".removeprefix(ROOT.name).strip("/").split("/")
        if element is not ROOT and _has_heading(element, len(place)):
            yield _section("/".join(place), element, len(place), shown)


def _has_heading(element: Element, depth: int) -> bool:
    if element.status != "implemented" or not element.children or depth > HEADINGS_DEPTH:
        return False
    return depth < HEADINGS_DEPTH or len(element.children) >= ROWS_MIN


def _section(place: str, element: Element, depth: int, shown: dict[str, str]) -> str:
    """A table; rows that another section has already are only named, with that section."""
    rows = list(_rows(element, depth + 1))
    repeated = [row for row in rows if row in shown]
    lines = [f"### {place}", ""]
    lines += ["| element | value | default | meaning |", "| --- | --- | --- | --- |"]
    lines += [row for row in rows if row not in shown]
    for other in dict.fromkeys(shown[row] for row in repeated):
        names = [row.split(" | ")[0].strip("| ") for row in repeated if shown[row] == other]
        lines += ["", f"As in {other}: {', '.join(names)}."]
    shown.update((row, place) for row in rows if row not in shown)
    return "\n".join(lines)


def _rows(element: Element, depth: int, prefix: str = "") -> Iterator[str]:
    """A row for each child, followed by those of its own children unless they have a heading."""
    for child in element.children:
        if child.status == "implemented":
            yield _row(child, prefix)
            if not _has_heading(child, depth):
                yield from _rows(child, depth + 1, f"{prefix}{child.name}/")


def _row(element: Element, prefix: str) -> str:
    names = " or ".join(f"`{prefix}{name}`" for name in element.names)
    value = element.kind.name if element.kind else "section"
    if element.repeated:
        names += " (repeatable)"
    default = "required" if element.required else f"`{element.default}`" if element.default else "–"
    return f"| {names} | {value} | {default} | {element.about} |"
