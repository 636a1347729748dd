"""The rules of UnderlyingTopic: it exists, is defined above what is derived from it, and a
conflated topic agrees with it."""

from collections.abc import Iterable, Iterator, Mapping

from conflated_topics.suggest import nearest
from sow.config.binder import Section
from sow.config.diagnostics import Diagnostics, at
from sow.core.pipelines import TRIGGER_US
from sow.errors import ClientError
from sow.expressions import compile_filter
from sow.security.topic_patterns import is_pattern, topic_search


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
    for topic in topics:
        if (pattern := topic.text("pattern")) and not is_pattern(name):
            try:
                if topic_search(pattern)(name):
                    return topic
            except ClientError:
                continue  # reported where it was read
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
            topic.line_of("MessageType"),
            "MessageType",
            f"{own} differs from the message type of the underlying topic {name!r}",
            f"write {other}",
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
            topic.line_of("TopicFormat"),
            "TopicFormat",
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
