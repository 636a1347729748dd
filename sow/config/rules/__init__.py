"""The rules of a document: what must agree between its elements, above all its topics and files.

`check` runs them all; those of one section have a module beside this one.
Each rule is a function that looks at sections and reports findings; a value that could not be
read is absent here and already reported. What one element can get wrong alone is in
`sow.config.value_types`.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from urllib.parse import quote

import re2

from conflated_topics.user_texts import nearest
from sow.config.binder import Section
from sow.config.diagnostics import Diagnostics, at, halves
from sow.config.message_types import check_message_types
from sow.config.rules.action_rules import check_actions
from sow.config.rules.pipeline_rules import check_pipelines
from sow.config.rules.security_rules import check_security
from sow.config.rules.shared_log_rules import check_shared_log
from sow.config.rules.topic_rules import (
    check_conflation,
    check_copy_names,
    check_fields,
    check_underlying_topics,
    definition_of,
    refused_names,
)
from sow.config.rules.view_rules import check_queues, check_views
from sow.core.definitions import SYSTEM_PREFIX, Limits, MessageTypeOptions, SessionSettings
from sow.core.paths import Path, parse_path
from sow.core.quota import SHARE
from sow.errors import ClientError, ConfigError, TooLarge
from sow.expressions import compile_filter
from sow.expressions.patterns import METACHARACTERS, is_meant_as_pattern, is_pattern
from sow.messages import MessageType, message_type
from sow.messages.composite import missing


def check(root: Section, findings: Diagnostics) -> None:
    """Apply every rule to a document."""
    kinds = check_message_types(root, findings)
    _unique_names(root, findings)
    check_shared_log(root, findings)
    for topic in root.sections("topics"):
        _pattern_like_name(topic, findings)
        kind = _message_type(topic, kinds, findings)
        _repeated_paths(topic, findings)
        if kind is not None:
            check_fields(topic, kind, findings)
        if topic.element.name == "Topic":
            _key_domain(topic, findings)
            _key_chain(topic, findings)
            _transient(topic, findings)
            _history(topic, findings)
            _schema(topic, findings)
    check_conflation(root, findings)
    check_copy_names(root, findings)
    check_underlying_topics(root, findings)
    check_views(root, kinds, findings)
    check_queues(root, findings)
    check_actions(root, findings)
    check_files(root, findings)
    check_logged_topics(root, findings)
    check_pipelines(root, findings)
    check_security(root, findings)
    _limits(root, findings)


def _unique_names(root: Section, findings: Diagnostics) -> None:
    lines: dict[str, int] = {}
    for topic in root.sections("topics"):
        # A conflated topic over a pattern may be named by its format alone.
        element = "Name" if "Name" in topic.lines else "TopicFormat"
        name, (line, tag) = topic.text("name"), topic.place(element)
        if name and name in lines:
            message = f"the name {name!r} is already used in {at(lines[name], line)}"
            instead = "names are unique over all message types: "
            instead += "choose another one" if element == "Name" else "add a <Name>"
            findings.error(line, tag, message, instead)
        elif name:
            lines[name] = line


def _pattern_like_name(topic: Section, findings: Diagnostics) -> None:
    name = topic.text("name")
    if name.startswith(SYSTEM_PREFIX):
        message = f"names that begin with {SYSTEM_PREFIX} are those of the server's own topics"
        findings.error(*topic.place("Name"), message, "choose another name")
    if found := METACHARACTERS.intersection(name):
        message = f"{name!r} contains {' '.join(sorted(found))}, so subscribers' use of it is read"
        instead = "choose a name without it, or subscribe with the option non_regex_topic"
        is_meant = is_meant_as_pattern(name)
        if is_meant and topic.element.name == "Topic" and "Pattern" not in topic.lines:
            instead = (
                "if each topic whose name it matches is meant, write it as <Pattern> and a plain "
                f"<Name>; if not, {instead}"
            )
        elif is_meant and topic.element.name == "ConflatedTopic":
            instead = (
                "if a copy of each topic of a Pattern is meant, write <TopicFormat>%n-C"
                f"</TopicFormat> and a plain <Name>; if not, {instead}"
            )
        findings.warning(*topic.place("Name"), f"{message} as a pattern of names", instead)


def _message_type(
    topic: Section, kinds: Mapping[str, MessageTypeOptions | None], findings: Diagnostics
) -> MessageType | None:
    """Check what a topic's type has to do with the rest of it, and return it if there is one."""
    name = topic.text("message_type")
    if not name or kinds.get(name, True) is None:
        return None
    variants = {name: options for name, options in kinds.items() if options is not None}
    try:
        kind = message_type(name, variants)
    except (ClientError, ConfigError) as error:
        findings.error(*topic.where("MessageType"), *halves(error.detail))
        # As what could not be read: nothing has to agree with it.
        del topic.values["message_type"]
        return None
    if name in variants and (variants[name].fields or variants[name].parts):
        _missing_fields(topic, kind, findings)
    refused: tuple[str, ...]
    if not kind.structured:
        refused = (
            "Key", "HashIndex", "Index", "Filter", "Match", "Merge", "Schema",
            "Preprocessing", "Enrichment", "Priority", "BarrierExpression",
        )  # fmt: skip
        why = f"messages of the type {name} have no fields"
        instead = "publishers send a SowKey with each message, or choose a type with fields such as"
    elif not kind.partial:
        refused = ("Merge",)
        why = f"messages of the type {name} are not merged field by field"
        instead = "give a Merger, which is handed whole messages, or choose a type such as"
    else:
        return kind
    for element in refused:
        if element in topic.lines:
            line = topic.line_of(element)
            findings.error(line, element, why, f"remove {element}; {instead} json")
    return kind


