"""XML text as plain nodes that know their line, and nothing that XML can do besides.

A DOCTYPE is refused, and with it entities, external files and their expansion attacks; the
network is never touched, and size and depth are bounded. What elements mean is not known here.
`${NAME}` in a value is replaced after the XML is parsed, so that a value is never markup.

An `<Include>` is replaced by the content of another file, before any element is looked up. Each
file is a document by itself, with its own line numbers in findings. Its root element replaces the
Include; if that is the same element as the one around the Include, as in a file `<SOW>` that is
included in `<SOW>`, its children do. Unreadable files, cycles and unbounded growth are refused. The
caller passes the function that reads a file: nothing here touches a disk.
"""

import os.path
import re
from collections import ChainMap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import cast

from lxml import etree

from conflated_topics.user_texts import nearest
from sow.config.diagnostics import Diagnostics, FileLine, MistakeError
from sow.config.elements.table import INCLUDE

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
        built_in = {"AMPS_CONFIG_PATH": file, "AMPS_CONFIG_DIRECTORY": os.path.dirname(file) or "."}
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


INCLUDES_DEPTH_MAX = 8
"""Depth of includes. A divided configuration needs two or three levels; a cycle of symbolic
links, whose paths are all different, ends here."""
FILES_MAX = 100
"""Files of a configuration, each as often as it is included. One for each desk is well below it;
files that include others several times each would be read 2^INCLUDES_DEPTH_MAX times."""
NAMED_CHARS_MAX = 512
"""Length of a path in a finding: more than people use, and no megabytes."""
COMMENT = "comment"
"""AMPS's attribute: whether its `--dump-config` marks where a file begins and ends."""

Reader = Callable[[str, int], bytes]
"""The first so many bytes of the file at a path; raises OSError."""


def include(
    document: XmlElement, size: int, variables: Variables, findings: Diagnostics, read: Reader
) -> XmlElement:
    """The `document`, which has `size` bytes itself, with what it includes."""
    room = DOCUMENT_BYTES_MAX - size
    return _Includer(variables, findings, read, room).whole(document, (document.line.file,))


class _Includer:
    def __init__(
        self, variables: Variables, findings: Diagnostics, read: Reader, room_bytes: int
    ) -> None:
        self._variables = variables
        self._findings = findings
        self._read = read
        self._room_bytes = room_bytes
        self._files = 0

    def whole(self, node: XmlElement, files: tuple[str, ...]) -> XmlElement:
        """`node` with what is included below it; `files` are those around, the outermost first."""
        children = []
        for child in node.children:
            if child.tag == INCLUDE.name:
                children += self._contents(child, node, files)
            else:
                children.append(self.whole(child, files))
        return replace(node, children=children)

    def _contents(
        self, node: XmlElement, parent: XmlElement, files: tuple[str, ...]
    ) -> list[XmlElement]:
        """The replacement of an Include in `parent`; nothing, with a finding, if there is none."""
        if self._files > FILES_MAX:
            return []  # reported once
        self._comment(node)
        try:
            path = self._path(node, files)
            data = self._data(path)
        except MistakeError as mistake:
            self._findings.error(node.line, INCLUDE.name, mistake.message, mistake.instead)
            return []
        root = parse_document(data, path, self._findings)
        if root is None:
            return []
        inside = (*files, path)
        if root.tag == INCLUDE.name:
            return self._contents(root, parent, inside)
        root = self.whole(root, inside)
        is_parent = root.tag == parent.tag and not root.attributes and not root.text.strip()
        return root.children if is_parent else [root]

    def _comment(self, node: XmlElement) -> None:
        for name in node.attributes:
            if name == COMMENT:
                message = f"the attribute {COMMENT} has no effect here, since no file is written"
                self._findings.warning(node.line, INCLUDE.name, message, "it can be removed")
            else:
                message = f"has the unknown attribute {name!r}"
                self._findings.error(node.line, INCLUDE.name, message, "remove it")

    def _path(self, node: XmlElement, files: tuple[str, ...]) -> str:
        """The file that is meant, by its path as the including file is called; raises
        MistakeError."""
        if node.children:
            raise MistakeError("holds an element", "write the path of a file into it, and no more")
        assert INCLUDE.kind is not None
        text = str(INCLUDE.kind.read(self._variables.expand(node.text.strip()).strip()))
        if not text:
            raise MistakeError("is empty", "write the path of a file into it, or remove it")
        path = os.path.normpath(os.path.join(os.path.dirname(files[-1]), text))
        if path in map(os.path.normpath, files):
            circle = " → ".join(map(_named, (*files, path)))
            raise MistakeError(f"leads in a circle: {circle}", "remove one of these Includes")
        if len(files) > INCLUDES_DEPTH_MAX:
            raise MistakeError(
                f"{_named(path)} would be file {len(files) + 1} in a chain of includes, and "
                f"{INCLUDES_DEPTH_MAX + 1} are allowed",
                "include it further up",
            )
        return path

    def _data(self, path: str) -> bytes:
        """The file at `path`; raises MistakeError."""
        self._files += 1
        if self._files > FILES_MAX:
            raise MistakeError(
                f"{_named(path)} would be included file number {self._files}, and there may be "
                f"{FILES_MAX}",
                "put several into one",
            )
        try:
            # One byte over the bound is enough to see that the file is over it.
            data = self._read(path, self._room_bytes + 1)
        except OSError as error:
            raise MistakeError(
                f"{_named(path)} cannot be read: {error.strerror}",
                "write the path of a file, relative to the file that includes it",
            ) from None
        if len(data) > self._room_bytes:
            raise MistakeError(
                f"with {_named(path)} the files of this configuration are larger than "
                f"{DOCUMENT_BYTES_MAX // 1024**2} MiB together",
                "split what it configures over several servers",
            )
        self._room_bytes -= len(data)
        return data


def _named(path: str) -> str:
    """A path in quotes; of a very long one the end, which identifies the file."""
    return repr(path if len(path) <= NAMED_CHARS_MAX else f"…{path[-NAMED_CHARS_MAX:]}")
