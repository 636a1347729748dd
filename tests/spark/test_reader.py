"""Batch reads plan their parts, and push no filter that would leave out a row.

Some need a server; nothing here needs Java.
"""

import json
import operator
import random

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)
from pyspark.sql.pandas.types import from_arrow_schema

from sow.errors import SowError
from sow.expressions import compile_filter
from sow.messages import message_type
from sow.spark import reader as planning
from sow.spark import rows as module
from sow.spark.columns import JSON_MESSAGES, ROW, decoder
from sow.spark.http import ServerRefusal, read_options
from sow.spark.reader import PushingReader, expression
from sow.spark.source import SowDataSource

pytestmark = pytest.mark.spark


OTHER = "00000000000000bb"
NOWHERE = "http://127.0.0.1:9"


def rows(server, topic, schema=None, **options):
    source = SowDataSource({"url": server.url, "topic": topic, **options})
    if schema is None:
        source.schema()  # as Spark asks where its user gives none
        schema = ROW
    reader = source.reader(from_arrow_schema(schema))
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return pa.Table.from_batches(batches, schema).to_pylist()


@pytest.mark.edge
def test_a_pattern_is_read_as_its_topics_at_one_moment(server):
    server.publish("/desk/a", {"id": 1}, {"id": 2})
    server.publish("/desk/b", {"id": 1})
    found = rows(server, "desks")
    assert sorted((row["topic"], json.loads(row["value"])["id"]) for row in found) == [
        ("/desk/a", 1),
        ("/desk/a", 2),
        ("/desk/b", 1),
    ]


@pytest.mark.edge
def test_the_newest_events_of_a_series_are_rows(server):
    for number in range(3):
        server.publish("prices", {"id": 1, "n": number})
    server.publish("prices", {"id": 2, "n": 7})
    found = rows(server, "prices", last="2", partitions="2", filter="/n > 0")
    assert sorted(json.loads(row["value"])["n"] for row in found) == [1, 2, 7]
    assert len({row["bookmark"] for row in found}) == 3
    server.publish("/desk/a", {"id": 1})
    with pytest.raises(Exception, match="events are read of one topic; name it"):
        rows(server, "desks", last="2")


@pytest.mark.edge
def test_a_lost_snapshot_of_events_is_not_read_from_the_log(server):
    server.publish("prices", {"id": 1, "n": 1})
    source = SowDataSource({"url": server.url, "topic": "prices", "last": "2"})
    source.schema()
    reader = source.reader(from_arrow_schema(ROW))
    (first, *_) = reader.partitions()
    server.request("DELETE", f"/v1/snapshots/{first.snapshot}")
    with pytest.raises(ServerRefusal, match="no snapshot"):
        list(reader.read(first))


@pytest.mark.edge
def test_a_pattern_of_too_many_topics_is_not_read_at_once(server, monkeypatch):
    server.publish("/desk/a", {"id": 1})
    monkeypatch.setattr(module, "MEMBERS_MAX", 0)
    with pytest.raises(Exception, match="read its log, with startingBookmark"):
        rows(server, "desks")


@pytest.mark.edge
@pytest.mark.parametrize("name", ["/desk/a,b", "/desk/a%2Cb", "/desk/100%"])
def test_the_log_of_a_topic_of_any_name_is_read(server, name):
    server.publish("/desk/a", {"id": 1})
    server.publish(name, {"id": 2})
    found = rows(server, name, startingBookmark="earliest")
    assert {row["topic"] for row in found} == {name}


@pytest.mark.edge
def test_a_read_of_the_log_ends_where_it_is_sent(server):
    start = server.get("/v1/log/extent").json["newest"]
    server.publish("orders", {"id": 1})
    (first,) = rows(server, "orders", startingBookmark=start, endingBookmark="latest")
    server.publish("orders", {"id": 2})
    (_, second) = rows(server, "orders", startingBookmark=start)
    at = second["ts"].strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    log = server.get("/v1/status").json["log"]
    for ending in (str(first["bookmark"]), f"{log}-{first['bookmark']}", at):
        assert rows(server, "orders", startingBookmark=start, endingBookmark=ending) == [first]


@pytest.mark.edge
def test_parts_of_the_log_have_equally_many_rows_of_the_topic(server):
    start = server.get("/v1/log/extent").json["newest"]
    server.publish("orders", *({"id": n} for n in range(100)))
    server.publish("loud", *({"id": n} for n in range(900)))
    server.publish("orders", {"id": "last"})
    requested = {"topic": "orders", "startingBookmark": start, "partitions": "4"}
    source = SowDataSource({"url": server.url, **requested})
    source.schema()
    reader = source.reader(from_arrow_schema(ROW))
    counts = [sum(map(len, reader.read(part))) for part in reader.partitions()]
    assert counts == [26, 26, 26, 23]


