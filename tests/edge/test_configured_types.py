"""Records and composites, whose fields and parts are configured, through every door and life."""

import base64
import json

import pytest
from click.testing import CliRunner

from sow.cli.main import main
from sow.core.definitions import (
    MessageTypeOptions,
    RecordField,
    Topic,
    describe_message_type,
    message_type_options,
)
from tests.edge.arrow import rows
from tests.edge.lives import refused, removed
from tests.edge.serving import Running, configuration, records

TYPES = """<MessageTypes>
<MessageType><Name>trades</Name><Module>record</Module>
  <Field type="int">id</Field><Field>symbol</Field><Field type="decimal">px</Field></MessageType>
<MessageType><Name>local</Name><Module>composite-local</Module>
  <MessageType>json</MessageType><MessageType>trades</MessageType></MessageType>
<MessageType><Name>global</Name><Module>composite-global</Module>
  <MessageType>json</MessageType><MessageType>trades</MessageType></MessageType>
</MessageTypes>"""
TOPICS = """
<Topic><Name>trades</Name><MessageType>trades</MessageType><Key>/id</Key></Topic>
<Topic><Name>local</Name><MessageType>local</MessageType><Key>/0/id</Key></Topic>
<Topic><Name>global</Name><MessageType>global</MessageType><Key>/px</Key></Topic>
<ConflatedTopic><Name>made</Name><MessageType>trades</MessageType>
  <UnderlyingTopic>trades</UnderlyingTopic><Interval>100ms</Interval>
  <Enrichment><Field>/symbol AS /id</Field></Enrichment></ConflatedTopic>
"""
LONG = "0.12345678901234567890"


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    server = Running(configuration(TOPICS, TYPES), tmp_path_factory.mktemp("data"))
    yield server
    server.close()


def composite(*parts, tail=b""):
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts) + tail


def document(server, topic):
    """The text of the only record in the answer, digit for digit."""
    answer = server.get(records(topic), "application/json")
    return answer.body.decode()


def test_lines_and_ends_separate_records(server):
    body = b"1\x02A\x021.10\x012\x02B\x01\n3\x02C\x02-5e3\n"
    assert server.post("trades", body, "text/plain").json["published"] == 3
    assert document(server, "trades") == (
        '[{"id":1,"symbol":"A","px":1.10},{"id":2,"symbol":"B"},{"id":3,"symbol":"C","px":-5e3}]'
    )


def test_a_message_is_one_record(server):
    answer = server.post("trades", b"1\x02A\x012\x02B", "application/octet-stream")
    assert answer.status == 400
    assert "U+0001 at character 3 ends a record" in answer.json["detail"]


def test_a_bad_record_of_a_text_is_named_by_its_index(server):
    answer = server.post("trades", b"1\x02A\n2\x01x\x01", "text/plain")
    assert (answer.status, answer.json["index"]) == (400, 2)
    assert "id is 'x', which is no whole number" in answer.json["detail"]
    assert server.records("trades") == []


def test_digits_are_kept_by_deltas_and_select_lists(server):
    server.post("trades", f"1\x02A\x02{LONG}".encode(), "text/plain")
    answer = server.request(
        "PATCH", records("trades"), data=b"1\x02B", headers={"Content-Type": "text/plain"}
    )
    assert answer.status == 200
    assert document(server, "trades") == f'[{{"id":1,"symbol":"B","px":{LONG}}}]'
    with server.socket() as ws:
        lines = ws.ask({"c": "sow", "t": "trades", "opts": "select=[/px]"}) and ws.until(c="sow")
    assert lines[-1]["d"] == f"\x02\x02{LONG}"


def test_a_delta_subscriber_hears_of_digits_that_no_double_has(server):
    server.post("trades", f"1\x02A\x02{LONG}1".encode(), "text/plain")
    with server.socket() as ws:
        ws.ask({"c": "sow_and_delta_subscribe", "t": "trades"}, cid="s")
        server.post("trades", f"1\x02A\x02{LONG}2".encode(), "text/plain")
        line = ws.until(c="p")[-1]
    assert (line["d"], line["delta"]) == (f"1\x02\x02{LONG}2", True)


