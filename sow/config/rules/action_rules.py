"""The rules of actions: what each module needs, the topics that it names, and that none sets itself
off.

What an action does to a topic may set off others, and these may set it off again: each pair is an
edge of a graph, which has to have no circle. A publish may be of any message, so the Filter of a
trigger makes no difference; messages reach the topics of dead letters, too.
"""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from conflated_topics.user_texts import nearest
from sow.config.binder import Section
from sow.config.diagnostics import Diagnostics, at
from sow.config.rules.topic_rules import is_many
from sow.core.action_definitions import AMPS_DATA, OF_MESSAGES, VARIABLES
from sow.errors import ClientError
from sow.expressions import compile_filter, parse, with_texts

VARIABLE = re.compile(r"\{\{\s*(\w*)\s*\}\}")
OF_TOPIC = ("Topic", "MessageType", "Filter")
TRIGGER_OPTIONS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "schedule": (("Every",), ()),
    "startup": ((), ()),
    "shutdown": ((), ()),
    "publish-message": (("Topic",), OF_TOPIC),
    "sow-expire-message": (("Topic",), OF_TOPIC),
    "oof-message": (("Topic",), (*OF_TOPIC, "Type")),
    "slow-client": ((), ()),
}
DEED_OPTIONS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "publish-message": (("Topic",), ("MessageType", "Data", "Delta")),
    "delete-sow": (("Topic", "Filter"), ("MessageType",)),
    "echo-message": (("Message",), ()),
    "webhook": (("Url",), ("Data", "Timeout", "Retries")),
}
"""The options that a module needs, and those that it may have."""
LEAVING_TYPES = {
    "deleted": ("all", "delete"),
    "expired": ("all", "expire"),
    "match": ("all", "match"),
}
"""By the reason why a record leaves: the Types of an oof that it is one of."""


class Cause(NamedTuple):
    """What happens to a topic: ``publish``, or a record leaves for a reason."""

    what: str
    topic: str


def check_actions(root: Section, findings: Diagnostics) -> None:
    """Check each action, and then all of them together."""
    actions = root.sections("actions")
    hosts = root.values.get("webhook_hosts", ())
    names: dict[str, int] = {}
    for action in actions:
        trigger = action.values.get("trigger")
        if not isinstance(trigger, Section) or not trigger.text("kind"):
            continue  # which has been reported
        kind = trigger.text("kind")
        _options(trigger, TRIGGER_OPTIONS[kind], ("Name",), findings)
        _topic(root, trigger, findings)
        _name(trigger, names, findings)
        _fields_alone(trigger, findings)
        if kind == "oof-message" and trigger.text("type") == "match":
            _has_filter(trigger, findings)
        for deed in action.sections("deeds"):
            if deed.text("kind"):
                _options(deed, DEED_OPTIONS[deed.text("kind")], (), findings)
                _topic(root, deed, findings)
                _variables(deed, VARIABLES[kind], findings)
                _deed(root, deed, kind, hosts, findings)
    if not findings.has_errors():
        _circles(root, actions, findings)


def _options(
    section: Section,
    known: tuple[tuple[str, ...], tuple[str, ...]],
    more: tuple[str, ...],
    findings: Diagnostics,
) -> None:
    needed, others = known
    module = f"Module {section.text('kind')}"
    for name in needed:
        if name not in section.lines:
            findings.error(
                *section.where("Module"), f"{module} needs {name}", f"add <{name}> to its Options"
            )
    allowed = (*needed, *others, *more)
    for name in section.lines:
        if name not in ("Module", "Options", *allowed):
            instead = f"it takes {', '.join(allowed)}" if allowed else "it takes no options"
            findings.error(*section.where(name), f"is no option of {module}", instead)


def _topic(root: Section, section: Section, findings: Diagnostics) -> None:
    """The topic that a trigger or a deed names is one that clients publish to."""
    name, place = section.text("topic"), section.where("Topic")
    if not name:
        return
    topics = {one.text("name"): one for one in root.sections("topics")}
    topic = topics.get(name)
    if topic is None:
        meant = nearest(name, topics)
        instead = f"did you mean {meant}?" if meant else "name a Topic of this file"
        findings.error(*place, f"no topic {name!r} is defined", instead)
    elif topic.element.name != "Topic" or is_many(topic):
        findings.error(
            *place,
            f"{name!r} is no single topic that clients publish to",
            "name a Topic without a Pattern",
        )
    else:
        own, given = topic.text("message_type"), section.text("message_type")
        if own and given and own != given:
            findings.error(
                *section.where("MessageType"),
                f"{name!r} has the message type {own}",
                f"write {own}, or leave it out",
            )


def _name(trigger: Section, names: dict[str, int], findings: Diagnostics) -> None:
    name, (line, tag) = trigger.text("name"), trigger.place("Name")
    if name in names:
        message = f"the name {name!r} is already used in {at(names[name], line)}"
        findings.error(line, tag, message, "choose another one: the audit and schedules go by it")
    elif name:
        names[name] = line


def _fields_alone(trigger: Section, findings: Diagnostics) -> None:
    text = trigger.text("filter")
    if text and compile_filter(text).traits:
        findings.error(
            *trigger.where("Filter"),
            "uses more than the fields of a message",
            "compare fields alone",
        )


def _has_filter(trigger: Section, findings: Diagnostics) -> None:
    if "Filter" not in trigger.lines:
        findings.error(
            *trigger.where("Type"),
            "a record leaves by match where it matches a Filter no more, and there is none",
            "add the Filter, or write another Type",
        )