def _missing_fields(topic: Section, kind: MessageType, findings: Diagnostics) -> None:
    """Report paths that cannot exist in messages with configured fields."""
    for element, paths, section in _lists(topic):
        for text in filter(None, paths):
            if why := missing(kind, parse_path(text)):
                findings.error(*section.where(element), *halves(why))


def _lists(topic: Section) -> list[tuple[str, list[str], Section]]:
    """The lists of paths in a topic: the element, its texts, its section."""
    lists = [("Key", topic.texts("keys"), topic), ("Index", topic.texts("indexes"), topic)]
    match = topic.values.get("match")
    for section in [*topic.sections("hash_indexes"), *([match] if match else [])]:
        assert isinstance(section, Section)
        lists.append(("Key", section.texts("keys"), section))
    return lists + [("Field", [one.text("field")], one) for one in topic.sections("merges")]


def _repeated_paths(topic: Section, findings: Diagnostics) -> None:
    """Report a field that is twice in one list: one of them is a slip for another field."""
    for element, paths, section in _lists(topic):
        for path in sorted({path for path in paths if paths.count(path) > 1}):
            message = f"names {path} twice"
            findings.error(*section.where(element), message, "remove one of them")
    seen: set[frozenset[str]] = set()
    for index in topic.sections("hash_indexes"):
        fields = frozenset(index.texts("keys"))
        if fields and fields in seen:
            message = f"an index on {', '.join(sorted(fields))} is already defined"
            findings.error(index.line, index.tag, message, "remove one of them")
        seen.add(fields)


def _key_domain(topic: Section, findings: Diagnostics) -> None:
    if "KeyDomain" in topic.lines and "Key" not in topic.lines:
        findings.error(
            *topic.where("KeyDomain"),
            "a key domain needs Key: without it publishers send the SowKey themselves",
            "add a <Key>, or remove KeyDomain",
        )


def _key_chain(topic: Section, findings: Diagnostics) -> None:
    """Chained keys stand alone, and are of one topic that is stored."""
    for other, instead in (
        ("Key", "remove one of them"),
        ("Pattern", "write a Topic for each name"),
        ("Series", "remove one of them"),
    ):
        if "KeyGenerator" in topic.lines and other in topic.lines:
            findings.error(
                *topic.where("KeyGenerator"), f"goes with no {other}: it makes the keys", instead
            )
    chain = topic.values.get("chain")
    if isinstance(chain, Section) and "Options" not in chain.lines:
        findings.error(
            *topic.where("KeyGenerator"),
            "has no Options, and foreign code makes no keys here",
            "write a <Key> for each field that identifies a record in place of it; or, where "
            "messages point at each other, <Options> with <Primary> and <Secondary>",
        )


def _schema(topic: Section, findings: Diagnostics) -> None:
    """A field has one type, and is not declared both as a value and as an object."""
    schema = topic.values.get("schema")
    if not isinstance(schema, Section):
        return
    types: dict[str, Section] = {}
    for declared in schema.sections("schema"):
        path = declared.text("path")
        if path in types:
            message = f"{path} is declared already in line {types[path].line}"
            findings.error(declared.line, declared.tag, message, "remove one of them")
        elif path:
            types[path] = declared
    for path, declared in types.items():
        steps = parse_path(path).steps
        for count in range(1, len(steps)):
            outer = types.get(str(Path(steps[:count])))
            if outer is not None and outer.text("type") != "json":
                message = f"{path} is a field of {outer.text('path')}, which is declared"
                findings.error(
                    declared.line,
                    declared.tag,
                    f"{message} {outer.text('type')} in line {outer.line}",
                    "declare that as json, or leave one of them out",
                )


def _transient(topic: Section, findings: Diagnostics) -> None:
    if topic.text("durability") != "transient":
        return
    for element in ("FileName", "FlushInterval"):
        if element in topic.lines:
            message = "has no effect on a transient topic, which is never written to disk"
            findings.warning(*topic.where(element), message, "it can be removed")


