"""The table of elements: everything that config.xml may contain, in one place.

Reading, suggestions, the reference in docs/configuration.md and the check that config.xml explains
every element are driven by it. To add an element: an entry here (or in the modules beside this one,
which are parts of the table), and a field on the dataclass that its section makes
(`sow.core.definitions`, `sow.core.pipelines`).
"""

from sow.config import value_types
from sow.config.elements import FLUSH_INTERVAL, Element, foreign, later, leaf, unused
from sow.config.elements.action import ALL_ACTIONS
from sow.config.elements.pipeline import PIPELINES
from sow.config.elements.security import ACCESS_OF_AMPS, SECURITY
from sow.config.elements.topic import CONFLATED_TOPIC, QUEUE, TOPIC
from sow.config.elements.view import VIEW
from sow.core.definitions import (
    Colour,
    Configuration,
    FollowerSettings,
    JournalSettings,
    Limits,
    LogEngine,
    LogFormat,
    LoggedTopic,
    LogLevel,
    LogSettings,
    MessageTypeOptions,
    RecordField,
    RecordFieldType,
    SessionSettings,
    SharedLogSettings,
)


def _part(name: str) -> MessageTypeOptions:
    """A part by its name, to be found among the entries (sow.config.message_types)."""
    return MessageTypeOptions(name, name)


TRANSACTION_LOG = Element(
    name="TransactionLog",
    fields=("journal",),
    make=JournalSettings,
    about="The journal that every change of a persistent topic is written to first.",
    children=(
        leaf("JournalDirectory", value_types.FILE, "journal", fields=("directory",))(
            "Where it lives in the data directory."
        ),
        FLUSH_INTERVAL,
        leaf("RetentionSize", value_types.size(), "4GB", fields=("retention_bytes",))(
            "How much is kept for replay; what a restart needs is kept in any case."
        ),
        leaf("RetentionAge", value_types.AGE, "unlimited", fields=("retention_age_us",))(
            "How long it is kept for replay; the tighter of the two limits counts."
        ),
        leaf("ConsumerExpiration", value_types.AGE, "7d", fields=("consumer_expiration_us",))(
            "How long the log waits for a named consumer that does not come forward."
        ),
        leaf("SequenceExpiration", value_types.AGE, "7d", fields=("sequence_expiration_us",))(
            "How long the number of a publisher is kept that does not come forward."
        ),
        Element(
            name="Topic",
            repeated=True,
            fields=("topics",),
            make=LoggedTopic,
            about="A topic or a pattern of topics to log. Persistent topics always are.",
            children=(
                leaf("Name", value_types.TEXT, required=True)(
                    "A topic's name or a regular expression of names."
                ),
                leaf("MessageType", value_types.TEXT)("Its message type; by default any."),
            ),
        ),
        *unused("JournalSize", "MinJournalSize", "PreallocatedJournalFiles", "O_DIRECT"),
        *unused("JournalArchiveDirectory", "InactiveClientAckExpiration"),
        *unused("CompressedJournalCacheMemoryLimit"),
    ),
)

MESSAGE_TYPE_VARIANTS = Element(
    name="MessageTypes",
    about="Message types under names of their own: variants, records and composites.",
    children=(
        Element(
            name="MessageType",
            repeated=True,
            fields=("message_types",),
            make=MessageTypeOptions,
            about="A message type with its separators, fields or parts.",
            children=(
                leaf("Name", value_types.TEXT, required=True)(
                    "What a topic's MessageType calls it."
                ),
                leaf("Module", value_types.TEXT, required=True)(
                    "The type that it is a variant of, or record, composite-local or "
                    "composite-global."
                ),
                leaf("FieldSeparator", value_types.SEPARATOR, "1")(
                    "The decimal ASCII code of what ends a field of fix and nvfix, or "
                    "stands between those of a record, where it is 2 by default."
                ),
                Element(
                    name="Field",
                    repeated=True,
                    fields=("fields",),
                    make=RecordField,
                    text_child="Name",
                    about="A field of a record, in the order of the values.",
                    children=(
                        leaf("Name", value_types.FIELD_NAME, required=True)(
                            "What paths call it; the element's own text."
                        ),
                        leaf("type", value_types.choice(RecordFieldType), "string", attribute=True)(
                            "What its values are; an attribute of Field."
                        ),
                    ),
                ),
                Element(
                    name="MessageType",
                    repeated=True,
                    fields=("parts",),
                    make=_part,
                    text_child="Name",
                    about="The type of a composite's next part: a type as it comes, or a Name from "
                    "MessageTypes.",
                    children=(
                        leaf("Name", value_types.TEXT, required=True)(
                            "What the type is called; the element's own text."
                        ),
                    ),
                ),
                *later("HeaderSeparator", "MessageSeparator"),
                *later("Type", "ProtoPath", "ProtoFile"),
                *unused("EarlyTerminationOptimization", "Options"),
            ),
        ),
    ),
)

