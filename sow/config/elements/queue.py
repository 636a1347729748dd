"""The table of elements, continued: `<Queue>`, whose names are those of AMPS.

A queue is a topic that holds messages, so the element makes one, with `QueueSettings`. What AMPS
has beside this is refused by name, with what to write instead.
"""

from dataclasses import replace
from typing import Any

from sow.config import value_types
from sow.config.elements.element import Element, later, leaf, unused
from sow.config.elements.topic import MESSAGE_TYPE, NAME_ELEMENT
from sow.core.definitions import FairnessModel, QueueSettings, Semantics, Topic


def queue_topic(
    name: str, message_type: str, file_name: str | None = None, line: int = 0, **settings: Any
) -> Topic:
    """The topic that holds the messages of a queue."""
    queue = QueueSettings(**settings)
    return Topic(
        name,
        message_type,
        file_name=file_name,
        conflation_policy="off",
        queue=queue,
        line=line,
    )


QUEUE = Element(
    name="Queue",
    synonyms=("QueueDefinition",),
    repeated=True,
    fields=("topics",),
    make=queue_topic,
    about="Each publish to a topic is a message of its queue, for one consumer, which acknowledges "
    "it.",
    children=(
        NAME_ELEMENT,
        replace(MESSAGE_TYPE, about="The format of its messages, that of its underlying topic."),
        leaf("UnderlyingTopic", value_types.TEXT, required=True, fields=("underlying",))(
            "The persistent Topic whose publishes are its messages, defined above it."
        ),
        leaf("Semantics", value_types.choice(Semantics), "at-least-once")(
            "At-least-once: a message is leased, and comes back unless it is acknowledged. "
            "At-most-once: it leaves the queue, on disk, before it is sent."
        ),
        leaf("LeasePeriod", value_types.duration(minimum="100ms"), "30s", fields=("lease_us",))(
            "How long a consumer has a message before it goes to another one."
        ),
        leaf(
            "FairnessModel", value_types.choice(FairnessModel), "proportional", fields=("fairness",)
        )(
            "Which consumer with room gets a message: the first one, each in turn, or the one with "
            "the smallest part of its backlog in use."
        ),
        leaf("MaxBacklog", value_types.COUNT_IF_ANY, "unlimited", fields=("backlog_max",))(
            "How many messages all consumers together hold at a time."
        ),
        leaf(
            "MaxPerSubscriptionBacklog",
            value_types.count(maximum="10000"),
            "1",
            fields=("subscription_backlog_max",),
        )(
            "How many messages one subscription holds at a time; it may ask for fewer "
            "(`max_backlog`)."
        ),
        leaf("MaxDeliveries", value_types.COUNT_IF_ANY, "unlimited", fields=("deliveries_max",))(
            "How often a message is delivered. One that comes back after that goes to "
            "DeadLetterTopic, or is dropped and counted."
        ),
        leaf("DeadLetterTopic", value_types.TEXT, fields=("dead_letters",))(
            "The Topic, defined above it, that gets the body of a message that was delivered "
            "MaxDeliveries times."
        ),
        leaf("Priority", value_types.PATH)(
            "A field with a number: messages with a higher one go first, those without one have 0."
        ),
        leaf("BarrierExpression", value_types.FILTER, fields=("barrier",))(
            "A message that matches waits until all before it are acknowledged, and all after it "
            "wait until it is."
        ),
        *unused("TargetQueueDepth", "FileBackedMetadata", "DeferredAckExpiration"),
        *later(
            DefaultPublishTarget="publish to the UnderlyingTopic",
            Expiration="let consumers acknowledge what is too old for them",
            ExpirationModel="let consumers acknowledge what is too old for them",
            Filter="publish what is work to a topic of its own",
            RecoveryPoint="remove it: a queue begins with what is published from then on",
            Leasing="remove it: a lease is its holder's",
            MaxCancels="remove it: MaxDeliveries bounds deliveries, and a cancel takes one back",
            InitialOwner="remove it: this server owns its queues",
            GroupLocalQueueDomain="remove it: this server owns its queues",
        ),
    ),
)
