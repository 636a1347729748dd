"""Actions of AMPS: what to do here instead of each, since nothing of `<Actions>` runs.

When something is to happen, a scheduler of the system or a client that subscribes says it; what was
kept small by an action is bounded by an element here. An action is known by the name of its module,
of which there are several spellings: by a word that is in all of them.
"""

from collections.abc import Iterator

from sow.config.document import XmlElement

RETENTION = "RetentionAge and RetentionSize in TransactionLog say how much of the log is kept"
BY_A_CLIENT = "a client that subscribes does what is to happen when a message comes"
ADVICE: dict[str, str] = {
    "remove-journal": RETENTION,
    "archive-journal": f"{RETENTION}; sow backup copies it",
    "compress-journal": RETENTION,
    "delete-sow": "Expiration ends records by their age; others go by sow delete TOPIC --filter …, "
    "from a scheduler of the system",
    "compact-sow": "the server writes its files anew by itself",
    "query-sow": "run sow query from a scheduler of the system",
    "publish-message": "run sow publish from a scheduler of the system",
    "extract-values": BY_A_CLIENT,
    "translate-data": BY_A_CLIENT,
    "increment-counter": BY_A_CLIENT,
    "echo-message": BY_A_CLIENT,
    "execute-system": BY_A_CLIENT,
    "rotate-log": "the system keeps and rotates what the server writes to its standard error",
    "statistics": "GET /metrics has the figures, and whoever asks for them keeps them",
    "transport": "there is one address, Listen; sow sessions ID --disconnect ends a session",
    "replication": "there is no replication",
    "security": "sow reload reads Security and its files again",
    "minidump": "a Python process writes no minidumps",
    "shutdown": "the service manager stops the server; a full disk refuses publishes and is "
    "reported by GET /readyz",
}
"""What to do instead, by what is in the name of a module."""


def advised(node: XmlElement) -> Iterator[tuple[XmlElement, str]]:
    """The modules of all that is to be done inside an element, each with what to do here."""
    for child in node.children:
        module = child.text.strip().lower()
        if node.tag == "Do" and child.tag == "Module":
            advice = next((said for word, said in ADVICE.items() if word in module), "")
            if advice:
                yield child, advice
        yield from advised(child)
