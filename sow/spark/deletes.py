"""Identifies the records that deletes remove: by the key fields of documents, or by SowKeys.

A delete in a log has no body, so its key fields are null and it has only a SowKey. A SowKey is
specific to its topic, unless two topics share a KeyDomain. If a row names its topic, a delete that
could not match is refused.
"""

from collections.abc import Sequence
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from sow.core.paths import parse_path
from sow.errors import ClientError
from sow.spark.http import ServerRefusal, SowServer, segment
from sow.spark.write_target import WriteTarget

DELETES = pa.array(["delete", "expire", "match"])
"""Operations of a log or a view that remove the record."""


def by_sow_key(batch: pa.RecordBatch, operations: pa.Array, keys: Sequence[str]) -> pa.Array:
    """Which rows are deletes without a value for a key field."""
    deletes = pc.is_in(operations, DELETES)
    missing = [pc.is_null(_field(batch, text)) for text in keys]
    return pc.and_(deletes, reduce(pc.or_, missing)) if missing else deletes


def _field(batch: pa.RecordBatch, path: str) -> pa.Array:
    """The values of a field in columns; nulls without it."""
    first, *inside = parse_path(path).steps
    if first not in batch.schema.names:
        return pa.nulls(len(batch))
    column = batch.column(first)
    for step in inside:
        if not pa.types.is_struct(column.type) or column.type.get_field_index(step) < 0:
            return pa.nulls(len(batch))
        column = pc.struct_field(column, step)
    return column


class KeysOfTopics:
    """The topics that share SowKeys with the target. Queries the server once for each other
    topic."""

    def __init__(self, server: SowServer, to: WriteTarget) -> None:
        self._server = server
        self._to = to
        self._known: set[str] = {to.topic}

    def check(self, topics: pa.Array) -> None:
        """Raise ClientError for the first topic whose deletes could not match."""
        for name in pc.unique(topics).to_pylist():
            if name is None or name in self._known:
                continue
            if (domain := self._domain(name)) != self._to.domain:
                raise ClientError(
                    f"a delete of {name} names its record by a SowKey, and {self._to.topic} has "
                    f"other SowKeys: {_sent(name, domain)}, that of {self._to.topic} is "
                    f"{self._to.domain}. Give both topics one KeyDomain, add the key fields to the "
                    "rows that delete, or leave these out"
                )
            self._known.add(name)

    def _domain(self, name: str) -> str | None:
        """The KeyDomain of a topic; None if the server has no such topic."""
        try:
            topic = self._server.json("GET", f"/v1/topics/{segment(name)}")
        except ServerRefusal:
            return None
        domain: str | None = topic.get("key_domain")
        return domain


def _sent(name: str, domain: str | None) -> str:
    if domain is None:
        return f"the server has no topic {name}"
    return f"the KeyDomain of {name} is {domain}"
