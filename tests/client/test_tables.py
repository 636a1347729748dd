"""Records as tables.

What notebooks show of everything that a user holds, and what `help` says of it.
"""

import asyncio
import datetime
import inspect
import json
import re
import sys

import pyarrow as pa
import pytest

import sow
from sow import client
from sow.client import Change, Message, sync
from sow.client.errors import Unreachable
from sow.client.http import AnsweredFields
from sow.client.socket import read_lines
from sow.client.sync import mirror as mirroring
from sow.client.tables import (
    ROWS_SHOWN,
    AnswerTable,
    KeptTable,
    ShownDict,
    ShownList,
    ShownPlan,
    fields_html,
    from_stream,
    to_arrow,
    to_pandas,
    to_polars,
)
from sow.errors import ClientError, SowError
from tests.cases import all_cases
from tests.edge.serving import configuration, served


def test_a_column_for_each_field_met_in_any_record():
    table = to_arrow([{"id": 1, "px": 1.5}, {"id": 2, "name": "x"}], [])
    assert set(table.column_names) == {"id", "px", "name"}
    assert table.column("px").to_pylist() == [1.5, None]


def test_a_record_that_is_no_object_stands_in_a_column_of_its_own():
    assert to_arrow(["a", "b"], []).to_pydict() == {"value": ["a", "b"]}


SERVED = pa.schema(
    [
        ("n", pa.int64()),
        pa.field("mixed", pa.string(), metadata={"kind": "json"}),
        ("px", pa.decimal128(9, 2)),
        ("at", pa.timestamp("us", tz="UTC")),
        pa.field("/leg/id", pa.int64(), metadata={"path": "/leg/id"}),
        pa.field("leg", pa.string(), metadata={"kind": "json"}),
        ("day", pa.date32()),
    ]
)


def test_documents_stand_in_the_columns_of_the_server():
    records = [
        {"mixed": "x", "px": 1.25, "at": "2025-01-02T03:04:05Z", "leg": {"id": 7}, "day": None},
        {"n": 2**60, "mixed": 1, "leg": [1], "day": "2025-01-02"},
    ]
    table = to_arrow(records[:1], [SERVED])
    assert table.schema.equals(SERVED, check_metadata=True)
    assert table.column("mixed").to_pylist() == ['"x"']
    assert str(table.column("px")[0]) == "1.25"
    assert table.column("/leg/id").to_pylist() == [7]
    assert table.column("leg").to_pylist() == ['{"id":7}']


def test_what_came_after_the_server_was_requested_has_a_place_too():
    table = to_arrow([{"n": "text", "new": 0.5}, {"n": 1}], [SERVED])
    assert table.column_names == [*SERVED.names, "new"]
    assert table.column("n").to_pylist() == ['"text"', "1"]
    assert table.schema.field("n").metadata == {b"kind": b"json"}
    assert table.column("new").to_pylist() == [0.5, None]


def test_topics_that_differ_share_columns_of_json_texts():
    other = pa.schema([("n", pa.string()), ("px", pa.decimal128(9, 2))])
    table = to_arrow([{"n": 1}, {"n": "x", "px": 2}], [SERVED, other])
    assert table.column("n").to_pylist() == ["1", '"x"']
    assert table.schema.field("px").type == pa.decimal128(9, 2)


def test_messages_of_one_value_are_what_the_server_has():
    numbers = to_arrow(["1", "-2"], [pa.schema([("value", pa.int64())])])
    assert numbers.to_pydict() == {"value": [1, -2]}
    fields = to_arrow(["a=1", "a=2"], [pa.schema([("a", pa.string())])])
    assert fields.to_pydict() == {"value": ["a=1", "a=2"]}


def test_nothing_is_a_table_without_rows():
    assert to_arrow([], []).num_rows == 0


def test_without_pyarrow_it_is_said_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for made in (lambda: to_arrow([], []), lambda: from_stream(b"")):
        with pytest.raises(
            ClientError, match=r"pyarrow is not installed; pip install 'sow\[arrow\]'"
        ):
            made()


def test_without_pandas_it_is_said_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)

    class Table:
        def to_pandas(self):
            import pandas

            return pandas

    with pytest.raises(ClientError, match=r"pip install 'sow\[pandas\]', or use to_arrow"):
        to_pandas(Table())


def test_without_polars_it_is_said_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(ClientError, match=r"pip install 'sow\[polars\]', or use to_arrow"):
        to_polars(to_arrow([], []))


