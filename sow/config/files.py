"""The files that topics are kept in: their names, and that no two of them collide."""

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from urllib.parse import quote

from sow.config.binder import Section
from sow.config.diagnostics import Diagnostics

DEFAULT_NAME = "%n.sow"
DEFAULT_JOURNAL = "journal"
# Held by a running server, so that no second one opens the same directory.
LOCK = "lock"
# What the server keeps beside the topics.
OWN = (
    *("sow-writes.sow", "sow-consumers.sow", "staging", "pipelines"),
    *("manifest.json", "manifest.json.writing"),
    *("manifest.json.copy", "manifest.json.copy.writing", "removed"),
)
# File systems limit a name to 255 bytes; the rest is for what surrounds %n.
LONGEST_PART = 150


def file_name(topic: Section) -> str | None:
    """The path of a topic in the data directory, or None for one in memory."""
    if topic.text("durability") == "transient":
        return None
    template = topic.text("file_name") or DEFAULT_NAME
    return template.replace("%n", _file_safe(topic.text("name"), topic.text("message_type")))


def _file_safe(name: str, message_type: str) -> str:
    """``name.type`` without characters that mean something to a file system; distinct names
    stay distinct."""
    safe = f"{quote(name, safe='')}.{quote(message_type, safe='')}"
    if len(safe) <= LONGEST_PART:
        return safe
    digest = hashlib.blake2b(safe.encode(), digest_size=8).hexdigest()
    return f"{safe[: LONGEST_PART - 17]}~{digest}"


def check_files(root: Section, findings: Diagnostics) -> None:
    """No two of the lock, the journal and the topics' files may be the same path, nor may one
    lie inside another."""
    taken = _Taken()
    taken.add([LOCK], "the lock of the data directory")
    taken.add(OWN, "the server's own")
    for section, element, owner, names in _claims(root):
        if (other := taken.overlapping(names)) is not None:
            findings.error(
                *section.place(element),
                f"{names[0]} collides with {other}, which is {taken.owners[other]}",
                f"give each its own {element}, such as sow/%n.sow for a topic",
            )
        taken.add(names, owner)


def _claims(root: Section) -> Iterator[tuple[Section, str, str, tuple[str, ...]]]:
    """The paths in use: the section, the element that names them, the owner and the paths."""
    journal = root.values.get("journal")
    section = journal if isinstance(journal, Section) else root
    directory = section.text("directory") or DEFAULT_JOURNAL
    yield section, "JournalDirectory", "the journal", (directory,)
    for topic in root.sections("topics"):
        if topic.element.name != "Topic" or not topic.text("name"):
            continue
        if (name := file_name(topic)) is not None:
            # LMDB keeps a lock file beside each of its files.
            owner = f"a file of the topic {topic.text('name')!r}"
            yield topic, "FileName", owner, (name, f"{name}-lock")


class _Taken:
    """Paths in use, with their owners. Each is looked up by its own parents, so that a thousand
    topics are not compared with each other."""

    def __init__(self) -> None:
        self.owners: dict[PurePosixPath, str] = {}
        self._inside: dict[PurePosixPath, PurePosixPath] = {}

    def add(self, names: Iterable[str], owner: str) -> None:
        for path in map(PurePosixPath, names):
            self.owners[path] = owner
            for directory in path.parents:
                self._inside.setdefault(directory, path)

    def overlapping(self, names: Iterable[str]) -> PurePosixPath | None:
        """One that is the same as one of these, inside it or around it."""
        for path in map(PurePosixPath, names):
            for place in (path, *path.parents):
                if place in self.owners:
                    return place
            if path in self._inside:
                return self._inside[path]
        return None
