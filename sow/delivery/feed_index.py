"""The attribute index: which of many filtered feeds may care about a record.

A thousand users who each follow their own symbol are a thousand feeds with filters such as
``/symbol = 'AAPL'``. Asking each of them about each record costs a thousand filters a record;
looking the record's value up in a dictionary costs one. A feed is filed under the values that
one equality of its filter allows; what is found there still has the whole filter to pass, so the
index only ever leaves out feeds that could not have matched.

Values follow the rules of comparison (`sow.expressions`): a number equals the texts that spell
it, so both are filed under the number; a list equals what any of its elements equals.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from sow.delivery.feeds import Feed
from sow.expressions import Filter, as_number
from sow.messages.base import Column
from sow.paths import Path, Value
from sow.topic.batch import Batch

Filed = dict[Value, list[Feed]]


class FeedIndex:
    """Feeds by one equality of each one's filter. Feeds without one do not belong here."""

    def __init__(self) -> None:
        self._fields: dict[Path, FieldIndex] = {}

    def add(self, feed: Feed) -> bool:
        """File a feed; False when its filter has no equality to file it under."""
        chosen = equality_of(feed.condition)
        if chosen is None:
            return False
        path, values = chosen
        self._fields.setdefault(path, FieldIndex()).add(feed, values)
        return True

    def remove(self, feed: Feed) -> None:
        """Take a filed feed out."""
        chosen = equality_of(feed.condition)
        assert chosen is not None
        path, values = chosen
        field = self._fields[path]
        field.remove(feed, values)
        if not field.feeds:
            del self._fields[path]

    def check(self, filed: Collection[Feed]) -> None:
        """Assert that exactly these feeds are found, each under all values that it wants."""
        for path, field in self._fields.items():
            there = {feed: equality_of(feed.condition) for feed in filed}
            field.check({feed: at[1] for feed, at in there.items() if at and at[0] == path})
        assert sum(field.feeds for field in self._fields.values()) == len(filed)

    def candidates(self, batch: Batch) -> dict[Feed, list[int]]:
        """Feeds that may care, with the places of the records that made them candidates."""
        found: dict[Feed, list[int]] = {}
        for path, field in self._fields.items():
            if batch.changes.news is not None:
                field.look_up(batch.column(path), found)
            if field.wants_old:
                field.look_up(batch.old_column(path), found)
        return {feed: sorted(set(places)) for feed, places in found.items()}


class FieldIndex:
    """Feeds by the values they want of one field."""

    def __init__(self) -> None:
        self._filed: Filed = {}
        self._numbers = 0
        self.feeds = 0
        self.wants_old = 0
        """How many of the feeds also care about what a record was before."""

    def add(self, feed: Feed, values: Iterable[Value]) -> None:
        """File a feed under each value."""
        for value in values:
            self._filed.setdefault(value, []).append(feed)
            self._numbers += not isinstance(value, str)
        self.feeds += 1
        self.wants_old += feed.wants_old

    def remove(self, feed: Feed, values: Iterable[Value]) -> None:
        """Undo `add`."""
        for value in values:
            filed = self._filed[value]
            filed.remove(feed)
            if not filed:
                del self._filed[value]
            self._numbers -= not isinstance(value, str)
        self.feeds -= 1
        self.wants_old -= feed.wants_old

    def check(self, filed: Mapping[Feed, Sequence[Value]]) -> None:
        """Assert that these feeds are filed under these values, and no others."""
        expected = Counter((value, feed) for feed, values in filed.items() for value in values)
        found = Counter((value, feed) for value, feeds in self._filed.items() for feed in feeds)
        assert found == expected, "a feed is filed under other values than it wants"
        assert self.feeds == len(filed)
        assert self.wants_old == sum(feed.wants_old for feed in filed)
        assert self._numbers == sum(not isinstance(value, str) for value, _ in expected)

    def look_up(self, column: Column, found: dict[Feed, list[int]]) -> None:
        """Note in `found` the places of a column's values for the feeds that want them."""
        get = self._filed.get
        plain = not self._numbers
        for at, value in enumerate(column):
            wanted: Iterable[Feed]
            if isinstance(value, list):
                wanted = [feed for one in value for feed in get(filed_under(one), ())]
            else:
                wanted = get(value if plain else filed_under(value), ())
            for feed in wanted:
                found.setdefault(feed, []).append(at)


def filed_under(value: Value) -> Value:
    """The value under which everything that may equal it is filed."""
    if isinstance(value, str):
        number = as_number(value)
        return value if number is None else number
    return value


def equality_of(condition: Filter | None) -> tuple[Path, tuple[Value, ...]] | None:
    """The equality of a filter that allows the fewest values, as (field, values to file under)."""
    equalities = condition.equalities() if condition is not None else {}
    if not equalities:
        return None
    path = min(equalities, key=lambda candidate: len(equalities[candidate]))
    return path, tuple(dict.fromkeys(map(filed_under, equalities[path])))
