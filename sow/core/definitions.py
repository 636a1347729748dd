"""Definitions: the contents of config.xml, topics above all, and the server's own topics.

A definition is plain data without behaviour or I/O; `sow.config` makes them from XML, and the
components that they configure read them. Pipelines have a module of their own
(`sow.core.pipelines`), and so do authentication and roles (`sow.core.security_definitions`) and
actions (`sow.core.action_definitions`). A name ends with its unit; `line` is the line of the XML
element.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from sow.core.action_definitions import ActionDefinition
from sow.core.addresses import HOST_DEFAULT, PORT_DEFAULT, authority
from sow.core.join_tree import Join
from sow.core.pipelines import Pipeline
from sow.core.security_definitions import Security

Durability = Literal["persistent", "transient"]
Policy = Literal["conflate", "off", "unsubscribe", "always"]
Placement = Literal["replace", "append"]
Schedule = Literal["per-key", "tick"]
Engine = Literal["embedded", "spark"]
DeltaNull = Literal["ignore", "set", "remove"]
SYSTEM_PREFIX = "/sow/"
"""How the names of the server's own topics begin, and no others."""

Operation = Literal["latest", "sum", "min", "max", "first", "count", "concat"]


@dataclass(frozen=True, slots=True)
class Merge:
    """What becomes of one field when two messages are merged into one."""

    field: str
    operation: Operation


@dataclass(frozen=True, slots=True)
class Declared:
    """A `<Field>` of a `<Schema>`: a path text, and the name of the type of its values
    (`sow.messages.declared`)."""

    path: str
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BackPressure:
    """What a session's queue may do with a topic's updates (docs/semantics.md, Rules 12 and 13).

    `match` holds the path texts that identify "the same" queued update, none: its SowKey.
    `merger` is ``package.module:callable``.
    """

    conflation_policy: Policy = "conflate"
    placement: Placement = "replace"
    match: tuple[str, ...] = ()
    merges: tuple[Merge, ...] = ()
    merger: str | None = None


@dataclass(frozen=True, slots=True)
class History:
    """`<History>` of a topic: each of its states in the last `window_us` can be computed. The
    checkpoints that are kept for it are at least `granularity_us` apart."""

    window_us: int
    granularity_us: int = 3_600_000_000


@dataclass(frozen=True, slots=True)
class Series:
    """A `<Series>`: which events of a record are kept. `events_max` is how many, `age_us` how much
    older than the newest one they may be; None: without a limit. Ten are enough to show where a
    value comes from, and cost little where nobody has thought about it."""

    events_max: int | None = 10
    age_us: int | None = None


Semantics = Literal["at-least-once", "at-most-once"]
FairnessModel = Literal["fast", "round-robin", "proportional"]


@dataclass(frozen=True, slots=True)
class KeyChainSettings:
    """What chains the messages of a topic: `secondary` of one names `primary` of an earlier one,
    whose record it belongs to; both are path texts."""

    primary: str
    secondary: str
    module: str = ""


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """What a `<Queue>` does with its messages, the publishes to `underlying`.

    A lease lasts `lease_us`: half a minute is longer than most work takes, and short enough that
    nobody misses what a dead consumer held. The bounds of a backlog are of messages that are
    leased: of all consumers, None without one, and of one subscription, which by default has one
    at a time, so that none waits behind a slow consumer. `deliveries_max` None: without a limit;
    then a message goes to the topic `dead_letters`, or is dropped. `priority` is a path text,
    `barrier` a filter.
    """

    underlying: str
    semantics: Semantics = "at-least-once"
    lease_us: int = 30_000_000
    fairness: FairnessModel = "proportional"
    backlog_max: int | None = None
    subscription_backlog_max: int = 1
    deliveries_max: int | None = None
    dead_letters: str | None = None
    priority: str | None = None
    barrier: str | None = None


