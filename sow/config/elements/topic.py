"""The part of the table of elements about topics, conflated topics and queues, inside `<SOW>`.

A queue is a topic that holds messages, so its element makes one, with `QueueSettings`; its names
are those of AMPS. What AMPS has beside this is refused by name, with what to write instead.
"""

from dataclasses import replace
from typing import Any

from sow.config import value_types
from sow.config.elements import FLUSH_INTERVAL, Element, later, leaf, listing, only, unused
from sow.core.definitions import (
    ConflatedTopic,
    Declared,
    DeltaNull,
    Durability,
    Engine,
    FairnessModel,
    History,
    KeyChainSettings,
    Merge,
    Operation,
    Placement,
    Policy,
    QueueSettings,
    Schedule,
    Semantics,
    Series,
    Topic,
)
from sow.expressions import STATES
from sow.messages import MESSAGE_TYPES


def _made_fields(name: str, states: tuple[str, ...], about: str, example: str) -> Element:
    """A section of field constructions, which may refer to these states of the record."""
    return listing(
        name,
        about,
        "Field",
        value_types.field(*states),
        f"{example}; `HINT OPTIONAL` leaves a NULL result out, `HINT SET_CURRENT` lets the fields "
        "after it see it.",
    )


NAME_ELEMENT = leaf("Name", value_types.TOPIC_NAME, synonyms=("Topic",), required=True)(
    "What clients call the topic; unique in the file, at most 255 characters."
)
MESSAGE_TYPE = leaf("MessageType", value_types.TEXT, required=True)(
    f"The format of its messages: {', '.join(MESSAGE_TYPES)}, "
    "or a Name from MessageTypes. A conflated topic repeats that of its underlying topic."
)
INDEXES = (
    listing(
        "HashIndex",
        "Answers exact matches on all of its fields at once.",
        "Key",
        value_types.PATH,
        "A field of the index.",
        repeated=True,
        fields=("hash_indexes",),
    ),
    leaf("Index", value_types.PATH, repeated=True, fields=("indexes",))(
        "A field indexed from the start rather than when a query first names it."
    ),
)
BACK_PRESSURE_ELEMENTS = (
    leaf("ConflationPolicy", value_types.choice(Policy), "conflate")(
        "What a session's full queue may do with this topic's updates: conflate them, lose "
        "nothing, give the subscription up, or conflate always, full or not."
    ),
    leaf("Placement", value_types.choice(Placement), "replace")(
        "Where a conflated update goes: in the place of the older one, or to the end."
    ),
    listing(
        "Match",
        "Which queued update is the same as a new one; by default that of the same record.",
        "Key",
        value_types.PATH,
        "A field that both have in common.",
    ),
    Element(
        name="Merge",
        repeated=True,
        fields=("merges",),
        make=Merge,
        about="What becomes of one field when two updates are conflated; fields without one take "
        "the newer value.",
        children=(
            leaf("Field", value_types.PATH, required=True)("The field."),
            leaf("Operation", value_types.choice(Operation), required=True)(
                "How the older and the newer value become one. `count` counts the updates."
            ),
        ),
    ),
    leaf("Merger", value_types.CALLABLE_NAME)(
        "A Python callable that is given (current, new) as parsed messages and returns "
        "current, new, another message, or None to keep both."
    ),
)
SCHEMA = Element(
    name="Schema",
    make=only,
    about="The types of fields. A publish with a value that does not fit is refused; what is not "
    "declared may be anything.",
    children=(
        Element(
            name="Field",
            required=True,
            repeated=True,
            fields=("schema",),
            make=Declared,
            text_child="Path",
            about='A field and the type of its values: `<Field type="int64">/qty</Field>`. It may '
            "be absent or null.",
            children=(
                leaf("Path", value_types.DECLARED_PATH, required=True)("The field."),
                leaf("type", value_types.VALUE_TYPE, required=True, attribute=True)(
                    "The type: a whole number of 64 bits, a number that a double holds "
                    "exactly, a number of p digits with s behind the point, a text, true or false, "
                    "a moment (microseconds, UTC), a day, or any value."
                ),
            ),
        ),
    ),
)
HISTORY = Element(
    name="History",
    make=History,
    about="How far back every state of the topic can be computed (`as_of`), whatever RetentionSize "
    "and RetentionAge keep.",
    children=(
        leaf("Window", value_types.duration(minimum="1s"), required=True, fields=("window_us",))(
            "How far back. The log is kept as long, and one Granularity longer."
        ),
        leaf("Granularity", value_types.duration(minimum="1s"), "1h", fields=("granularity_us",))(
            "How far the checkpoints are apart that are kept for it, each a copy of the records: a "
            "state is computed from the one before it. At most 200 in a Window."
        ),
    ),
)
SERIES = Element(
    name="Series",
    make=Series,
    about="Each publish adds an event to its record, which is the newest of its events. They are "
    "never conflated: ConflationPolicy is off, or unsubscribe.",
    children=(
        leaf("Retain", value_types.RETAINED, "limit 10", fields=("events_max", "age_us"))(
            "Which events of a record are kept: the newest so many, and those at most so much "
            "older than the newest."
        ),
    ),
)
KEY_GENERATOR = Element(
    name="KeyGenerator",
    fields=("chain",),
    make=KeyChainSettings,
    about="Instead of Key: messages that point at each other are of one record.",
    children=(
        leaf("Module", value_types.TEXT)(
            "What AMPS calls its module; only chaining is done here, whatever the name."
        ),
        Element(
            name="Options",
            about="How they point at each other.",
            children=(
                leaf("Primary", value_types.PATH, synonyms=("Key",), required=True)(
                    "The field that names a message."
                ),
                leaf("Secondary", value_types.PATH, required=True)(
                    "The field that names an earlier message, whose record it belongs to."
                ),
                Element(
                    name="FileName",
                    status="no effect",
                    about="since chains are kept with the records",
                ),
                *later(Validation="remove it: a message that names nothing known begins a chain"),
            ),
        ),
    ),
)

