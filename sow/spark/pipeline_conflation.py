"""Conflation with Spark as the engine: of a pipeline's rows, and of a conflated topic.

A pipeline conflates rows by key and interval, as its `Conflate` specifies. This module first adds
the columns that it needs: keys that are fields of the body, whether a row removes its record, the
server's verdict on the filter. `conflated_topics.spark` does the rest.

Which columns belong to the row depends on the source. Without a schema the rows of a topic have six
columns of their own, and the body's fields are in one of them, `value`. With a schema all columns
are the body's fields, except those with a prefix (`_key`). The result of SQL has its own names;
`op`, `key` and `bookmark` have a meaning.

For a conflated topic its definition is applied to rows of a log. The rows of the source topic's log
are *prepared* (which of them remove their record, and why), conflated by the core that all of
Spark's conflation uses, and passed to the server as changes of the conflated topic. Bodies are
texts in Spark's rows, or base64 for binary types. Everything here works on Arrow without Spark, so
that the tests of conflated topics run on it too; `sow.spark.pipelines` builds the query.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache, reduce
from operator import or_
from typing import Any, Literal

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from conflated_topics.recorded import Spec
from conflated_topics.spark import conflate
from sow.core.definitions import ConflatedTopic, MessageTypeOptions
from sow.core.paths import Path as FieldPath
from sow.core.paths import parse_path
from sow.core.pipelines import Conflate, Pipeline, located
from sow.errors import ClientError
from sow.expressions import compile_filter
from sow.messages import message_type
from sow.messages.base import MessageType
from sow.spark.columns import REMOVE, ROW
from sow.spark.http import own_server, segment
from sow.spark.run_state import kept_aside
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


RowColumn = Literal["bookmark", "topic", "key", "op"]
KNOWN: tuple[RowColumn, ...] = ("bookmark", "topic", "key", "op")
"""The columns of a row that conflation and sinks use."""
OPERATIONS = ("publish", "tick", *REMOVE)


@dataclass(frozen=True, slots=True)
class RowColumns:
    """The columns of the row, by meaning; whether the document in the column `value` holds the
    fields of the body; and the columns that are no fields."""

    names: dict[RowColumn, str]
    has_body: bool = False
    no_fields: frozenset[str] = frozenset()


def row_columns(columns: Collection[str], pipeline: Pipeline, has_text: bool) -> RowColumns:
    """The layout of the result of a pipeline's source and SQL; `has_text`: `value` is a text."""
    source = pipeline.source
    prefixed: dict[RowColumn, str] = {one: f"_{one}" for one in KNOWN if f"_{one}" in columns}
    plain: dict[RowColumn, str] = {one: one for one in KNOWN if one in columns}
    if source.is_typed:
        if pipeline.sql is None:
            return RowColumns(prefixed)
        return RowColumns(plain | prefixed, has_text)
    is_row = has_text and (source.format == "sow" or set(ROW.names) <= set(columns))
    own = set(ROW.names) & set(columns) if is_row else set()
    return RowColumns(prefixed | plain, has_text, frozenset(own))


def for_topic(frame: Any, pipeline: Pipeline) -> tuple[Any, dict[str, str]]:
    """Rows for a topic, and the options of their write: in typed rows the operation has a column
    with a prefix, and one without is a field."""
    from pyspark.sql.functions import lit

    if not pipeline.source.is_typed or "_change_type" in frame.columns:
        return frame, {}
    options = {}
    for option, name in (("opColumn", "_op"), ("keyColumn", "_key")):
        if pipeline.sql is None and name[1:] in frame.columns and name not in frame.columns:
            frame = frame.withColumn(name, lit(None).cast("string"))
        if name in frame.columns:
            options[option] = name
    return frame, options


GONE_MARK = "__gone"
OUTSIDE = "__outside"
LATE_MARK = "__late"
WINDOW = ("window_start", "window_end")
"""The columns that conflation adds to rows."""
ROWS_ASIDE = "sow_rows_aside"
"""The name under which skipped rows are counted."""


