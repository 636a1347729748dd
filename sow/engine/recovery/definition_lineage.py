"""Definition lineage: which definition a topic's name belongs to, now and in earlier
configurations.

A name belongs to the definition of exactly that name, or to the first pattern that matches it. Only
patterns take names over, from one configuration to the next; log entries from before count for the
earlier owner only. The manifest records earlier owners (`Past`, `Era`).
"""

from collections.abc import Mapping

from sow.core.definitions import Configuration, is_persistent
from sow.security.topic_patterns import topic_search
from sow.store.protocols import LogEntry
from sow.store.stored_definitions import Names, Past, names_of


class Owners:
    """The owner of each name at one time."""

    def __init__(self, names: Names) -> None:
        self._exact = {name for name, pattern in names if pattern is None}
        self._patterns = [(name, topic_search(p)) for name, p in names if p is not None]
        self._found: dict[str, str | None] = {}

    def of(self, name: str) -> str | None:
        """The owning definition; None where no definition took the name."""
        if name in self._exact:
            return name
        if name not in self._found:
            matching = (owner for owner, matches in self._patterns if matches(name))
            self._found[name] = next(matching, None)
        return self._found[name]


class Ownership:
    """The owners of names, in all the eras that `past` records."""

    def __init__(self, past: Past) -> None:
        self._past = past
        self._owners = Owners(past.names or names_of(kept.topic for kept in past.kept))
        self._eras = [(era.until_seq, Owners(era.names)) for era in past.eras]

    def owner(self, name: str) -> str | None:
        """The last owner of the name; None where no definition took it."""
        return self._owners.of(name)

    def since(self, definition: str, name: str) -> int:
        """The number up to which log entries of a topic do not count for a definition: until then
        it was given up, or had another owner."""
        until = [seq for seq, owners in self._eras if owners.of(name) != definition]
        return max(self._past.given_up.get(name, 0), *until[-1:], 0)

    def has_passed(self, definition: str, name: str) -> bool:
        """Whether a topic's name has another owner since a checkpoint of the definition was
        written: then its records were removed, and the new owner's log has these removals."""
        return self._past.is_known and self._owners.of(name) != definition

    def was_known(self, entry: LogEntry) -> bool:
        """Whether a log entry without an owner now had one when it was written."""
        if not self._past.is_known or entry.seq <= self._past.given_up.get(entry.topic, 0):
            return self._past.is_known
        owners = next((then for seq, then in self._eras if entry.seq <= seq), self._owners)
        return owners.of(entry.topic) is not None


class CountedFrom:
    """The number up to which log entries do not count, for definitions of the new configuration.

    `changes` has, for each stored definition, what has changed in it; new or changed definitions
    begin after `last_seq`.
    """

    def __init__(
        self,
        configuration: Configuration,
        past: Past,
        ownership: Ownership,
        changes: Mapping[str, list[str]],
        last_seq: int,
    ) -> None:
        self._ownership = ownership
        self._last_seq = last_seq
        kept = {one.name: one for one in past.kept}
        self._since: dict[str, int] = {}
        for definition in configuration.topics:
            name = definition.name
            if name in kept and not changes[name]:
                self._since[name] = kept[name].since_seq
            elif is_persistent(definition):
                self._since[name] = last_seq

    def __call__(self, definition: str, name: str) -> int:
        """The number of the last entry before this definition owned the topic of this name."""
        if self._ownership.owner(name) not in (definition, None):
            return self._last_seq
        return max(self._since.get(definition, 0), self._ownership.since(definition, name))
