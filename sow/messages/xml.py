"""XML messages: a record is one element, kept byte for byte.

The document has the root element as its only field. An element with only text is that text; any
other is an object of its attributes, as `@name`, and its elements; repeated ones are a list. If
such an object has text too, that is its `#text`, and the value of a path to the element:
`/order/px` is 10 in `<px ccy="USD">10</px>`. Names keep their spelling, prefix included; `xmlns` is
an attribute like any other.

It is parsed by expat, which keeps names as written and loads no other file. A DOCTYPE is refused at
its start, so there are only the predefined entities, and nothing to expand; depth and number of
elements are bounded. Comments, instructions and quoting are kept in stored bodies, and lost in
messages that the server encodes again.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

from conflated_topics.documents import TEXT_FIELD, ObjectWithText
from sow.core.media_types import XML
from sow.errors import BadMessage, LargeMessage, clipped, shown
from sow.messages.base import bytes_of
from sow.messages.documents import TextType

NESTING_MAX = 64
"""Levels of elements in one message, as in AMPS."""
ELEMENTS_MAX = 100_000
"""Elements and attributes of one message, which is read in one step: a microsecond for each."""
NAMES_KEPT = 1024
"""Names of elements that were found to be ones."""
ATTRIBUTE = "@"
NOT_IN_XML = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
"""Characters that no XML document can hold, however they are written."""
IN_TEXTS = {"\r": "&#13;"}
IN_ATTRIBUTES = {"\r": "&#13;", "\n": "&#10;", "\t": "&#9;"}
"""Whitespace that a parser would normalize."""


class Xml(TextType):
    """The XML message type."""

    media_type = XML
    has_only_texts = True
    has_root = True

    def parse(self, body: bytes) -> dict[str, Any]:
        """The root element as the field of a document; raises BadMessage."""
        try:
            return _XmlReader().read(body)
        except expat.ExpatError as error:
            raise BadMessage(f"not XML in UTF-8: {clipped(str(error))}") from None

    def encode(self, document: object) -> bytes:
        """An element; a null is left out. Raises BadMessage for what XML cannot hold."""
        if not isinstance(document, dict) or len(document) != 1:
            raise BadMessage("an XML message must be an object of one field, its root element")
        ((name, value),) = document.items()
        if isinstance(value, list):
            raise BadMessage(
                f"an XML message has one root element, and {shown(str(name))} is a list"
            )
        return bytes_of("".join(_element(name, "" if value is None else value, 1)))


class _XmlReader:
    """Makes the document of one message while expat reads it."""

    def __init__(self) -> None:
        self._open: list[tuple[dict[str, Any], list[str]]] = [({}, [])]
        """The fields and the texts of each element that has begun, outermost first."""
        self._left = ELEMENTS_MAX

    def read(self, body: bytes) -> dict[str, Any]:
        """The document; raises ExpatError or BadMessage."""
        parser = expat.ParserCreate("utf-8")
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        parser.StartDoctypeDeclHandler = _refuse_doctype
        parser.Parse(body, True)
        return self._open[0][0]

    def _start(self, _name: str, attributes: dict[str, str]) -> None:
        self._left -= 1 + len(attributes)
        if self._left < 0:
            raise LargeMessage(f"it has more than {ELEMENTS_MAX:,} elements and attributes")
        if len(self._open) > NESTING_MAX:
            raise LargeMessage(f"elements are nested more than {NESTING_MAX} levels deep")
        fields: dict[str, Any] = {}
        if attributes:
            fields = ObjectWithText({ATTRIBUTE + name: attributes[name] for name in attributes})
        self._open.append((fields, []))

    def _text(self, text: str) -> None:
        self._open[-1][1].append(text)

    def _end(self, name: str) -> None:
        fields, texts = self._open.pop()
        value: Any = _value(fields, "".join(texts))
        above = self._open[-1][0]
        if name not in above:
            above[name] = value
        elif isinstance(above[name], list):
            above[name].append(value)
        else:
            above[name] = [above[name], value]


def _value(fields: dict[str, Any], text: str) -> Any:
    """The value of an element."""
    if not fields:
        return text
    # Between elements white space is there for people.
    if text and (not text.isspace() or all(name[0] == ATTRIBUTE for name in fields)):
        return ObjectWithText(fields | {TEXT_FIELD: text})
    return fields


def _refuse_doctype(*_declaration: object) -> None:
    raise BadMessage(
        "it has a DOCTYPE, which is not taken, nor are entities and other files that it may name; "
        "leave it out"
    )


def _element(name: object, value: Any, level: int) -> Iterator[str]:
    """The text of the elements that a field is."""
    if level > NESTING_MAX:
        raise LargeMessage(f"elements are nested more than {NESTING_MAX} levels deep")
    if not isinstance(name, str) or not _is_name(name):
        raise BadMessage(f"{shown(str(name))} cannot be the name of an XML element or attribute")
    if not isinstance(value, dict):
        text = _text_of(name, value)
        yield f"<{name}>{escape(text, IN_TEXTS)}</{name}>" if text else f"<{name}/>"
        return
    yield f"<{name}"
    inside: list[str] = []
    for inner, found in value.items():
        if inner == TEXT_FIELD:
            inside.insert(0, escape("" if found is None else _text_of(inner, found), IN_TEXTS))
        elif isinstance(inner, str) and inner.startswith(ATTRIBUTE):
            if found is not None:
                yield _attribute(inner, found)
        else:
            for one in found if isinstance(found, list) else [found]:
                if one is not None:
                    inside += _element(inner, one, level + 1)
    content = "".join(inside)
    yield f">{content}</{name}>" if content else "/>"


def _attribute(field: str, value: Any) -> str:
    name = field.removeprefix(ATTRIBUTE)
    if not _is_name(name):
        raise BadMessage(f"{shown(name)} cannot be the name of an XML element or attribute")
    return f" {name}={quoteattr(_text_of(field, value), IN_ATTRIBUTES)}"


def _text_of(name: str, value: object) -> str:
    """A scalar as text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int | float):
        raise BadMessage(
            f"{shown(name)}: an XML element holds text, numbers, objects or a flat list"
        )
    text = str(value)
    if found := NOT_IN_XML.search(text):
        raise BadMessage(f"{shown(name)}: XML has no character {found[0]!r}; send it as base64")
    return text


@lru_cache(maxsize=NAMES_KEPT)
def _is_name(name: str) -> bool:
    """Whether expat, which knows what a name is, takes it for the name of an element."""
    found: list[object] = []
    parser = expat.ParserCreate("utf-8")
    parser.StartElementHandler = lambda tag, attributes: found.append((tag, attributes))
    try:
        parser.Parse(f"<{name}/>".encode(), True)
    except (expat.ExpatError, UnicodeEncodeError):
        return False
    return found == [(name, {})]
