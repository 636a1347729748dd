"""A naive model of the server: what every topic holds, and all that was ever published.

Plain dictionaries and lists, no clever structures, nothing shared with the product.
"""

import copy
from typing import NamedTuple


class Published(NamedTuple):
    """One message that the log holds: its bookmark, when it came, and its record's new state."""

    seq: int
    at_us: int
    topic: str
    key: str
    document: dict


def merge(document, delta):
    """Path by path; null in a delta publish means nothing."""
    for name, value in delta.items():
        if value is None:
            continue
        if isinstance(value, dict):
            under = document.get(name)
            document[name] = merge(under if isinstance(under, dict) else {}, value)
        else:
            document[name] = value
    return document


def applied(document, delta):
    """What a client makes of a delta: path by path, and null is a value."""
    result = dict(document)
    for name, value in delta.items():
        under = result.get(name)
        if isinstance(value, dict):
            value = applied(under if isinstance(under, dict) else {}, value)
        result[name] = value
    return result


def value_at(document, path):
    """A field of a document; None where there is none."""
    for step in path.strip("/").split("/"):
        document = document.get(step) if isinstance(document, dict) else None
    return document


CALCULATED = {
    "/v % 3 = 1": lambda document: document.get("v", 0) % 3 == 1,
    "COALESCE(/w/x, 1) = 1": lambda document: value_at(document, "/w/x") in (None, 1),
    "(/v > 4) = (/w/x = 1)": lambda document: (
        value_at(document, "/w/x") is not None
        and value_at(document, "/v") is not None
        and (value_at(document, "/v") > 4) == (value_at(document, "/w/x") == 1)
    ),
}
"""Filters that calculate, and the same in Python."""


def test_of(text):
    """A filter of the simulation, as Python; None passes everything."""
    if text is None:
        return lambda _document: True
    if text in CALCULATED:
        return CALCULATED[text]
    path, operator, number = text.split()

    def passes(document):
        value = value_at(document, path)
        if not isinstance(value, int):
            return False
        return {">": value > int(number), "<": value < int(number), "=": value == int(number)}[
            operator
        ]

    return passes


def shown(document, select):
    """What a select list leaves of a document: all its paths are signed, or none is."""
    if select is None:
        return document
    if select[0].startswith("-"):
        for member in select:
            document = _without(document, member[1:].strip("/").split("/"))
        return document
    found = {}
    for member in select:
        found = applied(found, _only(document, member.strip("/").split("/")))
    return found


def _only(document, steps):
    first, *rest = steps
    value = document.get(first)
    if first not in document or (rest and not isinstance(value, dict)):
        return {}
    if not rest:
        return {first: value}
    inner = _only(value, rest)
    return {first: inner} if inner else {}


def _without(document, steps):
    first, *rest = steps
    if not rest:
        return {name: value for name, value in document.items() if name != first}
    under = document.get(first)
    return {**document, first: _without(under, rest)} if isinstance(under, dict) else document


class Going:
    """Keys of one topic that a delete takes some at a time, in chunks of the order they go in."""

    def __init__(self, topic, keys, at_once):
        self.topic = topic
        self.chunks = [keys[start : start + at_once] for start in range(0, len(keys), at_once)]
        self.removed = 0

    def let_go(self, key):
        """A record has gone; whatever has its key next is another one."""
        self.chunks = [[other for other in chunk if other != key] for chunk in self.chunks]

    def awaits(self, topic, key):
        return topic == self.topic and any(key in chunk for chunk in self.chunks)


class Model:
    """Every topic's records by key, what was published, and when some of it ends."""

    def __init__(self):
        self.records = {}
        self.expiries = {}
        self.history = []
        self.going = []
        self.seq = 0

    def publish(self, topic, document, at_us, delta=False, retained=True):
        """Returns whether a record was there that a delta leaves its lifetime."""
        records = self.records.setdefault(topic, {})
        key = str(document["id"])
        self.make_way(topic, key)
        if merged := delta and retained and key in records:
            document = merge(copy.deepcopy(records[key]), document)
        document = copy.deepcopy(document)
        if retained:
            records[key] = document
        self.seq += 1
        self.history.append(Published(self.seq, at_us, topic, key, document))
        return merged

    def make_way(self, topic, key):
        """A record that is to be changed, and waits to be removed, goes first."""
        for going in self.going:
            if going.awaits(topic, key):
                self._remove(topic, key)
                going.removed += 1

    def commit(self, topic, rows, at_us):
        """A batch of (operation, document), as a whole."""
        for operation, document in rows:
            if operation != "delete":
                self.make_way(topic, str(document["id"]))
        for operation, document in rows:
            if operation != "delete":
                self.publish(topic, document, at_us, operation == "delta")
            elif (key := str(document["id"])) in self.records.get(topic, {}):
                self._remove(topic, key)

    def delete(self, topic, test):
        for key, document in list(self.records.get(topic, {}).items()):
            if test(document):
                self._remove(topic, key)

    def begin_delete(self, topic, test, at_once):
        """A delete that goes in steps of `at_once`, as if it were whole at this moment."""
        keys = [key for key, document in self.records.get(topic, {}).items() if test(document)]
        self.going.append(Going(topic, keys, at_once))
        return self.going[-1]

    def delete_more(self, going):
        """One step of it; nothing when all steps were taken."""
        for key in going.chunks.pop(0) if going.chunks else ():
            self._remove(going.topic, key)
            going.removed += 1

    def end_delete(self, going):
        """It is done, or given up: what it has not removed stays."""
        self.going.remove(going)

    def _remove(self, topic, key):
        del self.records[topic][key]
        self.seq += 1
        for going in self.going:
            if going.topic == topic:
                going.let_go(key)

    def expire_at(self, topic, document, at):
        """The record of this document ends at a time, unless it is published again."""
        self.expiries[topic, str(document["id"])] = at

    def expire(self, now):
        """Remove what has expired."""
        for (topic, key), at in list(self.expiries.items()):
            if at <= now:
                del self.expiries[topic, key]
                if key in self.records.get(topic, {}):
                    self._remove(topic, key)

    def matching(self, topic, test=lambda document: True):
        """Records of a topic that pass a test."""
        return {k: d for k, d in self.records.get(topic, {}).items() if test(d)}

    def published_after(self, seq, follows, test):
        """What was published after a bookmark to topics that are followed, and passes."""
        return [
            entry
            for entry in self.history
            if entry.seq > seq and follows(entry.topic) and test(entry.document)
        ]

    def copied(self):
        """The model as it stands, to go back to."""
        return copy.deepcopy(self)
