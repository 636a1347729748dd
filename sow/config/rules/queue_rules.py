"""The rules of queues: what their messages come from, where dead ones go, and what has an effect.

The underlying topic is one that clients publish to and that the log has, defined above the queue.
A queue is only consumed: nothing is made of it, and no dead message becomes a new one of the same
queue.
"""

from collections.abc import Mapping

from sow.config.binder import Section
from sow.config.diagnostics import Diagnostics
from sow.config.rules.topic_rules import is_many, names_above, report_missing, underlyings
from sow.expressions import compile_filter

OF_LEASES = ("LeasePeriod", "MaxDeliveries", "DeadLetterTopic", "MaxBacklog")
"""Elements without an effect where a message is gone when it is delivered."""


def check_queues(root: Section, findings: Diagnostics) -> None:
    """Check each queue against what is defined above it, and that nothing is made of one."""
    for topic, above in names_above(root):
        if topic.element.name == "Queue":
            _source(root, topic, above, findings)
            _dead_letters(root, topic, above, findings)
            _semantics(topic, findings)
            _barrier(topic, findings)
        else:
            _not_of_queues(topic, above, findings)


def _source(
    root: Section, queue: Section, above: Mapping[str, Section], findings: Diagnostics
) -> None:
    place, name = queue.where("UnderlyingTopic"), queue.text("underlying")
    source = above.get(name)
    if source is None:
        if name:
            report_missing(root, queue, name, place, findings)
    elif source.element.name != "Topic" or is_many(source):
        findings.error(
            *place,
            f"{name!r} is no single topic that clients publish to",
            "name a Topic without a Pattern",
        )
    elif source.text("durability") == "transient":
        findings.error(
            *place,
            f"{name!r} is transient, and messages of a queue survive a restart",
            f"make {name!r} persistent",
        )
    else:
        _agree(queue, source, "UnderlyingTopic", findings)


def _agree(queue: Section, other: Section, element: str, findings: Diagnostics) -> None:
    own, others = queue.text("message_type"), other.text("message_type")
    if own and others and own != others:
        findings.error(
            *queue.where(element),
            f"{other.text('name')!r} has the message type {others}, and the queue {own}",
            f"write {others} as MessageType of both",
        )


def _dead_letters(
    root: Section, queue: Section, above: Mapping[str, Section], findings: Diagnostics
) -> None:
    name, place = queue.text("dead_letters"), queue.where("DeadLetterTopic")
    if not name:
        return
    topic = above.get(name)
    if "MaxDeliveries" not in queue.lines:
        findings.error(
            *place,
            "gets what was delivered MaxDeliveries times, and there is no such limit",
            "add MaxDeliveries, or remove it",
        )
    if topic is None:
        report_missing(root, queue, name, place, findings)
    elif name == queue.text("underlying"):
        findings.error(
            *place,
            f"{name!r} is the underlying topic, so that each dead message would be a new one",
            "name another Topic",
        )
    elif queue.text("underlying") in _reached(root, name):
        findings.error(
            *place,
            f"dead messages of {name!r} come back to {queue.text('underlying')!r} by other queues, "
            "so that none would ever be dead",
            "name another Topic",
        )
    elif topic.element.name != "Topic" or is_many(topic):
        findings.error(
            *place,
            f"{name!r} is no single topic that is published to",
            "name a Topic without a Pattern",
        )
    else:
        _agree(queue, topic, "DeadLetterTopic", findings)


def _reached(root: Section, name: str) -> set[str]:
    """Where dead messages of a topic come to through queues."""
    reached, coming = set[str](), [name]
    while coming:
        source = coming.pop()
        for one in root.sections("topics"):
            letters = one.text("dead_letters")
            if letters and one.text("underlying") == source and letters not in reached:
                reached.add(letters)
                coming.append(letters)
    return reached


def _semantics(queue: Section, findings: Diagnostics) -> None:
    for element in OF_LEASES if queue.text("semantics") == "at-most-once" else ():
        if element in queue.lines:
            findings.error(
                *queue.where(element),
                "is of leases, and at-most-once has none: a message leaves the queue when it is "
                "delivered",
                f"remove {element}, or write at-least-once as Semantics",
            )


def _barrier(queue: Section, findings: Diagnostics) -> None:
    text = queue.text("barrier")
    if text and compile_filter(text).traits:
        findings.error(
            *queue.where("BarrierExpression"),
            "uses more than the fields of a message, and has to say the same after a restart",
            "compare fields alone",
        )


def _not_of_queues(topic: Section, above: Mapping[str, Section], findings: Diagnostics) -> None:
    for name in underlyings(topic):
        if name in above and above[name].element.name == "Queue":
            source = above[name].text("underlying")
            findings.error(
                *topic.where("UnderlyingTopic"),
                f"{name!r} is a queue, which is only consumed",
                f"name its underlying topic, {source}",
            )
