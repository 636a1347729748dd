"""Binds nodes to sections: each element is looked up in the table and its value is read.

Finds every mistake that one element can have by itself: a name that is unknown, misplaced,
duplicate or missing, a value that cannot be read, a feature that is not available yet.
What must agree between elements is left to the rules.

`OTHER_WORDS` are other products' names for elements, each with the name to use here: they come from
configurations of other servers, from SQL and from related elements of this one. Misspelt names are
found by similarity and are not listed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import cast

from conflated_topics.user_texts import nearest
from sow.config.diagnostics import Diagnostics, FileLine, MistakeError, at
from sow.config.document import Variables, XmlElement
from sow.config.elements import Element
from sow.config.elements.action import ACTION, FOREIGN_MODULES
from sow.config.elements.table import INCLUDE, ROOT
from sow.errors import clipped, shown

WRAPPED_CHARS_MAX = 80
"""The longest value that a remedy quotes."""


@dataclass(slots=True)
class Section:
    """A section as read: values by dataclass field, and where each element was written.

    A repeated element's values are a list; a section that makes an object of its own is a
    `Section` here. `lines` and `tags` have every element that is present, also one whose value
    could not be read: it is reported once, and must not be reported as missing too.
    `every_line` has all lines of repeated elements.
    `refused` are its elements that are not available yet.
    """

    element: Element
    tag: str
    line: FileLine
    values: dict[str, object] = field(default_factory=dict)
    lines: dict[str, FileLine] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    every_line: dict[str, list[FileLine]] = field(default_factory=dict)
    refused: list[XmlElement] = field(default_factory=list)

    def text(self, name: str) -> str:
        """The value of a text field; empty when it is absent or could not be read."""
        return str(self.values.get(name, ""))

    def texts(self, name: str) -> list[str]:
        """The values of a repeated text field."""
        return cast("list[str]", self.values.get(name, []))

    def sections(self, name: str) -> list["Section"]:
        """The objects of a repeated section."""
        return cast("list[Section]", self.values.get(name, []))

    def line_of(self, name: str) -> FileLine:
        """The line of the element `name`, or of the section where it is absent."""
        return self.lines.get(name, self.line)

    def line_at(self, name: str, number: int) -> FileLine:
        """The line of an element that is repeated, counted from 0."""
        return self.every_line[name][number]

    def place(self, name: str) -> tuple[FileLine, str]:
        """The line of the element `name` and its tag there; the section's if absent."""
        return self.line_of(name), self.tags.get(name, self.tag)

    def where(self, name: str) -> tuple[FileLine, str]:
        """The line of the element `name`, and that name; the section's line if absent."""
        return self.line_of(name), name

    def note(self, element: Element, node: XmlElement) -> None:
        """Record that `element` is present; of a repeated one, the line of the first."""
        self.lines.setdefault(element.name, node.line)
        self.every_line.setdefault(element.name, []).append(node.line)
        self.tags.setdefault(element.name, node.tag)

    def put(self, element: Element, value: object) -> None:
        """Keep the value of `element`: one field of it, or several."""
        values = value if len(element.fields) > 1 else (value,)
        for name, part in zip(element.fields, cast("tuple[object, ...]", values), strict=False):
            if element.repeated:
                cast("list[object]", self.values.setdefault(name, [])).append(part)
            else:
                self.values[name] = part


def read_root(node: XmlElement, variables: Variables, findings: Diagnostics) -> Section | None:
    """The whole document as a section; None, with a finding, when it is another document."""
    if node.tag not in ROOT.names:
        findings.error(
            node.line, node.tag, "is not a root element", "write <AMPSConfig> or <SOWConfig>"
        )
        return None
    section = Section(ROOT, node.tag, node.line)
    _SectionReader(variables, findings).read(section, node, ROOT)
    return section


def _is_wrapped(node: XmlElement, child: XmlElement) -> bool:
    """Whether `child` is a needless element around the value of `node`."""
    text = child.text.strip()
    alone = len(node.children) == 1 and not node.text.strip() and not child.children
    return alone and bool(text) and "\n" not in text and len(text) <= WRAPPED_CHARS_MAX


