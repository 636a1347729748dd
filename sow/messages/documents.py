"""Types whose messages are parsed whole: their common base, native types, and those of one value.

For message types with bodies that are stored (almost) unchanged and are quick enough to parse. JSON
has a faster decoder of its own.

The cost of reading columns depends on the fields in the documents, not on the number of requested
paths: a thousand subscriptions may each name a field of their own, and a message has only a few of
them. Paths are kept as a tree of names; a name that no document has is not looked up, and its
columns are one shared list of None, so columns must not be modified. A field that holds an array
somewhere is read value by value (`sow.core.paths.value_at`), with the same result. The tree is not
built again for each path that another subscription adds: the tree of the first paths, which is
cached, is shared, and a few more are added.

A library decodes a binary message into dictionaries, lists and values. Those without a JSON type
(bytes, times, integers of several widths) become texts and numbers, which filters, keys and JSON
understand, by one traversal for all binary formats (`BinaryTypes`): each says its types and the
names of its keys. These values remember the original, so that a message that the server encodes
again (a merged delta, selected fields) has the same native values. They equal their plain form, and
columns never hold them: `plain` removes the original.

Messages of string, int64 and double are one text or number, the only field, `/value`, of the
document. So one can be filtered and indexed, and be the key of its record; it cannot be sent in
part, so a delta is the whole message. The bytes of binary have not even that field: no path leads
to them, and publishers send the key.
"""

import re
from abc import ABC, abstractmethod
from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import isfinite
from typing import Any, ClassVar

from sow.core.definitions import MessageTypeOptions
from sow.core.media_types import BYTES, PLAIN_TEXT
from sow.core.paths import Path, Scalar, value_at
from sow.errors import BadMessage, LargeMessage
from sow.messages.base import (
    Column,
    Decoder,
    base64_body,
    base64_line,
    bytes_of,
    string_body,
    string_line,
    text_of,
)
from sow.messages.json_texts import INT64_MAX, INT64_MIN, NUMBER_TEXT


class Base64(str):
    """The value of a binary field: base64 text that a writer turns back into bytes."""

    __slots__ = ()

    @classmethod
    def of(cls, data: bytes) -> "Base64":
        """The text of some bytes."""
        return cls(b64encode(data).decode())

    @property
    def data(self) -> bytes:
        """The bytes."""
        return b64decode(self)


class TypedText(str):
    """A text that represents `original`, a native value of the format."""

    __slots__ = ("original",)
    original: Any

    def __new__(cls, text: str, original: object) -> "TypedText":
        """The text `text`, written as `original`."""
        marked = super().__new__(cls, text)
        marked.original = original
        return marked


class TypedInt(int):
    """The same of an integer."""

    original: Any

    def __new__(cls, number: int, original: object) -> "TypedInt":
        """The number `number`, written as `original`."""
        marked = super().__new__(cls, number)
        marked.original = original
        return marked