def _history(topic: Section, findings: Diagnostics) -> None:
    has_no_past = topic.text("durability") == "transient" or topic.values.get("retain") is False
    if "History" in topic.lines and has_no_past:
        message = "has no effect on a topic without a log or without records: it has no past states"
        findings.error(*topic.where("History"), message, "remove it")


def _limits(root: Section, findings: Diagnostics) -> None:
    limits = root.values.get("limits")
    if not isinstance(limits, Section):
        return
    defaults = Limits()
    message_bytes = limits.values.get("message_bytes_max", defaults.message_bytes_max)
    frame_bytes = limits.values.get("frame_bytes_max", defaults.frame_bytes_max)
    if int(str(message_bytes)) > int(str(frame_bytes)):
        findings.error(
            *limits.where("MessageSize"),
            f"a message of {message_bytes} bytes does not fit a frame of {frame_bytes}",
            "raise FrameSize to at least MessageSize",
        )
    request_bytes = limits.values.get("request_bytes_max", defaults.request_bytes_max)
    if int(str(frame_bytes)) > int(str(request_bytes)) // SHARE:
        findings.warning(
            limits.line_of("RequestMemory" if "RequestMemory" in limits.lines else "FrameSize"),
            "RequestMemory",
            f"one client may hold a quarter of {request_bytes} bytes, and a frame may have "
            f"{frame_bytes}: larger ones are never taken",
            "raise RequestMemory to four times FrameSize, or lower FrameSize",
        )
    _queue_memory(root, limits, findings)
    _filters(root, limits, findings)


def _filters(root: Section, limits: Section, findings: Diagnostics) -> None:
    """The document's filters keep to its own limits, as those of clients have to."""
    size, depth = (limits.values.get(f"filter_{name}_max") for name in ("bytes", "depth"))
    for topic in root.sections("topics") if size or depth else ():
        text, usual = topic.text("filter"), Limits()
        try:
            if text:
                compile_filter(
                    text,
                    bytes_max=int(str(size or usual.filter_bytes_max)),
                    depth_max=int(str(depth or usual.filter_depth_max)),
                )
        except TooLarge as error:
            instead = "raise FilterSize and FilterDepth in Limits, or shorten it"
            findings.error(*topic.where("Filter"), error.detail.partition(";")[0], instead)


def _queue_memory(root: Section, limits: Section, findings: Diagnostics) -> None:
    sessions, together = root.values.get("sessions"), Limits().queue_memory_bytes_max
    given = sessions.values if isinstance(sessions, Section) else {}
    queue_bytes = int(str(given.get("queue_bytes_max", SessionSettings().queue_bytes_max)))
    together = int(str(limits.values.get("queue_memory_bytes_max", together)))
    if queue_bytes > together // SHARE:
        findings.warning(
            limits.line_of("QueueMemory"),
            "QueueMemory",
            f"one client may hold a quarter of {together} bytes, and QueueMaxBytes is "
            f"{queue_bytes}: the smaller holds",
            "raise QueueMemory to four times QueueMaxBytes, or lower QueueMaxBytes",
        )


# Every persistent topic is logged whether `<TransactionLog><Topic>` names it or not, so the list
# changes nothing; it is read so that AMPS files run, and so that unsupported requests are reported.

UNSTORED = "; with <Retain>false</Retain> its messages are logged and passed on, and none is stored"
OUTSIDE = {
    False: f"it as a <Topic> in SOW{UNSTORED}",
    True: f"a <Topic> with this <Pattern> in SOW{UNSTORED}, or write .* for all",
}
"""The remedy for a logged topic that is in no SOW; the key is True for a pattern of names."""


def check_logged_topics(root: Section, findings: Diagnostics) -> None:
    """Check each entry against the topics of the document."""
    journal = root.values.get("journal")
    if not isinstance(journal, Section):
        return
    topics = {topic.text("name"): topic for topic in root.sections("topics")}
    refused = refused_names(root)
    for entry in journal.sections("topics"):
        name = entry.text("name")
        if name in topics:
            _literal(entry, topics[name], findings)
        elif made_from := definition_of(name, topics.values()):
            _literal(entry, made_from, findings)
        elif name and name not in refused:
            _pattern(entry, name, topics, findings)


def _literal(entry: Section, topic: Section, findings: Diagnostics) -> None:
    name, line = entry.text("name"), entry.line_of("Name")
    own, other = entry.text("message_type"), topic.text("message_type")
    if topic.element.name not in ("Topic", "Queue"):
        what = "view" if topic.element.name == "View" else "conflated topic"
        message = f"the log of a {what} is not available yet"
        findings.error(line, "Name", message, f"remove the entry {name!r}")
    elif topic.text("durability") == "transient":
        message = "the log of a transient topic is not available yet"
        findings.error(line, "Name", message, f"remove it, or make {name!r} persistent")
    elif own and other and own != other:
        message = f"{own} differs from the message type of the topic {name!r}"
        findings.error(*entry.where("MessageType"), message, f"write {other}")