def test_a_filter_takes_a_decimal_for_a_number(server):
    server.post("trades", b"1\x02A\x021.10\n2\x02B\x022.0", "text/plain")
    assert [one["id"] for one in server.records("trades", filter="/px > 1.5")] == [2]
    assert [one["id"] for one in server.records("trades", filter="/px = 1.1")] == [1]


def test_one_record_comes_as_the_bytes_it_is(server):
    server.post("trades", b"1\x02A\x021.10", "text/plain")
    (row,) = server.records("trades", meta="true")
    answer = server.get(f"{records('trades')}/{row['k']}")
    assert answer.body == b"1\x02A\x021.10"
    assert answer.headers["Content-Type"].startswith("text/plain")


def test_arrow_keeps_digits(server):
    server.post("trades", b"1\x02A\x021.10\n2\x02B\x022.5", "text/plain")
    arrow = "application/vnd.apache.arrow.stream"
    found = rows(server.get(records("trades"), arrow))
    assert [(row["id"], row["px"]) for row in found] == [(1, 1.1), (2, 2.5)]
    server.post("trades", f"3\x02C\x02{LONG}".encode(), "text/plain")
    assert rows(server.get(records("trades"), arrow))[-1]["px"] == LONG


def test_what_an_enrichment_makes_and_a_field_cannot_hold_is_null(server):
    with server.socket() as ws:
        ws.ask({"c": "subscribe", "t": "made"}, cid="s")
        server.post("trades", b"1\x02A\x021", "text/plain")
        assert ws.until(c="p")[-1]["d"] == "\x02A\x021"


def test_a_composite_goes_through_http_and_back(server):
    body = composite(b'{"id":7}', b"1\x02A\x021.10", tail=b"hi")
    assert server.post("local", body, "application/octet-stream").status == 200
    assert document(server, "local") == (
        '[{"0":{"id":7},"1":{"id":1,"symbol":"A","px":1.10},"2":"aGk="}]'
    )
    (row,) = server.records("local", meta="true")
    answer = server.get(f"{records('local')}/{row['k']}")
    assert (answer.body, answer.headers["Content-Type"]) == (body, "application/octet-stream")


def test_a_composite_travels_as_base64_in_lines(server):
    body = composite(b'{"id":7,"a":1}', b"1\x02A")
    delta = composite(b'{"id":7,"a":2}', b"", tail=b"!")
    with server.socket() as ws:
        ws.ask({"c": "subscribe", "t": "local", "filter": "/1/symbol = 'A'"}, cid="s")
        d = base64.b64encode(body).decode()
        assert ws.ask({"c": "publish", "t": "local", "d": d})[-1]["status"] == "success"
        assert ws.until(c="p")[-1]["enc"] == "base64"
        d = base64.b64encode(delta).decode()
        ws.ask({"c": "delta_publish", "t": "local", "d": d})
        line = ws.until(c="p")[-1]
    assert base64.b64decode(line["d"]) == composite(b'{"id":7,"a":2}', b"1\x02A", tail=b"!")


def test_of_a_global_composite_a_delta_is_the_whole_message(server):
    whole = composite(b'{"a":1,"id":5}', b"6\x02A\x021.5")
    server.post("global", whole, "application/octet-stream")
    assert server.records("global") == [{"a": 1, "id": [5, 6], "symbol": "A", "px": 1.5}]
    delta = composite(b"", b"6\x02\x021.5")
    headers = {"Content-Type": "application/octet-stream"}
    server.request("PATCH", records("global"), data=delta, headers=headers)
    assert server.records("global") == [{"id": 6, "px": 1.5}]


def test_many_composites_come_in_frames(server):
    bodies = [composite(b'{"id":%d}' % number, b"") for number in range(3)]
    headers = {"Content-Type": "application/vnd.sow.frames"}
    answer = server.request("POST", records("local"), data=composite(*bodies), headers=headers)
    assert answer.json["published"] == 3
    assert len(server.records("local", filter="/0/id >= 1")) == 2


@pytest.mark.parametrize("bad", [b"", b"\xff\xff\xff\xff", composite(b'{"id":1}'), b"\x00" * 7])
def test_what_is_no_composite_is_refused(server, bad):
    answer = server.post("local", composite(bad), "application/vnd.sow.frames")
    assert (answer.status, answer.json["index"]) == (400, 0)
    assert len(answer.json["detail"]) < 300


