"""Which columns are the row's is known from what a pipeline reads, and not from their names."""

import pytest

from sow.core.pipelines import Pipeline, PipelineOption, Sink, Source
from sow.spark.pipeline_rows import for_topic, row_columns

ROW = ["bookmark", "topic", "key", "op", "ts", "value"]
PREFIXED = ["id", "op", "key", "_op", "_key", "_bookmark", "_topic"]


def pipeline(sql=None, **source):
    given = {"format": "sow", "topic": "orders"} | source
    return Pipeline(name="p", sources=(Source(**given),), sink=Sink(topic="t"), sql=sql)


def found(columns, sql=None, has_text=True, **source):
    return row_columns(columns, pipeline(sql, **source), has_text)


def test_of_rows_as_they_are_no_column_is_a_field():
    rows = found(ROW)
    assert rows.names == {name: name for name in ("bookmark", "topic", "key", "op")}
    assert (rows.has_body, rows.no_fields) == (True, set(ROW))
    of_file = found([*ROW, "more"], format="parquet", topic=None, path="in")
    assert (of_file.has_body, of_file.no_fields) == (True, set(ROW))
    chosen = found(["key", "value", "mid"], "SELECT key, value, 1 AS mid FROM source")
    assert (chosen.names, chosen.no_fields) == ({"key": "key"}, {"key", "value"})


@pytest.mark.parametrize(
    "typed",
    [{"schema": "id long"}, {"options": (PipelineOption("infer_schema", "TRUE"),)}],
)
def test_beside_fields_the_rows_own_columns_have_a_prefix(typed):
    rows = found(PREFIXED, **typed)
    assert rows.names == {name: f"_{name}" for name in ("bookmark", "topic", "key", "op")}
    assert (rows.has_body, rows.no_fields) == (False, set())
    assert found(["id", "op", "value"], **typed).names == {}


def test_sql_may_call_them_otherwise():
    schema = {"schema": "id long, _op string, _bookmark long"}
    sql = "SELECT id, _op AS op, _bookmark AS bookmark FROM source"
    rows = found(["id", "op", "bookmark"], sql, False, **schema)
    assert rows.names == {"op": "op", "bookmark": "bookmark"}
    assert found(["id", "op", "_op"], "SELECT * FROM source", False, **schema).names["op"] == "_op"


def test_other_sources_have_their_own_names():
    kafka = found(["key", "value", "topic"], "SELECT …", format="kafka", topic=None)
    assert (kafka.has_body, kafka.no_fields) == (True, set())
    file = found(["ts", "value"], has_text=False, format="csv", topic=None, path="in")
    assert (file.names, file.has_body) == ({}, False)


class Frame:
    """Columns, and what was added to them."""

    def __init__(self, *columns):
        self.columns = [*columns]

    def __getattr__(self, method):
        assert method == "withColumn"
        return lambda name, _value: Frame(*self.columns, name)


def test_a_field_called_op_or_key_is_written_as_a_field(monkeypatch):
    functions = pytest.importorskip("pyspark.sql.functions")

    class Null:
        def cast(self, kind):
            return (None, kind)

    monkeypatch.setattr(functions, "lit", lambda _: Null())
    typed = pipeline(schema="id long, op string")
    frame, options = for_topic(Frame("id", "op"), typed)
    assert (frame.columns, options) == (["id", "op", "_op"], {"opColumn": "_op"})
    frame, options = for_topic(Frame("id", "_key"), typed)
    assert (frame.columns, options) == (["id", "_key"], {"keyColumn": "_key"})
    assert for_topic(Frame("id", "op"), pipeline("SELECT …", schema="id long"))[1] == {}
    assert for_topic(Frame(*ROW), pipeline())[1] == {}
