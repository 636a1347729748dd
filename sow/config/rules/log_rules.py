"""The rules of `<TransactionLog><Topic>`: what it names exists and can be logged.

Every persistent topic is logged whether it is named or not, so the list changes nothing; it is
read so that AMPS files run, and so that unsupported requests are reported.
"""

import re2

from sow.config.binder import Section
from sow.config.diagnostics import Diagnostics
from sow.config.rules.source_rules import definition_of, refused_names
from sow.core.suggest import nearest
from sow.security.topic_patterns import is_meant_as_pattern, is_pattern

UNSTORED = "; with <Retain>false</Retain> its messages are logged and passed on, and none is stored"
OUTSIDE = {
    False: f"it as a <Topic> in SOW{UNSTORED}",
    True: f"a <Topic> with this <Pattern> in SOW{UNSTORED}, or write .* for all",
}
"""What to write for a topic that is logged and is in no SOW; for a pattern of names, True."""


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
    if topic.element.name != "Topic":
        what = "view" if topic.element.name == "View" else "conflated topic"
        message = f"the log of a {what} is not available yet"
        findings.error(line, "Name", message, f"remove the entry {name!r}")
    elif topic.text("durability") == "transient":
        message = "the log of a transient topic is not available yet"
        findings.error(line, "Name", message, f"remove it, or make {name!r} persistent")
    elif own and other and own != other:
        message = f"{own} differs from the message type of the topic {name!r}"
        findings.error(entry.line_of("MessageType"), "MessageType", message, f"write {other}")


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
