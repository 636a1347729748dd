"""Joins of a few small topics for tests, and what they are: nested loops over documents."""

import json

from sow.core.definitions import Join, Topic
from sow.core.join_tree import join_levels
from sow.core.paths import parse_path, value_at
from sow.topic.views import joins
from tests.topic.making import body, put, records

FIELDS = ("/id", "/a", "/b", "/v")
SHAPES = {
    "pair": ("T0./a = T1./a",),
    "two fields": ("T0./a = T1./a", "T1./b = T0./b"),
    "chain": ("T0./a = T1./a", "T1./b = T2./b"),
    "star": ("T0./a = T1./a", "T0./b = T2./b"),
    "one field": ("T0./a = T1./a", "T0./a = T2./b"),
    "tree": ("T0./a = T1./a", "T1./b = T2./b", "T0./b = T3./a"),
}


def joins_of(texts, types):
    """`T0./a = T1./a` as joins. `types` are of each topic but the first, in their order."""
    made = []
    for text in texts:
        (left, left_field), (right, right_field) = (
            side.strip().split(".") for side in text.split("=")
        )
        later = max(int(left[1:]), int(right[1:]))
        made.append(Join(left, left_field, right, right_field, types[later - 1]))
    return made


class Joined:
    """Topics T0, T1 … that are joined, and the rows that were reported."""

    def __init__(self, texts, types, joins_nulls=False, fan_out_max=10**9):
        self.levels = join_levels(joins_of(texts, types))
        self.topics = [
            records(Topic(level.topic, "json", keys=("/id",)), domain=level.topic)
            for level in self.levels
        ]
        self.by_name = {topic.name: topic for topic in self.topics}
        self.joins_nulls = joins_nulls
        wanted = [(level.topic, parse_path(field)) for level in self.levels for field in FIELDS]
        self.joins = joins.Joins(self.topics, self.levels, wanted, joins_nulls, lambda: fan_out_max)
        self.seq = 0
        self.reported = {}
        """By their identities: values, birth, newest number."""

    def put(self, name, *documents):
        """Publish documents to a topic."""
        self.joins.on_batch(
            put(self.by_name[name], *documents, seq=self.seq + 1, ts_us=self.seq + 1)
        )
        self.seq += len(documents)

    def delete(self, name, *identities, reason="deleted"):
        """Delete records, if they are there."""
        first = self.seq + 1

        def stamp(count):
            self.seq += count
            return list(range(first, first + count)), [first] * count

        batch = self.by_name[name].drop(dict.fromkeys(map(str, identities)), reason, stamp)
        if batch is not None:
            self.joins.on_batch(batch)

    def work(self):
        """Work off everything that was noted."""
        for changes in self.joins.work():
            self.take(changes)
        return self.reported

    def take(self, changes):
        """Apply changes of rows; their old state has to be what was reported."""
        for at, row in enumerate(changes.identities):
            if changes.was_in[at]:
                values, born, _ = self.reported.pop(row)
                assert values == tuple(column[at] for column in changes.olds), row
                assert born == changes.borns[at]
            if changes.is_in[at]:
                assert row not in self.reported, f"{row} comes twice"
                values = tuple(column[at] for column in changes.news)
                self.reported[row] = values, changes.borns[at], changes.newest_seqs[at]
            assert changes.seqs[at] >= changes.newest_seqs[at]
        assert len(changes.borns) == len(changes.seqs) == len(changes.ts_us) == len(changes)

    def expected(self):
        """The rows by nested loops over all records, as `reported` has them."""
        rows = [(record,) for record in self._records(0)]
        for at in range(1, len(self.levels)):
            rows = self._met(at, rows)
        return {tuple(one and one[0] for one in row): self._sent_of(row) for row in rows}

    def _records(self, at):
        table = self.topics[at].table
        return [
            (name, json.loads(table.bodies[slot]), int(table.born[slot]), int(table.seqs[slot]))
            for name, slot in table.slots.items()
        ]

    def _met(self, at, rows):
        level, found, met = self.levels[at], [], set()
        for row in rows:
            others = [
                one for one in self._records(at) if self._meets(row[level.parent], one, level)
            ]
            met.update(one[0] for one in others)
            if others:
                found += [(*row, one) for one in others]
            elif level.type != "inner":
                found.append((*row, None))
        if level.type == "full":
            found += [(*[None] * at, one) for one in self._records(at) if one[0] not in met]
        return found

    def _meets(self, one, other, level):
        if one is None:
            return False
        keys = [text(value_at(one[1], parse_path(field))) for field in level.parent_fields]
        others = [text(value_at(other[1], parse_path(field))) for field in level.fields]
        return keys == others and (self.joins_nulls or None not in keys)

    @staticmethod
    def _sent_of(row):
        values = tuple(
            None if one is None else value_at(one[1], parse_path(field))
            for one in row
            for field in FIELDS
        )
        born = 0
        for one in row:
            born = (born << 63) + (2**63 - 1 if one is None else one[2])
        return values, born, max(one[3] for one in row if one is not None)

    def check(self):
        """What was reported is what there is, and so is the state kept of it."""
        expected = self.expected()
        assert self.reported.keys() == expected.keys()
        for row, what in expected.items():
            assert self.reported[row] == what, row
        self.joins.check()


def text(value):
    """A value as a join reads it."""
    if isinstance(value, list):
        value = value[0] if value else None
    if value is None or value == "":
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(int(value)) if isinstance(value, float) and value == int(value) else str(value)


__all__ = ["FIELDS", "SHAPES", "Joined", "body", "joins_of", "text"]
