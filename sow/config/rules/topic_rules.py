"""The rules of topics among each other: underlying topics, patterns, and names of copies.

An underlying topic exists, is defined above what is derived from it, and a conflated topic agrees
with it. Patterns come below exact names; a topic that retains nothing has no index; a field is
merged once. The result of a `Field` of Preprocessing or Enrichment has a place in the message, and
no key is made after it was read.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

from conflated_topics.user_texts import nearest
from sow.config.binder import Section
from sow.config.diagnostics import Diagnostics, at
from sow.core.paths import Path, parse_path
from sow.core.pipelines import TRIGGER_US
from sow.errors import BadMessage, ClientError
from sow.expressions import Fields, Trait, compile_fields, compile_filter, nested
from sow.expressions.patterns import Search, copied_from, copy_name, is_pattern, topic_search
from sow.messages.base import MessageType


def check_underlying_topics(root: Section, findings: Diagnostics) -> None:
    """Check each conflated topic against what is defined above it."""
    for topic, above in names_above(root):
        name = topic.text("underlying")
        if topic.element.name != "ConflatedTopic":
            continue
        if name in above:
            _agree(topic, above[name], findings)
            if topic.text("engine") == "spark":
                _run_by_spark(topic, above[name], findings)
        elif name:
            line = topic.line_of("UnderlyingTopic")
            report_missing(root, topic, name, (line, "UnderlyingTopic"), findings)


def names_above(root: Section) -> Iterator[tuple[Section, Mapping[str, Section]]]:
    """Each topic, with those defined above it by name."""
    above: dict[str, Section] = {}
    for topic in root.sections("topics"):
        yield topic, above
        if topic.text("name"):
            above.setdefault(topic.text("name"), topic)


def _lines_by_name(root: Section) -> dict[str, int]:
    return {topic.text("name"): topic.line for topic in reversed(root.sections("topics"))}


def refused_names(root: Section) -> set[str]:
    """Names of queues: they are reported as not available, and not as undefined."""
    return {
        child.text.strip()
        for node in root.refused
        for child in node.children
        if child.tag in ("Name", "Topic")
    }


def report_missing(
    root: Section, topic: Section, name: str, place: tuple[int, str], findings: Diagnostics
) -> None:
    """Report at a place of `topic` that no topic `name` is defined above it."""
    if name in refused_names(root):
        return
    lines, (line, element) = _lines_by_name(root), place
    copies = topic.element.name == "ConflatedTopic"
    if name == topic.text("name"):
        message = f"the topic {name!r} would {'conflate' if copies else 'be made of'} itself"
        instead = "name the topic that it copies, and give the copy another Name"
        if not copies:
            instead = "name the topic that its rows are made of"
    elif name in lines:
        message = f"the topic {name!r} is defined later, in {at(lines[name], line)}"
        instead = f"move {name!r} above {topic.text('name')!r}"
        if topic.text("name") in _made_of(root, name):
            message += f", and is itself made of {topic.text('name')!r}"
            instead = "take one of them out of the circle"
    elif is_pattern(name) and (many := _of_many(root, name)):
        message = f"no topic {name!r} is defined, and no Topic has this Pattern"
        instead = f"write the Name of a Topic that has a Pattern: {', '.join(many)}"
    else:
        message, instead = _undefined(root, topic, name, [*lines])
    findings.error(line, element, message, instead)


def _undefined(root: Section, topic: Section, name: str, known: Iterable[str]) -> tuple[str, str]:
    """The finding for an unknown topic: a definition of many topics may be meant."""
    message = f"no topic {name!r} is defined"
    sections = root.sections("topics")
    patterns = {one.text("pattern"): one for one in sections if one.text("pattern")}
    made_from = patterns.get(name) or definition_of(name, sections)
    if made_from is None:
        meant = nearest(name, [other for other in known if other != topic.text("name")])
        hint = f"did you mean {meant!r}?" if meant else "define it above, or correct the name"
        return message, hint
    many = made_from.text("name")
    relation = "is the Pattern" if name in patterns else "is a name of the Pattern"
    return f"{message}: it {relation} of {many!r}", (
        f"write {many}, and <TopicFormat>%n-C</TopicFormat> for the names of the copies"
        if topic.element.name == "ConflatedTopic"
        else "name a topic that is defined by itself: a view is not made of many"
    )


def definition_of(name: str, topics: Iterable[Section]) -> Section | None:
    """The definition whose Pattern would create a topic of this name."""
    for topic in () if is_pattern(name) else topics:
        matches = _search(topic)
        if matches is not None and matches(name):
            return topic
    return None


def _search(topic: Section) -> Search | None:
    """Whether a name matches its Pattern; None if it has none that could be read."""
    try:
        return topic_search(topic.text("pattern")) if topic.text("pattern") else None
    except ClientError:
        return None


def underlyings(topic: Section) -> list[str]:
    """The topics that a topic is made of, in the order in which it names them."""
    names = [topic.text("underlying"), topic.text("underlyings")]
    for join in topic.sections("joins"):
        names += [join.text("left_topic"), join.text("right_topic")]
    return [name for name in dict.fromkeys(names) if name]


def _of_many(root: Section, pattern: str) -> list[str]:
    """The names of the definitions of many topics, unless one has this very Pattern."""
    many = {one.text("name"): one.text("pattern") for one in root.sections("topics")}
    many = {name: text for name, text in many.items() if text}
    return [] if pattern in many.values() else [*many]


def _made_of(root: Section, name: str) -> set[str]:
    """All topics that a topic is made of, directly or not."""
    of = {topic.text("name"): underlyings(topic) for topic in root.sections("topics")}
    found: set[str] = set()
    waiting = list(of.get(name, ()))
    while waiting:
        other = waiting.pop()
        if other not in found:
            found.add(other)
            waiting += of.get(other, ())
    return found


def _agree(topic: Section, underlying: Section, findings: Diagnostics) -> None:
    name = underlying.text("name")
    own, other = topic.text("message_type"), underlying.text("message_type")
    if own and other and own != other:
        findings.error(
            *topic.where("MessageType"),
            f"{own} differs from the message type of the underlying topic {name!r}",
            f"write {other}",
        )
    if "Series" in underlying.lines:
        findings.error(
            *topic.where("UnderlyingTopic"),
            f"is {name!r}, and the events of a Series are never conflated",
            "subscribe to the topic itself, or make a View of it",
        )
    formatted = "TopicFormat" in topic.lines
    if is_many(underlying) and not formatted:
        findings.error(
            topic.line,
            topic.tag,
            f"the underlying topic {name!r} is a pattern of topics, so there are many copies to "
            "name",
            "add <TopicFormat>%n-C</TopicFormat>, where %n becomes the name of each topic",
        )
    elif formatted and not is_many(underlying):
        findings.error(
            *topic.where("TopicFormat"),
            f"the underlying topic {name!r} is one topic, so there is one copy",
            "remove it; Name is the name of the copy",
        )


def _run_by_spark(topic: Section, underlying: Section, findings: Diagnostics) -> None:
    """Spark reads a log, in batches: not every topic has the one, nor interval allows the other."""
    line = topic.line_of("Engine")

    def refuse(message: str, instead: str = "write embedded") -> None:
        findings.error(line, "Engine", message, instead)

    name = underlying.text("name")
    if underlying.element.name != "Topic" or is_many(underlying):
        refuse(
            f"spark reads the log of the underlying topic, and {name!r} is no single topic that "
            "clients publish to"
        )
    elif underlying.text("durability") == "transient" or not underlying.values.get("retain", True):
        refuse(f"spark reads the log of {name!r}, which has none")
    if (text := topic.text("filter")) and compile_filter(text).traits:
        refuse("spark filters rows by their fields alone, and Filter uses more of the message")
    if topic.text("schedule") == "tick":
        refuse("spark cuts a window for each key, and Schedule is tick")
    interval_us = int(str(topic.values.get("interval_us", 5_000_000)))
    every = f"spark takes up what has come once in {TRIGGER_US / 1e6:g} s"
    if interval_us < TRIGGER_US:
        refuse(
            f"{every}, longer than the Interval of {interval_us / 1e6:g} s",
            "write embedded, which holds 100ms",
        )
    elif interval_us < 2 * TRIGGER_US:
        findings.warning(
            line,
            "Engine",
            f"{every}, so an update may come that much after the Interval of "
            f"{interval_us / 1e6:g} s",
            f"write embedded, or an Interval of {2 * TRIGGER_US / 1e6:g}s and more",
        )


def is_many(topic: Section) -> bool:
    """Whether a definition is of many topics."""
    return "Pattern" in topic.lines or "TopicFormat" in topic.lines


def check_conflation(root: Section, findings: Diagnostics) -> None:
    """Check every topic's definition by itself, exact names against patterns, and the copies."""
    _exact_names_first(root, findings)
    _distinct_copies(root, findings)
    for topic in root.sections("topics"):
        _retains_nothing(topic, findings)
        _merges(topic, findings)
        _is_a_series(topic, findings)


