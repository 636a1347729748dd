"""The index of one side of a join: records by their values in the fields of the join.

Values match as texts, spelled as in keys: 1 and 1.0 are one, and '01' another. An array stands for
its first value, as everywhere but in functions of arrays. NULL, the empty text and a missing field
are one, NULL, and match nothing; or, where a view is configured so, each other.

It exists beside `sow.indexes.hash`, which serves queries, for three reasons: that one finds *equal*
values, so that 1 matches '01'; it links what has moved when the server is idle, and a join looks up
at every change; and its records are in slots, which are reused while a join still needs their
former records. A value of one record costs its text and a place in a dictionary; of many, a place
each in another. That is counted with the memory of records.
"""

from collections.abc import Iterable, Sequence

from sow.core.keys import key_text
from sow.core.paths import Value
from sow.expressions.values import first
from sow.messages.base import Column
from sow.store.memory import Usage

JoinKey = str | tuple[str, ...]
"""The texts of one field or several; NULL is the empty text."""
NO_RECORDS: tuple[str, ...] = ()
PLACE_BYTES = 100
"""The memory of a record in an index beside the text of its key, about: 94 were measured where no
two have a key in common, 139 for two of one key, 26 for a thousand."""
FORGOTTEN_AT_ONCE = 10_000
"""Records with one key that are dropped in one step: a millisecond. It may have a million."""


def join_keys(columns: Sequence[Column], joins_nulls: bool) -> list[JoinKey | None]:
    """The keys of records with these values in the fields of a join; None: it matches nothing."""
    texts = list(map(_texts, columns))
    keys: list[JoinKey | None]
    if len(texts) == 1:
        keys = list(texts[0]) if joins_nulls else [text or None for text in texts[0]]
        return keys
    rows = list(zip(*texts, strict=True))
    keys = list(rows) if joins_nulls else [None if "" in row else row for row in rows]
    return keys


def _texts(column: Column) -> Sequence[str]:
    kinds = set(map(type, column))
    if kinds == {str}:
        return column  # type: ignore[return-value]  # just checked, in the quickest way
    if kinds == {int}:
        return list(map(str, column))
    return [value if type(value) is str else _text(value) for value in column]


def _text(value: Value) -> str:
    return key_text(first(value)) or ""


class JoinIndex:
    """Identities of records by their join keys; its memory is counted in `usage` too."""

    __slots__ = ("_held", "_usage", "bytes")

    def __init__(self, usage: Usage | None = None) -> None:
        self._held: dict[JoinKey, str | dict[str, None]] = {}
        """One identity, or several in the order in which they came."""
        self._usage = usage or Usage()
        self.bytes = 0

    def _grow(self, by_bytes: int) -> None:
        self.bytes += by_bytes
        self._usage.count(by_bytes)

    def forget(self) -> None:
        """The index is dropped: it counts no more."""
        self._grow(-self.bytes)

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, key: JoinKey) -> bool:
        return key in self._held

    def get(self, key: JoinKey) -> Iterable[str]:
        """The records with this key; valid until the next change of the index."""
        held = self._held.get(key)
        if held is None:
            return NO_RECORDS
        return (held,) if held.__class__ is str else held

    def each(self, keys: Sequence[JoinKey | None]) -> list[str | dict[str, None] | None]:
        """For each key the record that has it, or all of them; valid like the result of `get`."""
        return list(map(self._held.get, keys))  # type: ignore[arg-type]  # None is no key

    def add(self, key: JoinKey | None, identity: str) -> None:
        """A record that is not here has this key; with None it is not added."""
        if key is None:
            return
        held = self._held.get(key)
        if held is None:
            self._held[key] = identity
            self._grow(PLACE_BYTES + _length(key))
            return
        self._grow(PLACE_BYTES)
        if isinstance(held, str):
            self._held[key] = {held: None, identity: None}
        else:
            held[identity] = None

    def discard(self, key: JoinKey | None, identity: str) -> None:
        """A record that was added with this key no longer has it."""
        if key is None:
            return
        held = self._held[key]
        if isinstance(held, str):
            del self._held[key]
            self._grow(-PLACE_BYTES - _length(key))
            return
        self._grow(-PLACE_BYTES)
        del held[identity]
        if len(held) == 1:
            self._held[key] = next(iter(held))

    def forget_some(self, count: int) -> None:
        """Drop so many entries of an index that is no longer used: keys, or records of one."""
        for _ in range(count):
            key, held = self._held.popitem()
            if isinstance(held, dict) and len(held) > FORGOTTEN_AT_ONCE:
                for _ in range(FORGOTTEN_AT_ONCE):
                    held.popitem()
                self._held[key] = held
                return

    def check(self, keys: dict[str, JoinKey | None]) -> None:
        """Assert that just these records are here, each under its key; reads all of them."""
        found = {(key, name) for key, held in self._held.items() for name in self.get(key)}
        assert all(self._held.values()), "a key without records"
        texts = sum(map(_length, self._held))
        assert self.bytes == PLACE_BYTES * len(found) + texts, "what it takes is counted wrongly"
        assert found == {(key, name) for name, key in keys.items() if key is not None}


def _length(key: JoinKey) -> int:
    """Characters of the texts of a key."""
    return len(key) if isinstance(key, str) else sum(map(len, key))
