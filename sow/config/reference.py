"""The table of elements as a reference in Markdown and as an XML schema.

The reference is a part of docs/configuration.md; the schema is for completion and validation in
editors.
"""

from collections.abc import Iterator
from xml.sax.saxutils import escape, quoteattr

from sow.config.document import COMMENT
from sow.config.elements.element import Element, Status
from sow.config.elements.table import INCLUDE, ROOT

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


# The schema describes which elements are allowed where, and the words of enumerations. Everything
# else is left to `sow check`: a schema cannot express that elements come in any order and some only
# once, nor the syntax of a filter. Planned and refused elements are left out, so an editor marks
# them.

XS = "http://www.w3.org/2001/XMLSchema"
STRING = "xs:string"
WITH_VARIABLE = r"[\s\S]*\$\{[\s\S]*"
"""A value with `${NAME}` in it: what it will be is not known to an editor."""
READ = ("implemented", "no effect", "foreign")
"""The status of elements with which a file runs, warnings or not."""

Lines = list[str]
"""A node of the schema as indented lines."""


def schema() -> str:
    """The schema of config.xml as text."""
    roots = [_node("element", *_about(ROOT), name=name, type=ROOT.name) for name in ROOT.names]
    comment = _node("attribute", name=COMMENT, type=STRING)
    included = _node("simpleContent", _node("extension", comment, base=STRING))
    top = _node(
        "schema",
        *roots,
        _schema_of(ROOT, name=ROOT.name),
        _node("complexType", included, name=INCLUDE.name),
        **{"xmlns:xs": XS},
    )
    return "\n".join(top) + "\n"


def _schema_of(section: Element, **attributes: str) -> Lines:
    """Its elements in any order; what may be an attribute, and own text, too."""
    elements = [
        _element(name, child)
        for child in section.children
        for name in child.names
        if child.status in READ
    ]
    elements.append(_node("element", name=INCLUDE.name, type=INCLUDE.name))
    short = [
        _valued("attribute", name, child)
        for child in section.children
        for name in child.names
        if child.attribute
    ]
    if section.text_child:
        attributes["mixed"] = "true"
    choice = _node("choice", *elements, minOccurs="0", maxOccurs="unbounded")
    return _node("complexType", choice, *short, **attributes)


def _element(name: str, element: Element) -> Lines:
    about = _about(element)
    if element.status != "implemented":  # it is not looked into
        return _node("element", *about, name=name, type="xs:anyType")
    if element.kind is None:
        return _node("element", *about, _schema_of(element), name=name)
    return _valued("element", name, element, *about)


def _valued(tag: str, name: str, element: Element, *about: Lines) -> Lines:
    """One of the words of its kind, or a variable; any text where the kind is no list of words."""
    assert element.kind is not None
    if not element.kind.words:
        return _node(tag, *about, name=name, type=STRING)
    words = [_node("enumeration", value=word) for word in element.kind.words]
    variable = _node("pattern", value=WITH_VARIABLE)
    union = _node(
        "union",
        _node("simpleType", _node("restriction", *words, base="xs:token")),
        _node("simpleType", _node("restriction", variable, base=STRING)),
    )
    return _node(tag, *about, _node("simpleType", union), name=name)


def _about(element: Element) -> list[Lines]:
    default = f" Default: {element.default}." if element.default else ""
    text = f"{element.about}{default}".strip()
    if not text:
        return []
    return [_node("annotation", [f"<xs:documentation>{escape(text)}</xs:documentation>"])]


def _node(tag: str, *inside: Lines, **attributes: str) -> Lines:
    start = f"<xs:{tag}" + "".join(f" {name}={quoteattr(v)}" for name, v in attributes.items())
    if not inside:
        return [f"{start}/>"]
    return [f"{start}>", *(f"  {line}" for part in inside for line in part), f"</xs:{tag}>"]