def _exact_names_first(root: Section, findings: Diagnostics) -> None:
    """Definitions are tried in order: a pattern above would take an exact topic's messages."""
    patterns: list[tuple[Section, Search]] = []
    for topic in root.sections("topics"):
        if topic.text("pattern"):
            if search := _search(topic):
                patterns.append((topic, search))
        elif topic.element.name == "Topic" and (name := topic.text("name")):
            for other, matches in patterns:
                if matches(name):
                    line, tag = topic.place("Name")
                    findings.error(
                        line,
                        tag,
                        f"{name!r} is matched by the Pattern of {other.text('name')!r} in "
                        f"{at(other.line_of('Pattern'), line)}, which comes before it",
                        f"move {name!r} above {other.text('name')!r}",
                    )


def _distinct_copies(root: Section, findings: Diagnostics) -> None:
    """No two formats give a pattern's topic two copies of one name."""
    taken: dict[tuple[str, str], Section] = {}
    for topic, source, text in _formats(root):
        other = taken.setdefault((source, text), topic)
        if other.text("name") != topic.text("name"):
            line = topic.line_of("TopicFormat")
            findings.error(
                line,
                "TopicFormat",
                f"gives the copies of {source!r} the names that {other.text('name')!r} in "
                f"{at(other.line, line)} gives them: {text}",
                "write another one, such as %n-D",
            )