@dataclass(frozen=True, slots=True)
class Topic(BackPressure):
    """A keyed last-value store that clients publish to.

    `keys` and the members of `hash_indexes` are path texts such as ``/order/id``. With no `keys`,
    publishers send a SowKey with each message. `expiration_us` is the default lifetime of a record,
    or None; `expires` says whether lifetimes are honoured at all. With a `pattern`, a regular
    expression, the definition stands for every topic whose name it matches. Without `retain` no
    value is stored: updates pass through. `delta_null` is what an explicit null in a delta publish
    does. `records_max` bounds the records of the topic, or of each of a pattern. `preprocessing`
    and `enrichment` hold field constructions, ``expression AS /path``, applied to each message that
    is published: before its key is read, and before it becomes the record. What is published fits
    `schema`. With a `chain` the server makes the keys, of chains (`sow.engine.key_chains`). With a
    `series` each publish is an event of its record, and the record is the newest of them
    (`sow.topic.series`). With a `view` the records are the rows of that view, which only
    Spark writes (`stored`), with a `queue` the messages of that queue (`sow.engine.queues`).
    """

    name: str
    message_type: str
    keys: tuple[str, ...] = ()
    key_domain: str = ""
    file_name: str | None = None
    durability: Durability = "persistent"
    flush_interval_us: int = 0
    expires: bool = False
    expiration_us: int | None = None
    hash_indexes: tuple[tuple[str, ...], ...] = ()
    indexes: tuple[str, ...] = ()
    pattern: str | None = None
    retain: bool = True
    delta_null: DeltaNull = "ignore"
    records_max: int | None = None
    schema: tuple[Declared, ...] = ()
    history: History | None = None
    preprocessing: tuple[str, ...] = ()
    enrichment: tuple[str, ...] = ()
    series: Series | None = None
    chain: KeyChainSettings | None = None
    view: "View | None" = None
    queue: QueueSettings | None = None
    line: int = 0

    def __post_init__(self) -> None:
        if self.series is not None and self.conflation_policy == "conflate":
            # The default of all others: an event is never lost, so it is never conflated.
            object.__setattr__(self, "conflation_policy", "off")

    @property
    def system(self) -> bool:
        """It is the server's own: readable, but listed nowhere."""
        return self.name.startswith(SYSTEM_PREFIX)

    @property
    def domain(self) -> str:
        """What SowKeys are salted with: KeyDomain, or the topic's own name."""
        return self.key_domain or self.name


@dataclass(frozen=True, slots=True)
class ConflatedTopic(BackPressure):
    """A copy of another topic in which each record changes at most once per interval.

    `topic_format` names the copies of the topics of a pattern: ``%n-C``. `enrichment` holds field
    constructions, ``expression AS /path``, applied to each message that enters the copy. `engine`
    says who conflates: this server, or Spark, which writes the copy.
    """

    name: str
    message_type: str
    underlying: str
    interval_us: int = 5_000_000
    filter: str | None = None
    hash_indexes: tuple[tuple[str, ...], ...] = ()
    indexes: tuple[str, ...] = ()
    schedule: Schedule = "per-key"
    engine: Engine = "embedded"
    topic_format: str | None = None
    enrichment: tuple[str, ...] = ()
    line: int = 0


ViewConflation = Literal["none", "inline"]


@dataclass(frozen=True, slots=True)
class View(BackPressure):
    """A topic whose records are made of those of others: one for each group of them.

    `underlyings` are the topics in the order in which the view names them; of several, `joins` says
    how their records meet. `projection` holds ``expression AS /path``, with aggregates, `grouping`
    the fields (path texts, of joined topics ``[topic]./path``) whose values make a group.
    `null_equivalency`: NULL meets NULL in a join. `conflation` ``inline``: an update of a row that
    waits for its turn is replaced by a newer one.
    """

    name: str
    message_type: str
    underlyings: tuple[str, ...]
    projection: tuple[str, ...]
    grouping: tuple[str, ...]
    joins: tuple[Join, ...] = ()
    null_equivalency: bool = False
    filter: str | None = None
    key_domain: str = ""
    conflation: ViewConflation = "none"
    hash_indexes: tuple[tuple[str, ...], ...] = ()
    indexes: tuple[str, ...] = ()
    engine: Engine = "embedded"
    line: int = 0

    @property
    def domain(self) -> str:
        """What SowKeys are salted with: KeyDomain, or the view's own name."""
        return self.key_domain or self.name

    @property
    def underlying(self) -> str:
        """The topic that it is made of, or the one that its joins preserve."""
        return self.underlyings[0]


