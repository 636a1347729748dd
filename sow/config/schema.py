"""The table of elements as an XML schema, for completion and validation in editors.

It describes which elements are allowed where, and the words of enumerations. Everything else is
left to `sow check`: a schema cannot express that elements come in any order and some only once, nor
the syntax of a filter. Planned and refused elements are left out, so an editor marks them.
"""

from xml.sax.saxutils import escape, quoteattr

from sow.config.document import COMMENT
from sow.config.elements.element import Element
from sow.config.elements.table import INCLUDE, ROOT

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