ENVIRONMENT = Element(
    name="Environment",
    text_child="Name",
    about="What this server is for, such as production: shown to everybody who opens its console.",
    children=(
        leaf("Name", value_types.LABEL, required=True, fields=("environment",))(
            "What it is called; the element's own text."
        ),
        leaf("colour", value_types.choice(Colour), attribute=True)(
            "How the console and `sow top` show it; by default like other text."
        ),
    ),
)

FOLLOWER = Element(
    name="Follower",
    make=FollowerSettings,
    about="How a server behaves that follows another one (sow serve --follow).",
    children=(
        leaf("MaxLag", value_types.duration(minimum="500ms"), "5s", fields=("lag_us_max",))(
            "How far it may be behind before its answers say so in SOW-Stale and /readyz is 503. "
            "The primary beats every third of it."
        ),
    ),
)

SHARED_LOG = Element(
    name="Log",
    fields=("shared_log",),
    make=SharedLogSettings,
    about="The log that several nodes share, on an engine that replicates it: one of them leads, "
    "the others follow, and when it dies another one leads. All have the same file but for Node, "
    "Advertise, Listen and paths. Without it the log is local.",
    children=(
        leaf("Engine", value_types.choice(LogEngine), "local")(
            "What replicates the log: NATS JetStream, PostgreSQL, Kafka or what speaks its "
            "protocol, S3 or a store like it; local for none."
        ),
        leaf("Servers", value_types.SERVERS)(
            "The servers of NATS, as nats://host:4222, or of Kafka, as host:9092."
        ),
        leaf("Stream", value_types.STREAM_NAME, "sow")("The stream of NATS that holds the log."),
        leaf("Replicas", value_types.count(maximum="5"))(
            "Copies of the stream; by default as many as there are Servers. Fewer than 3 over 3 "
            "Servers are unsafe."
        ),
        leaf("Monitor", value_types.URLS, fields=("monitors",))(
            "Where the servers of NATS show their settings, which are checked; by default port "
            "8222 of each."
        ),
        leaf("Dsn", value_types.TEXT)(
            "The address of PostgreSQL, postgres://user:password@host:5432/database; several hosts "
            "with commas between."
        ),
        leaf("Topic", value_types.KAFKA_TOPIC_NAME, "sow")(
            "The topic of Kafka that holds the log; one is made if there is none."
        ),
        leaf("Url", value_types.TEXT)(
            "The place of objects, s3://bucket/name or gs://bucket/name. Options of the store "
            "follow a ?, such as endpoint, region, access_key_id and secret_access_key."
        ),
        leaf(
            "Lease", value_types.duration(minimum="200ms", maximum="1m"), "1s", fields=("lease_us",)
        )(
            "Another node leads after two leases of silence, and one without a quorum is stale "
            "after one."
        ),
        leaf("Node", value_types.INSTANCE_NAME)(
            "What this node is called; no two of a log have the same name. Required but for local."
        ),
        leaf("Advertise", value_types.URL)(
            "The address at which clients and other nodes call this one."
        ),
        leaf("Unsafe", value_types.FLAG, "false")(
            "Whether settings of the engine are accepted that lose what was acknowledged."
        ),
    ),
)

