"""The table of elements as Markdown: the part of docs/configuration.md that cannot drift."""

from collections.abc import Iterator

from sow.config.elements.element import Element, Status
from sow.config.elements.table import ROOT


def reference() -> str:
    """The implemented elements, section by section, then the names of all others."""
    sections = [_section(place, element) for place, element in _sections()]
    return "\n\n".join([*sections, *_others()]) + "\n"


def _sections() -> Iterator[tuple[str, Element]]:
    for parent, element in ROOT.walk():
        if element.children and element.status == "implemented":
            yield f"{parent}/{element.name}".removeprefix(f"/{ROOT.name}").lstrip("/"), element


def _section(place: str, element: Element) -> str:
    place = place.removeprefix(f"{ROOT.name}/") or " or ".join(ROOT.names)
    lines = [f"### {place}", "", element.about, ""]
    lines += ["| element | value | default | meaning |", "| --- | --- | --- | --- |"]
    lines += [_row(child) for child in element.children if child.status == "implemented"]
    return "\n".join(lines)


def _row(element: Element) -> str:
    names = " or ".join(f"`{name}`" for name in element.names)
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
