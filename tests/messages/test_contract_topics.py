"""What a topic promises whatever the type of its messages: the other half of `test_contract.py`.

Each test runs for each of `tests.messages.examples`, in a whole engine. What a type cannot do is
refused with a sentence, and that is tested, too.
"""

from base64 import b64encode

import orjson
import pytest

from sow.core.cooperative import run_to_completion
from sow.core.paths import parse_path, value_at
from sow.history.snapshot import Snapshot
from sow.messages import message_type
from sow.messages.arrow import ArrowColumns, made
from sow.messages.json import json_text
from sow.server.http.tables import of_documents
from tests.laws.harness import SECOND, World
from tests.messages.examples import EXAMPLES, OPTIONS, configured, topic_of


@pytest.fixture(params=EXAMPLES)
def name(request):
    return request.param


class Topics:
    """A topic of a type and its copy, in a world; numbers name records."""

    def __init__(self, name):
        self.name, self.example = name, EXAMPLES[name]
        self.kind = message_type(name, OPTIONS)
        copy = f"""<ConflatedTopic><Name>copy</Name><MessageType>{name}</MessageType>
            <UnderlyingTopic>{name}</UnderlyingTopic><Interval>1s</Interval></ConflatedTopic>"""
        configuration = configured(topic_of(name) + copy)
        self.world = World(*configuration.topics, message_types=configuration.message_types)

    def body(self, name, number=0):
        return self.kind.encode(self.example.record(name, number))

    def line(self, body):
        """What a client sends for a body."""
        return orjson.loads(self.kind.to_line(body))

    def publish(self, *records, command="publish"):
        """Records as (name, number), each in a line of its own."""
        client = self.world.client()
        for name, number in records:
            header = {"c": command, "t": self.name, "d": self.line(self.body(name, number))}
            if not self.example.key:
                header["k"] = str(name)
            (ack,) = client.say(**header, cid="1", a="processed")
            assert ack["status"] == "success", ack

    def numbers(self, topic, **query):
        """The numbers of a topic's records, or what else there is to tell them by."""
        client = self.world.client()
        rows = [line for line in client.say(c="sow", t=topic, **query) if line["c"] == "sow"]
        return [self.number(line) for line in rows]

    def number(self, line):
        d = orjson.dumps(line["d"])
        assert line.get("enc") == self.kind.enc
        return self.number_of(self.kind.from_line(d))

    def number_of(self, body):
        document = self.kind.parse(body)
        path = self.example.number or self.example.key
        return float(value_at(document, parse_path(path))) if path else bytes(body)

    def expected(self, *records):
        return [self.number_of(self.body(*record)) for record in records]


@pytest.fixture
def topics(name):
    return Topics(name)


def test_records_are_sent_apart_by_their_keys(topics):
    topics.publish((1, 10), (2, 20), (1, 30))
    assert topics.numbers(topics.name) == topics.expected((1, 30), (2, 20))


def test_a_filter_finds_them(topics):
    topics.publish((1, 10), (2, 20), (3, 30))
    path = topics.example.number or topics.example.key
    if not path:
        (ack,) = topics.world.client().say(c="sow", t=topics.name, filter="/a = 1", cid="1")
        assert "have no fields" in ack["detail"]
        return
    least = 20 if topics.example.number else 2
    found = topics.numbers(topics.name, filter=f"{path} >= {least}")
    assert found == topics.expected((2, 20), (3, 30))
    assert topics.numbers(topics.name, filter=f"{topics.example.key} = 2") == topics.expected(
        (2, 20)
    )
    ordered = topics.numbers(topics.name, order_by=f"{path} DESC")
    assert ordered == topics.expected((3, 30), (2, 20), (1, 10))


def test_a_live_filter_is_notified_of_them(topics):
    path = topics.example.number or topics.example.key
    if not path:
        return
    client = topics.world.client()
    client.say(
        c="subscribe", t=topics.name, filter=f"{path} = {20 if topics.example.number else 2}"
    )
    topics.publish((1, 10), (2, 20))
    assert [topics.number(line) for line in client.lines()] == topics.expected((2, 20))


def test_a_delta_changes_what_it_names(topics):
    topics.publish((1, 10))
    if not topics.kind.partial:
        topics.publish((1, 20), command="delta_publish")
        assert topics.numbers(topics.name) == topics.expected((1, 20))
        return
    more = topics.kind.encode(with_more(topics))
    client = topics.world.client()
    client.say(c="publish", t=topics.name, d=topics.line(more))
    topics.publish((1, 20), command="delta_publish")
    (slot,) = topics.world.engine.topics[topics.name].records.table.live().tolist()
    body = topics.world.engine.topics[topics.name].records.table.bodies[slot]
    assert topics.number_of(body) == 20
    assert b"kept" in json_text(topics.kind.parse(body))