def _variables(deed: Section, known: frozenset[str], findings: Diagnostics) -> None:
    for element in ("Data", "Message", "Filter"):
        allowed = known - {AMPS_DATA} if element == "Filter" else known
        for name in VARIABLE.findall(deed.text(element.lower())):
            if name not in allowed:
                has = ", ".join(sorted(allowed)) or "none"
                why = (
                    "would let a message say what is deleted"
                    if name in known
                    else "is not known where this action is set off"
                    if name in OF_MESSAGES
                    else "is no variable of this server"
                )
                findings.error(
                    *deed.where(element), f"{{{{{name}}}}} {why}", f"the variables here: {has}"
                )


def _deed(root: Section, deed: Section, trigger: str, hosts: object, findings: Diagnostics) -> None:
    kind = deed.text("kind")
    has_data = "Data" in deed.lines or AMPS_DATA in VARIABLES[trigger]
    if kind in ("publish-message", "webhook") and not has_data:
        findings.error(
            *deed.where("Module"), "has no Data, and no message sets this action off", "add <Data>"
        )
    if kind == "publish-message":
        topic = next(
            (t for t in root.sections("topics") if t.text("name") == deed.text("topic")), None
        )
        is_topic = topic is not None and topic.element.name == "Topic"
        if topic and is_topic and not {"Key", "KeyGenerator"} & topic.lines.keys():
            findings.error(
                *deed.where("Topic"),
                "has no Key, so that a publisher names each record, and an action names none",
                "publish to a Topic with a Key",
            )
    if kind == "webhook" and deed.text("url"):
        host = (urlsplit(deed.text("url")).hostname or "").lower()
        if host not in (hosts if isinstance(hosts, tuple) else ()):
            findings.error(
                *deed.where("Url"),
                f"the host {host} is not one of WebhookHosts",
                f"add <WebhookHosts>{host}</WebhookHosts> to Actions if it is trusted",
            )
    if kind == "delete-sow" and deed.text("filter"):
        _delete_filter(deed, findings)


def _delete_filter(deed: Section, findings: Diagnostics) -> None:
    """The variables of a filter are in its texts: a key that a publisher chooses is no part of the
    condition."""
    text = deed.text("filter")
    try:
        compile_filter(VARIABLE.sub("x", text))
    except ClientError as error:
        findings.error(*deed.where("Filter"), error.detail, "write a condition such as /done = 1")
        return
    if not _is_in_texts(text):
        findings.error(
            *deed.where("Filter"),
            "has a variable outside of quotes, or in what a function is made of",
            "write /id = '{{AMPS_SOW_KEY}}'",
        )


def _is_in_texts(text: str) -> bool:
    """Whether all variables of a filter are in its texts, and so are put into these alone."""
    found: list[str] = []

    def noted(written: str, _is_pattern: bool) -> str:
        found.extend(VARIABLE.findall(written))
        return written

    try:
        with_texts(parse(text), noted)
    except ClientError:
        return False
    return len(found) == len(VARIABLE.findall(text))


# Circles.


def _circles(root: Section, actions: list[Section], findings: Diagnostics) -> None:
    topics = {one.text("name"): one for one in root.sections("topics")}
    after = [
        [other for other, one in enumerate(actions) if any(_sets_off(c, one) for c in causes)]
        for causes in (set(_causes(action, topics)) for action in actions)
    ]
    for number, action in enumerate(actions):
        if number in _reached(after, number):
            trigger = action.values["trigger"]
            assert isinstance(trigger, Section)
            name = trigger.text("name") or f"action {number + 1}"
            findings.error(
                *action.where("Do"),
                f"{name} would set itself off, without end",
                "let it change a topic that neither it nor what it sets off watches",
            )


def _reached(after: list[list[int]], number: int) -> set[int]:
    """The actions that one may set off, by others too."""
    reached: set[int] = set()
    coming = [number]
    while coming:
        for other in after[coming.pop()]:
            if other not in reached:
                reached.add(other)
                coming.append(other)
    return reached


def _causes(action: Section, topics: Mapping[str, Section]) -> Iterator[Cause]:
    """What the deeds of an action may make happen."""
    for deed in action.sections("deeds"):
        name = deed.text("topic")
        if deed.text("kind") == "delete-sow":
            yield Cause("deleted", name)
        elif deed.text("kind") == "publish-message":
            for reached in (name, *_dead_letters(name, topics)):
                yield Cause("publish", reached)
                yield Cause("match", reached)
                if topics[reached].values.get("expires"):
                    yield Cause("expired", reached)


def _dead_letters(name: str, topics: Mapping[str, Section]) -> Iterator[str]:
    """The topics that messages of a topic come to through queues."""
    reached, coming = {name}, [name]
    while coming:
        source = coming.pop()
        for one in topics.values():
            letters = one.text("dead_letters")
            if one.text("underlying") == source and letters and letters not in reached:
                reached.add(letters)
                coming.append(letters)
                yield letters


def _sets_off(cause: Cause, action: Section) -> bool:
    trigger = action.values["trigger"]
    assert isinstance(trigger, Section)
    if trigger.text("topic") != cause.topic:
        return False
    kind = trigger.text("kind")
    if kind == "oof-message":
        has_filter = bool(trigger.text("filter"))
        type_ = trigger.text("type") or "all"
        return type_ in LEAVING_TYPES.get(cause.what, ()) and (cause.what != "match" or has_filter)
    return (kind, cause.what) in (
        ("publish-message", "publish"),
        ("sow-expire-message", "expired"),
    )
