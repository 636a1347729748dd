"""XML text as plain nodes that know their line, and nothing that XML can do besides.

A DOCTYPE is refused, and with it entities, external files and their expansion attacks; the
network is never touched, and size and depth are bounded. What elements mean is not known here.
`${NAME}` in a value is replaced after the XML is parsed, so that a value is never markup.
"""

import os.path
import re
from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from lxml import etree

from conflated_topics.suggest import nearest
from sow.config.diagnostics import Diagnostics, FileLine, MistakeError

DOCUMENT_BYTES_MAX = 5 * 1024**2
"""Thousands of topics with everything written out; the whole tree is held while it is checked."""
# The deepest known element is four levels below the root.
DEPTH_MAX = 32
# Attributes that name a schema for an editor; ignored here.
FOR_EDITORS = "{http://www.w3.org/2001/XMLSchema-instance}"
# How libxml2 complains about a second element beside the first.
EXTRA = re.compile(r"Extra content")
# How libxml2 complains about a bare < or & in a filter.
UNESCAPED = re.compile(r"StartTag|EntityRef|CharRef|Entity|invalid element name")


@dataclass(slots=True)
class XmlElement:
    """An element: its tag, line, own text (as written), attributes and child elements."""

    tag: str
    line: FileLine
    text: str = ""
    attributes: dict[str, str] = field(default_factory=dict)
    children: list["XmlElement"] = field(default_factory=list)


def parse_document(text: str | bytes, file: str, findings: Diagnostics) -> XmlElement | None:
    """The root of the document in `file`; None, with a finding, when it is not one we read."""
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if len(data) > DOCUMENT_BYTES_MAX:
        findings.error(
            FileLine(1, file),
            "document",
            f"is larger than {DOCUMENT_BYTES_MAX // 1024**2} MiB",
            "split what it configures over several servers",
        )
        return None
    try:
        root = etree.fromstring(data, _parser("utf-8" if isinstance(text, str) else None))
    except etree.XMLSyntaxError as error:
        if b"<!DOCTYPE" in data:
            _refuse_doctype(file, findings)
        _report(error, file, findings)
        return None
    if root.getroottree().docinfo.internalDTD is not None:
        _refuse_doctype(file, findings)
        return None
    return _to_node(root, file, findings)


def _refuse_doctype(file: str, findings: Diagnostics) -> None:
    findings.error(
        FileLine(1, file),
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


def _report(error: etree.XMLSyntaxError, file: str, findings: Diagnostics) -> None:
    line, column = error.position
    # The message ends in its place, which is reported separately, or in advice for programmers.
    message = re.sub(r",? (line \d+, column|use XML_|see xml).*", "", str(error.msg), flags=re.S)
    instead = f"correct the XML at column {column}"
    if UNESCAPED.search(message):
        instead += "; in a value write &lt; for < and &amp; for &, or use <![CDATA[…]]>"
    if EXTRA.search(message):
        instead += "; a file has one element around all that is in it"
    place = FileLine(line or 1, file)
    findings.error(place, "document", f"not well-formed XML: {message}", instead)


def _to_node(root: etree._Element, file: str, findings: Diagnostics) -> XmlElement | None:
    """Copy the tree, without recursion: its depth is not ours to choose."""
    top = XmlElement("", FileLine(0, file))
    pending = [(root, top, 1)]
    while pending:
        element, parent, depth = pending.pop()
        line = FileLine(cast("int | None", element.sourceline) or 1, file)
        if depth > DEPTH_MAX:
            findings.error(line, str(element.tag), "is nested too deeply", "remove it")
            return None
        tails = "".join(child.tail or "" for child in element)
        attributes = {
            str(name): str(value)
            for name, value in element.attrib.items()
            if not str(name).startswith(FOR_EDITORS)
        }
        node = XmlElement(str(element.tag), line, (element.text or "") + tails, attributes)
        parent.children.append(node)
        # Reversed, as the last one pushed is the first one copied.
        pending.extend((child, node, depth + 1) for child in reversed(element))
    return top.children[0]


REFERENCE = re.compile(r"\$\{([^}]*)\}")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


class Variables:
    """The values of `${NAME}` in one file."""

    def __init__(
        self, file: str, variables: Mapping[str, str], environment: Mapping[str, str]
    ) -> None:
        built_in = {
            "AMPS_CONFIG_PATH": file,
            "AMPS_CONFIG_DIRECTORY": os.path.dirname(file) or ".",
        }
        self._values = ChainMap({}, dict(variables), dict(environment), built_in)

    def expand(self, text: str, but: str = "") -> str:
        """`text` with every variable replaced, once; raises MistakeError. Names that begin with
        `but` are left for another reader to resolve."""

        def value(found: re.Match[str]) -> str:
            stays = but and found[1].startswith(but)
            return found[0] if stays else self._value(found[1])

        return REFERENCE.sub(value, text)

    def _value(self, name: str) -> str:
        if not NAME.fullmatch(name):
            raise MistakeError(f"${{{name}}} does not name a variable", "write ${NAME}")
        if name not in self._values:
            meant = nearest(name, self._values)
            raise MistakeError(
                f"the variable {name} is not defined",
                (f"did you mean {meant}? If not, " if meant else "")
                + f"start with --set {name}=VALUE or put {name} into the environment",
            )
        return self._values[name]
