"""XML text as plain nodes that know their line, and nothing that XML can do besides.

A DOCTYPE is refused, and with it entities, external files and their expansion attacks; the
network is never touched, and size and depth are bounded. What elements mean is not known here.
"""

import re
from dataclasses import dataclass, field
from typing import cast

from lxml import etree

from sow.config.findings import Findings

DOCUMENT_BYTES_MAX = 5 * 1024**2
"""Thousands of topics with everything written out; the whole tree is held while it is checked."""
# The deepest element that means anything stands four below the root.
DEPTH_MAX = 32
# How libxml2 complains about a bare < or & in a filter.
UNESCAPED = re.compile(r"StartTag|EntityRef|CharRef|Entity|invalid element name")


@dataclass(slots=True)
class XmlElement:
    """An element: its tag, line, own text (as written), attributes and child elements."""

    tag: str
    line: int
    text: str = ""
    attributes: dict[str, str] = field(default_factory=dict)
    children: list["XmlElement"] = field(default_factory=list)


def parse_document(text: str | bytes, findings: Findings) -> XmlElement | None:
    """The root of a document; None, with a finding, when it is not one we read."""
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if len(data) > DOCUMENT_BYTES_MAX:
        findings.error(
            1,
            "document",
            f"is larger than {DOCUMENT_BYTES_MAX // 1024**2} MiB",
            "split what it configures over several servers",
        )
        return None
    try:
        root = etree.fromstring(data, _parser("utf-8" if isinstance(text, str) else None))
    except etree.XMLSyntaxError as error:
        if b"<!DOCTYPE" in data:
            _refuse_doctype(findings)
        _report(error, findings)
        return None
    if root.getroottree().docinfo.internalDTD is not None:
        _refuse_doctype(findings)
        return None
    return _to_node(root, findings)


def _refuse_doctype(findings: Findings) -> None:
    findings.error(
        1,
        "DOCTYPE",
        "a document type, with its entities and external files, is refused",
        "remove the DOCTYPE and write values out, or use ${NAME} variables",
    )


def _parser(encoding: str | None) -> etree.XMLParser:
    # A parser is made per document: lxml's keep state and are not shared between threads.
    return etree.XMLParser(
        encoding=encoding,
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        dtd_validation=False,
        huge_tree=False,
        remove_comments=True,
        remove_pis=True,
    )


def _report(error: etree.XMLSyntaxError, findings: Findings) -> None:
    line, column = error.position
    # The message ends in its place, which is reported separately, or in advice for programmers.
    message = re.sub(r",? (line \d+, column|use XML_|see xml).*", "", str(error.msg), flags=re.S)
    instead = f"correct the XML at column {column}"
    if UNESCAPED.search(message):
        instead += "; in a value write &lt; for < and &amp; for &, or use <![CDATA[…]]>"
    findings.error(line or 1, "document", f"not well-formed XML: {message}", instead)


def _to_node(root: etree._Element, findings: Findings) -> XmlElement | None:
    """Copy the tree, without recursion: its depth is not ours to choose."""
    top = XmlElement("", 0)
    pending = [(root, top, 1)]
    while pending:
        element, parent, depth = pending.pop()
        line = cast("int | None", element.sourceline) or 1
        if depth > DEPTH_MAX:
            findings.error(line, str(element.tag), "is nested too deeply", "remove it")
            return None
        tails = "".join(child.tail or "" for child in element)
        attributes = {str(name): str(value) for name, value in element.attrib.items()}
        node = XmlElement(str(element.tag), line, (element.text or "") + tails, attributes)
        parent.children.append(node)
        # Reversed, as the last one pushed is the first one copied.
        pending.extend((child, node, depth + 1) for child in reversed(element))
    return top.children[0]
