"""The rules of UnderlyingTopic: it exists, stands above its conflated topic, and agrees with it."""

from sow.config.findings import Findings, nearest
from sow.config.structure import Section


def check_underlying_topics(root: Section, findings: Findings) -> None:
    """Check each conflated topic against what is defined above it."""
    lines = _lines_by_name(root)
    refused = _refused_names(root)
    above: dict[str, Section] = {}
    for topic in root.sections("topics"):
        name = topic.text("underlying")
        if name in above:
            _agree(topic, above[name], findings)
        elif name and name not in refused:
            _not_above(topic, name, lines, findings)
        if topic.text("name"):
            above.setdefault(topic.text("name"), topic)


def _lines_by_name(root: Section) -> dict[str, int]:
    return {topic.text("name"): topic.line for topic in reversed(root.sections("topics"))}


def _refused_names(root: Section) -> set[str]:
    """Names of views and queues: they are reported as not available, and not as undefined."""
    return {
        child.text.strip()
        for node in root.refused
        for child in node.children
        if child.tag in ("Name", "Topic")
    }


def _not_above(topic: Section, name: str, lines: dict[str, int], findings: Findings) -> None:
    line = topic.line_of("UnderlyingTopic")
    if name == topic.text("name"):
        message = f"the topic {name!r} would conflate itself"
        instead = "name the topic that it copies, and give the copy another Name"
    elif name in lines:
        message = f"the topic {name!r} is defined later, in line {lines[name]}"
        instead = f"move {name!r} above {topic.text('name')!r}"
    else:
        meant = nearest(name, [other for other in lines if other != topic.text("name")])
        message = f"no topic {name!r} is defined"
        instead = f"did you mean {meant!r}?" if meant else "define it above, or correct the name"
    findings.error(line, "UnderlyingTopic", message, instead)


def _agree(topic: Section, underlying: Section, findings: Findings) -> None:
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
            "remove it; Name says what the copy is called",
        )


def is_many(topic: Section) -> bool:
    """Whether a definition stands for many topics."""
    return "Pattern" in topic.lines or "TopicFormat" in topic.lines