@pytest.mark.edge
def test_a_part_that_was_removed_while_parts_were_cut_is_named_by_its_task(server, monkeypatch):
    server.publish("orders", *({"id": n} for n in range(10)))
    options = read_options({"url": server.url, "topic": "orders", "retryTimeout": "1"})
    part = module.extent(options.server, "orders", "0")

    def removed(*_arguments, **_requested):
        raise ServerRefusal("not kept", {"reason": "invalid bookmark"})

    monkeypatch.setattr(planning, "extent", removed)
    (whole,) = planning.split_log(options, part, 4)
    assert (whole.after, whole.until) == (int(part["from"]), int(part["to"]))


@pytest.mark.edge
def test_a_read_of_a_range_of_another_log_is_refused(server):
    newest = server.get("/v1/log/extent").json["newest"]
    for requested in ({"startingBookmark": f"{OTHER}-{newest}"}, {"asOf": f"{OTHER}-{newest}"}):
        with pytest.raises(ServerRefusal, match="is of the log"):
            rows(server, "orders", **requested)
    with pytest.raises(ServerRefusal, match="is of the log"):
        rows(server, "orders", startingBookmark="earliest", endingBookmark=f"{OTHER}-{newest}")


GROUPS = {"projection": "/desk, SUM(/qty) AS /qty", "grouping": "/desk"}


@pytest.mark.edge
def test_rows_of_groups_are_made_by_the_server_once_while_the_read_is_planned(server):
    server.publish("orders", *({"id": n, "desk": "ab"[n % 2], "qty": n} for n in range(5)))
    source = SowDataSource({"url": server.url, "topic": "orders", "filter": "/id > 0"} | GROUPS)
    source.schema()
    reader = source.reader(from_arrow_schema(ROW))
    (part,) = reader.partitions()
    server.publish("orders", {"id": 9, "desk": "a", "qty": 100})
    for _ in range(2):
        found = pa.Table.from_batches(reader.read(part), ROW).to_pylist()
        assert {row["topic"] for row in found} == {"orders"}
        assert [json.loads(row["value"]) for row in found] == [
            {"desk": "b", "qty": 4},
            {"desk": "a", "qty": 6},
        ]


@pytest.mark.edge
def test_the_columns_of_groups_are_those_of_their_rows(server):
    server.publish("orders", {"id": 1, "desk": "a", "qty": 2})
    requested = {"url": server.url, "topic": "orders", "inferSchema": "true"} | GROUPS
    assert SowDataSource(requested).schema().names == ["desk", "qty"]
    schema = pa.schema([("desk", pa.string()), ("qty", pa.int64())])
    assert rows(server, "orders", schema, **GROUPS) == [{"desk": "a", "qty": 2}]


@pytest.mark.edge
@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"topic": "orders", "partitions": "2"} | GROUPS, "come in one piece"),
        ({"topic": "orders", "projection": "/a"}, "projection needs grouping"),
        ({"topic": "orders", "startingBookmark": "0"} | GROUPS, "leave out startingBookmark"),
        ({"topic": "ordres"}, "did you mean orders"),
        ({"topic": "orders", "filtre": "1"}, "no option 'filtre'"),
        ({"topic": "orders", "columns": "valu"}, "no column 'valu'"),
        ({"topic": "orders", "partitions": "0"}, "it must be a whole number, 1 or more"),
        ({"topic": "orders", "filter": "/id >"}, "filter"),
        ({}, "give the topic"),
        ({"topic": "orders", "url": NOWHERE, "retryTimeout": "0"}, f"{NOWHERE} cannot be reached"),
    ],
)
def test_a_mistake_in_the_options_is_answered_with_what_to_write(server, options, says):
    def planned():
        source = SowDataSource({"url": server.url, **options})
        source.schema()
        return source.reader(from_arrow_schema(ROW)).partitions()

    with pytest.raises(SowError, match=says):
        planned()


FIELDS = pa.schema(
    [
        ("n", pa.int64()),
        ("d", pa.float64()),
        ("f", pa.float32()),
        ("s", pa.string()),
        ("b", pa.bool_()),
        ("l", pa.struct([("n", pa.int32()), ("s", pa.string())])),
    ]
)
NUMBERS = [0, 1, -1, 2, 1.0, 0.1, 1e-7, 2.5, 12.50, -3.5, 1e15, 2**53, 2**53 + 1, 10**20, 1e300]
TEXTS = [
    "x",
    "xy",
    "1",
    "01",
    "1.0",
    "true",
    "false",
    "null",
    "NaN",
    "inf",
    "",
    " x",
    "it's",
    "[1]",
]
OTHERS = [True, False, None, {"n": 1}, [1, 2], ["x"], {"n": "x", "s": "x"}, {"n": 2, "s": True}]
COMPARED = {
    EqualTo: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
    StringStartsWith: str.startswith,
    StringEndsWith: str.endswith,
    StringContains: operator.contains,
}