SESSIONS = Element(
    name="Sessions",
    make=SessionSettings,
    about="How far one client may fall behind before its session is closed.",
    children=(
        leaf("QueueMaxMessages", value_types.count(), "10000", fields=("queue_messages_max",))(
            "Messages that may wait for one client."
        ),
        leaf("QueueMaxBytes", value_types.size(), "16MB", fields=("queue_bytes_max",))(
            "Bytes that may wait for one client."
        ),
        leaf("Conflates", value_types.FLAG, "true")(
            "Whether queues may be conflated; an operator can switch single sessions."
        ),
        leaf("ReconnectTimeout", value_types.duration(), "60s", fields=("reconnect_timeout_us",))(
            "How long a session without a socket goes on collecting for its client to "
            "come back; 0 keeps none."
        ),
        leaf(
            "RecoveryBuffer",
            value_types.count(minimum="0"),
            "10000",
            fields=("recovery_messages_max",),
        )(
            "Messages kept after they were sent, to be sent again to a client that comes "
            "back without having seen them. Their bytes are bounded by QueueMaxBytes."
        ),
        leaf(
            "BackgroundConflationAt",
            value_types.PERCENTAGE,
            "50%",
            fields=("background_conflation_fraction",),
        )(
            "How full a queue is when idle time is spent on conflating it; 100% waits "
            "until it has to be."
        ),
    ),
)


LIMITS = Element(
    name="Limits",
    make=Limits,
    about="Limits of one client, and of all together; requests beyond them are refused with the "
    "reason.",
    children=(
        leaf("MessageSize", value_types.size(), "16MB", fields=("message_bytes_max",))(
            "A message."
        ),
        leaf("FrameSize", value_types.size(), "64MB", fields=("frame_bytes_max",))(
            "A frame or a request."
        ),
        leaf("BatchSize", value_types.size(), "1GB", fields=("batch_bytes_max",))(
            "The messages of a part of a staged batch, or of a batch that a commit has to hold."
        ),
        leaf("SnapshotMemory", value_types.size(), "128MB", fields=("snapshot_bytes_max",))(
            "What snapshots hold of records that have changed since, a quarter for one client."
        ),
        leaf("FilterSize", value_types.size(), "64KB", fields=("filter_bytes_max",))(
            "The text of a filter."
        ),
        leaf("FilterDepth", value_types.count(maximum="200"), "200", fields=("filter_depth_max",))(
            "Nesting."
        ),
        leaf(
            "SubscriptionsPerSession", value_types.count(), "10000", fields=("subscriptions_max",)
        )("Subscriptions of one session."),
        leaf("PatternTopics", value_types.count(), "100000", fields=("pattern_topics_max",))(
            "Topics of a Pattern."
        ),
        leaf("JoinFanOut", value_types.count(), "1000000", fields=("join_fan_out_max",))(
            "Joined rows of a view that a change of one record may affect. A view with more stops "
            "and reports it; nothing that was published is lost."
        ),
        leaf("ViewGroups", value_types.count(), "5000000", fields=("view_groups_max",))(
            "Groups of one View. A view with more stops and reports it; nothing that was published "
            "is lost. Not for views that Spark runs, which store rows as a topic does."
        ),
        leaf("GroupMemory", value_types.size(), "256MB", fields=("group_memory_bytes_max",))(
            "What groups take that clients' queries and subscriptions ask for, a quarter for one "
            "client. Those of a View do not count."
        ),
        leaf("RequestMemory", value_types.size(), "256MB", fields=("request_bytes_max",))(
            "What all requests and frames may hold while they are read, a quarter of it those of "
            "one client. Beyond it HTTP answers 503, and a WebSocket is not read for a while."
        ),
        leaf("QueueMemory", value_types.size(), "1GB", fields=("queue_memory_bytes_max",))(
            "What waits for all sessions together, a quarter of it for one client. Beyond it what "
            "was sent is forgotten, then queues are conflated, then sessions closed, the largest "
            "first."
        ),
        leaf("Memory", value_types.SIZE_IF_ANY, "unlimited", fields=("memory_bytes_max",))(
            "What all records may take, bodies and what is kept beside each. Publishes beyond it "
            "are refused; updates that do not grow and deletes are taken."
        ),
        leaf("Connections", value_types.count(), "20000", fields=("connections_max",))(
            "Connections at one time; fewer where the system allows fewer open files."
        ),
        leaf("ConnectionsPerAddress", value_types.count(), fields=("connections_per_address_max",))(
            "Those of one address; by default 1000, but any number of loopback's. TrustedProxies "
            "are exempt: the client that they forward (X-Forwarded-For) is counted instead."
        ),
        leaf("HeaderTimeout", value_types.duration("100ms"), "10s", fields=("header_timeout_us",))(
            "How long the header of a request may take from its first byte to its last."
        ),
        leaf("IdleTimeout", value_types.duration("100ms"), "60s", fields=("idle_timeout_us",))(
            "How long a connection without requests is kept. Subscriptions and heartbeats "
            "keep a WebSocket; a body or frame under way may pause as long."
        ),
        leaf("LogonsPerSecond", value_types.count(), "20", fields=("logons_per_second_max",))(
            "Logon attempts of one address a second; failures slow down further ones. "
            "Users that are logged on already are not counted."
        ),
        leaf(
            "PublishesPerSecond",
            value_types.COUNT_IF_ANY,
            "unlimited",
            fields=("publishes_per_second_max",),
        )(
            "Messages that a user may publish a second; without authentication, all clients "
            "together. Beyond it publishes are refused as `busy`."
        ),
    ),
)

