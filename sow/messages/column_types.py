"""Types of a topic's columns: derived from the kinds of values that each field has held.

The type of a column is a function of these kinds and of the Schema alone, not of the rows of a
query. A kind that was seen once counts for ever, so types only widen:

    texts only                              string
    numbers that 64 bits hold               int64
    numbers that doubles hold exactly       float64
    bytes only                              binary
    anything else                           string: the JSON text of each value, texts in quotes

Kinds are bits, and a field has their union: to observe a value twice, or in another order, gives
the same types.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Literal, TypeVar

from sow.core.lossless_numbers import LosslessNumber
from sow.errors import TooLarge
from sow.messages.base import MessageType
from sow.messages.documents import ONLY_FIELD, Binary, Double, Int64, String
from sow.messages.json import Json
from sow.messages.json_texts import (
    INT64_CHARS_MAX,
    JSON_NULL,
    WHOLE_TEXT,
    fits_double,
    fits_int64,
    members,
)

Item = TypeVar("Item")
ColumnType = Literal["string", "int64", "float64", "binary", "json"]

TEXT, INT64_ONLY, BOTH, DOUBLE_ONLY, LONG_NUMBER, BYTES_KIND, OTHER_KIND = (
    1 << bit for bit in range(7)
)
"""Bits of kinds. Numbers have four: those that 64 bits hold and doubles do not, that both hold,
that only doubles hold, and that neither does."""
WHOLE_DIGITS = 15
"""Whole numbers of so many digits are held by 64 bits and by doubles."""
INT_DIGITS_MAX = 400
"""Python refuses to write integers of some thousand digits; no double has more than 309."""
COLUMNS_MAX = 2_000
"""Fields that a topic is known to have. Each is a column of every answer."""
NAMES_CHARS_MAX = 256 * 1024
"""Characters of all their names."""
PART_ROWS = 1_000
"""Rows that one step looks at: a millisecond at most."""
PIECE_BYTES = 64 * 1024
"""Bytes of bodies that one step copies or reads, or one body."""
SCALAR_KINDS: Mapping[type, int] = {
    String: TEXT,
    Int64: INT64_ONLY | BOTH,
    Double: DOUBLE_ONLY | BOTH,
    Binary: BYTES_KIND,
}
"""The types of message types with one value, with or without messages."""


def type_of(kinds: int) -> ColumnType:
    """The type of a column that has held values of these kinds; of one that has held none, too."""
    if not kinds & ~TEXT:
        return "string"
    if not kinds & ~(INT64_ONLY | BOTH):
        return "int64"
    if not kinds & ~(BOTH | DOUBLE_ONLY):
        return "float64"
    return "json" if kinds & ~BYTES_KIND else "binary"


def kind_of_text(text: bytes) -> int:
    """The kind of the value that a JSON text is; 0 for null."""
    start = text[:1]
    if start == b'"':
        return TEXT
    if start in b"tf{[":
        return OTHER_KIND
    return 0 if text == JSON_NULL else _kind_of_number(text)


def _kind_of_number(text: bytes) -> int:
    if len(text) <= WHOLE_DIGITS and WHOLE_TEXT.match(text):
        return BOTH
    is_double = fits_double(text)
    if len(text) <= INT64_CHARS_MAX and fits_int64(text):
        return BOTH if is_double else INT64_ONLY
    return DOUBLE_ONLY if is_double else LONG_NUMBER


def kind_of_value(value: object) -> int:
    """The kind of a value as Python has it."""
    if value is None:
        return 0
    if isinstance(value, str):
        return TEXT
    if isinstance(value, bool):
        return OTHER_KIND
    if isinstance(value, int):
        is_long = abs(value) >= 10**INT_DIGITS_MAX
        return LONG_NUMBER if is_long else _kind_of_number(b"%d" % value)
    if isinstance(value, LosslessNumber):
        return _kind_of_number(value.text.encode())
    if isinstance(value, float):
        return DOUBLE_ONLY if abs(value) < float("inf") else OTHER_KIND
    return BYTES_KIND if isinstance(value, bytes) else OTHER_KIND


class ColumnTypes:
    """The fields of one topic's messages, in the order in which they were first met, and the kinds
    of values that each has held.

    `kind` is None for documents that were read elsewhere. `known` is what was known of them before.
    `widened` is called with the fields that have become something else, by each batch that did it,
    and with none where there are too many.
    """

    def __init__(
        self,
        kind: MessageType | None,
        known: Mapping[str, int] | None = None,
        widened: Callable[[list[str]], None] | None = None,
        is_full: bool = False,
    ) -> None:
        self.kinds: dict[str, int] = dict(known or {})
        self.is_whole = False
        """All records that existed at its start have been observed."""
        self._chars = sum(map(len, self.kinds))
        self.is_full = is_full
        """There were more fields than are known."""
        self._kind = kind
        self._is_json = isinstance(kind, Json)
        self._widened = widened
        if (kinds := SCALAR_KINDS.get(type(kind))) is not None:
            self.kinds.setdefault(ONLY_FIELD, kinds)

    def look_again(self) -> None:
        """Some records may not have been observed."""
        self.is_whole = False

    def complete(self) -> None:
        """All records have been observed."""
        self.is_whole = True

    def check(self, name: str) -> None:
        """Raise TooLarge if the topic `name` has had more fields than there may be columns."""
        if self.is_full:
            raise TooLarge(
                f"records of {name} have had more than {COLUMNS_MAX} different fields, too many "
                "for columns; request JSON, or rows with their bodies (meta=true)"
            )

    def widen(self, name: str, kinds: int) -> None:
        """A field has held values of these kinds elsewhere."""
        if name not in self.kinds:
            self._chars += len(name)
        self.kinds[name] = self.kinds.get(name, 0) | kinds

    def fill(self, is_full: bool) -> None:
        """There were more fields than are known, if `is_full`."""
        self.is_full = self.is_full or is_full

    def observe(self, bodies: Sequence[bytes]) -> None:
        """Know of messages that were found good."""
        assert self._kind is not None
        was_full = self.is_full
        if self._is_json:
            widened = self._observe_json(bodies)
        else:
            widened = self.observe_documents(documents_of(self._kind, bodies))
        if (widened or (self.is_full and not was_full)) and self._widened is not None:
            self._widened(widened)

    def _observe_json(self, bodies: Sequence[bytes]) -> list[str]:
        known, widened = self.kinds, []
        for body in bodies:
            for name, text in members(body).items():
                before = known.get(name, -1)
                if before > 0 and before & OTHER_KIND:
                    continue  # it cannot become anything else
                kinds = kind_of_text(bytes(text))
                if (before < 0 or kinds & ~before) and self._add(name, kinds):
                    widened.append(name)
        return widened

    def observe_documents(self, documents: Sequence[object]) -> list[str]:
        """Know of messages as Python has them; returns the fields that have become something
        else."""
        known, widened = self.kinds, []
        for document in documents:
            assert isinstance(document, dict)
            for name, value in document.items():
                before, kinds = known.get(name, -1), kind_of_value(value)
                if (before < 0 or kinds & ~before) and self._add(name, kinds):
                    widened.append(name)
        return widened

    def _add(self, name: str, kinds: int) -> bool:
        known = self.kinds.get(name)
        if known is None:
            self._chars += len(name)
            if len(self.kinds) >= COLUMNS_MAX or self._chars > NAMES_CHARS_MAX:
                self._chars -= len(name)
                self.is_full = True
                return False
        self.kinds[name] = (known or 0) | kinds
        return True


def parts(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """Slices of the size that one step may process."""
    for start in range(0, len(items), PART_ROWS):
        yield items[start : start + PART_ROWS]


def pieces(bodies: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """Slices of the bodies that one step may copy or read."""
    for some in parts(bodies):
        sizes = list(accumulate(map(len, some)))
        start = read = 0
        while start < len(some):
            stop = max(start + 1, bisect_right(sizes, read + PIECE_BYTES))
            yield some[start:stop]
            start, read = stop, sizes[stop - 1]


def documents_of(kind: MessageType, bodies: Sequence[bytes]) -> list[dict[str, object]]:
    """The documents of messages; bytes without fields have the only column."""
    documents = map(kind.parse, bodies)
    if kind.structured:
        return list(documents)  # type: ignore[arg-type]
    return [{ONLY_FIELD: document} for document in documents]
