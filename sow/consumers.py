"""Named consumers of the log: how far each has come, so that what it has not read is kept.

A consumer is a record in a topic of the server's own, so it is as durable as any other. While it
is there, retention lets nothing go that comes after its position; it is removed by name when it is
no longer wanted.
"""

import orjson

from sow.engine import Engine
from sow.errors import ClientError, UnknownRecord, shown
from sow.topics import CONSUMERS


class Consumers:
    """The consumers of one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def positions(self) -> dict[str, int]:
        """The bookmark that each consumer has read up to."""
        table = self._engine.topic(CONSUMERS.name).records.table
        found = [orjson.loads(table.bodies[slot] or b"") for slot in table.slots.values()]
        return {record["name"]: int(record["bookmark"]) for record in found}

    def move(self, name: str, bookmark: int, now_us: int) -> None:
        """Note how far a consumer has come; one that is new is kept for from here on."""
        if not name or not name.isprintable():
            raise ClientError(
                f"{shown(name)} cannot be a consumer's name: use printable characters"
            )
        if bookmark > self._engine.seq:
            raise ClientError(
                f"bookmark {bookmark} is not there yet; the newest is {self._engine.seq}",
                reason="invalid bookmark",
            )
        if self.positions().get(name) == bookmark:
            return
        self._engine.check_removal([name])
        topic = self._engine.topic(CONSUMERS.name)
        body = orjson.dumps({"name": name, "bookmark": str(bookmark)})
        self._engine.put(topic, topic.records.read([body]), now_us)

    def remove(self, name: str, now_us: int) -> None:
        """Keep nothing for a consumer any more; raises UnknownRecord."""
        self._engine.check_removal([name])
        topic = self._engine.topic(CONSUMERS.name)
        if not self._engine.remove(topic, [name], "delete", now_us):
            raise UnknownRecord(f"no consumer {shown(name)}; GET /v1/log/consumers lists them")
