"""What a conflated topic's definition means for rows of a log, without a Spark."""

import json
import pickle

import pyarrow as pa
import pytest

from conflated_topics.recorded import conflate_table
from sow.core.definitions import ConflatedTopic, Merge, MessageTypeOptions
from sow.server.http.tables import SCHEMA
from sow.spark.pipeline_conflation import (
    GONE_COLUMN,
    SparkConflation,
    body_of,
    kind_of,
    text_of,
)

BAR = MessageTypeOptions("bar", "nvfix", b"|")


@pytest.mark.parametrize(
    ("name", "body", "text"),
    [
        ("json", b'{"a":"\xc3\xa4"}', '{"a":"ä"}'),
        ("bar", b"a=1|b=x|", "a=1|b=x|"),
        ("binary", b"\xff\x00", "/wA="),
    ],
)
def test_a_body_is_a_text_and_back(name, body, text):
    kind = kind_of(name, (BAR,))
    assert text_of(kind, body) == text
    assert body_of(kind, text) == body


SECOND = 1_000_000


def topic(**more):
    return ConflatedTopic("copy", "json", "orders", interval_us=SECOND, **more)


def log(*rows):
    """Rows of (operation, body or None), a millisecond apart."""
    return pa.RecordBatch.from_pylist(
        [
            {"bookmark": at, "topic": "orders", "key": "1", "op": op, "ts": at * 1000,
             "value": None if body is None else json.dumps(body)}
            for at, (op, body) in enumerate(rows, 1)
        ],
        SCHEMA,
    )  # fmt: skip


def conflated(definition, *rows):
    """What one window makes of rows."""
    conflation = SparkConflation(definition)
    batch = conflation.prepare(log(*rows))
    table = conflate_table(pa.Table.from_batches([batch]), conflation.spec)
    return [
        (row["op"], None if row["value"] is None else json.loads(row["value"]))
        for row in table.to_pylist()
    ]


def test_rows_that_take_their_record_away_are_sent_apart():
    rows = (("publish", {"v": 1}), ("delete", None), ("expire", None))
    batch = SparkConflation(topic()).prepare(log(*rows))
    assert batch.column(GONE_COLUMN).to_pylist() == [False, True, True]
    assert batch.column("op").to_pylist() == ["publish", "delete", "expire"]


def test_what_does_not_pass_the_filter_leaves_by_a_match():
    rows = (("publish", {"v": 1}), ("publish", {"v": 5}), ("delete", None))
    batch = SparkConflation(topic(filter="/v > 3")).prepare(log(*rows))
    assert batch.column("op").to_pylist() == ["match", "publish", "delete"]
    assert batch.column(GONE_COLUMN).to_pylist() == [True, False, True]
    assert len(SparkConflation(topic(filter="/v > 3")).prepare(log())) == 0


def test_the_last_of_a_window_stands():
    assert conflated(topic(), ("publish", {"v": 1}), ("publish", {"v": 2})) == [
        ("publish", {"v": 2})
    ]


@pytest.mark.parametrize(
    ("merge", "result"), [(Merge("/v", "sum"), {"v": 3}), (Merge("/n", "count"), {"v": 2, "n": 2})]
)
def test_updates_are_merged_as_the_server_merges_them(merge, result):
    found = conflated(topic(merges=(merge,)), ("publish", {"v": 1}), ("publish", {"v": 2}))
    assert found == [("publish", result)]


def test_it_goes_to_where_it_is_used():
    conflation = pickle.loads(pickle.dumps(SparkConflation(topic(merges=(Merge("/v", "sum"),)))))
    assert conflation.spec.interval_us == SECOND
    assert conflation.spec.policy('{"v":1}', '{"v":2}') == '{"v":3}'


def test_stored_states_name_the_merge_by_its_place():
    """A checkpoint of an earlier run names it, and another name would be another conflation."""
    spec = SparkConflation(topic(merges=(Merge("/v", "sum"),))).spec
    assert spec.fingerprint()["policy"] == "sow.spark.pipeline_conflation:Fold"
