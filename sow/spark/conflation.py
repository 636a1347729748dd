"""A conflated topic with Spark as its engine: its definition applied to rows of a log.

The rows of the source topic's log are *prepared* (which of them remove their record, and why),
conflated by the core that all of Spark's conflation uses, and passed to the server as changes of
the conflated topic. Everything here works on Arrow without Spark, so that the tests of conflated
topics run on it too; `sow.spark.pipelines` builds the query.
"""

from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from conflated_topics.recorded import Spec
from sow.core.definitions import ConflatedTopic, MessageTypeOptions
from sow.expressions import compile_filter
from sow.spark.bodies import body_of, kind_of, text_of
from sow.topic.queue_policy import Merger, make_merger

GONE_COLUMN = "gone"


class SparkConflation:
    """One conflated topic. Can be pickled; expressions compile where they are used."""

    def __init__(
        self, definition: ConflatedTopic, kinds: tuple[MessageTypeOptions, ...] = ()
    ) -> None:
        self.definition = definition
        self._kinds = kinds

    @property
    def spec(self) -> Spec:
        """The conflation settings."""
        merges = self.definition.merges or self.definition.merger
        return Spec(
            ("key",),
            "ts",
            self.definition.interval_us,
            policy=Fold(self.definition, self._kinds) if merges else "latest",
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
            outside = pa.array(~self._inside(batch.column("value")))
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
        kind = kind_of(self.definition.message_type, self._kinds)
        merger = _merger(self.definition, self._kinds)
        texts = [
            None if text is None else text_of(kind, merger.single(body_of(kind, text)))
            for text in values.to_pylist()
        ]
        return pa.array(texts, values.type)

    def _inside(self, values: pa.StringArray) -> "np.typing.NDArray[np.bool_]":
        """Which bodies pass the filter."""
        assert self.definition.filter is not None
        condition = compile_filter(self.definition.filter)
        kind = kind_of(self.definition.message_type, self._kinds)
        there = np.asarray(values.is_valid())
        bodies = [body_of(kind, text) for text in values.to_pylist() if text is not None]
        inside = np.zeros(len(values), np.bool_)
        if bodies:
            columns = kind.decoder(condition.paths).columns(bodies)
            inside[there] = condition.matches(columns, len(bodies))
        return inside


class Fold:
    """Merges two bodies of one window, as the server's own conflation does."""

    def __init__(self, definition: ConflatedTopic, kinds: tuple[MessageTypeOptions, ...]) -> None:
        self._definition = definition
        self._kinds = kinds

    def __call__(self, current: str, new: str) -> str:
        """The merged text; if the merger would keep both, the newer one."""
        kind = kind_of(self._definition.message_type, self._kinds)
        merger = _merger(self._definition, self._kinds)
        body = merger.merge(body_of(kind, current), body_of(kind, new))
        return new if body is None else text_of(kind, body)


@lru_cache(maxsize=64)
def _merger(definition: ConflatedTopic, kinds: tuple[MessageTypeOptions, ...]) -> Merger:
    merger = make_merger(definition, kind_of(definition.message_type, kinds))
    assert merger is not None
    return merger.merger