def with_more(topics):
    """A record with one more field beside its key."""
    place = document = topics.example.record(1, 10)
    for step in parse_path(topics.example.key).steps[:-1]:
        place = place[step]
    place["more"] = "kept"
    return document


def test_a_delta_subscription_merges_to_the_record(topics):
    topics.publish((1, 10))
    client = topics.world.client()
    client.say(c="sow_and_delta_subscribe", t=topics.name)
    topics.publish((1, 20))
    (line,) = [line for line in client.lines() if line["c"] == "p"]
    assert line.get("delta", False) == topics.kind.partial
    assert [topics.number(line)] == topics.expected((1, 20))


def test_a_select_list_leaves_fields_out(topics):
    topics.publish((1, 10))
    client = topics.world.client()
    if not topics.kind.partial:
        (ack,) = client.say(c="sow", t=topics.name, opts="select=[/a]", cid="1")
        assert "whole or not at all" in ack["detail"]
        return
    path = topics.example.number
    rows = client.say(c="sow", t=topics.name, opts=f"select=[{path}]")
    (row,) = [line for line in rows if line["c"] == "sow"]
    document = topics.kind.parse(topics.kind.from_line(orjson.dumps(row["d"])))
    assert float(value_at(document, parse_path(path))) == 10
    assert value_at(document, parse_path(topics.example.key)) is None


def test_a_copy_holds_the_last_of_each_window(topics):
    topics.publish((1, 10), (2, 20), (1, 30))
    topics.world.advance(2 * SECOND)
    assert topics.numbers("copy") == topics.expected((1, 30), (2, 20))


def test_a_conflated_delta_subscription_merges_what_was_in_the_window(topics):
    topics.publish((1, 10))
    client = topics.world.client()
    client.say(c="sow_and_delta_subscribe", t=topics.name, opts="conflation=1s")
    topics.publish((1, 20), (1, 30))
    topics.world.advance(2 * SECOND)
    lines = [line for line in client.lines() if line["c"] == "p"]
    assert [topics.number(line) for line in lines] == topics.expected((1, 30))


def test_a_delete_by_bodies(topics):
    topics.publish((1, 10), (2, 20))
    client = topics.world.client()
    header = {"d": topics.line(topics.body(1))} if topics.example.key else {"k": "1"}
    (ack,) = client.say(c="sow_delete", t=topics.name, cid="1", a="processed", **header)
    assert (ack["status"], ack["deleted"]) == ("success", 1)
    assert topics.numbers(topics.name) == topics.expected((2, 20))


def test_a_restart_finds_what_was_there(topics):
    topics.publish((1, 10), (2, 20), (1, 30))
    topics.world = topics.world.restart()
    assert topics.numbers(topics.name) == topics.expected((1, 30), (2, 20))
    topics.publish((2, 40))
    assert topics.numbers(topics.name) == topics.expected((1, 30), (2, 40))
    topics.world.check()


def test_a_replay_gives_what_was_published(topics):
    topics.publish((1, 10), (1, 20))
    lines = topics.world.client().say(c="subscribe", t=topics.name, bm="0")
    lines = [line for line in lines if line["c"] == "p"]
    assert [topics.number(line) for line in lines] == topics.expected((1, 10), (1, 20))


def test_a_bad_message_is_refused_and_changes_nothing(topics):
    topics.publish((1, 10))
    client = topics.world.client()
    for bad in (topics.example.bad, *topics.example.hostile):
        if not bad:  # nothing is no line of a frame
            continue
        header = {"c": "publish", "t": topics.name, "n": 2, "cid": "1", "enc": "base64"}
        good = topics.body(1, 20)
        if topics.kind.enc is None:
            if b"\n" in bad:
                continue
            del header["enc"]
        else:
            good, bad = map(b64encode, (good, bad))
        (ack,) = client.send(b"\n".join([orjson.dumps(header), good, bad]))
        assert (ack["status"], ack["index"]) == ("failure", 1), ack
        assert len(ack["detail"]) < 600
    assert topics.numbers(topics.name) == topics.expected((1, 10))


def test_arrow_has_a_column_for_each_field(topics):
    topics.publish((1, 10), (2, 20))
    topic = topics.world.engine.topics[topics.name]
    types, records = run_to_completion(topics.world.engine.columns.making(topic)), topic.records
    columns = ArrowColumns(records.message_type, types)
    (batch,) = made(of_documents(Snapshot.take(records, records.table.live()), columns))
    if not topics.example.key:
        assert batch.schema.names == ["value"]
        return
    rows = batch.to_pylist()
    assert [list(row) for row in rows] == [list(topics.example.record(1, 10))] * 2