def test_a_stream_is_read_as_a_table():
    table = to_arrow([{"id": 1}], [])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    assert from_stream(sink.getvalue().to_pybytes()).equals(table)


PLAIN = pa.schema([("id", pa.int64()), ("name", pa.string())])
KEPT = {"1": {"id": 1, "name": "a"}, "2": {"id": 2, "name": "b"}, "3": {"id": 3, "name": "c"}}


@pytest.mark.parametrize(
    "records",
    [
        KEPT,
        {},
        {**KEPT, "2": {"id": 2, "name": "x"}},
        {**KEPT, "4": {"id": 4}},
        {key: KEPT[key] for key in ("3", "1")},
        {"9": {"id": 9}, **KEPT},
        {**KEPT, "2": {"id": 2, "new": 1.5}},
        {**KEPT, "2": {"id": "text"}},
        {**KEPT, "2": "no object"},
    ],
)
def test_a_table_made_of_the_last_is_the_one_made_from_scratch(records):
    kept = KeptTable()
    kept.of(KEPT, [PLAIN])
    for _ in range(2):
        assert kept.of(records, [PLAIN]).equals(KeptTable().of(records, [PLAIN]))
    assert kept.of(KEPT, [PLAIN]).equals(KeptTable().of(KEPT, [PLAIN]))


def test_types_that_the_server_has_widened_are_those_of_the_whole_table():
    kept, wide = KeptTable(), pa.schema([("id", pa.float64()), ("name", pa.string())])
    kept.of(KEPT, [PLAIN])
    assert kept.of(KEPT, [wide]).equals(KeptTable().of(KEPT, [wide]))


def test_a_document_that_takes_the_place_of_another_is_read_again():
    kept, records = KeptTable(), dict(KEPT)
    for at in range(5):
        records["2"] = {"id": 2, "name": str(at)}
        assert kept.of(records, [PLAIN]).column("name").to_pylist() == ["a", str(at), "c"]


def wait(work):
    return asyncio.run(work)


def columns_requested(schema, requested):
    async def ask():
        requested.append(schema)
        if isinstance(schema, Exception):
            raise schema
        return schema

    return ask


ROWS, RECORDS = [b'{"id":1}', b'{"id":2}'], [{"id": 1}, {"id": 2}]


@pytest.mark.parametrize(
    ("sent", "schema", "kind", "questions"),
    [
        ('{"all":true,"columns":[["id","float64"]]}', None, pa.float64(), 0),
        ('{"all":false,"columns":[["id","float64"]]}', Unreachable("gone"), pa.float64(), 2),
        (None, Unreachable("gone"), pa.int64(), 2),
        (None, pa.schema([("id", pa.float64())]), pa.float64(), 1),
    ],
)
def test_the_columns_of_an_answer_are_sent_or_requested_for_once(sent, schema, kind, questions):
    requested = []
    tables = AnswerTable("orders", ROWS, sent, columns_requested(schema, requested))
    for _ in range(2):
        wait(tables.settle())
        table = tables.table(RECORDS)
        assert table.schema == pa.schema([("id", kind)])
        assert table.to_pylist() == RECORDS
    assert len(requested) == questions
    assert tables.is_settled is not isinstance(schema, Exception)


def test_integers_and_flags_of_a_frame_know_of_gaps():
    days = [datetime.date(9999, 12, 31), None]
    table = pa.table({"n": [2**53 + 1, None], "open": [True, None], "m": [1, 2], "day": days})
    frame = to_pandas(table)
    assert {name: str(kind) for name, kind in frame.dtypes.items()} == {
        "n": "Int64", "open": "boolean", "m": "Int64", "day": "object",
    }  # fmt: skip
    assert (frame.n[0], frame.n.isna().tolist(), frame.day.tolist()) == (
        2**53 + 1,
        [False, True],
        days,
    )


TOPICS = """<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>
<Topic><Name>prices</Name><MessageType>json</MessageType><Key>/id</Key>
<Series><Retain>limit 10</Retain></Series></Topic>"""
EVIL = "<script>alert(1)</script>"

server = served(configuration(TOPICS))


def cells(html, tag="td"):
    return re.findall(f"<{tag}>(.*?)</{tag}>", html)


