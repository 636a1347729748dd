"""What a pipeline's rows have for conflation: whose they are, and what a filter reads of them.

The conflation itself runs in `tests/spark/test_pipelines.py`; here there is no Spark.
"""

from types import SimpleNamespace

import pyarrow as pa
import pytest

from sow.core.paths import parse_path
from sow.core.pipelines import Conflate, Pipeline, Sink, Source
from sow.errors import ClientError
from sow.expressions import compile_filter
from sow.spark import pipeline_conflation as module
from sow.spark.pipeline_conflation import conflated
from sow.spark.pipeline_rows import RowColumns, row_columns

AS_THEY_ARE = ["bookmark", "topic", "key", "op", "ts", "value"]


def pipeline(*keys, **source):
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
        (AS_THEY_ARE, ("/id",), {}, ("key",)),
        (AS_THEY_ARE, ("/id",), {"topic": "desks"}, ("topic", "key")),
        (AS_THEY_ARE, ("/symbol",), {}, ()),
        (AS_THEY_ARE, ("/id", "/symbol"), {}, ()),
        (["id", "ts"], ("/id",), {}, ()),
        (["id", "key", "bookmark"], ("/id",), {"schema": "id long"}, ()),
        (["id", "_key", "_bookmark"], ("/id",), {"schema": "id long"}, ("_key",)),
        (AS_THEY_ARE, ("/id",), {"format": "kafka"}, ()),
    ],
)
def test_by_the_topics_own_key_rows_are_their_records(keyed, columns, keys, source, by_record):
    found = pipeline(*keys, **source)
    rows = row_columns(columns, found, "value" in columns)
    assert module._record_columns(rows, found, found.conflate, "http://host") == by_record


def test_without_its_time_nothing_is_conflated():
    frame = SimpleNamespace(columns=["symbol"])
    with pytest.raises(ClientError, match="there is no column 'ts' to conflate by; keep it"):
        conflated(frame, pipeline("/symbol"), "http://host", None, "/data")


def test_a_key_that_is_nowhere_is_sent_what_there_is():
    with pytest.raises(ClientError, match="no column 'side' for the key /side; use one of id, px"):
        module._field(["id", "px"], parse_path("/side"), RowColumns({}))


def values(condition, **columns):
    batch = pa.RecordBatch.from_pydict(columns)
    rows = row_columns(batch.schema.names, pipeline("/id"), "value" in columns)
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
