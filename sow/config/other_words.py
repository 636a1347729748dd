"""Other products' names for the elements of config.xml, each with the name to use here.

They come from configurations of other servers, from SQL and from related elements of this one.
Misspelt names are found by similarity (`sow.core.humanize`) and are not listed. `<Actions>` of AMPS
are not executed; each has an alternative here.
"""

from collections.abc import Iterator

from sow.config.document import XmlElement
from sow.config.elements.element import Element

_KEY = dict.fromkeys(("Field", "Path", "Column", "KeyField", "Name"), "Key")
_FIELD = dict.fromkeys(("Key", "Path", "Column", "Name", "Expression", "Construct"), "Field")
_MESSAGE_TYPE = dict.fromkeys(("Type", "Format", "MessageFormat", "Encoding"), "MessageType")
_UNDERLYING = dict.fromkeys(
    ("Source", "SourceTopic", "BaseTopic", "Underlying", "From", "Of"), "UnderlyingTopic"
)
_WHERE = {"Where": "Filter", "Condition": "Filter", "ContentFilter": "Filter"}
_QUEUES = {"Policy": "ConflationPolicy", "BackPressure": "ConflationPolicy"}
_FILE = dict.fromkeys(("FileName", "Path"), "File")

OTHER_WORDS: dict[str, dict[str, str]] = {
    "AMPSConfig": {
        **dict.fromkeys(("Port", "Address", "Bind", "InetAddr", "Host"), "Listen"),
        **dict.fromkeys(("Topics", "Queues", "Views", "StateOfTheWorld"), "SOW"),
        **dict.fromkeys(("Journal", "Journals", "TxLog", "WAL"), "TransactionLog"),
        **dict.fromkeys(("Directory", "Storage", "StorageDirectory", "Home"), "DataDirectory"),
        **dict.fromkeys(("Log", "Logger"), "ServerLog"),
    },
    "Topic": {
        **_MESSAGE_TYPE,
        **_QUEUES,
        **dict.fromkeys(("PrimaryKey", "KeyField", "Keys"), "Key"),
        **dict.fromkeys(("TTL", "Lifetime", "Expiry", "TimeToLive"), "Expiration"),
        **dict.fromkeys(("File", "Path"), "FileName"),
        **dict.fromkeys(("Persistence", "Persistent", "Storage"), "Durability"),
        **dict.fromkeys(("Regex", "NamePattern", "TopicPattern"), "Pattern"),
        **dict.fromkeys(("MaxRows", "MaxSize", "RecordLimit"), "MaxRecords"),
        "Fields": "Schema",
    },
    "ConflatedTopic": {
        **_MESSAGE_TYPE,
        **_UNDERLYING,
        **_WHERE,
        **_QUEUES,
        **dict.fromkeys(("Period", "Window", "Every", "Throttle"), "Interval"),
        **dict.fromkeys(("NameFormat", "NamePattern", "CopyName"), "TopicFormat"),
    },
    "View": {
        **_MESSAGE_TYPE,
        **_UNDERLYING,
        **_WHERE,
        **_QUEUES,
        **dict.fromkeys(("GroupBy", "GroupingFields"), "Grouping"),
        **dict.fromkeys(("Select", "Fields", "Columns"), "Projection"),
    },
    "HashIndex": _KEY,
    "Match": _KEY,
    "Preprocessing": _FIELD,
    "Enrichment": _FIELD,
    "Projection": _FIELD,
    "Grouping": _FIELD,
    "Schema": _FIELD,
    "UnderlyingTopic": {
        **dict.fromkeys(("On", "LeftJoin", "InnerJoin"), "Join"),
        "Name": "Topic",
    },
    "Merge": {
        **dict.fromkeys(("Key", "Path", "Column"), "Field"),
        **dict.fromkeys(("Op", "Function", "Aggregate", "With"), "Operation"),
    },
    "Durability": {"FlushTime": "FlushInterval"},
    "TransactionLog": {
        **dict.fromkeys(("Directory", "Path", "Journal"), "JournalDirectory"),
        **dict.fromkeys(("Retention", "MaxAge", "Age"), "RetentionAge"),
        **dict.fromkeys(("MaxSize", "Size"), "RetentionSize"),
    },
    "Sessions": {
        **dict.fromkeys(("QueueSize", "MaxMessages", "MaxQueueDepth"), "QueueMaxMessages"),
        **dict.fromkeys(("MaxBytes", "MessageMemoryLimit"), "QueueMaxBytes"),
        **dict.fromkeys(("Timeout", "SessionTimeout"), "ReconnectTimeout"),
    },
    "Limits": {
        "MaxMessageSize": "MessageSize",
        "MaxFrameSize": "FrameSize",
        "MaxConnections": "Connections",
        "MemoryLimit": "Memory",
    },
    "ServerLog": {"LogLevel": "Level", "Type": "Format", "AccessLog": "Access"},
    "TLS": {
        **dict.fromkeys(("CertificateFile", "Cert", "CertFile"), "Certificate"),
        **dict.fromkeys(("Key", "KeyFile", "PrivateKeyFile"), "PrivateKey"),
        **dict.fromkeys(("CA", "CAFile", "CAPath"), "ClientCA"),
    },
    "Authentication": {
        **dict.fromkeys(("Passwords", "Htpasswd"), "Users"),
        **dict.fromkeys(("OIDC", "OpenIDConnect", "Bearer"), "JWT"),
    },
    "Users": _FILE,
    "Tokens": _FILE,
    "JWT": dict.fromkeys(("JWKS", "KeySet", "JwksUri"), "Keys"),
    "Role": {
        **dict.fromkeys(("User", "Users", "Group", "Groups"), "Member"),
        **dict.fromkeys(("Grant", "Permission", "Permissions"), "Allow"),
    },
    "Allow": {
        **_WHERE,
        **dict.fromkeys(("Name", "TopicPattern", "Pattern"), "Topic"),
        **dict.fromkeys(("Subscribe", "Query", "Sow"), "Read"),
        "Publish": "Write",
        "Fields": "Select",
    },
}
"""By the section: what somebody may write there, and which element that is."""