TOPIC = Element(
    name="Topic",
    synonyms=("TopicDefinition",),
    repeated=True,
    fields=("topics",),
    make=Topic,
    about="A keyed last-value store that clients publish to.",
    children=(
        NAME_ELEMENT,
        MESSAGE_TYPE,
        leaf("Key", value_types.PATH, repeated=True, fields=("keys",))(
            "A field that identifies a record; several together identify it. "
            "With none, publishers send a SowKey with each message."
        ),
        leaf("KeyDomain", value_types.TEXT)(
            "Topics of one domain give equal key values equal SowKeys. By default the topic's name."
        ),
        leaf("FileName", value_types.FILE, "%n.sow")(
            "The topic's file in the data directory; %n is the topic's name and type."
        ),
        Element(
            name="Durability",
            synonyms=("Duration",),
            text_child="Mode",
            about="Whether the topic survives a restart.",
            children=(
                leaf(
                    "Mode",
                    value_types.choice(
                        Durability,
                        persistent=("disk", "durable", "file", "true"),
                        transient=("memory", "volatile", "none", "false"),
                    ),
                    "persistent",
                    fields=("durability",),
                )(
                    "Persistent: on disk before it is acknowledged. Transient: in memory, but for "
                    "a shared log, which has every topic."
                ),
                FLUSH_INTERVAL,
            ),
        ),
        leaf("Expiration", value_types.EXPIRATION, "disabled", fields=("expires", "expiration_us"))(
            "How long a record lives from its last publish; enabled: only if its publisher sets it."
        ),
        *INDEXES,
        leaf("Pattern", value_types.TOPIC_PATTERN)(
            "A regular expression, searched for unanchored: every topic published to whose "
            "name matches is one of its own, with these settings. Exact names go first."
        ),
        leaf("Retain", value_types.FLAG, "true")(
            "Whether the last value is stored. Without it updates pass through, and there "
            "is nothing to query."
        ),
        leaf("DeltaNull", value_types.choice(DeltaNull), "ignore")(
            "What an explicit null in a delta publish does to its field: nothing, set it "
            "to null, or remove it; of a record that is not there yet, too."
        ),
        leaf("MaxRecords", value_types.COUNT_IF_ANY, "unlimited", fields=("records_max",))(
            "How many records the topic may hold, each one of a Pattern by itself. Publishes "
            "of more are refused; updates and deletes are taken. See also Limits/Memory."
        ),
        SCHEMA,
        SERIES,
        *unused("RecordSize", "InitialSize", "IncrementSize", "SlabSize", "InitialSlabCount"),
        *unused("ExpectedKeyCountHint"),
        _made_fields(
            "Preprocessing",
            (),
            "Fields that are computed of each message before its key is read, in order.",
            "`CONCAT(/customer, '-', /order) AS /id`",
        ),
        _made_fields(
            "Enrichment",
            STATES,
            "Fields that are computed of each message before it is merged and stored, in order.",
            "`COALESCE(/n OF PREVIOUS, 0) + 1 AS /n`, of what the record was before; `OF CURRENT`, "
            "like nothing, means the message",
        ),
        HISTORY,
        KEY_GENERATOR,
        *later(
            RecoveryPoint="remove it: a transient topic begins empty, as with now",
        ),
        *BACK_PRESSURE_ELEMENTS,
    ),
)

CONFLATED_TOPIC = Element(
    name="ConflatedTopic",
    synonyms=("ReplicaDefinition",),
    repeated=True,
    fields=("topics",),
    make=ConflatedTopic,
    about="A copy of another topic in which each record changes at most once per interval.",
    children=(
        replace(
            NAME_ELEMENT,
            unless="TopicFormat",
            about=f"{NAME_ELEMENT.about} TopicFormat may take its place.",
        ),
        MESSAGE_TYPE,
        leaf("UnderlyingTopic", value_types.TEXT, required=True, fields=("underlying",))(
            "The Topic or ConflatedTopic that it copies, defined above it."
        ),
        leaf("Interval", value_types.duration(minimum="100ms"), "5s", fields=("interval_us",))(
            "How long a record's changes are gathered into one; at least 100ms."
        ),
        leaf("Filter", value_types.FILTER)("Only records that match are kept."),
        *INDEXES,
        leaf("Schedule", value_types.choice(Schedule), "per-key")(
            "When windows close: each key's by itself, from its first pending change, or "
            "all together at every multiple of Interval."
        ),
        leaf("TopicFormat", value_types.TOPIC_FORMAT)(
            "For an underlying topic with a Pattern: the names of the copies, %n being the "
            "name of the topic copied."
        ),
        leaf("Engine", value_types.choice(Engine), "embedded")(
            "What conflates: the server, or Spark in a process of its own that reads the log "
            "of the underlying topic (intervals of at least 1s)."
        ),
        _made_fields(
            "Enrichment",
            ("CURRENT",),
            "Fields that are computed for each message that enters the copy, in order.",
            "`/price * /qty AS /value`",
        ),
        *BACK_PRESSURE_ELEMENTS,
    ),
)


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
