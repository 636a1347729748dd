"""Stored definitions: the parts of a definition that its stored records depend on.

A topic's stored records are read by its message type, named by its keys and kept in its file. If
one of these has changed when the server starts again, the stored records belong to the old
definition, not to the new one. `sow.store.manifest` records this;
`sow.engine.recovery.redo` uses it.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

from sow.core.definitions import (
    Configuration,
    Definition,
    MessageTypeOptions,
    Topic,
    View,
    can_read,
    is_persistent,
)


def file_name(topic: Topic) -> str:
    """A topic's FileName, or one made of its name and message type."""
    return topic.file_name or quote(f"{topic.name}.{topic.message_type}.sow", safe="")


def fingerprint(topic: Topic) -> str:
    """What decides which record a message is: if it changes, stored identities mean nothing."""
    parts = {"MessageType": topic.message_type, "Key": topic.keys, "KeyDomain": topic.domain}
    return json.dumps(parts)


@dataclass(frozen=True, slots=True)
class StoredDefinition:
    """A definition whose records the directory holds, as it was when they were stored.

    `topic` has what stored records depend on, its file's name included; `options` are those of its
    message type. Log entries up to and with `since_seq` do not count for it.
    """

    topic: Topic
    options: MessageTypeOptions | None = None
    since_seq: int = 0

    @property
    def name(self) -> str:
        """The name of the definition."""
        return self.topic.name

    @property
    def kinds(self) -> dict[str, MessageTypeOptions]:
        """The message types of the configuration, as far as this one needs them."""
        return {} if self.options is None else {self.options.name: self.options}

    def changes(self, now: Definition | None, configuration: Configuration) -> list[str]:
        """The elements whose change leaves the stored records without a place."""
        if now is None:
            return ["Name"]
        if isinstance(now, View) and not self.topic.keys and self.topic.domain == now.domain:
            # Rows that Spark made for a view have no key fields: their SowKeys came with them.
            return ["Engine"]
        if not isinstance(now, Topic):
            return ["UnderlyingTopic"]
        old, new = self.topic, kept_of(now, configuration)
        pairs = {
            "Key": (old.keys, now.keys),
            "KeyDomain": (old.domain, now.domain),
            "FileName": (old.file_name, new.topic.file_name),
            "Pattern": (old.pattern is None, now.pattern is None),
            "Durability": ("persistent", now.durability),
        }
        found = [element for element, (before, after) in pairs.items() if before != after]
        if old.message_type != now.message_type or not can_read(new.options, self.options):
            found.insert(0, "MessageType")
        # A file that is named after the type changes with it.
        return [e for e in found if e != "FileName" or "MessageType" not in found]


def kept_of(topic: Topic, configuration: Configuration, since_seq: int = 0) -> StoredDefinition:
    """The manifest's entry of a definition."""
    options = {one.name: one for one in configuration.message_types}.get(topic.message_type)
    stored = Topic(
        topic.name,
        topic.message_type,
        keys=topic.keys,
        key_domain=topic.key_domain,
        file_name=file_name(topic),
        pattern=topic.pattern,
        retain=topic.retain,
        expires=topic.expires,
    )
    return StoredDefinition(stored, options, since_seq)


def persistent_topics(configuration: Configuration) -> list[Topic]:
    """The definitions whose records are kept on disk."""
    return [
        topic for topic in configuration.topics if isinstance(topic, Topic) and is_persistent(topic)
    ]


Names = tuple[tuple[str, str | None], ...]
"""The definitions that take names of topics, in order: what each is called, and its Pattern."""


def names_of(topics: Iterable[Definition]) -> Names:
    """The owners of names. Transient topics own some, too."""
    return tuple((topic.name, topic.pattern) for topic in topics if isinstance(topic, Topic))


@dataclass(frozen=True, slots=True)
class Era:
    """The owners of names from the era before up to and including record `until_seq`."""

    until_seq: int
    names: Names


@dataclass(frozen=True, slots=True)
class Past:
    """The definitions that a data directory was written for.

    `given_up` names topics whose log entries up to a sequence number do not count any more.
    `is_known` is false for a directory without a manifest: then entries without an owner count as
    records, too. `names` are the owners at the last run, by default those of `kept`; `eras` are
    earlier ones.
    """

    kept: tuple[StoredDefinition, ...] = ()
    given_up: Mapping[str, int] = field(default_factory=dict)
    is_known: bool = True
    names: Names = ()
    eras: tuple[Era, ...] = ()


def past_of(configuration: Configuration) -> Past:
    """The past of a directory that was always written for this configuration."""
    topics = persistent_topics(configuration)
    kept = tuple(kept_of(topic, configuration) for topic in topics)
    return Past(kept, names=names_of(configuration.topics))