Definition = Topic | ConflatedTopic | View


def is_persistent(definition: Definition) -> bool:
    """Whether the topic's records are kept on disk, and each change of them in the log first.

    The one place where this is decided. A conflated topic is not: it is built again from its
    source. The server's own topics are, though they take no sequence numbers of the log.
    """
    return isinstance(definition, Topic) and definition.durability == "persistent"


RecordFieldType = Literal["string", "int", "decimal"]


@dataclass(frozen=True, slots=True)
class RecordField:
    """A `<Field>` of a record: what the values at its place are called and what they are."""

    name: str
    type: RecordFieldType = "string"
    line: int = field(default=0, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class MessageTypeOptions:
    """A `<MessageType>` element, with all that messages of the type depend on, which is also what
    its `repr` says: not where it is written.

    `field_separator` is the single byte between fields of the FIX family and of records, `fields`
    are those of a record. `parts` are the types of a composite's parts, each in full.
    """

    name: str
    module: str
    field_separator: bytes = b"\x01"
    fields: tuple[RecordField, ...] = ()
    parts: tuple["MessageTypeOptions", ...] = ()
    line: int = field(default=0, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class LoggedTopic:
    """A `<Topic>` of `<TransactionLog>`: a name or a regular expression of names.

    An empty `message_type` means any. Persistent topics are logged whether named or not.
    """

    name: str
    message_type: str = ""
    line: int = 0


@dataclass(frozen=True, slots=True)
class JournalSettings:
    """`<TransactionLog>`: where the journal lives and how much of it is kept.

    Retention keeps at least what no checkpoint covers, whatever the limits say. By default 4 GiB
    are kept, some ten million changes of a few hundred bytes, and retention waits for a consumer
    through a week in which it is unattended. The number of a publisher is kept as long.
    """

    directory: str = "journal"
    retention_bytes: int = 4 * 1024**3
    retention_age_us: int | None = None
    flush_interval_us: int = 0
    topics: tuple[LoggedTopic, ...] = ()
    consumer_expiration_us: int | None = 7 * 86_400 * 1_000_000
    sequence_expiration_us: int | None = 7 * 86_400 * 1_000_000


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """`<Sessions>`: the bounds of a session's outbox, and how long a dropped session is kept.

    A queue holds the largest message that there may be, 16 MiB, and 10,000 small ones; a minute is
    longer than a client that comes back takes to notice that its connection has gone.
    `conflates`: whether queues may be conflated unless a session is switched.
    `background_conflation_fraction`: how full a queue is when idle time is spent on conflating it.
    """

    queue_messages_max: int = 10_000
    queue_bytes_max: int = 16 * 1024**2
    conflates: bool = True
    reconnect_timeout_us: int = 60_000_000
    recovery_messages_max: int = 10_000
    background_conflation_fraction: float = 0.5


@dataclass(frozen=True, slots=True)
class Limits:
    """`<Limits>`: how much a single client may use of the server, and how much all may.

    docs/operations.md gives the reason for each default, and the error beyond it.
    `memory_bytes_max` None: as much as there is. `connections_per_address_max` None: a thousand;
    connections from loopback do not count.
    """

    message_bytes_max: int = 16 * 1024**2
    frame_bytes_max: int = 64 * 1024**2
    filter_bytes_max: int = 64 * 1024
    filter_depth_max: int = 200
    subscriptions_max: int = 10_000
    pattern_topics_max: int = 100_000
    join_fan_out_max: int = 1_000_000
    view_groups_max: int = 5_000_000
    group_memory_bytes_max: int = 256 * 1024**2
    batch_bytes_max: int = 1024**3
    snapshot_bytes_max: int = 128 * 1024**2
    request_bytes_max: int = 256 * 1024**2
    queue_memory_bytes_max: int = 1024**3
    memory_bytes_max: int | None = None
    connections_max: int = 20_000
    connections_per_address_max: int | None = None
    header_timeout_us: int = 10_000_000
    idle_timeout_us: int = 60_000_000
    logons_per_second_max: int = 20
    publishes_per_second_max: int | None = None


Colour = Literal["red", "orange", "yellow", "green", "blue", "grey"]
LogFormat = Literal["text", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]


@dataclass(frozen=True, slots=True)
class LogSettings:
    """What the server logs on standard error, and in which format."""

    format: LogFormat = "text"
    level: LogLevel = "info"
    access: bool = False


@dataclass(frozen=True, slots=True)
class FollowerSettings:
    """How far a follower may be behind its primary before it says so."""

    lag_us_max: int = 5_000_000


LogEngine = Literal["local", "nats", "postgres", "kafka", "s3"]


@dataclass(frozen=True, slots=True)
class SharedLogSettings:
    """The log that several nodes share, and this node of it; `local`: there is none."""

    engine: LogEngine = "local"
    servers: tuple[str, ...] = ()
    stream: str = "sow"
    replicas: int | None = None
    monitors: tuple[str, ...] = ()
    dsn: str = ""
    topic: str = "sow"
    url: str = ""
    lease_us: int = 1_000_000
    node: str = ""
    advertise: str = ""
    unsafe: bool = False


@dataclass(frozen=True, slots=True)
class Configuration:
    """A whole config.xml, validated. `topics` stand in file order, underlying topics first."""

    name: str
    topics: tuple[Definition, ...] = ()
    message_types: tuple[MessageTypeOptions, ...] = ()
    host: str = HOST_DEFAULT
    port: int = PORT_DEFAULT
    data_directory: str = "data"
    journal: JournalSettings = field(default_factory=JournalSettings)
    sessions: SessionSettings = field(default_factory=SessionSettings)
    limits: Limits = field(default_factory=Limits)
    security: Security = field(default_factory=Security)
    pipelines: tuple[Pipeline, ...] = ()
    server_log: LogSettings = field(default_factory=LogSettings)
    follower: FollowerSettings = field(default_factory=FollowerSettings)
    shared_log: SharedLogSettings = field(default_factory=SharedLogSettings)
    environment: str | None = None
    colour: Colour | None = None
    actions: tuple[ActionDefinition, ...] = ()
    webhook_hosts: tuple[str, ...] = ()

    @property
    def url(self) -> str:
        """The address at which its server is called."""
        return f"{self.security.scheme}://{authority(self.host, self.port)}"


def _own(name: str, *keys: str, **more: Any) -> Topic:
    """A topic of the server's own, with these keys."""
    file_name = f"sow-{name}.sow"
    return Topic(f"{SYSTEM_PREFIX}{name}", "json", keys, file_name=file_name, **more)


WRITER_KEPT_US = 30 * 86_400 * 1_000_000
"""A writer that returns within a month is recognised; what it sends again is applied once."""
WRITES = _own("commits", "/writer", "/topic", expires=True, expiration_us=WRITER_KEPT_US)
"""Which batch of each writer was applied last to each topic: one record, in the transaction of the
batch."""
WRITES_BEFORE = _own("writes", "/writer", expires=True, expiration_us=WRITER_KEPT_US)
"""The same as versions have noted it that kept one account of a writer, whatever it wrote to.
Nothing is added to it, and after its 30 days it is empty."""
CONSUMERS = _own("consumers", "/name")
"""How far each named reader of the log has come; what it has not read is kept for it."""
PUBLISHERS = _own("publishers", "/client", expires=True, hash_indexes=(("/user",),))
"""The highest number of each publisher that numbers its messages: one record, in the transaction of
the messages that it counts (`sow.sessions.commands.publishers`)."""
KNOWN_COLUMNS = _own("columns", "/topic", "/field")
"""The types of topics' fields that were queried as columns: a type never narrows, so it outlives
the records that widened it."""
LEASES = _own("leases", "/queue", "/bm")
"""Which messages of queues are leased, their holders and ends, and how often each was delivered
(`sow.engine.queues`)."""
AUDIT = _own("audit", "/place")
"""Who logged on, was refused, administered, deleted by filter, and runs of actions
(`sow.sessions.commands.audit`)."""
CHAINS = _own("chains", "/topic", "/member")
"""To which record each message of a chained topic belongs (`sow.engine.key_chains`)."""
ACTION_RUNS = _own("actions", "/place")
"""Runs of actions that have not ended, and when schedules ran last (`sow.engine.action_runs`)."""
CONFIGURATIONS = _own("configurations", "/number")
"""The configurations that were in force, and since when (`sow.engine.configurations`)."""
SYSTEM_TOPICS = (
    WRITES, WRITES_BEFORE, CONSUMERS, PUBLISHERS, KNOWN_COLUMNS, LEASES, AUDIT, CONFIGURATIONS,
    ACTION_RUNS, CHAINS,
)  # fmt: skip


def stored(definition: Definition) -> Definition:
    """A view that Spark runs as the topic that holds its rows, logged and stored like any: what
    makes them is elsewhere, and need not be there when the server starts. All others as they are.

    The rows come with their SowKeys, as the view's keys may be NULL.
    """
    if not isinstance(definition, View) or definition.engine == "embedded":
        return definition
    queues = {field.name: getattr(definition, field.name) for field in fields(BackPressure)}
    return Topic(
        definition.name,
        definition.message_type,
        key_domain=definition.key_domain,
        hash_indexes=definition.hash_indexes,
        indexes=definition.indexes,
        view=replace(definition, line=0),
        line=definition.line,
        **queues,
    )


def with_system_topics(configuration: Configuration) -> Configuration:
    """The configuration a server runs: the requested one, with views that Spark runs as topics, and
    its own topics."""
    topics = tuple(map(stored, configuration.topics))
    return replace(configuration, topics=(*topics, *SYSTEM_TOPICS))


def without_system_topics(configuration: Configuration) -> Configuration:
    """The requested configuration."""
    topics: list[Definition] = []
    for topic in configuration.topics:
        if not isinstance(topic, Topic):
            topics.append(topic)
        elif topic.view is not None:
            topics.append(replace(topic.view, line=topic.line))
        elif not topic.system:
            topics.append(topic)
    return replace(configuration, topics=tuple(topics))


def without_secrets(configuration: Configuration) -> Configuration:
    """The requested configuration as it is published over the network: of options of pipelines,
    which may be secrets, only the names, and of a shared log no address that may have some."""
    requested = without_system_topics(configuration)
    shared_log = replace(requested.shared_log, dsn="", url="")
    pipelines = tuple(one.without_values() for one in requested.pipelines)
    return replace(requested, pipelines=pipelines, shared_log=shared_log)


def describe_message_type(options: MessageTypeOptions) -> dict[str, Any]:
    """Options as JSON, for `message_type_options`. The manifest keeps with a topic
    the options by which its stored messages were read, and Spark queries the server for them."""
    return {
        "name": options.name,
        "module": options.module,
        "field_separator": options.field_separator.decode("latin-1"),
        "fields": [{"name": field.name, "type": field.type} for field in options.fields],
        "parts": list(map(describe_message_type, options.parts)),
    }


def message_type_options(description: Mapping[str, Any]) -> MessageTypeOptions:
    """The options of a description; raises KeyError and TypeError if it is not one."""
    return MessageTypeOptions(
        description["name"],
        description["module"],
        description["field_separator"].encode("latin-1"),
        tuple(RecordField(one["name"], one["type"]) for one in description.get("fields", ())),
        tuple(map(message_type_options, description.get("parts", ()))),
    )