SERVER_LOG = Element(
    name="ServerLog",
    make=LogSettings,
    about="The server's log, a line at a time on its standard error.",
    children=(
        leaf("Format", value_types.choice(LogFormat), "text")(
            "Lines for people, or JSON for a collector of logs."
        ),
        leaf("Level", value_types.choice(LogLevel), "info")(
            "The least that is written: info has a line for each start, logon and close."
        ),
        leaf("Access", value_types.FLAG, "false")(
            "A line for each request too, without its parameters."
        ),
    ),
)

FOREIGN = foreign(
    Transports="the address is set by Listen",
    Admin="monitoring is served at the address in Listen",
    Protocols="clients connect at the address in Listen",
    Logging="the server logs to its standard error, as configured by ServerLog",
    Replication="",
    Modules="",
    Externals="",
    Tuning="",
    UserDefinedFunctions="",
    Group="",
    ProcessName="",
    Description="",
    SuggestedMinimumVersion="",
    RequiredMinimumVersion="",
    MessageMemoryLimit="slow clients are bounded by Sessions",
    MessageDiskLimit="slow clients are bounded by Sessions",
    MessageDiskPath="",
    ClientMessageAgeLimit="slow clients are bounded by Sessions",
    ClientMaxCapacity="slow clients are bounded by Sessions",
    SOWStatsInterval="",
    SOWStatisticsInterval="",
    RegexTopicSupport="a client sets non_regex_topic for a literal name",
    MiniDumpDirectory="",
    MiniDumpFileMask="",
    ConfigValidation="a file with errors is never run",
    ConfigIncludeCommentDefault="",
    ConfigCycleDetectionThreshold="",
)

# Allowed in any section, and resolved before elements are looked up (`sow.config.document`).
INCLUDE = leaf("Include", value_types.TEXT, repeated=True)(
    "The path of another file, relative to this one. Its root element replaces the Include."
)

SOW = Element(
    name="SOW",
    synonyms=("TopicMetaData",),
    about="The topics, in order: one that is derived from another comes below it.",
    children=(TOPIC, CONFLATED_TOPIC, VIEW, QUEUE, *later("LocalQueue", "GroupLocalQueue")),
)
ROOT = Element(
    name="AMPSConfig",
    synonyms=("SOWConfig",),
    fields=(),
    make=Configuration,
    about="The document.",
    children=(
        leaf("Name", value_types.INSTANCE_NAME, required=True)(
            "What this server calls itself; no '/', '\\', '$' or '~'."
        ),
        ENVIRONMENT,
        leaf("Listen", value_types.ADDRESS_KIND, "127.0.0.1:8080", fields=("host", "port"))(
            "The address of HTTP, WebSocket and console; a port alone means loopback. "
            "Port 0 lets the system choose."
        ),
        leaf("DataDirectory", value_types.DIRECTORY, "data")(
            "Where everything on disk lives, relative to this file. --data-dir overrides."
        ),
        SOW,
        TRANSACTION_LOG,
        MESSAGE_TYPE_VARIANTS,
        SESSIONS,
        FOLLOWER,
        SHARED_LOG,
        LIMITS,
        SERVER_LOG,
        SECURITY,
        PIPELINES,
        ALL_ACTIONS,
        *FOREIGN,
        *ACCESS_OF_AMPS,
    ),
)
