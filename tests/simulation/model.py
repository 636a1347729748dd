"""A naive model of the server: what every topic holds.

Plain dictionaries and lists, no clever structures, nothing shared with the product.
"""

import copy


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


class Model:
    """Every topic's records by key, and when some of them end."""

    def __init__(self):
        self.records = {}
        self.expiries = {}

    def publish(self, topic, document, delta=False):
        records = self.records.setdefault(topic, {})
        key = str(document["id"])
        if delta and key in records:
            document = merge(copy.deepcopy(records[key]), document)
        records[key] = copy.deepcopy(document)

    def delete(self, topic, test):
        for key, document in list(self.records.get(topic, {}).items()):
            if test(document):
                del self.records[topic][key]

    def expire_at(self, topic, document, at):
        """The record of this document ends at a time, unless it is published again."""
        self.expiries[topic, str(document["id"])] = at

    def expire(self, now):
        """Let go what has come to its end."""
        for (topic, key), at in list(self.expiries.items()):
            if at <= now:
                del self.expiries[topic, key]
                self.records.get(topic, {}).pop(key, None)

    def matching(self, topic, test=lambda document: True):
        """Records of a topic that pass a test."""
        return {k: d for k, d in self.records.get(topic, {}).items() if test(d)}