class _SectionReader:
    def __init__(self, variables: Variables, findings: Diagnostics) -> None:
        self._variables = variables
        self._findings = findings

    def read(self, section: Section, node: XmlElement, element: Element) -> None:
        """Read the children of `node`, which `element` describes, into `section`."""
        first: dict[str, FileLine] = {}
        meant: dict[str, XmlElement] = {}
        for name, child in self._children(node, element):
            known = element.child(name)
            if known is None:
                known = element.child(self._unknown(child, node, element))
                if known is not None and known.status == "implemented":
                    meant[known.name] = child
            elif known.name in first and not known.repeated and known.status == "implemented":
                message = f"is given twice, first in {at(first[known.name], child.line)}"
                self._findings.error(child.line, child.tag, message, "remove one of them")
            else:
                first.setdefault(known.name, child.line)
                self._element(section, child, known)
        meant |= self._misplaced(node, element)
        for name in meant.keys() - first.keys():
            # Its right name has been suggested; it is not reported as missing too.
            section.note(next(one for one in element.children if one.name == name), meant[name])
            first[name] = meant[name].line
        for missing in element.children:
            if missing.required and missing.name not in first:
                other = element.child(missing.unless) if missing.unless in first else None
                if missing.name == element.text_child and not node.children:
                    instead = f"write <{node.tag}>…</{node.tag}>, or remove it"
                    self._findings.error(node.line, node.tag, "is empty", instead)
                else:
                    self._missing(section, node, missing, other)

    def _missing(
        self, section: Section, node: XmlElement, missing: Element, other: Element | None
    ) -> None:
        """A required element is not there: `other` takes its place, or it is an error."""
        if other is None:
            instead = f"add <{missing.name}>…</{missing.name}>"
            if missing.attribute:
                instead = f'write <{node.tag} {missing.name}="…">'
            self._findings.error(node.line, node.tag, f"has no {missing.name}", instead)
        elif other.fields[0] in section.values:
            section.values[missing.fields[0]] = section.values[other.fields[0]]

    def _children(self, node: XmlElement, element: Element) -> list[tuple[str, XmlElement]]:
        """The child elements by name, with attributes and own text in the form of child elements.

        Own text keeps the tag of its element, so that findings name what the writer sees.
        """
        children = []
        for name, value in node.attributes.items():
            known = element.child(name)
            if known is not None and known.attribute:
                children.append((name, XmlElement(name, node.line, value)))
            else:
                self._unknown_attribute(node, name, element.children)
        if node.text.strip() and element.text_child:
            children.append((element.text_child, XmlElement(node.tag, node.line, node.text)))
        elif text := node.text.strip():
            message = f"contains the text {text[:40]!r} outside any element"
            instead = "put it into an element, or remove"
            if len(element.children) == 1 and element.children[0].kind is not None:
                name = element.children[0].name
                instead = f"write <{name}>{clipped(text)}</{name}>"
            self._findings.error(node.line, node.tag, message, instead)
        return children + [(child.tag, child) for child in node.children]

    def _misplaced(self, node: XmlElement, element: Element) -> dict[str, XmlElement]:
        """Elements that were written as attributes, or as the text of their section; both have
        been reported."""
        known = [child for name in node.attributes if (child := element.child(name)) is not None]
        if node.text.strip() and not element.text_child and len(element.children) == 1:
            known += element.children
        return {child.name: node for child in known if child.status == "implemented"}

    def _element(self, section: Section, node: XmlElement, element: Element) -> None:
        if element.status == "implemented":
            section.note(element, node)
        match element.status:
            case "not yet":
                section.refused.append(node)
                message = f"{node.tag} is not available yet"
                self._findings.error(node.line, node.tag, message, element.about)
            case "no effect":
                why = element.about or "since the server sizes its storage by itself"
                message = f"has no effect here, {why}"
                self._findings.warning(node.line, node.tag, message, "it can be removed")
            case "foreign":
                message = "is an element of AMPS that this server does not have, and is ignored"
                self._findings.warning(node.line, node.tag, message, element.about)
                self._refused_inside(node)
            case "refused":
                message = "is an element of AMPS that this server does not have"
                self._findings.error(node.line, node.tag, message, element.about)
            case "implemented" if element.kind is not None:
                self._leaf(section, node, element)
            case "implemented" if element is ACTION and (others := [*foreign_modules(node)]):
                for module, advice in others:
                    message = f"{shown(module.text.strip())} does not run here: no such action"
                    self._findings.warning(module.line, module.tag, message, advice)
            case "implemented" if element.make is not None:
                inner = Section(element, node.tag, node.line)
                self.read(inner, node, element)
                section.put(element, inner)
            case _:
                self.read(section, node, element)

    def _refused_inside(self, node: XmlElement) -> None:
        """Ignore an element with all that is in it, except for what is not safe to ignore."""
        for child in node.children:
            known = ROOT.child(child.tag)
            if known is not None and known.status == "refused":
                self._element(Section(ROOT, node.tag, node.line), child, known)
            else:
                self._refused_inside(child)

    def _leaf(self, section: Section, node: XmlElement, element: Element) -> None:
        assert element.kind is not None
        for name in node.attributes:
            self._unknown_attribute(node, name, ())
        for child in node.children:
            message = f"is inside {node.tag}, which holds a value and no elements"
            instead = "close the outer element first"
            if _is_wrapped(node, child):
                instead = f"write <{node.tag}>{child.text.strip()}</{node.tag}>"
            self._findings.error(child.line, child.tag, message, instead)
        if node.children:
            return
        text, line = node.text.strip(), node.line
        try:
            text = self._variables.expand(text, element.kind.parameters).strip()
            if not text and not element.kind.may_be_empty:
                raise MistakeError("is empty", f"write a value ({element.kind.name}), or remove it")
            section.put(element, element.kind.read(text))
        except MistakeError as mistake:
            # An expression over several lines breaks on the line of its mistake.
            before = node.text[: len(node.text) - len(node.text.lstrip())]
            if mistake.position:
                line = line.below((before + text[: mistake.position]).count("\n"))
            self._findings.error(line, node.tag, mistake.message, mistake.instead)

    def _unknown_attribute(self, node: XmlElement, name: str, known: Sequence[Element]) -> None:
        message = f"has the unknown attribute {name!r}"
        instead = "remove it"
        if name in [one.name for one in known]:
            instead = f"write it as an element: <{name}>…</{name}> inside {node.tag}"
        elif meant := nearest(name, [one.name for one in known if one.attribute]):
            instead = f"did you mean {meant}?"
        self._findings.error(node.line, node.tag, message, instead)

    def _meant(self, tag: str, element: Element) -> str:
        """The child element that an unknown tag means; "" if there is none."""
        known = [name for child in (*element.children, INCLUDE) for name in child.names]
        return meant_by(tag, element) or nearest(tag, known) or ""

    def _unknown(self, node: XmlElement, parent: XmlElement, element: Element) -> str:
        """Report an unknown child; returns the element that is meant, "" if none is."""
        homes = [place for place, other in ROOT.walk() if place and node.tag == other.name]
        if meant := self._meant(node.tag, element):
            instead = f"did you mean {meant}?"
        elif homes:
            instead = f"it belongs in {' or '.join(homes)}"
        else:
            here = [c.name for c in element.children if c.status == "implemented"]
            instead = f"{parent.tag} may contain {', '.join(here)}"
        message = f"is not an element of {parent.tag}"
        self._findings.error(node.line, node.tag, message, instead)
        return meant