def plain(value: object) -> Scalar:
    """A scalar without what it remembers; None for what is none."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    return value if isinstance(value, float | bool) else None


def bare(document: Any) -> Any:
    """A document of texts and numbers that remember nothing; raises TypeError where it holds
    anything else, or names a field by no text."""
    if isinstance(document, dict):
        return {_bare_name(name): bare(value) for name, value in document.items()}
    if isinstance(document, list):
        return [bare(value) for value in document]
    if document is None or isinstance(document, str | int | float):
        return plain(document)
    raise TypeError(f"it holds a value of the type {type(document).__name__}")


def _bare_name(name: Any) -> str:
    if isinstance(name, str):
        return str(name)
    raise TypeError(f"a field is named by {type(name).__name__}; name it by text")


NESTING_MAX = 100
"""Levels of objects and lists in one message, as in MongoDB."""
ATOMS = frozenset({str, int, float, bool, type(None)})
"""Values that are the same in a message and in its document."""
TEXTS = frozenset({str})


class BinaryTypes:
    """The kinds of one format; by itself of one that has none."""

    # Defined by each format.

    def shown(self, value: Any, _level: int) -> Any:
        """A native value as documents have it; raises ValueError for an unknown type."""
        raise ValueError(f"it has no {type(value).__name__}")

    def named(self, key: Any) -> str:
        """The name of a field with a key that is no text; raises ValueError."""
        raise ValueError(f"a field is named by {type(key).__name__}")

    def remembered(self, value: TypedText | TypedInt) -> Any:
        """The native value of a scalar that remembers it."""
        return str(value) if isinstance(value, str) else int(value)

    def key(self, name: Any) -> Any:
        """The native key for the name of a field; raises TypeError."""
        if not isinstance(name, str):
            raise TypeError("a field is named by text")
        return str(name)

    def whole(self, value: int) -> int:
        """The native integer; raises ValueError for one that does not fit."""
        return value

    # Traversal.

    def document(self, found: dict[Any, Any], level: int = 1) -> dict[str, Any]:
        """The decoded message as a document: changed in place, since most values stay. Raises
        LargeMessage where it nests too deeply."""
        _check(level)
        if not TEXTS.issuperset(map(type, found)):
            names = [key if type(key) is str else self.named(key) for key in found]
            found = dict(zip(names, found.values(), strict=True))
        if not ATOMS.issuperset(map(type, found.values())):
            for name, value in found.items():
                if type(value) not in ATOMS:
                    found[name] = self._shown(value, level)
        return found

    def _shown(self, value: Any, level: int) -> Any:
        kind = type(value)
        if kind in ATOMS:
            return value
        if kind is dict:
            return self.document(value, level + 1)
        if kind is list:
            _check(level + 1)
            if ATOMS.issuperset(map(type, value)):
                return value
            return [self._shown(element, level + 1) for element in value]
        return self.shown(value, level)

    def message(self, value: Any, level: int = 1) -> Any:
        """The native form of a document, or of a value of one. Raises ValueError
        and TypeError for what the format has not."""
        _check(level - 1)
        match value:
            case dict():
                return {
                    name if type(name) is str else self.key(name): self.message(inner, level + 1)
                    for name, inner in value.items()
                }
            case list():
                return [self.message(element, level + 1) for element in value]
            case Base64():
                return value.data
            case TypedText() | TypedInt():
                return self.remembered(value)
            case float():
                return float(value)
            case bool() | None:
                return value
            case int():
                return self.whole(value)
            case str():
                return str(value)
        raise TypeError(f"it has no {type(value).__name__}")


def _check(level: int) -> None:
    if level > NESTING_MAX:
        raise too_deep()


def too_deep() -> LargeMessage:
    """The error about a message that nests deeper than allowed."""
    return LargeMessage(f"nested more than {NESTING_MAX} levels deep")


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
            are_scalars = kinds <= ATOMS
            if not are_scalars and all(issubclass(kind, MARKED) or kind in ATOMS for kind in kinds):
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


ONLY_FIELD = "value"
"""The name of the only field."""
INTEGER = re.compile(rb"-?[0-9]{1,19}\Z")


class Binary(BytesType):
    """Any bytes."""

    structured = False
    partial = False

    def parse(self, body: bytes) -> object:
        """The bytes."""
        return body

    def encode(self, document: object) -> bytes:
        """The bytes; raises BadMessage for anything else."""
        if not isinstance(document, bytes):
            raise BadMessage("a binary message must be bytes")
        return document


class OneValue(TextType):
    """The common base of the three: a document of one field, and a text in lines."""

    partial = False
    description: ClassVar[str]
    """The allowed values, for errors."""

    def parse(self, body: bytes) -> dict[str, object]:
        """The document of the value; raises BadMessage."""
        return {ONLY_FIELD: self._value(body)}

    def encode(self, document: object) -> bytes:
        """The value of a document that has no other field; raises BadMessage."""
        if isinstance(document, dict) and document.keys() == {ONLY_FIELD}:
            body = self._body(document[ONLY_FIELD])
            if body is not None:
                return body
        raise BadMessage(
            f"messages of type {self.name} are {self.description}, "
            '{"value": …} with no other field'
        )

    @abstractmethod
    def _value(self, body: bytes) -> object:
        """The value of a body; raises BadMessage."""

    @abstractmethod
    def _body(self, value: object) -> bytes | None:
        """The body of a value; None for one of another kind."""


class String(OneValue):
    """UTF-8 text."""

    description = "a text"

    def _value(self, body: bytes) -> str:
        return text_of(body)

    def _body(self, value: object) -> bytes | None:
        return bytes_of(value) if isinstance(value, str) else None


class _Number(OneValue):
    """A number in its text."""

    def from_line(self, d: bytes) -> bytes:
        """The number's text, from a JSON string or a JSON number; raises BadMessage."""
        return d if NUMBER_TEXT.match(d) else string_body(d)


class Int64(_Number):
    """A signed 64-bit integer in decimal digits."""

    description = f"an integer from {INT64_MIN} to {INT64_MAX}"

    def _value(self, body: bytes) -> int:
        if INTEGER.match(body) and INT64_MIN <= (value := int(body)) <= INT64_MAX:
            return value
        raise BadMessage(
            f"{_shown(body)} is not an int64; write decimal digits from {INT64_MIN} to {INT64_MAX}"
        )

    def _body(self, value: object) -> bytes | None:
        if isinstance(value, int) and type(value) is not bool and INT64_MIN <= value <= INT64_MAX:
            return b"%d" % value
        return None


class Double(_Number):
    """A double in the notation of JSON numbers."""

    description = "a finite number"

    def _value(self, body: bytes) -> float:
        if NUMBER_TEXT.match(body) and isfinite(value := float(body)):
            return value
        raise BadMessage(f"{_shown(body)} is not a double; write a number such as -1.5 or 6.02e23")

    def _body(self, value: object) -> bytes | None:
        """The shortest text that reads back the same."""
        try:
            fits = isinstance(value, int | float) and type(value) is not bool and isfinite(value)
        except OverflowError:  # an integer beyond all doubles
            fits = False
        return repr(value).encode() if fits else None


def _shown(body: bytes) -> str:
    text = body[:40].decode("utf-8", "backslashreplace")
    return repr(text if len(body) <= 40 else text + "…")