def value(chance):
    return chance.choice(chance.choice((NUMBERS, TEXTS, OTHERS)))


def document(chance):
    return {name: value(chance) for name in FIELDS.names if chance.random() < 0.9}


def row_batch(documents):
    texts = [json.dumps(one) for one in documents]
    count = len(texts)
    columns = [range(count), ["t"] * count, ["k"] * count, ["publish"] * count, [0] * count, texts]
    arrays = [pa.array(c, f.type) for c, f in zip(columns, ROW, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=ROW)


def condition(chance):
    """A filter that Spark may hand over, and what it says of a value of the column."""
    path = chance.choice([("n",), ("d",), ("s",), ("b",), ("l", "n"), ("l", "s")])
    is_text = path[-1] == "s"
    texts = [*TEXTS, "x1", "tr", "e", "l", "y", "{", "n"]
    literal = chance.choice(texts) if is_text else chance.choice(NUMBERS)
    kinds = [EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual]
    if is_text:
        kinds += [StringStartsWith, StringEndsWith, StringContains]
    kind = chance.choice(kinds)
    found, judge = kind(path, literal), lambda v: COMPARED[kind](v, literal)
    match chance.randrange(6):
        case 0:
            return path, Not(EqualTo(path, literal)), lambda v: v != literal
        case 1:
            return path, In(path, (literal, literal)), lambda v: v == literal
        case 2:
            return path, IsNotNull(path), lambda _v: True
    return path, found, judge


def at(row, path):
    for name in path:
        row = None if row is None else row[name]
    return row


@pytest.mark.parametrize("seed", range(20))
def test_no_row_that_spark_wants_is_left_out(seed):
    chance = random.Random(seed)
    documents = [document(chance) for _ in range(100)]
    decoded = decoder(FIELDS)(row_batch(documents)).to_pylist()
    bodies = [json.dumps(one).encode() for one in documents]
    pushed = 0
    for _ in range(60):
        path, requested, judge = condition(chance)
        text = expression(requested, FIELDS)
        if text is None:
            continue
        pushed += 1
        servers = compile_filter(text)
        columns = message_type("json", {}).decoder(servers.paths).columns(bodies)
        let_through = servers.matches(columns, len(bodies))
        for row, body, is_there in zip(decoded, documents, let_through, strict=True):
            found = at(row, path)
            assert is_there or found is None or not judge(found), (text, body)
    assert pushed


@pytest.mark.parametrize(
    "one",
    [
        EqualTo(("f",), 0.5),
        EqualTo(("s",), "true"),
        EqualTo(("s",), "1.0"),
        StringContains(("s",), "x"),
        StringStartsWith(("s",), "tr"),
        StringEndsWith(("s",), "e"),
        EqualTo(("other",), 1),
        EqualTo(("l",), 1),
        EqualTo(("b",), True),
    ],
)
def test_what_the_two_compare_otherwise_is_left_to_spark(one):
    assert expression(one, FIELDS) is None


def pushing(schema, messages=None):
    options = read_options({"topic": "t", "pushdown": "true"})
    return PushingReader(options, schema, from_log=False, messages=messages)


def test_columns_of_the_row_are_no_fields_of_the_body():
    schema = pa.schema([("_bookmark", pa.int64()), ("_op", pa.string()), *FIELDS])
    reader = pushing(schema, JSON_MESSAGES)
    requested = [GreaterThan(("_bookmark",), 5), EqualTo(("_op",), "publish"), EqualTo(("n",), 1)]
    assert reader.pushFilters(requested) == requested
    assert reader.condition == "(/n = 1)"


@pytest.mark.parametrize("key", [" 1", "1 ", "a b", "a,b", ""])
def test_a_key_that_cannot_be_one_is_not_requested_for(key):
    reader = pushing(ROW)
    assert reader.pushFilters([EqualTo(("key",), key)])
    assert reader.keys is None


def test_a_field_called_key_is_no_sow_key():
    reader = pushing(pa.schema([("key", pa.string())]), JSON_MESSAGES)
    reader.pushFilters([EqualTo(("key",), "abc")])
    assert (reader.keys, reader.condition) == (None, "(/key = 'abc')")


def test_keys_are_requested_for_and_compared_again():
    reader = pushing(ROW)
    requested = [In(("key",), ("1", "k-2")), EqualTo(("key",), "1")]
    assert reader.pushFilters(requested) == requested
    assert reader.keys == ("1", "k-2")
