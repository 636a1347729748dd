"""Conflation of a pipeline: rows by key and interval, as its `Conflate` says.

Whatever the rows have for it is made columns first: keys that are fields of the body, whether a row
is gone, the server's verdict on the filter. The conflating itself is `conflated_topics.spark`.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from functools import reduce
from operator import or_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from conflated_topics.spark import conflate
from sow.errors import ClientError
from sow.expressions import compile_filter
from sow.messages import message_type
from sow.paths import Path as FieldPath
from sow.paths import parse_path
from sow.pipelines import Conflate, Pipeline, located
from sow.spark.conflation import GONE_COLUMN, SparkConflation
from sow.spark.http import own_server, segment
from sow.spark.late_rows import kept_aside

GONE_MARK = "__gone"
OUTSIDE = "__outside"
LATE_MARK = "__late"
ROWS_ASIDE = "sow_rows_aside"
"""Under which name rows are counted that take no part."""


def conflated(frame: Any, pipeline: Pipeline, url: str, ends: Any, directory: str) -> Any:
    """The rows as the pipeline's `Conflate` lets them through; `ends` is the stream of endings,
    and `directory` where paths start."""
    from pyspark.sql.functions import coalesce, col, lit, when

    wanted, time = pipeline.conflate, pipeline.source.time
    assert wanted is not None
    if time not in frame.columns:
        raise ClientError(f"after the SQL there is no column {time!r} to conflate by; keep it")
    columns = frame.columns
    deletes = lit(False)
    does = next((name for name in ("op", "_op") if name in columns), None)
    if does is not None:
        deletes = coalesce(~col(does).isin("publish", "tick"), lit(False))
    frame = frame.withColumn(GONE_MARK, deletes)
    if wanted.filter is not None:
        frame = _judged(frame, wanted.filter).withColumn(GONE_MARK, col(GONE_MARK) | col(OUTSIDE))
    if _is_by_record(columns, pipeline, wanted, url):
        # A delete has no body, and is its record's all the same.
        keys = ["__key"]
        frame = frame.withColumn("__key", col("key"))
    else:
        fields = {
            _key_column(text, number): _field(columns, parse_path(text))
            for number, text in enumerate(wanted.keys)
        }
        keys, frame = list(fields), frame.withColumns(fields)
        # Whose delete it is cannot be told where it has no body.
        nameless = reduce(or_, (col(f"`{key}`").isNull() for key in keys))
        frame = frame.where(~(deletes & nameless))
    frame = conflate(
        frame,
        keys,
        time or "",
        timedelta(microseconds=wanted.interval_us),
        wanted.policy,
        order=("bookmark",) if "bookmark" in columns else (),
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
        frame = frame.withColumn("op", when(col(GONE_MARK), "delete").otherwise("publish"))
    elif does is None:
        frame = frame.where(~col(GONE_MARK))
    else:
        left = col(GONE_MARK) & (col(does) == "publish")
        frame = frame.withColumn(does, when(left, "match").otherwise(col(does)))
    return frame.drop(*keys, GONE_MARK, OUTSIDE)


def _in_time(frame: Any, columns: Sequence[str], path: str) -> Any:
    """The rows that take part; of the others the `columns` are kept at `path`."""
    from pyspark.sql.types import StructType

    schema = StructType([field for field in frame.schema.fields if field.name != LATE_MARK])
    return frame.mapInArrow(kept_aside(path, LATE_MARK, columns), schema)


def copied(frame: Any, conflation: SparkConflation) -> Any:
    """Rows of a log as what the copy is to become."""
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
        max_skew=None,  # the times are the server's, whatever this machine's clock says
        counts=ROWS_ASIDE,
    )
    return frame.drop(GONE_COLUMN)


def _is_by_record(columns: list[str], pipeline: Pipeline, wanted: Conflate, url: str) -> bool:
    """Whether the keys are those of the source's topic, so that its SowKey is as good."""
    source = pipeline.source
    if source.format != "sow" or not {"key", "bookmark", "value"} <= set(columns):
        return False
    topic = own_server(url).json("GET", f"/v1/topics/{segment(source.topic or '')}")
    return set(topic.get("keys", [])) == set(wanted.keys)


def _key_column(text: str, number: int) -> str:
    """What the column of a key is called: as its path, unless Spark cannot hand that to Python."""
    return f"__key{number}" if "." in text or "`" in text else text


def _field(columns: list[str], path: FieldPath) -> Any:
    """A column, a field of one, or a field of the body in `value`."""
    from pyspark.sql.functions import col, get_json_object

    first, *inside = (str(step) for step in path.steps)
    if first in columns:
        return col(".".join("`" + name.replace("`", "``") + "`" for name in (first, *inside)))
    if "value" not in columns:
        raise ClientError(
            f"there is no column {first!r} for the key {path}; use one of {', '.join(columns)}"
        )
    return get_json_object(col("value"), "$" + "".join(map(_json_step, path.steps)))


def _json_step(name: str) -> str:
    """A step of a path as Spark's JSONPath has it; raises ClientError for a name that it cannot
    write."""
    if not set(name) & set(".[]*'?"):
        return f".{name}"
    if set(name) & set("*'?"):
        raise ClientError(
            f"the key {name!r} has a character that Spark's paths have no way to write; select it "
            "as a column in the SQL, and name that as Key"
        )
    return f"['{name}']"


def _judged(frame: Any, text: str) -> Any:
    """Rows with the server's verdict on a filter: whether they are outside of it."""
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import BooleanType, StructField, StructType

    schema = StructType([*frame.schema.fields, StructField(OUTSIDE, BooleanType())])
    # Of no rows, here: so what cannot be read is said at the start and not by a worker.
    nothing = pa.RecordBatch.from_pylist([], to_arrow_schema(frame.schema, timezone="UTC"))
    _values(nothing, compile_filter(text).paths)

    def judge(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        condition = compile_filter(text)
        for batch in batches:
            columns = _values(batch, condition.paths)
            inside = condition.matches(columns, len(batch)) if len(batch) else []
            outside = pa.array([not hit for hit in inside], pa.bool_())
            yield batch.append_column(OUTSIDE, outside)

    return frame.mapInArrow(judge, schema)


def _values(batch: pa.RecordBatch, paths: Iterable[FieldPath]) -> list[Any]:
    """The values that a filter reads, from columns or from bodies."""
    names, found = batch.schema.names, []
    bodies: list[bytes] | None = None
    for path in paths:
        first, *inside = path.steps
        if first in names:
            column = batch.column(first)
            for step in inside:
                fields = column.type.names if pa.types.is_struct(column.type) else []
                if step not in fields:
                    raise ClientError(f"the filter reads {path}, and there is no field {step!r}")
                column = pc.struct_field(column, step)
            found.append(column.to_pylist())
        elif "value" in names:
            if bodies is None:
                bodies = [(text or "{}").encode() for text in batch.column("value").to_pylist()]
            found += message_type("json", {}).decoder((path,)).columns(bodies)
        else:
            raise ClientError(f"the filter reads {path}, and there is no such column")
    return found
