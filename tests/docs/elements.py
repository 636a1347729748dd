"""The elements of config.xml as a reference in Markdown: a part of docs/configuration.md."""

from collections.abc import Iterator

from sow.config.elements.element import Element, Status
from sow.config.elements.table import ROOT

HEADINGS_DEPTH = 2
"""Sections further down, which are short, are rows in the table of their parent section."""


def reference() -> str:
    """The implemented elements, section by section, then the names of all others."""
    return "\n\n".join([*_sections(), *_others()]) + "\n"


def _sections() -> Iterator[str]:
    shown: dict[str, str] = {}
    yield _section(" or ".join(ROOT.names), ROOT, 0, shown)
    for parent, element in ROOT.walk():
        place = f"{parent}/{element.name}".removeprefix(ROOT.name).strip("/").split("/")
        if element is not ROOT and _has_heading(element, len(place)):
            yield _section("/".join(place), element, len(place), shown)


def _has_heading(element: Element, depth: int) -> bool:
    is_section = bool(element.children) and element.status == "implemented"
    return is_section and depth <= HEADINGS_DEPTH


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


def _others() -> Iterator[str]:
    headings: dict[Status, str] = {
        "not yet": "### Not available yet (an error)",
        "no effect": "### Accepted without effect (a warning)",
        "foreign": "### Elements of AMPS that are ignored (a warning)",
        "refused": "### Elements of AMPS that would be missed (an error)",
    }
    for status, heading in headings.items():
        places: dict[str, list[str]] = {}
        for place, element in ROOT.walk():
            if element.status == status:
                section = place.removeprefix(ROOT.name).lstrip("/") or "the root"
                places.setdefault(section, []).append(f"`{element.name}`")
        lines = [f"- {place}: {', '.join(names)}" for place, names in places.items()]
        yield "\n".join([heading, "", *lines])
