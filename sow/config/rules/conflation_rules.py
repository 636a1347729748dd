"""The rules of patterns, of topics that retain nothing, of full queues, and of names of copies."""

import re

from sow.config.binder import Section
from sow.config.diagnostics import Diagnostics, at
from sow.errors import ClientError
from sow.expressions.patterns import Search
from sow.security.topic_patterns import copied_from, copy_name, topic_search


def check_conflation(root: Section, findings: Diagnostics) -> None:
    """Check every topic's definition by itself, exact names against patterns, and the copies."""
    _exact_names_first(root, findings)
    _distinct_copies(root, findings)
    for topic in root.sections("topics"):
        _retains_nothing(topic, findings)
        _merges(topic, findings)


def _exact_names_first(root: Section, findings: Diagnostics) -> None:
    """Definitions are tried in order: a pattern above would take an exact topic's messages."""
    patterns: list[tuple[Section, Search]] = []
    for topic in root.sections("topics"):
        if pattern := topic.text("pattern"):
            try:
                patterns.append((topic, topic_search(pattern)))
            except ClientError:
                continue  # reported where it was read
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
    """No two formats, perhaps one over another, give a pattern's topic two copies of one name."""
    formats: dict[str, tuple[str, str]] = {}
    taken: dict[tuple[str, str], Section] = {}
    for topic in root.sections("topics"):
        if not (text := topic.text("topic_format")):
            continue
        source, below = formats.get(topic.text("underlying"), (topic.text("underlying"), "%n"))
        copies = formats[topic.text("name")] = source, text.replace("%n", below)
        other = taken.setdefault(copies, topic)
        if other.text("name") != topic.text("name"):
            line = topic.line_of("TopicFormat")
            findings.error(
                line,
                "TopicFormat",
                f"gives the copies of {source!r} the names that {other.text('name')!r} in "
                f"{at(other.line, line)} gives them: {copies[1]}",
                "write another one, such as %n-D",
            )


def _retains_nothing(topic: Section, findings: Diagnostics) -> None:
    if topic.values.get("retain", True):
        return
    for element in ("HashIndex", "Index", "Expiration"):
        if element in topic.lines:
            findings.error(
                topic.line_of(element),
                element,
                "has nothing to work on in a topic with Retain false, which stores no record",
                f"remove {element} or Retain",
            )


def _merges(topic: Section, findings: Diagnostics) -> None:
    if "Merge" in topic.lines and "Merger" in topic.lines:
        findings.error(
            topic.line_of("Merger"),
            "Merger",
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
    patterns = _patterns(root)
    formats: dict[str, tuple[str, str]] = {}
    for topic in root.sections("topics"):
        if text := topic.text("topic_format"):
            underlying = topic.text("underlying")
            source, below = formats.get(underlying, (underlying, "%n"))
            formats[topic.text("name")] = source, text.replace("%n", below)
            _patterns_that_match(topic, formats[topic.text("name")], patterns, findings)
            _exact_name(root, topic, formats[topic.text("name")], patterns, findings)


def _patterns(root: Section) -> dict[str, tuple[Section, Search]]:
    found = {}
    for topic in root.sections("topics"):
        if pattern := topic.text("pattern"):
            try:
                found[topic.text("name")] = topic, topic_search(pattern)
            except ClientError:
                continue  # reported where it was read
    return found


def _patterns_that_match(
    topic: Section,
    copies: tuple[str, str],
    patterns: dict[str, tuple[Section, Search]],
    findings: Diagnostics,
) -> None:
    source, text = copies
    if source not in patterns:
        return
    own, matches = patterns[source]
    name = next((name for name in _samples(own.text("pattern")) if matches(name)), None)
    if name is None:
        return
    copy = copy_name(text, name)
    for other, takes in patterns.values():
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
    root: Section,
    topic: Section,
    copies: tuple[str, str],
    patterns: dict[str, tuple[Section, Search]],
    findings: Diagnostics,
) -> None:
    source, text = copies
    if source not in patterns:
        return
    for other in root.sections("topics"):
        name = other.text("name")
        copied = copied_from(text, name)
        if copied is not None and patterns[source][1](copied):
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
