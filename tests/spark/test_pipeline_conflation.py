"""What a pipeline's rows have for conflation: whose they are, and what a filter reads of them.

The conflation itself runs in `tests/spark/test_pipelines.py`; here there is no Spark.
"""

from types import SimpleNamespace

import pyarrow as pa
import pytest

from sow.core.paths import parse_path
from sow.core.pipelines import Conflate, Pipeline, PipelineOption, Sink, Source
from sow.errors import ClientError
from sow.expressions import compile_filter
from sow.spark import pipeline_conflation as module
from sow.spark.pipeline_conflation import RowColumns, conflated, for_topic, row_columns

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


def conflating(*keys, **source):
    return Pipeline(
        name="p",
        sources=(Source(**({"format": "sow", "topic": "orders"} | source)),),
        sink=Sink(topic="t"),
        conflate=Conflate(keys=keys, interval_us=1_000_000),
    )


@pytest.fixture
def keyed(monkeypatch):
    """A server whose topics are keyed by /id."""

    class Server:
        def __init__(self, url):
            self.url = url

        def json(self, method, path):
            kinds = {"/v1/topics/orders": "topic", "/v1/topics/desks": "pattern"}
            return {"keys": ["/id"], "kind": kinds[path]}

    monkeypatch.setattr(module, "own_server", Server)


@pytest.mark.parametrize(
    ("columns", "keys", "source", "by_record"),
    [
        (ROW, ("/id",), {}, ("key",)),
        (ROW, ("/id",), {"topic": "desks"}, ("topic", "key")),
        (ROW, ("/symbol",), {}, ()),
        (ROW, ("/id", "/symbol"), {}, ()),
        (["id", "ts"], ("/id",), {}, ()),
        (["id", "key", "bookmark"], ("/id",), {"schema": "id long"}, ()),
        (["id", "_key", "_bookmark"], ("/id",), {"schema": "id long"}, ("_key",)),
        (ROW, ("/id",), {"format": "kafka"}, ()),
    ],
)
def test_by_the_topics_own_key_rows_are_their_records(keyed, columns, keys, source, by_record):
    found = conflating(*keys, **source)
    rows = row_columns(columns, found, "value" in columns)
    assert module._record_columns(rows, found, found.conflate, "http://host") == by_record


def test_without_its_time_nothing_is_conflated():
    frame = SimpleNamespace(columns=["symbol"])
    with pytest.raises(ClientError, match="there is no column 'ts' to conflate by; keep it"):
        conflated(frame, conflating("/symbol"), "http://host", None, "/data")


def test_a_key_that_is_nowhere_is_sent_what_there_is():
    with pytest.raises(ClientError, match="no column 'side' for the key /side; use one of id, px"):
        module._field(["id", "px"], parse_path("/side"), RowColumns({}))


def values(condition, **columns):
    batch = pa.RecordBatch.from_pydict(columns)
    rows = row_columns(batch.schema.names, conflating("/id"), "value" in columns)
    return module._values(batch, compile_filter(condition).paths, rows)


def test_a_filter_reads_columns_their_fields_and_bodies():
    assert values("/px > 1", px=[1, 2]) == [[1, 2]]
    assert values("/leg/qty > 1", leg=[{"qty": 5}, {"qty": None}]) == [[5, None]]
    bodies = ['{"px":1}', None, '{"px":"a"}']
    assert values("/px > 1", value=bodies) == [[1, None, "a"]]


def test_a_filter_reads_fields_called_like_columns_of_the_row():
    bodies = ['{"op":"buy","value":5,"key":"k"}', None]
    row = {"op": ["publish", "delete"], "key": ["123", "124"], "value": bodies}
    condition = "/op = 'buy' AND /value < 9 AND /key = 'k'"
    assert [first for first, _ in values(condition, **row)] == ["buy", 5, "k"]


def test_what_a_filter_reads_and_nobody_has_is_refused():
    with pytest.raises(ClientError, match="there is no such column"):
        values("/px > 1", id=[1])


def test_a_field_that_a_column_has_not_is_refused():
    for path in ("/leg/side", "/leg/qty/x"):
        with pytest.raises(ClientError, match=f"reads {path}, and there is no field"):
            values(f"{path} > 1", leg=[{"qty": 5}])


def test_a_key_in_a_body_may_have_a_dot():
    assert [module._json_step(name) for name in ("a", "a b", "a.b", "a[0]")] == [
        ".a",
        ".a b",
        "['a.b']",
        "['a[0]']",
    ]
    with pytest.raises(ClientError, match="select it as a column in the SQL"):
        module._json_step("it's")


def test_the_column_of_a_key_is_called_as_its_path_where_spark_can_hand_that_on():
    assert [module._key_column(text, 1) for text in ("/a", "/a.b", "/a`b")] == [
        "/a",
        "__key1",
        "__key1",
    ]
