"""What the rows of a view are, computed again from the records that there are: the plain way.

Written without a line of what is tested but the reading of expressions: columns and increments play
no part here. The laws of views compare with it.
"""

import json
import math
from fractions import Fraction
from functools import lru_cache

from sow.core.keys import key_text
from sow.core.paths import parse_path, value_at
from sow.expressions import compile_filter

REMEMBERED = 64
"""Recomputations of the simulation's views, which asks after every step: mostly of what it was."""


class Field:
    """One aggregate over a path, or a bare path (`kind` None), at a name of the row."""

    def __init__(self, name, kind, path):
        self.name, self.kind, self.path = name, kind, path

    def __str__(self):
        text = self.path if self.kind is None else f"{self.kind}({self.path})"
        return f"{text} AS /{self.name}"


class FieldOf(Field):
    """The same over a path of one of several topics, whose documents stand under their names."""

    def __init__(self, name, kind, topic, path):
        super().__init__(name, kind, f"/{topic}{path}")
        self.said = f"[{topic}].{path}"

    def __str__(self):
        text = self.said if self.kind is None else f"{self.kind}({self.said})"
        return f"{text} AS /{self.name}"


def rows(records, fields, grouping, condition=None):
    """By key, in order: the row of each group of `records`, (born, seq, document) each."""
    test = compile_filter(condition) if condition else None
    groups = {}
    for born, seq, document in sorted(records, key=lambda one: one[0]):
        if test is None or test.holds([value_at(document, path) for path in test.paths]):
            texts = [key_text(value_at(document, parse_path(path))) or "" for path in grouping]
            groups.setdefault("\x1f".join(texts), []).append((born, seq, document))
    return {key: row(members, fields, grouping) for key, members in groups.items()}


def row(members, fields, grouping):
    found = {}
    for field in fields:
        if field.kind is None and field.path in grouping:
            value = grouped(members, field.path)
            if value is not None:
                found[field.name] = value
        else:
            found[field.name] = aggregate(field, members)
    return found


def grouped(members, path):
    values = [value_at(document, parse_path(path)) for _, _, document in members]
    values = [value for value in values if value not in (None, "") and not isinstance(value, list)]
    # A number before a text that spells it.
    return min(values, key=lambda value: (isinstance(value, str), repr(value)), default=None)


def aggregate(field, members):
    if field.kind is None:
        newest = max(members, key=lambda one: (one[1], one[0]))
        return value_at(newest[2], parse_path(field.path))
    path = None if field.path == "1" else parse_path(field.path)
    values = [1 if path is None else value_at(document, path) for _, _, document in members]
    values = [value for value in values if value is not None and value != ""]
    if field.kind == "COUNT":
        return len(values)
    if field.kind == "GROUP_CONCAT":
        texts = dict.fromkeys(key_text(value) for value in values)
        return ",".join(texts) if texts else None
    if field.kind == "UNIQUE":
        return values[0] if len({key_text(value) for value in values}) == 1 else None
    if field.kind == "COUNT_DISTINCT":
        return len({key_text(value) for value in values})
    if not values:
        return None
    if field.kind in ("MIN", "MAX"):
        return (min if field.kind == "MIN" else max)(values)
    if any(isinstance(value, str) for value in values):
        return None  # NaN
    total = sum(map(Fraction, values))
    if field.kind == "SUM":
        return int(total) if all(isinstance(value, int) for value in values) else float(total)
    return float(total / len(values))


def recomputed(topic, fields, grouping, condition=None):
    """The rows of a view of a live topic as they should be now."""
    return _recomputed(stored(topic), fields, tuple(grouping), condition)


@lru_cache(REMEMBERED)
def _recomputed(records, fields, grouping, condition):
    return rows(read(records), fields, grouping, condition)


def stored(topic):
    """The records of a live topic as they stand: born, seq and body of each."""
    table = topic.records.table
    slots = list(table.slots.values())
    bodies = map(table.bodies.__getitem__, slots)
    columns = table.order[slots].tolist(), table.newest[slots].tolist(), bodies
    return tuple(zip(*columns, strict=True))


def read(records):
    return [(born, seq, json.loads(body)) for born, seq, body in records]


def joined(view, topics, fields):
    """The rows of a view of two live topics, joined by one field, as they should be now: by nested
    loops."""
    (join,) = view.definition.joins
    left, right = (stored(topics[name]) for name in (join.left_topic, join.right_topic))
    grouping = [path.replace("]./", "/").replace("[", "/") for path in view.definition.grouping]
    found, first = _joined(left, right, join, fields, tuple(grouping))
    # Groups that begin with one record stand by their SowKeys.
    order = sorted(found, key=lambda key: (first[key], int(view.records.sow_key_of(key))))
    return {key: found[key] for key in order}


@lru_cache(REMEMBERED)
def _joined(lefts, rights, join, fields, grouping):
    """The rows, and by key where the first record of each was born."""
    left, right = read(lefts), read(rights)
    pairs, alone = [], list(right)
    for one in left:
        key = joined_by(one, join.left_field)
        met = [other for other in right if key and joined_by(other, join.right_field) == key]
        alone = [other for other in alone if other not in met]
        pairs += [(one, other) for other in met or ([None] if join.type != "inner" else [])]
    if join.type == "full":
        pairs += [(None, other) for other in alone]
    made = []
    for one, other in pairs:
        both = {join.left_topic: one[2] if one else {}, join.right_topic: other[2] if other else {}}
        born = one[0] if one else math.inf, other[0] if other else math.inf
        made.append((born, max(side[1] for side in (one, other) if side), both))
    first = {}
    for (born, _), _, both in sorted(made, key=lambda row: row[0]):
        key = "\x1f".join(key_text(value_at(both, parse_path(path))) or "" for path in grouping)
        first.setdefault(key, born)
    return rows(made, fields, grouping), first


def joined_by(record, field):
    return key_text(value_at(record[2], parse_path(field)))


def shown(topic):
    """The rows of a view as they are, in their order."""
    table = topic.records.table
    return {table.identities[slot]: json.loads(table.bodies[slot]) for slot in table.live()}
