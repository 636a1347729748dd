"""Other products' names for the elements of config.xml, each with the name to use here.

They come from configurations of other servers, from SQL and from related elements of this one.
Misspelt names are found by similarity (`sow.core.suggest`) and are not listed.
"""

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
