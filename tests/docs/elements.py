"""The elements of config.xml as a reference in Markdown: a part of docs/configuration.md.

Only what is implemented; docs/migration.md has all that AMPS has, and what becomes of it.
"""

from collections.abc import Iterator

from sow.config.elements import Element
from sow.config.elements.table import ROOT

HEADINGS_DEPTH = 2
"""Sections further down, which are short, are rows in the table of their parent section."""
ROWS_MIN = 5
"""So are those with fewer elements."""


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
    is_section = element.status == "implemented" and depth <= HEADINGS_DEPTH
    return is_section and sum(one.status == "implemented" for one in element.children) >= ROWS_MIN


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
            if not _has_heading(child, depth) and not is_one_row(child):
                yield from _rows(child, depth + 1, f"{prefix}{child.name}/")


def says_all(section: Element) -> bool:
    """Whether a section has only required elements that say what they are by their names."""
    return all(one.required and one.about == f"Its {one.name.lower()}." for one in section.children)


def is_one_row(section: Element) -> bool:
    """Whether the row of a section describes its elements too: all of them, or the only one."""
    return says_all(section) or _only_leaf(section) is not None


def _only_leaf(section: Element) -> Element | None:
    """The required element that a section has alone."""
    built = [one for one in section.children if one.status == "implemented"]
    return built[0] if len(built) == 1 and built[0].required and built[0].kind else None


def _row(element: Element, prefix: str) -> str:
    names = " or ".join(f"`{prefix}{name}`" for name in element.names)
    value = element.kind.name if element.kind else "section"
    about = element.about
    if element.children and says_all(element):
        value += f" of {' and '.join(f'`{one.name}`' for one in element.children)}"
    elif (leaf := _only_leaf(element)) and leaf.kind:
        value += f" of `{leaf.name}`{' (repeatable)' if leaf.repeated else ''}: {leaf.kind.name}"
        about += f" `{leaf.name}`: {leaf.about}"
    if element.repeated:
        names += " (repeatable)"
    default = "required" if element.required else f"`{element.default}`" if element.default else "–"
    return f"| {names} | {value} | {default} | {about} |"