def conflated(frame: Any, pipeline: Pipeline, url: str, ends: Any, directory: str) -> Any:
    """The rows as the pipeline's `Conflate` emits them; `ends` is the stream of endings, and
    `directory` the base of relative paths."""
    from pyspark.sql.functions import col, lit

    wanted, time = pipeline.conflate, pipeline.source.time
    assert wanted is not None
    if time not in frame.columns:
        raise ClientError(f"after the SQL there is no column {time!r} to conflate by; keep it")
    columns = frame.columns
    rows = row_columns(columns, pipeline, _has_text(frame))
    does = rows.names.get("op")
    deletes = lit(False) if does is None else _deletes(does)
    frame = frame.withColumn(GONE_MARK, deletes)
    if wanted.filter is not None:
        frame = _judged(frame, wanted.filter, rows)
        frame = frame.withColumn(GONE_MARK, col(GONE_MARK) | col(OUTSIDE))
    if of_record := _record_columns(rows, pipeline, wanted, url):
        # A delete has no body, but belongs to its record all the same.
        keys = [f"__{name}" for name in of_record]
        frame = frame.withColumns({f"__{name}": col(name) for name in of_record})
    else:
        fields = {
            _key_column(text, number): _field(columns, parse_path(text), rows)
            for number, text in enumerate(wanted.keys)
        }
        keys, frame = list(fields), frame.withColumns(fields)
        # Without a body a delete does not show its record.
        nameless = reduce(or_, (col(f"`{key}`").isNull() for key in keys))
        frame = frame.where(~(deletes & nameless))
    frame = conflate(
        frame,
        keys,
        time or "",
        timedelta(microseconds=wanted.interval_us),
        wanted.policy,
        order=(rows.names["bookmark"],) if "bookmark" in rows.names else (),
        delete=GONE_MARK,
        lateness=timedelta(microseconds=wanted.lateness_us),
        max_skew=timedelta(microseconds=wanted.max_skew_us),
        late=None if wanted.late_path is None else LATE_MARK,
        null_keys=wanted.null_keys,
        counts=ROWS_ASIDE,
        ends=ends,
    )
    if wanted.late_path is not None:
        frame = _in_time(frame, columns, located(wanted.late_path, directory))
    if pipeline.sink.topic is not None:
        frame = _for_topic(frame, pipeline, rows)
    else:
        frame = _with_reasons(frame, does)
        if wanted.window_fields is False:
            frame = frame.drop(*WINDOW)
    return frame.drop(*keys, GONE_MARK, OUTSIDE)


def _deletes(does: str) -> Any:
    """Whether a row removes its record. Any other value is no operation but a field of that name,
    which must not be taken for a delete."""
    from pyspark.sql.functions import coalesce, col, concat, lit, raise_error, when

    unknown = col(does).isNotNull() & ~col(does).isin(*OPERATIONS)
    message = concat(
        # In two pieces, so that it is found in the error alone and not in the plan beside it.
        lit("Client"),
        lit(f"Error: the column {does} says what a row does, and holds "),
        col(does).cast("string").substr(1, 40),
        lit(f"; it is {' or '.join(OPERATIONS)}: call a field of that name otherwise in the SQL"),
    )
    does_remove = coalesce(col(does).isin(*REMOVE), lit(False))
    return when(unknown, raise_error(message).cast("boolean")).otherwise(does_remove)


def _for_topic(frame: Any, pipeline: Pipeline, rows: RowColumns) -> Any:
    """Rows as messages for a topic: columns that nobody published are not fields of them."""
    from pyspark.sql.functions import col, when

    assert pipeline.conflate is not None
    # Beside fields of the body the row's own columns have a prefix.
    op = "_op" if pipeline.source.is_typed and rows.names.get("op") != "op" else "op"
    frame = frame.withColumn(op, when(col(GONE_MARK), "delete").otherwise("publish"))
    if rows.has_body:  # the message, without the columns added for conflation
        taken = rows.no_fields or {"key", "value"}
        return frame.select(*[name for name in frame.columns if name in {*taken, op}])
    return frame if pipeline.conflate.window_fields else frame.drop(*WINDOW)


def _with_reasons(frame: Any, does: str | None) -> Any:
    """Rows for files; a removed record shows the reason, if there is a column for it."""
    from pyspark.sql.functions import col, when

    if does is None:
        return frame.where(~col(GONE_MARK))
    left = col(GONE_MARK) & (col(does) == "publish")
    return frame.withColumn(does, when(left, "match").otherwise(col(does)))


def _has_text(frame: Any) -> bool:
    from pyspark.sql.types import StringType

    return "value" in frame.columns and isinstance(frame.schema["value"].dataType, StringType)


def _in_time(frame: Any, columns: Sequence[str], path: str) -> Any:
    """The rows that take part; the `columns` of the others are stored at `path`."""
    from pyspark.sql.types import StructType

    schema = StructType([field for field in frame.schema.fields if field.name != LATE_MARK])
    return frame.mapInArrow(kept_aside(path, LATE_MARK, columns), schema)