def test_what_the_server_describes_stays_what_it_is_and_has_html(server):
    server.publish("orders", {"id": 1, "px": 2}, {"id": 2, "px": 3})
    server.publish("prices", {"id": 1, "px": 2})
    with sync.Client(server.url) as asking:
        topics, topic = asking.topics(), asking.topic("orders")
        plan = asking.explain("orders", filter="/px > 2")
        events = asking.events("prices", "key=1")
        assert [type(one) for one in (topics, topic, plan, events)] == [
            ShownList, ShownDict, ShownPlan, ShownList,
        ]  # fmt: skip
        assert json.loads(json.dumps(topic)) == topic
        assert "orders" in cells(topics._repr_html_())
        assert cells(topic._repr_html_(), "caption") == ["orders"]
        assert "/px &gt; 2" in cells(plan._repr_html_())
        assert events[0]["d"] == {"id": 1, "px": 2}
        assert "{&quot;id&quot;:1,&quot;px&quot;:2}" in cells(events._repr_html_())
        assert server.url in asking._repr_html_()
        misspelt = asking.query("orders", filter="/pxx > 2")
        said = "orders: 0 records; no record has /pxx; did you mean /px?"
        assert cells(misspelt._repr_html_(), "caption") == [said]
        with asking.rows("orders") as rows, asking.subscribe("orders") as messages:
            assert "2" in cells(rows._repr_html_())
            assert messages.name in cells(messages._repr_html_())
        with asking.publisher("orders") as publisher:
            publisher.send([b'{"id":3}'])
            publisher.drain()
            assert cells(publisher._repr_html_())[4:6] == ["published", "1"]


def test_with_asyncio_objects_show_the_same(server):
    async def shown():
        async with (
            client.Client(server.url) as asking,
            asking.subscribe("orders") as messages,
            asking.rows("orders") as rows,
        ):
            return asking._repr_html_(), messages._repr_html_(), rows._repr_html_()

    assert all("<table>" in html for html in asyncio.run(shown()))


def test_single_messages_are_shown_without_what_they_do_not_have():
    (message,) = read_lines(b'{"c":"p","s":"f1","t":"orders","k":"7","d":{"id":1},"bm":"4"}')
    assert cells(message._repr_html_()) == [
        "c", "p", "s", "f1", "t", "orders", "k", "7", "d", "{&quot;id&quot;:1}", "bm", "4",
    ]  # fmt: skip
    assert "<td>gap</td>" in Message("gap")._repr_html_()
    html = Change("7", None, {"id": 1})._repr_html_()
    assert cells(html) == ["key", "7", "new", "{&quot;id&quot;:1}"]


def test_what_is_shown_is_bounded_text():
    html = fields_html(EVIL, {EVIL: EVIL, "long": "x" * 10_000, "no": None, "none": []})
    assert "<script" not in html
    assert len(html) < 1_000
    many = cells(fields_html("many", {str(n): n for n in range(1_000)}))
    assert (len(many), many[-2]) == (2 * (ROWS_SHOWN + 1), "…")


HELD = [
    kind
    for module in (client, sync)
    for kind in (getattr(module, name) for name in module.__all__)
    if not (isinstance(kind, type) and issubclass(kind, SowError))
]
NOT_SHOWN = {client.Retry, sync.Response}
"""What is given to a client, and an answer that is bytes."""


@all_cases("kind", [*HELD, mirroring.Mirror])
def test_everything_that_a_user_holds_has_html(kind):
    assert hasattr(kind, "_repr_html_") == (kind not in NOT_SHOWN)


def sentences():
    """The docstrings that `help` shows of what is public, by their names."""
    for kind in (*HELD, mirroring.Mirror, sow.mirror):
        yield f"{kind.__module__}.{kind.__name__}", inspect.getdoc(kind)
        for name, member in vars(kind).items() if isinstance(kind, type) else ():
            if not name.startswith("_") and (callable(member) or isinstance(member, property)):
                yield f"{kind.__module__}.{kind.__name__}.{name}", inspect.getdoc(member)


def test_help_has_a_sentence_for_every_class_and_method():
    missing = [name for name, text in sentences() if not re.search(r"\w\W*\.", text or "")]
    assert missing == []
    assert sum(1 for _ in sentences()) > 100


@pytest.mark.parametrize("kind", [client.Client, sync.Client])
def test_help_names_what_a_method_takes(kind):
    assert "filter" in inspect.signature(kind.query).parameters
    assert "BadFilter" in inspect.getdoc(kind.query)


def test_a_field_that_an_answer_has_not_is_an_error_of_its_server():
    shown = ShownDict("orders", AnsweredFields("http://here", {"kind": "topic"}))
    assert shown["kind"] == "topic"
    with pytest.raises(Unreachable, match="http://here has no 'keys'"):
        shown["keys"]
