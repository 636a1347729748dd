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
from tests.edge.serving import configuration, records, served

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


running = served(configuration(TOPICS, TYPES), checks=False)


def composite(*parts, tail=b""):
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts) + tail


def document(server, topic):
    """The text of the only record in the answer, digit for digit."""
    answer = server.get(records(topic), "application/json")
    return answer.body.decode()


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
