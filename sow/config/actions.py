"""Actions of AMPS: the alternative to each, since `<Actions>` are not executed.

Scheduled work is left to the system's scheduler or to a client that subscribes; files that an
action kept small are bounded by an element here. An action is recognized by its module's name,
which has several spellings, hence by a word that all of them contain.
"""

from collections.abc import Iterator

from sow.config.document import XmlElement

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
