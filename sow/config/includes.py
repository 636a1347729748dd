"""`<Include>`: replaced by the content of another file, before any element is looked up.

Each file is a document by itself, with its own line numbers in findings. Its root element replaces
the Include; if that is the same element as the one around the Include, as in a file `<SOW>` that
is included in `<SOW>`, its children do. Unreadable files, cycles and unbounded growth are refused.
The caller passes the function that reads a file: nothing here touches a disk.
"""

import os.path
from collections.abc import Callable
from dataclasses import replace

from sow.config.diagnostics import Diagnostics, MistakeError
from sow.config.document import DOCUMENT_BYTES_MAX, Variables, XmlElement, parse_document
from sow.config.elements.table import INCLUDE

DEPTH_MAX = 8
"""Depth of includes. A divided configuration needs two or three levels; a cycle of symbolic
links, whose paths are all different, ends here."""
FILES_MAX = 100
"""Files of a configuration, each as often as it is included. One for each desk is well below it;
files that include others several times each would be read 2^DEPTH_MAX times."""
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
        if len(files) > DEPTH_MAX:
            raise MistakeError(
                f"{_named(path)} would be file {len(files) + 1} in a chain of includes, and "
                f"{DEPTH_MAX + 1} are allowed",
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