def _formats(root: Section) -> Iterator[tuple[Section, str, str]]:
    """Each topic with a TopicFormat: what it copies in the end, and the format of the copies, since
    one may be over another."""
    formats: dict[str, tuple[str, str]] = {}
    for topic in root.sections("topics"):
        if text := topic.text("topic_format"):
            underlying = topic.text("underlying")
            source, below = formats.get(underlying, (underlying, "%n"))
            formats[topic.text("name")] = source, text.replace("%n", below)
            yield topic, *formats[topic.text("name")]


def _retains_nothing(topic: Section, findings: Diagnostics) -> None:
    if topic.values.get("retain", True):
        return
    for element in ("HashIndex", "Index", "Expiration"):
        if element in topic.lines:
            findings.error(
                *topic.where(element),
                "has nothing to work on in a topic with Retain false, which stores no record",
                f"remove {element} or Retain",
            )


def _merges(topic: Section, findings: Diagnostics) -> None:
    if "Merge" in topic.lines and "Merger" in topic.lines:
        findings.error(
            *topic.where("Merger"),
            "cannot be combined with Merge: only one of them can make one message of two",
            "remove one of them",
        )
    fields = [merge.text("field") for merge in topic.sections("merges")]
    for merge in topic.sections("merges"):
        field = merge.text("field")
        if field and fields.count(field) > 1:
            message = f"the field {field} is merged twice"
            findings.error(merge.line, "Merge", message, "remove one of them")
            fields = [other for other in fields if other != field]