def _pattern(entry: Section, name: str, topics: dict[str, Section], findings: Diagnostics) -> None:
    line = entry.line_of("Name")
    options = re2.Options()
    options.log_errors = False
    try:
        pattern = re2.compile(name, options)
    except re2.error as error:
        detail = error.args[0] if error.args else ""
        reason = detail.decode(errors="replace") if isinstance(detail, bytes) else str(detail)
        message = f"{name!r} is neither a topic nor a pattern of names ({reason})"
        findings.error(line, "Name", message, "correct it, or write .* for all")
        return
    if is_pattern(name) and any(topic.text("pattern") for topic in topics.values()):
        return  # which names the topics of a Pattern will have is not known yet
    if not any(pattern.search(topic) for topic in topics):
        meant = None if is_meant_as_pattern(name) else nearest(name, topics)
        findings.error(
            line,
            "Name",
            f"no topic is called {name!r}",
            f"did you mean {meant!r}?" if meant else f"define {OUTSIDE[is_pattern(name)]}",
        )


DEFAULT_NAME = "%n.sow"
DEFAULT_JOURNAL = "journal"
# Held by a running server, so that no second one opens the same directory.
LOCK = "lock"
# What the server keeps beside the topics.
OWN = (
    *("sow-writes.sow", "sow-consumers.sow", "sow-publishers.sow", "staging", "pipelines"),
    *("manifest.json", "manifest.json.writing"),
    *("manifest.json.copy", "manifest.json.copy.writing", "removed"),
)
# File systems limit a name to 255 bytes; the rest is for what surrounds %n.
LONGEST_PART = 150


def file_name(topic: Section) -> str | None:
    """The path of a topic in the data directory, or None for one in memory."""
    if topic.text("durability") == "transient":
        return None
    template = topic.text("file_name") or DEFAULT_NAME
    return template.replace("%n", _file_safe(topic.text("name"), topic.text("message_type")))


def _file_safe(name: str, message_type: str) -> str:
    """``name.type`` without characters that mean something to a file system; distinct names
    stay distinct."""
    safe = f"{quote(name, safe='')}.{quote(message_type, safe='')}"
    if len(safe) <= LONGEST_PART:
        return safe
    digest = hashlib.blake2b(safe.encode(), digest_size=8).hexdigest()
    return f"{safe[: LONGEST_PART - 17]}~{digest}"


def check_files(root: Section, findings: Diagnostics) -> None:
    """No two of the lock, the journal and the topics' files may be the same path, nor may one
    lie inside another."""
    taken = _Taken()
    taken.add([LOCK], "the lock of the data directory")
    taken.add(OWN, "the server's own")
    for section, element, owner, names in _claims(root):
        if (other := taken.overlapping(names)) is not None:
            findings.error(
                *section.place(element),
                f"{names[0]} collides with {other}, which is {taken.owners[other]}",
                f"give each its own {element}, such as sow/%n.sow for a topic",
            )
        taken.add(names, owner)


def _claims(root: Section) -> Iterator[tuple[Section, str, str, tuple[str, ...]]]:
    """The paths in use: the section, the element that names them, the owner and the paths."""
    journal = root.values.get("journal")
    section = journal if isinstance(journal, Section) else root
    directory = section.text("directory") or DEFAULT_JOURNAL
    yield section, "JournalDirectory", "the journal", (directory,)
    for topic in root.sections("topics"):
        if topic.element.name not in ("Topic", "Queue") or not topic.text("name"):
            continue
        if (name := file_name(topic)) is not None:
            # LMDB keeps a lock file beside each of its files.
            owner = f"a file of the topic {topic.text('name')!r}"
            yield topic, "FileName", owner, (name, f"{name}-lock")


class _Taken:
    """Paths in use, with their owners. Each is looked up by its own parents, so that a thousand
    topics are not compared with each other."""

    def __init__(self) -> None:
        self.owners: dict[PurePosixPath, str] = {}
        self._inside: dict[PurePosixPath, PurePosixPath] = {}

    def add(self, names: Iterable[str], owner: str) -> None:
        for path in map(PurePosixPath, names):
            self.owners[path] = owner
            for directory in path.parents:
                self._inside.setdefault(directory, path)

    def overlapping(self, names: Iterable[str]) -> PurePosixPath | None:
        """One that is the same as one of these, inside it or around it."""
        for path in map(PurePosixPath, names):
            for place in (path, *path.parents):
                if place in self.owners:
                    return place
            if path in self._inside:
                return self._inside[path]
        return None