_KEY = dict.fromkeys(("Field", "Path", "Column", "KeyField", "Name"), "Key")
_FIELD = dict.fromkeys(("Key", "Path", "Column", "Name", "Expression", "Construct"), "Field")
_MESSAGE_TYPE = dict.fromkeys(("Type", "Format", "MessageFormat", "Encoding"), "MessageType")
_UNDERLYING = dict.fromkeys(
    ("Source", "SourceTopic", "BaseTopic", "Underlying", "From", "Of"), "UnderlyingTopic"
)
_WHERE = {"Where": "Filter", "Condition": "Filter", "ContentFilter": "Filter"}
_QUEUES = {"Policy": "ConflationPolicy", "BackPressure": "ConflationPolicy"}
_FILE = dict.fromkeys(("FileName", "Path"), "File")

OTHER_WORDS: dict[str, dict[str, str]] = {
    "AMPSConfig": {
        **dict.fromkeys(("Port", "Address", "Bind", "InetAddr", "Host"), "Listen"),
        **dict.fromkeys(("Topics", "Queues", "Views", "StateOfTheWorld"), "SOW"),
        **dict.fromkeys(("Journal", "Journals", "TxLog", "WAL"), "TransactionLog"),
        **dict.fromkeys(("Directory", "Storage", "StorageDirectory", "Home"), "DataDirectory"),
        **dict.fromkeys(("SharedLog", "ReplicatedLog"), "Log"),
        "Logger": "ServerLog",
    },
    "Topic": {
        **_MESSAGE_TYPE,
        **_QUEUES,
        **dict.fromkeys(("PrimaryKey", "KeyField", "Keys"), "Key"),
        **dict.fromkeys(("TTL", "Lifetime", "Expiry", "TimeToLive"), "Expiration"),
        **dict.fromkeys(("File", "Path"), "FileName"),
        **dict.fromkeys(("Persistence", "Persistent", "Storage"), "Durability"),
        **dict.fromkeys(("Regex", "NamePattern", "TopicPattern"), "Pattern"),
        **dict.fromkeys(("MaxRows", "MaxSize", "RecordLimit"), "MaxRecords"),
        "Fields": "Schema",
    },
    "ConflatedTopic": {
        **_MESSAGE_TYPE,
        **_UNDERLYING,
        **_WHERE,
        **_QUEUES,
        **dict.fromkeys(("Period", "Window", "Every", "Throttle"), "Interval"),
        **dict.fromkeys(("NameFormat", "NamePattern", "CopyName"), "TopicFormat"),
    },
    "View": {
        **_MESSAGE_TYPE,
        **_UNDERLYING,
        **_WHERE,
        **_QUEUES,
        **dict.fromkeys(("GroupBy", "GroupingFields"), "Grouping"),
        **dict.fromkeys(("Select", "Fields", "Columns"), "Projection"),
    },
    "HashIndex": _KEY,
    "Match": _KEY,
    "Preprocessing": _FIELD,
    "Enrichment": _FIELD,
    "Projection": _FIELD,
    "Grouping": _FIELD,
    "Schema": _FIELD,
    "UnderlyingTopic": {**dict.fromkeys(("On", "LeftJoin", "InnerJoin"), "Join"), "Name": "Topic"},
    "Merge": {
        **dict.fromkeys(("Key", "Path", "Column"), "Field"),
        **dict.fromkeys(("Op", "Function", "Aggregate", "With"), "Operation"),
    },
    "Durability": {"FlushTime": "FlushInterval"},
    "TransactionLog": {
        **dict.fromkeys(("Directory", "Path", "Journal"), "JournalDirectory"),
        **dict.fromkeys(("Retention", "MaxAge", "Age"), "RetentionAge"),
        **dict.fromkeys(("MaxSize", "Size"), "RetentionSize"),
    },
    "Sessions": {
        **dict.fromkeys(("QueueSize", "MaxMessages", "MaxQueueDepth"), "QueueMaxMessages"),
        **dict.fromkeys(("MaxBytes", "MessageMemoryLimit"), "QueueMaxBytes"),
        **dict.fromkeys(("Timeout", "SessionTimeout"), "ReconnectTimeout"),
    },
    "Limits": {
        "MaxMessageSize": "MessageSize",
        "MaxFrameSize": "FrameSize",
        "MaxConnections": "Connections",
        "MemoryLimit": "Memory",
    },
    "ServerLog": {"LogLevel": "Level", "Type": "Format", "AccessLog": "Access"},
    "TLS": {
        **dict.fromkeys(("CertificateFile", "Cert", "CertFile"), "Certificate"),
        **dict.fromkeys(("Key", "KeyFile", "PrivateKeyFile"), "PrivateKey"),
        **dict.fromkeys(("CA", "CAFile", "CAPath"), "ClientCA"),
    },
    "Authentication": {
        **dict.fromkeys(("Passwords", "Htpasswd"), "Users"),
        **dict.fromkeys(("OIDC", "OpenIDConnect", "Bearer"), "JWT"),
    },
    "Users": _FILE,
    "Tokens": _FILE,
    "JWT": dict.fromkeys(("JWKS", "KeySet", "JwksUri"), "Keys"),
    "Role": {
        **dict.fromkeys(("User", "Users", "Group", "Groups"), "Member"),
        **dict.fromkeys(("Grant", "Permission", "Permissions"), "Allow"),
    },
    "Allow": {
        **_WHERE,
        **dict.fromkeys(("Name", "TopicPattern", "Pattern"), "Topic"),
        **dict.fromkeys(("Subscribe", "Query", "Sow"), "Read"),
        "Publish": "Write",
        "Fields": "Select",
    },
}
"""By the section: what somebody may write there, and which element that is."""


def meant_by(tag: str, section: Element) -> str:
    """The element of a section that others call `tag`; "" if none is."""
    words = OTHER_WORDS.get(section.name, {})
    return next((name for word, name in words.items() if word.lower() == tag.lower()), "")


def foreign_modules(action: XmlElement) -> Iterator[tuple[XmlElement, str]]:
    """The modules of an action that do not run here, each with its alternative."""
    for part in action.children:
        for child in part.children:
            words = FOREIGN_MODULES.get(part.tag, {}) if child.tag == "Module" else {}
            module = child.text.strip().lower()
            advice = next((text for word, text in words.items() if word in module), "")
            if advice:
                yield child, advice