def copied(frame: Any, conflation: SparkConflation) -> Any:
    """Rows of a log as changes of the conflated topic."""
    from pyspark.sql.types import BooleanType, StructField, StructType

    schema = StructType([*frame.schema.fields, StructField(GONE_COLUMN, BooleanType())])

    def prepare(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return map(conflation.prepare, batches)

    spec = conflation.spec
    interval = timedelta(microseconds=spec.interval_us)
    frame = conflate(
        frame.mapInArrow(prepare, schema),
        spec.keys,
        spec.time,
        interval,
        spec.policy,
        spec.order,
        spec.delete,
        max_skew=None,  # the times are the server's, not this machine's
        counts=ROWS_ASIDE,
    )
    return frame.drop(GONE_COLUMN, *WINDOW)


def _record_columns(
    rows: RowColumns, pipeline: Pipeline, wanted: Conflate, url: str
) -> Sequence[str]:
    """The columns that identify the record of a row, if the keys are those of the source's topic,
    so that its SowKey is as good; the records of a pattern belong to its topics. Else None."""
    source, names = pipeline.source, rows.names
    is_whole = {"bookmark", "key"} <= names.keys() and (rows.has_body or source.is_typed)
    if source.format != "sow" or not is_whole:
        return ()
    topic = own_server(url).json("GET", f"/v1/topics/{segment(source.topic or '')}")
    if set(topic.get("keys", [])) != set(wanted.keys):
        return ()
    of_many = topic.get("kind") == "pattern" and "topic" in names
    return (names["topic"], names["key"]) if of_many else (names["key"],)


def _key_column(text: str, number: int) -> str:
    """The column name of a key: its path, unless Spark cannot pass that to Python."""
    return f"__key{number}" if "." in text or "`" in text else text


def _field(columns: list[str], path: FieldPath, rows: RowColumns) -> Any:
    """A column, a field of one, or a field of the body in `value`."""
    from pyspark.sql.functions import col, get_json_object

    first, *inside = (str(step) for step in path.steps)
    if first in columns and first not in rows.no_fields:
        return col(".".join("`" + name.replace("`", "``") + "`" for name in (first, *inside)))
    if not rows.has_body:
        raise ClientError(
            f"there is no column {first!r} for the key {path}; use one of {', '.join(columns)}"
        )
    return get_json_object(col("value"), "$" + "".join(map(_json_step, path.steps)))


def _json_step(name: str) -> str:
    """A step of a path in Spark's JSONPath; raises ClientError for a name that it cannot
    express."""
    if not set(name) & set(".[]*'?"):
        return f".{name}"
    if set(name) & set("*'?"):
        raise ClientError(
            f"the key {name!r} has a character that Spark's paths cannot express; select it "
            "as a column in the SQL, and name that as Key"
        )
    return f"['{name}']"


def _judged(frame: Any, text: str, rows: RowColumns) -> Any:
    """Rows with the server's verdict on a filter: whether they fail it."""
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import BooleanType, StructField, StructType

    schema = StructType([*frame.schema.fields, StructField(OUTSIDE, BooleanType())])
    # Run on no rows here: mistakes surface at the start and not in a worker.
    nothing = pa.RecordBatch.from_pylist([], to_arrow_schema(frame.schema, timezone="UTC"))
    _values(nothing, compile_filter(text).paths, rows)

    def judge(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        condition = compile_filter(text)
        for batch in batches:
            columns = _values(batch, condition.paths, rows)
            inside = condition.matches(columns, len(batch)) if len(batch) else []
            outside = pa.array([not hit for hit in inside], pa.bool_())
            yield batch.append_column(OUTSIDE, outside)

    return frame.mapInArrow(judge, schema)


def _values(batch: pa.RecordBatch, paths: Iterable[FieldPath], rows: RowColumns) -> list[Any]:
    """The values that a filter reads, from columns or from bodies."""
    names, found = batch.schema.names, []
    bodies: list[bytes] | None = None
    for path in paths:
        first, *inside = path.steps
        if first in names and first not in rows.no_fields:
            column = batch.column(first)
            for step in inside:
                fields = column.type.names if pa.types.is_struct(column.type) else []
                if step not in fields:
                    raise ClientError(f"the filter reads {path}, and there is no field {step!r}")
                column = pc.struct_field(column, step)
            found.append(column.to_pylist())
        elif rows.has_body:
            if bodies is None:
                bodies = [(text or "{}").encode() for text in batch.column("value").to_pylist()]
            found += message_type("json", {}).decoder((path,)).columns(bodies)
        else:
            raise ClientError(f"the filter reads {path}, and there is no such column")
    return found
