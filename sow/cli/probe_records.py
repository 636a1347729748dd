"""Records that a command writes to measure a server, and deletes again.

They go into a topic that the user names, because its subscribers see them. Their keys have a prefix
of their own, and a topic that already holds such records is refused: so the command never
overwrites or deletes other records.
"""

from collections.abc import Iterable
from typing import Any, Self

from sow.client import Client, Publisher
from sow.core.humanize import counted
from sow.core.paths import Path, parse_path
from sow.errors import ClientError, shown

SENT = "name a json topic with a Key, or add one to the configuration for it"
AT_ONCE = 1000
"""Records deleted by one frame: as many as the client publishes in one."""


class ProbeRecords:
    """Records of one topic, each with `word` and a number in every field of its key."""

    def __init__(self, client: Client, topic: str, keys: list[Path], word: str) -> None:
        self.topic = topic
        self._client = client
        self._keys = keys
        self._word = word
        self._used = 0
        """Record that the records up to this number may exist."""

    @classmethod
    async def begin(cls, client: Client, topic: str, word: str) -> Self:
        """Records for a topic; raises ClientError that suggests another topic if this one cannot
        hold them, and errors of the server."""
        described = await client.topic(topic)
        if described["kind"] != "topic":
            kind = described["kind"]
            raise ClientError(f"{shown(topic)} is of kind {kind}, which takes no messages; {SENT}")
        if described["message_type"] != "json":
            kind = described["message_type"]
            raise ClientError(f"the messages of {shown(topic)} are of type {kind}; {SENT}")
        keys = [parse_path(text) for text in described["keys"]]
        if not keys or any(key.index is not None for key in keys):
            raise ClientError(f"{shown(topic)} has no Key to identify records; {SENT}")
        made = cls(client, topic, keys, word)
        await made._refuse_others()
        return made

    async def _refuse_others(self) -> None:
        condition = f"{self._keys[0]} LIKE '^{self._word}-'"
        there = (await self._client.query(self.topic, filter=condition, top_n=0)).matches
        if there:
            raise ClientError(
                f"{shown(self.topic)} holds {counted(there, 'record')} of an earlier run; "
                f'delete them: sow delete {self.topic} --filter "{condition}"'
            )

    def document(self, number: int, **fields: object) -> dict[str, Any]:
        """Record `number`, with these extra fields."""
        self._used = max(self._used, number + 1)
        return self._key(number, dict(fields))

    def filter_of(self, number: int) -> str:
        """An expression that matches record `number` only."""
        return " AND ".join(f"{key} = '{self._word}-{number}'" for key in self._keys)

    def _key(self, number: int, document: dict[str, Any]) -> dict[str, Any]:
        for key in self._keys:
            place = document
            for name in key.steps[:-1]:
                place = place.setdefault(name, {})
            place[key.steps[-1]] = f"{self._word}-{number}"
        return document

    async def take_away(self, publisher: Publisher) -> None:
        """Delete all records, and wait until that is durable."""
        for start in range(0, self._used, AT_ONCE):
            some: Iterable[int] = range(start, min(self._used, start + AT_ONCE))
            await publisher.delete([self._key(number, {}) for number in some])
        await publisher.drain()
        self._used = 0
