"""The part of the table of elements that stands inside `<SOW>`: topics and conflated topics."""

from sow.config import kinds
from sow.config.element import FLUSH_INTERVAL, Element, later, unused
from sow.topics import ConflatedTopic, Topic


def _hash_index(keys: tuple[str, ...]) -> tuple[str, ...]:
    return keys


NAME = Element(
    name="Name",
    synonyms=("Topic",),
    kind=kinds.TOPIC_NAME,
    fields=("name",),
    required=True,
    about="What clients call the topic; unique in the file, at most 255 characters.",
)
MESSAGE_TYPE = Element(
    name="MessageType",
    kind=kinds.TEXT,
    fields=("message_type",),
    required=True,
    about="The format of its messages: json, nvfix, fix, bflat, binary, string, int64, double, "
    "or a Name from MessageTypes. A conflated topic repeats that of its underlying topic.",
)
INDEXES = (
    Element(
        name="HashIndex",
        repeated=True,
        fields=("hash_indexes",),
        make=_hash_index,
        about="Answers exact matches on all of its fields at once.",
        children=(
            Element(
                name="Key",
                kind=kinds.PATH,
                required=True,
                repeated=True,
                fields=("keys",),
                about="A field of the index.",
            ),
        ),
    ),
    Element(
        name="Index",
        kind=kinds.PATH,
        repeated=True,
        fields=("indexes",),
        about="A field indexed from the start rather than when a query first names it.",
    ),
)
BACK_PRESSURE = later("ConflationPolicy", "Placement", "Match", "Merge", "Merger")
TOPIC = Element(
    name="Topic",
    synonyms=("TopicDefinition",),
    repeated=True,
    fields=("topics",),
    make=Topic,
    about="A keyed last-value store that clients publish to.",
    children=(
        NAME,
        MESSAGE_TYPE,
        Element(
            name="Key",
            kind=kinds.PATH,
            repeated=True,
            fields=("keys",),
            about="A field that identifies a record; several together identify it. "
            "With none, publishers send a SowKey with each message.",
        ),
        Element(
            name="KeyDomain",
            kind=kinds.TEXT,
            fields=("key_domain",),
            about="Topics of one domain give equal key values equal SowKeys. "
            "By default the topic's name.",
        ),
        Element(
            name="FileName",
            kind=kinds.FILE,
            default="%n.sow",
            about="The topic's file in the data directory; %n is the topic's name and type.",
            fields=("file_name",),
        ),
        Element(
            name="Durability",
            synonyms=("Duration",),
            text_child="Mode",
            about="Whether the topic survives a restart.",
            children=(
                Element(
                    name="Mode",
                    kind=kinds.choice("persistent", "transient"),
                    default="persistent",
                    fields=("durability",),
                    about="Persistent: on disk before it is acknowledged. Transient: in memory.",
                ),
                FLUSH_INTERVAL,
            ),
        ),
        Element(
            name="Expiration",
            kind=kinds.EXPIRATION,
            default="disabled",
            fields=("expires", "expiration_us"),
            about="The lifetime of a record; enabled: only where its publisher sends one.",
        ),
        *INDEXES,
        Element(
            name="Retain",
            kind=kinds.choice("true", later=("false",)),
            default="true",
            about="Whether the last value is stored.",
        ),
        *unused("RecordSize", "InitialSize", "IncrementSize", "SlabSize", "InitialSlabCount"),
        *unused("ExpectedKeyCountHint"),
        *later("Pattern", "History", "Preprocessing", "Enrichment", "KeyGenerator"),
        *later("RecoveryPoint"),
        *BACK_PRESSURE,
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
        NAME,
        MESSAGE_TYPE,
        Element(
            name="UnderlyingTopic",
            kind=kinds.TEXT,
            required=True,
            fields=("underlying",),
            about="The Topic or ConflatedTopic that it copies, defined above it.",
        ),
        Element(
            name="Interval",
            kind=kinds.duration(minimum="100ms"),
            default="5s",
            fields=("interval_us",),
            about="How long a record's changes are gathered into one; at least 100ms.",
        ),
        Element(
            name="Filter",
            kind=kinds.FILTER,
            fields=("filter",),
            about="Only records that match are kept.",
        ),
        *INDEXES,
        Element(
            name="Schedule",
            kind=kinds.choice("per-key", later=("tick",)),
            default="per-key",
            about="When windows close: each key's by itself, from its first pending change.",
        ),
        Element(
            name="Engine",
            kind=kinds.choice("embedded", later=("spark",)),
            default="embedded",
            about="What conflates.",
        ),
        *later("TopicFormat", "Enrichment"),
        *BACK_PRESSURE,
    ),
)

SOW = Element(
    name="SOW",
    about="The topics, in order: a conflated topic stands after what it copies.",
    children=(
        TOPIC,
        CONFLATED_TOPIC,
        *later("View", "ViewDefinition", "Queue", "QueueDefinition"),
        *later("LocalQueue", "GroupLocalQueue"),
    ),
)