def test_arrow_has_a_column_for_each_part(server):
    body = composite(b'{"id":7}', b"1\x02A\x02" + LONG.encode())
    server.post("local", body, "application/octet-stream")
    (row,) = rows(server.get(records("local"), "application/vnd.apache.arrow.stream"))
    assert json.loads(row["0"]) == {"id": 7}
    assert LONG in row["1"]


def test_the_configuration_reports_all_that_a_reader_needs(server):
    told = server.get("/v1/message-types").json
    assert told == server.get("/v1/config").json["message_types"]
    assert [one["name"] for one in told] == ["trades", "local", "global"]
    for one in told:
        options = message_type_options(one)
        assert message_type_options(describe_message_type(options)) == options
    assert message_type_options(told[1]).parts[1] == message_type_options(told[0])


def test_publish_cuts_a_file_into_records(server, tmp_path):
    (tmp_path / "trades").write_bytes(b"1\x02A\x012\x02B\x01\n3\x02C\n")
    command = ["publish", "trades", str(tmp_path / "trades"), "--url", server.url]
    assert "published 3 messages" in CliRunner().invoke(main, command).stdout
    (tmp_path / "bad").write_bytes(b"1\x02A\x01x\x02B\x01")
    found = CliRunner().invoke(
        main, ["publish", "trades", str(tmp_path / "bad"), "--url", server.url]
    )
    assert found.stderr.startswith(f"sow: message 2 of {tmp_path / 'bad'}: id is 'x'")


def test_publish_takes_a_file_for_one_composite(server, tmp_path):
    (tmp_path / "one").write_bytes(composite(b'{"id":\n7}', b"1"))
    command = ["publish", "local", str(tmp_path / "one"), "--url", server.url]
    assert "published 1 message" in CliRunner().invoke(main, command).stdout
    assert server.records("local") == [{"0": {"id": 7}, "1": {"id": 1}}]


# From one life to the next.

ID, SYMBOL, PX = RecordField("id", "int"), RecordField("symbol"), RecordField("px", "decimal")
TRADES = Topic("trades", "record", keys=("/id",))
BOTH = Topic("both", "both", keys=("/0/id",))


def kinds(*fields):
    """Both types, of a record of these fields."""
    record = MessageTypeOptions("record", "record", b"\x02", fields)
    parts = (record, MessageTypeOptions("json", "json"))
    return {"message_types": (record, MessageTypeOptions("both", "composite-local", parts=parts))}


def shown(life, topic):
    kept = life.engine.topics[topic].records
    return [kept.message_type.parse(kept.table.bodies[slot]) for slot in kept.table.live().tolist()]


def begin(live, checkpoint):
    with live(TRADES, BOTH, **kinds(ID, SYMBOL)) as life:
        life.publish("trades", b"1\x02A", b"2")
        life.publish("both", composite(b"1\x02A", b'{"x":1}'))
        if checkpoint:
            life.checkpoint()


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_field_that_is_added_at_the_end_reads_old_records(live, checkpoint):
    begin(live, checkpoint)
    for _ in range(2):
        with live(TRADES, BOTH, **kinds(ID, SYMBOL, PX)) as life:
            assert shown(life, "trades")[:2] == [{"id": 1, "symbol": "A"}, {"id": 2}]
            assert shown(life, "both") == [{"0": {"id": 1, "symbol": "A"}, "1": {"x": 1}}]
            life.publish("trades", b"3\x02\x021.5")
    refused(live, TRADES, BOTH, match="MessageType of trades changed", **kinds(ID, SYMBOL))


@pytest.mark.parametrize(
    "fields",
    [(SYMBOL, ID), (ID,), (ID, PX), (ID, RecordField("name")), (RecordField("id"), SYMBOL)],
)
def test_any_other_change_is_another_type(live, fields):
    begin(live, checkpoint=True)
    said = refused(live, TRADES, BOTH, match="--allow-loss", **kinds(*fields))
    assert "MessageType of trades changed" in said
    assert "MessageType of both changed" in said
    with live(TRADES, BOTH, allow_loss=True, **kinds(*fields)) as life:
        assert shown(life, "trades") == []
    files = removed(live)
    assert files["trades.txt"].read_bytes() == b"1\x02A\n2\n"
    (line,) = files["both.commands.ndjson"].read_text().splitlines()
    assert base64.b64decode(json.loads(line)["d"]) == composite(b"1\x02A", b'{"x":1}')