def meant_by(tag: str, section: Element) -> str:
    """The element of a section that others call `tag`; "" if none is."""
    words = OTHER_WORDS.get(section.name, {})
    return next((name for word, name in words.items() if word.lower() == tag.lower()), "")


# Scheduled work is left to the system's scheduler or to a client that subscribes; files that an
# action kept small are bounded by an element. An action is recognized by its module's name, which
# has several spellings, hence by a word that all of them contain.

RETENTION = "RetentionAge and RetentionSize in TransactionLog limit how much of the log is kept"
BY_A_CLIENT = "let a client subscribe and react to each message"
ADVICE: dict[str, str] = {
    "remove-journal": RETENTION,
    "archive-journal": f"{RETENTION}; sow backup copies it",
    "compress-journal": RETENTION,
    "delete-sow": "Expiration ends records by their age; others go by sow delete TOPIC --filter …, "
    "from a scheduler of the system",
    "compact-sow": "the server compacts its files by itself",
    "query-sow": "run sow query from a scheduler of the system",
    "publish-message": "run sow publish from a scheduler of the system",
    "extract-values": BY_A_CLIENT,
    "translate-data": BY_A_CLIENT,
    "increment-counter": BY_A_CLIENT,
    "echo-message": BY_A_CLIENT,
    "execute-system": BY_A_CLIENT,
    "rotate-log": "the system keeps and rotates what the server writes to its standard error",
    "statistics": "GET /metrics has the figures; a monitoring system scrapes and stores them",
    "transport": "there is one address, Listen; sow sessions ID --disconnect ends a session",
    "replication": "there is no replication",
    "security": "sow reload reads Security and its files again",
    "minidump": "a Python process writes no minidumps",
    "shutdown": "the service manager stops the server; a full disk refuses publishes and is "
    "reported by GET /readyz",
}
"""The alternative, by a part of the module's name."""


def advised(node: XmlElement) -> Iterator[tuple[XmlElement, str]]:
    """The modules of all actions inside an element, each with its alternative."""
    for child in node.children:
        module = child.text.strip().lower()
        if node.tag == "Do" and child.tag == "Module":
            advice = next((text for word, text in ADVICE.items() if word in module), "")
            if advice:
                yield child, advice
        yield from advised(child)
