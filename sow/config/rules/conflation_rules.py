"""The rules of patterns, of topics that retain nothing, and of what a full queue may do."""

from sow.config.binder import Section
from sow.config.diagnostics import Diagnostics, at
from sow.errors import ClientError
from sow.expressions.patterns import Search
from sow.security.topic_patterns import topic_search


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
