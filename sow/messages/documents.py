"""Types whose messages are parsed whole: their common base, and columns of parsed documents.

For message types with bodies that are stored (almost) unchanged and are quick enough to parse. JSON
has a faster decoder of its own.

The cost of reading columns depends on the fields in the documents, not on the number of requested
paths: a thousand subscriptions may each name a field of their own, and a message has only a few of
them. Paths are kept as a tree of names; a name that no document has is not looked up, and its
columns are one shared list of None, so columns must not be modified. A field that holds an array
somewhere is read value by value (`sow.core.paths.value_at`), with the same result. The tree is not
built again for each path that another subscription adds: the tree of the first paths, which is
cached, is shared, and a few more are added.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from sow.core.definitions import MessageTypeOptions
from sow.core.media_types import BYTES, PLAIN_TEXT
from sow.core.paths import Path, value_at
from sow.errors import BadMessage, LargeMessage
from sow.messages.base import Column, Decoder, base64_body, base64_line, string_body, string_line
from sow.messages.binary_types import Base64, TypedInt, TypedText, plain

SCALARS = frozenset({str, int, float, bool, type(None)})
MARKED = (Base64, TypedText, TypedInt)
"""Represents values that only some formats have."""
LEVELS_MAX = 32
"""Names of a path that are levels of the tree. Deeper ones are rare, and the stack has an end."""
SHARED_PATHS = 64
"""Paths that are put into a tree at a time, each such tree to be had again: as many take some
thirty microseconds, as long as copying a tree of a few thousand."""
TREES_MAX = 256
"""Trees that may be had again: 16,000 paths of one topic, or a few of each of many."""

Numbered = list[tuple[int, Path]]
"""Paths with their numbers among all."""


class DocumentColumns:
    """Reads `paths` of batch after batch of documents."""

    def __init__(self, paths: Sequence[Path], level: int = 0) -> None:
        self._count = len(paths)
        self._level = level
        self._leaves: dict[str, Numbered] = {}
        """By the name at this level: paths that end here, or are looked up from here."""
        self._branches: dict[str, tuple[DocumentColumns, Numbered]] = {}
        deeper: dict[str, Numbered] = {}
        for number, path in enumerate(paths):
            ends = level == LEVELS_MAX or len(path.steps) == level + 1 or path.index is not None
            named = self._leaves if ends else deeper
            named.setdefault(path.steps[level], []).append((number, path))
        for name, below in deeper.items():
            reader = DocumentColumns([path for _, path in below], level + 1)
            self._branches[name] = reader, below

    def followed_by(self, more: Sequence[Path]) -> "DocumentColumns":
        """One that reads more paths after these."""
        rest, count = DocumentColumns(more, self._level), self._count
        both = DocumentColumns((), self._level)
        both._count = count + rest._count
        both._leaves, both._branches = dict(self._leaves), dict(self._branches)
        for name, paths in rest._leaves.items():
            both._leaves[name] = [*self._leaves.get(name, ()), *_numbered_from(count, paths)]
        for name, (reader, below) in rest._branches.items():
            behind = list(_numbered_from(count, below))
            if name in self._branches:
                first, before = self._branches[name]
                reader, behind = first.followed_by([p for _, p in below]), [*before, *behind]
            both._branches[name] = reader, behind
        return both

    def __call__(self, documents: Sequence[object]) -> list[Column]:
        """One column for each path, in their order; what is no dict has no fields."""
        fields: list[dict[str, Any]] = [
            document if isinstance(document, dict) else {} for document in documents
        ]
        columns: list[Column] = [[None] * len(fields)] * self._count
        there = set[str]().union(*fields)
        for name in self._leaves.keys() & there:
            values = [document.get(name) for document in fields]
            kinds = set(map(type, values))
            are_scalars = kinds <= SCALARS
            if not are_scalars and all(
                issubclass(kind, MARKED) or kind in SCALARS for kind in kinds
            ):
                values, are_scalars = list(map(plain, values)), True
            for number, path in self._leaves[name]:
                is_plain = are_scalars and path.index is None and len(path.steps) == self._level + 1
                columns[number] = values if is_plain else self._looked_up(fields, path)
        for name in self._branches.keys() & there:
            values = [document.get(name) for document in fields]
            reader, below = self._branches[name]
            if list in map(type, values):
                read = [self._looked_up(fields, path) for _, path in below]
            else:
                read = reader(values)
            for (number, _), column in zip(below, read, strict=True):
                columns[number] = column
        return columns

    def _looked_up(self, fields: Sequence[object], path: Path) -> Column:
        here = Path(path.steps[self._level :], path.index) if self._level else path
        found = [value_at(document, here) for document in fields]
        if not any(kind is list or issubclass(kind, MARKED) for kind in set(map(type, found))):
            return found
        return [list(map(plain, v)) if isinstance(v, list) else plain(v) for v in found]


def _numbered_from(first: int, paths: Iterable[tuple[int, Path]]) -> Iterable[tuple[int, Path]]:
    return ((first + number, path) for number, path in paths)


def document_columns(paths: tuple[Path, ...]) -> DocumentColumns:
    """The reader of these paths, extended from that of the first of them."""
    shared = max(0, len(paths) - 1) // SHARED_PATHS * SHARED_PATHS
    return _tree(paths[:shared]).followed_by(paths[shared:]) if shared else DocumentColumns(paths)


@lru_cache(maxsize=TREES_MAX)
def _tree(paths: tuple[Path, ...]) -> DocumentColumns:
    return document_columns(paths)


VALUES_MAX = 100_000
"""Values of one message that Python looks at one by one, in one step: a microsecond or two each.
As many elements may an XML message have."""


def too_many_values() -> LargeMessage:
    """The error about a message of more values than may be looked at in one step."""
    return LargeMessage(
        f"it has more than {VALUES_MAX:,} values, where lists of plain ones do not count; send "
        "several messages"
    )


class DocumentType(ABC):
    """The common base of these types: named fields, and a message may hold some of them only."""

    structured = True
    partial = True
    has_only_texts = False
    has_root = False

    def __init__(self, options: MessageTypeOptions) -> None:
        self.name = options.name

    def decoder(self, paths: tuple[Path, ...]) -> Decoder:
        """A decoder of these paths."""
        return DocumentDecoder(self, paths)

    @abstractmethod
    def parse(self, body: bytes) -> object:
        """A whole message; raises BadMessage."""

    def arriving(self, body: bytes) -> object:
        """The same of a body that comes from outside: refuses what takes too long. What an earlier
        release has taken stays readable."""
        return self.parse(body)

    def stored(self, bodies: Sequence[bytes]) -> list[bytes]:
        """Bodies that were accepted, as they are to be kept."""
        return list(bodies)


class TextType(DocumentType):
    """Messages that are UTF-8 text, and strings in JSON lines."""

    enc: str | None = None
    media_type = PLAIN_TEXT

    def to_line(self, body: bytes) -> bytes:
        """The message as a JSON string."""
        return string_line(body)

    def from_line(self, d: bytes) -> bytes:
        """The body in the JSON string `d`; raises BadMessage."""
        return string_body(d)


class BytesType(DocumentType):
    """Messages that are bytes, and base64 in JSON lines."""

    enc: str | None = "base64"
    media_type = BYTES

    def to_line(self, body: bytes) -> bytes:
        """The message in base64."""
        return base64_line(body)

    def from_line(self, d: bytes) -> bytes:
        """The bytes that `d` holds in base64; raises BadMessage."""
        return base64_body(d)


class DocumentDecoder:
    """Parses each message whole, then looks the paths up in the document."""

    def __init__(self, kind: DocumentType, paths: tuple[Path, ...]) -> None:
        self._kind = kind
        self._values = DocumentColumns(paths)

    def columns(self, bodies: Sequence[bytes]) -> list[Column]:
        """One column per path of bodies that `read` has accepted."""
        return self._values(list(map(self._kind.parse, bodies)))

    def read(self, bodies: Sequence[bytes]) -> tuple[list[bytes], list[Column]]:
        """The bodies as they are to be stored, and their columns; raises BadMessage."""
        documents = self.checked(bodies)
        return self._kind.stored(bodies), self._values(documents)

    def checked(self, bodies: Sequence[bytes]) -> list[object]:
        """The documents of bodies that just arrived; raises BadMessage with the index of a bad
        one."""
        documents: list[object] = []
        try:
            for body in bodies:
                documents.append(self._kind.arriving(body))
        except BadMessage as error:
            raise of_message(error, len(documents)) from None
        return documents


def of_message(error: BadMessage, index: int) -> BadMessage:
    """The error of one body, as that of message number `index`."""
    return type(error)(f"message {index}: {error.detail}", index=index)