def _is_a_series(topic: Section, findings: Diagnostics) -> None:
    """Events are all sent, in order, and what they are is decided when they are published."""
    if "Series" not in topic.lines:
        return
    if topic.values.get("conflation_policy", "off") in ("conflate", "always"):
        findings.error(
            *topic.where("ConflationPolicy"),
            f"is {topic.text('conflation_policy')}, and the events of a Series are never conflated",
            "write off or unsubscribe",
        )
    for element in ("Merge", "Merger"):
        if element in topic.lines:
            findings.error(
                *topic.where(element),
                "makes one message of two, and the events of a Series stay what they are",
                f"remove {element} or Series",
            )
    if not topic.values.get("retain", True):
        findings.error(
            *topic.where("Retain"),
            "is false, and a Series keeps the events of its records",
            "remove Retain or Series",
        )


# A name that a `TopicFormat` produces is reserved for copies: the server refuses publishes to it,
# even if a `Pattern` matches it. The writer of the pattern seldom expects that, hence a warning.
# A pattern is tried with a name made of its own text; one that this does not match gets no warning,
# and works all the same.

# A placeholder for text in a pattern, and a text that it matches.
_SAMPLES = (
    (re.compile(r"\\d[+*]?"), "1"),
    (re.compile(r"(?:\.|\\w|\[\^[^\]]*\])[+*]?"), "x"),
    (re.compile(r"\[\\?([^\]])[^\]]*\][+*]?"), r"\1"),
    (re.compile(r"^\^|\$$|[()?+*|{}]"), ""),
    (re.compile(r"\\(.)"), r"\1"),
)


def check_copy_names(root: Section, findings: Diagnostics) -> None:
    """Warn where a pattern or an exact name takes what a format gives to copies."""
    topics = root.sections("topics")
    patterns = {one.text("name"): (one, search) for one in topics if (search := _search(one))}
    for topic, source, text in _formats(root):
        if source in patterns:
            _patterns_that_match(topic, text, patterns[source], patterns.values(), findings)
            _exact_name(topics, topic, text, patterns[source][1], findings)


def _patterns_that_match(
    topic: Section,
    text: str,
    copied: tuple[Section, Search],
    patterns: Iterable[tuple[Section, Search]],
    findings: Diagnostics,
) -> None:
    own, matches = copied
    name = next((name for name in _samples(own.text("pattern")) if matches(name)), None)
    if name is None:
        return
    copy = copy_name(text, name)
    for other, takes in patterns:
        if takes(copy):
            line = topic.line_of("TopicFormat")
            findings.warning(
                line,
                "TopicFormat",
                f"a copy such as {copy!r} has a name that the Pattern of {other.text('name')!r} in "
                f"{at(other.line_of('Pattern'), line)} matches: it belongs to the copy, and "
                "publishing to it is refused",
                f"publish to names such as {name!r}, or let the Pattern leave the copies out",
            )


def _exact_name(
    topics: Iterable[Section], topic: Section, text: str, matches: Search, findings: Diagnostics
) -> None:
    for other in topics:
        name = other.text("name")
        copied = copied_from(text, name)
        if copied is not None and matches(copied):
            line = topic.line_of("TopicFormat")
            findings.warning(
                line,
                "TopicFormat",
                f"the copy of {copied!r} would be called as {name!r} in {at(other.line, line)} is: "
                f"publishing to {copied!r} is refused",
                "write another TopicFormat, or give the topic another name",
            )


def _samples(pattern: str) -> list[str]:
    """Names that the pattern may match."""
    plain = pattern
    for symptom, text in _SAMPLES:
        plain = symptom.sub(text, plain)
    return [plain + "1", plain]


