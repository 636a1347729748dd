"""A conflated topic with Spark as its engine: its definition applied to rows of a log.

The rows of the source topic's log are *prepared* (which of them remove their record, and why),
conflated by the core that all of Spark's conflation uses, and passed to the server as changes of
the conflated topic. Bodies are texts in Spark's rows, or base64 for binary types. Everything here
works on Arrow without Spark, so that the tests of conflated topics run on it too;
`sow.spark.pipelines` builds the query.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from conflated_topics.recorded import Spec
from sow.core.definitions import ConflatedTopic, MessageTypeOptions
from sow.expressions import compile_filter
from sow.messages import message_type
from sow.messages.base import MessageType
from sow.topic.queue_policy import Merger, make_merger

KINDS_KEPT = 64
"""Message types cached in each Python of Spark's: a query reads one and writes one."""


@lru_cache(maxsize=KINDS_KEPT)
def kind_of(name: str, kinds: tuple[MessageTypeOptions, ...]) -> MessageType:
    """The message type of a name, with the types that a configuration adds."""
    return message_type(name, {options.name: options for options in kinds})


def body_of(kind: MessageType, text: str) -> bytes:
    """The body that the text of a row represents."""
    return text.encode() if kind.name == "json" else kind.from_line(orjson.dumps(text))


def text_of(kind: MessageType, body: bytes) -> str:
    """The text of a row for a body."""
    if kind.name == "json":
        return body.decode()
    value = orjson.loads(kind.to_line(body))
    return value if isinstance(value, str) else orjson.dumps(value).decode()


GONE_COLUMN = "gone"


@dataclass(frozen=True)
class SparkConflation:
    """One conflated topic. Can be pickled; expressions compile where they are used."""

    definition: ConflatedTopic
    kinds: tuple[MessageTypeOptions, ...] = ()

    @property
    def kind(self) -> MessageType:
        """The message type of its bodies."""
        return kind_of(self.definition.message_type, self.kinds)

    @property
    def merger(self) -> Merger:
        """The topic's merge; it has one."""
        return _merger(self)

    @property
    def spec(self) -> Spec:
        """The conflation settings."""
        merges = self.definition.merges or self.definition.merger
        return Spec(
            ("key",),
            "ts",
            self.definition.interval_us,
            policy=Fold(self) if merges else "latest",
            order=("bookmark",),
            delete=GONE_COLUMN,
        )

    def prepare(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Rows of the log with an extra column: whether they remove their record.

        `op` says why; a row that does not pass the filter becomes a ``match``. Bodies become the
        initial state of the topic's merge.
        """
        op = batch.column("op")
        gone = pc.is_in(op, pa.array(["delete", "expire"]))
        if self.definition.filter is not None and len(batch):
            outside = pa.array(~self._inside(batch.column("value"), self.definition.filter))
            outside = pc.and_(outside, pc.equal(op, "publish"))
            op = pc.if_else(outside, pa.scalar("match"), op)
            gone = pc.or_(gone, outside)
        batch = batch.set_column(batch.schema.get_field_index("op"), "op", op)
        if any(merge.operation == "count" for merge in self.definition.merges):
            at = batch.schema.get_field_index("value")
            batch = batch.set_column(at, "value", self._singles(batch.column("value")))
        return batch.append_column(GONE_COLUMN, gone)

    def _singles(self, values: pa.StringArray) -> pa.StringArray:
        """The bodies with counts of one."""
        kind, single = self.kind, self.merger.single
        texts = [
            None if text is None else text_of(kind, single(body_of(kind, text)))
            for text in values.to_pylist()
        ]
        return pa.array(texts, values.type)

    def _inside(self, values: pa.StringArray, text: str) -> "np.typing.NDArray[np.bool_]":
        """Which bodies pass the filter."""
        condition, kind = compile_filter(text), self.kind
        bodies = [body_of(kind, text) for text in values.to_pylist() if text is not None]
        inside = np.zeros(len(values), np.bool_)
        if bodies:
            columns = kind.decoder(condition.paths).columns(bodies)
            inside[np.asarray(values.is_valid())] = condition.matches(columns, len(bodies))
        return inside


@dataclass(frozen=True)
class Fold:
    """Merges two bodies of one window, as the server's own conflation does.

    Stored states name it by this module and its name (`Spec.fingerprint`): both stay.
    """

    conflation: SparkConflation

    def __call__(self, current: str, new: str) -> str:
        """The merged text; if the merger would keep both, the newer one."""
        kind = self.conflation.kind
        body = self.conflation.merger.merge(body_of(kind, current), body_of(kind, new))
        return new if body is None else text_of(kind, body)


@lru_cache(maxsize=64)
def _merger(conflation: SparkConflation) -> Merger:
    merger = make_merger(conflation.definition, conflation.kind)
    assert merger is not None
    return merger.merger