def check_fields(topic: Section, kind: MessageType, findings: Diagnostics) -> None:
    """Check the Preprocessing and Enrichment of a topic with messages of a type, one field at a
    time, so that each finding is about one field."""
    for element in ("Preprocessing", "Enrichment"):
        section = topic.values.get(element.lower())
        if not isinstance(section, Section):
            continue
        for text in section.texts("fields"):
            fields = compile_fields([text])
            _can_be_written(section, fields, kind, findings)
            if topic.element.name == "Topic":
                _is_known(topic, section, fields, findings)
                if element == "Enrichment":
                    _leaves_keys(topic, section, fields, findings)
                    _has_a_past(topic, section, fields, findings)


UNKNOWN = {
    "Preprocessing": {
        Trait.BOOKMARK: ("a message is numbered after its fields are made", "remove it"),
        Trait.SOW_KEY: (
            "the key of a message is read after it is preprocessed",
            "make the field in Enrichment",
        ),
        Trait.LAST_UPDATED: (
            "a message is given its time after it is preprocessed",
            "write UNIX_TIMESTAMP(), the time at which it came",
        ),
    },
    "Enrichment": {
        Trait.BOOKMARK: ("a message is numbered after its fields are made", "remove it")
    },
}
"""Traits that are unknown when the fields of a topic are made, the reason, and the remedy."""


def _is_known(topic: Section, section: Section, fields: Fields, findings: Diagnostics) -> None:
    unknown = UNKNOWN[section.tag]
    for trait in fields.traits:
        if trait in unknown:
            why, instead = unknown[trait]
            if trait is Trait.SOW_KEY and _of_keys(topic, fields):
                instead = "remove it: no key is made of itself"
            findings.error(section.line, section.tag, f"uses {trait}(), and {why}", instead)


def _can_be_written(
    section: Section, fields: Fields, kind: MessageType, findings: Diagnostics
) -> None:
    for target in fields.targets if kind.partial else ():
        if not has_place(kind, target):
            findings.error(
                section.line,
                section.tag,
                f"a message of the type {kind.name} has no place for {target}",
                "write a path of one name, without the characters that separate fields"
                if len(target.steps) > 1
                else "write another name",
            )


def has_place(kind: MessageType, target: Path) -> bool:
    """Whether a text or a number fits there: fields of some types are of one kind."""
    return any(_is_taken(kind, nested(target, value)) for value in ("x", 1))


def _is_taken(kind: MessageType, document: dict[str, object]) -> bool:
    try:
        kind.encode(document)
    except BadMessage:
        return False
    return True


def _of_keys(topic: Section, fields: Fields) -> list[tuple[Path, Path]]:
    """Which fields are made that a key is read from, lie in it, or hold it; each with the key."""
    keys = [parse_path(text) for text in topic.texts("keys")]
    return [
        (target, key)
        for target in fields.targets
        for key in keys
        if all(one == other for one, other in zip(target.steps, key.steps, strict=False))
    ]


def _leaves_keys(topic: Section, section: Section, fields: Fields, findings: Diagnostics) -> None:
    """The key is read before a message is enriched, and the log derives it from the key fields."""
    instead = "make it in Preprocessing"
    if Trait.SOW_KEY in fields.traits:
        instead = "write it into another field: no key is made of itself"
    elif fields.of_previous:
        instead += " without OF PREVIOUS: before its key is read a message has no past"
    elif Trait.LAST_UPDATED in fields.traits:
        instead += " of UNIX_TIMESTAMP(), the time at which it came"
    for target, key in _of_keys(topic, fields):
        findings.error(
            section.line,
            section.tag,
            f"makes {target}, and the key {key} has been read before a message is enriched",
            instead,
        )


def _has_a_past(topic: Section, section: Section, fields: Fields, findings: Diagnostics) -> None:
    if fields.of_previous and not topic.values.get("retain", True):
        findings.error(
            section.line,
            section.tag,
            "reads the previous state of a record, and with Retain false no record is stored",
            "remove OF PREVIOUS or Retain",
        )
