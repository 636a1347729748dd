"""Preprocessing and Enrichment (docs/semantics.md, Rule 8): the computed message is stored, logged
and sent; compared with an independent model."""

import json
from dataclasses import replace
from random import Random

import pytest

from sow.core.cooperative import run_to_completion
from sow.core.definitions import WRITES, WRITES_BEFORE, ConflatedTopic, Declared, Topic
from sow.engine import bulk_publish
from sow.errors import BadMessage, Busy, TooLarge
from sow.sessions.commands.commit_plan import StagedRows
from sow.sessions.commands.staged_writes import StagedWrites
from tests.cases import all_cases
from tests.effort import seeds
from tests.laws.harness import SECOND, World

ORDERS = Topic(
    "orders",
    "json",
    keys=("/id",),
    preprocessing=("CONCAT(/desk, '-', /n) AS /id",),
    enrichment=(
        "COALESCE(/count OF PREVIOUS, 0) + 1 AS /count",
        "COALESCE(/qty, /qty OF PREVIOUS) * 2 AS /twice HINT OPTIONAL",
        "/qty OF PREVIOUS AS /was HINT SET_CURRENT",
        "/was IS NULL AS /fresh",
    ),
)
PLAIN = replace(ORDERS, preprocessing=(), enrichment=())
COPY = ConflatedTopic("copy", "json", "orders", interval_us=SECOND)


def preprocessed(sent):
    desk, number = sent.get("desk"), sent.get("n")
    key = ("" if desk is None else desk) + "-" + ("" if number is None else str(number))
    return {**sent, "id": key}


def finished(message, before, delta):
    made = dict(message)
    made["count"] = before.get("count", 0) + 1
    qty = message.get("qty") if message.get("qty") is not None else before.get("qty")
    made.pop("twice", None)
    if qty is not None:
        made["twice"] = qty * 2
    made["was"] = before.get("qty")
    made["fresh"] = made["was"] is None
    if not delta:
        return made
    return {**before, **{name: value for name, value in made.items() if value is not None}}


class Model:
    """The records that there ought to be, and all that ought to have been logged."""

    def __init__(self):
        self.records = {}
        self.logged = []

    def publish(self, documents, delta=False):
        for sent in documents:
            message = preprocessed(sent)
            before = self.records.get(message["id"], {})
            record = finished(message, before, delta)
            self.records[message["id"]] = record
            self.logged.append(record)

    def delete(self, documents):
        for sent in documents:
            self.records.pop(preprocessed(sent)["id"], None)


def logged(world):
    return [
        json.loads(body)
        for entry in world.journal.read(0)
        if entry.op == "publish" and entry.topic == "orders"
        for body in entry.bodies
    ]


def commit(world, epoch, *given):
    """A batch of (operation, document), committed at once."""
    writes, topic = StagedWrites(world.engine), world.engine.topics["orders"]
    bodies = [json.dumps(document).encode() for _, document in given]
    rows = StagedRows([operation for operation, _ in given], [None] * len(given), bodies)
    steps, rejected = writes.read(topic, rows)
    assert not rejected
    writes.apply("w", epoch, "orders", steps, world.now)
    world.settle()


@all_cases("seed", seeds(10))
def test_what_is_made_is_what_a_model_makes(seed, monkeypatch):
    monkeypatch.setattr(bulk_publish, "SLICE_ROWS", 3)
    random, model = Random(seed), Model()
    world = World(ORDERS, COPY, WRITES, WRITES_BEFORE)

    def document():
        found = {"desk": random.choice("AB"), "n": random.randrange(3)}
        if random.random() < 0.6:
            found["qty"] = random.choice([1, 2.5, None])
        return found

    for epoch in range(40):
        some = [document() for _ in range(random.choice([1, 1, 2, 8]))]
        match random.choice(["publish", "publish", "delta", "delete", "commit", "restart"]):
            case "publish":
                world.publish("orders", *some)
                model.publish(some)
            case "delta":
                world.publish("orders", *some, delta=True)
                model.publish(some, delta=True)
            case "delete":
                lines = [{"c": "sow_delete", "t": "orders", "n": len(some)}, *some]
                world.client().send("\n".join(map(json.dumps, lines)).encode())
                model.delete(some)
            case "commit":
                rows = [(random.choice(["publish", "delta", "delete"]), one) for one in some]
                commit(world, epoch, *rows)
                for operation, one in rows:
                    if operation == "delete":
                        model.delete([one])
                    else:
                        model.publish([one], delta=operation == "delta")
            case "restart":
                world.settle()
                world = world.restart()
        world.settle()
        found = {record["id"]: record for record in world.records("orders")}
        assert found == model.records
        world.check()
    assert logged(world) == model.logged
    world.advance(3 * SECOND)
    copied = sorted(world.records("copy"), key=lambda record: record["id"])
    assert copied == sorted(model.records.values(), key=lambda record: record["id"])


def test_the_log_holds_what_was_made_and_nothing_is_made_of_it_again():
    world = World(ORDERS)
    world.publish("orders", {"desk": "A", "n": 1, "qty": 2})
    there = [
        {"desk": "A", "n": 1, "qty": 2, "id": "A-1", "count": 1, "twice": 4, "was": None,
         "fresh": True}
    ]  # fmt: skip
    for definition in (ORDERS, PLAIN, replace(ORDERS, enrichment=("'x' AS /desk",))):
        world = world.restart(definition)
        assert world.records("orders") == there == logged(world)
    world.publish("orders", {"desk": "A", "n": 1})
    assert world.records("orders") == [{"desk": "x", "n": 1, "id": "A-1"}]


def test_followers_are_sent_what_was_made():
    world = World(ORDERS)
    client = world.client()
    client.say(c="sow_and_subscribe", t="orders", filter="/twice > 3")
    client.lines()
    world.publish("orders", {"desk": "A", "n": 1, "qty": 2}, {"desk": "A", "n": 2, "qty": 1})
    (line,) = client.lines()
    assert (line["d"]["id"], line["d"]["twice"]) == ("A-1", 4)


def test_a_replay_reports_what_was_made_then():
    world = World(ORDERS)
    world.publish("orders", {"desk": "A", "n": 1, "qty": 2})
    world = world.restart(replace(ORDERS, enrichment=()))
    told = world.client().say(c="subscribe", t="orders", bm="0")
    assert [line["d"]["twice"] for line in told if line["c"] == "p"] == [4]


def test_an_expression_that_makes_no_key_refuses_the_message_with_its_index():
    world = World(replace(ORDERS, preprocessing=("/desk + 0 AS /id",)))
    with pytest.raises(BadMessage, match="key field /id is missing") as refused:
        world.publish("orders", {"desk": 1}, {"desk": "A", "id": 7}, {"desk": 2})
    assert refused.value.index == 1
    assert world.records("orders") == []
    world.publish("orders", {"desk": 1}, {"desk": "2"})
    assert [record["id"] for record in world.records("orders")] == [1, 2]


def test_in_a_large_publish_too(monkeypatch):
    monkeypatch.setattr(bulk_publish, "SLICE_ROWS", 2)
    world = World(replace(ORDERS, preprocessing=("/desk + 0 AS /id",)))
    with pytest.raises(BadMessage) as refused:
        world.publish("orders", *({"desk": 1 if at != 5 else "A"} for at in range(9)))
    assert refused.value.index == 5
    assert world.records("orders") == []


FITTING = replace(
    PLAIN,
    schema=(Declared("/value", "int64"),),
    enrichment=("COALESCE(/px, /px OF PREVIOUS) * 2 AS /value",),
)


@pytest.mark.parametrize("delta", [False, True])
def test_what_is_made_and_does_not_fit_refuses_the_message(delta):
    world = World(FITTING)
    with pytest.raises(BadMessage, match=r"message 1: /value is 3\.0, and") as refused:
        world.publish("orders", {"id": 1, "px": 1}, {"id": 2, "px": 1.5}, delta=delta)
    assert (refused.value.index, refused.value.field) == (1, "/value")
    assert world.records("orders") == []


def test_what_is_preprocessed_is_judged_by_what_is_made():
    definition = replace(FITTING, enrichment=(), preprocessing=("/px * 2 AS /value",))
    world = World(definition)
    with pytest.raises(BadMessage) as refused:
        world.publish("orders", {"id": 1, "px": 1}, {"id": 2, "px": 1.5, "value": 1})
    assert (refused.value.index, refused.value.field) == (1, "/value")
    world.publish("orders", {"id": 1, "px": 1, "value": "x"})
    assert world.records("orders") == [{"id": 1, "px": 1, "value": 2}]


def test_a_large_publish_is_refused_as_a_whole_or_finished(monkeypatch):
    monkeypatch.setattr(bulk_publish, "SLICE_ROWS", 2)
    world = World(FITTING)
    numbers = [{"id": at, "px": 1.5 if at == 5 else 1} for at in range(9)]
    with pytest.raises(BadMessage) as refused:
        world.publish("orders", *numbers)
    assert (refused.value.index, world.records("orders")) == (5, [])
    # What has been found to fit comes to something else, since others have published meanwhile.
    topic = world.engine.publishable("orders")
    slices = [[{"id": at}, {"id": 10 + at}] for at in range(3)]
    read = [
        world.engine.read(topic, [json.dumps(one).encode() for one in s], now_us=world.now)
        for s in slices
    ]
    steps = world.engine.publications.carry_out("orders", read, world.now)
    while not world.records("orders"):
        next(steps)
    world.publish("orders", {"id": 12, "px": 7})
    topic.records.table.bodies[topic.records.table.slots["12"]] = b'{"id":12,"px":1.5}'
    run_to_completion(steps)
    assert world.records("orders")[2] == {"id": 12, "value": None}


def test_each_topic_of_a_pattern_has_its_own_past():
    world = World(replace(ORDERS, name="desks", pattern="^/desk/", preprocessing=(), keys=("/n",)))
    for name in ("/desk/a", "/desk/b", "/desk/a"):
        world.publish(name, {"n": 1})
    assert [world.records(f"/desk/{name}")[0]["count"] for name in "ab"] == [2, 1]
    world = world.restart()
    world.publish("/desk/a", {"n": 1})
    assert world.records("/desk/a")[0]["count"] == 3


def test_a_record_that_went_has_no_past():
    world = World(ORDERS)
    for _ in range(2):
        world.publish("orders", {"desk": "A", "n": 1})
    world.delete("orders", "1 = 1")
    world.publish("orders", {"desk": "A", "n": 1})
    assert world.records("orders")[0]["count"] == 1


def test_updates_that_only_pass_through_are_made_too_and_have_no_past():
    world = World(replace(ORDERS, retain=False))
    client = world.client()
    client.say(c="subscribe", t="orders")
    world.publish("orders", {"desk": "A", "n": 1, "qty": 1}, {"desk": "A", "n": 1, "qty": 2})
    world.publish("orders", {"desk": "A", "n": 1, "qty": 3}, delta=True)
    told = [line["d"] for line in client.lines() if line["c"] == "p"]
    assert [(one["count"], one["twice"], one["was"]) for one in told] == [
        (1, 2, None), (1, 4, None), (1, 6, None)
    ]  # fmt: skip


@pytest.mark.parametrize("where", ["preprocessing", "enrichment"])
def test_what_is_made_counts_as_what_is_sent(where):
    definition = replace(PLAIN, **{where: ("CONCAT(/text, /text) AS /double",)})
    world = World(definition)
    limits = replace(world.configuration.limits, message_bytes_max=100)
    world.engine.adopt(replace(world.engine.configuration, limits=limits))
    world.publish("orders", {"id": 1, "text": "x" * 20})
    with pytest.raises(TooLarge, match="Limits/MessageSize"):
        world.publish("orders", {"id": 2, "text": "x" * 40})


@pytest.mark.parametrize(
    ("message_type", "key", "sent", "stored"),
    [
        ("nvfix", "/id", b"id=1\x01qty=2", b"id=1\x01qty=2\x01twice=4\x01"),
        ("fix", "/1", b"1=1\x01qty=2", b"1=1\x01qty=2\x01twice=4\x01"),
    ],
)
def test_messages_of_other_types_are_made_as_documents(message_type, key, sent, stored):
    fields = ("/qty * 2 AS /twice", "/twice OF PREVIOUS AS /was HINT OPTIONAL")
    world = World(Topic("t", message_type, keys=(key,), enrichment=fields))
    table = world.engine.topics["t"].records.table
    world.engine.publish("t", [sent], world.now)
    assert table.bodies[0] == stored
    world.engine.publish("t", [sent, sent], world.now)
    assert table.bodies[0] == stored + b"was=4\x01"


def test_what_is_made_is_sent_before_and_after_a_reload():
    world = World(PLAIN)
    world.publish("orders", {"id": "A-1", "desk": "A", "n": 1, "qty": 2})
    said = world.executor.reconfigure(replace(world.configuration, topics=(ORDERS,)), world.now)
    assert said == ["fields of orders changed"]
    world.publish("orders", {"desk": "A", "n": 1})
    assert world.records("orders")[0]["was"] == 2
    world.executor.reconfigure(replace(world.configuration, topics=(PLAIN,)), world.now)
    world.publish("orders", {"id": "A-1"})
    assert world.records("orders") == [{"id": "A-1"}]


def test_a_reload_changes_the_fields_of_each_topic_of_a_pattern_and_of_those_to_come():
    desks = replace(PLAIN, name="desks", pattern="^/desk/")
    world = World(desks)
    world.publish("/desk/a", {"id": 1})
    changed = replace(desks, enrichment=("1 AS /one",))
    world.executor.reconfigure(replace(world.configuration, topics=(changed,)), world.now)
    for name in ("/desk/a", "/desk/b"):
        world.publish(name, {"id": 1})
        assert world.records(name) == [{"id": 1, "one": 1}]


ARRIVALS = Topic(
    "ticks", "json", keys=("/symbol", "/at"), preprocessing=("UNIX_TIMESTAMP() AS /at",)
)


def test_a_key_may_be_made_of_the_time_of_arrival_which_no_two_messages_share():
    world = World(ARRIVALS, WRITES, WRITES_BEFORE)
    world.publish("ticks", *({"symbol": "A", "n": n} for n in range(1000)))
    world.publish("ticks", {"symbol": "A", "n": 1000})
    world.publish("ticks", {"symbol": "A", "n": 1001}, delta=True)
    writes, topic = StagedWrites(world.engine), world.engine.topics["ticks"]
    rows = StagedRows(["publish", "delta"], [None] * 2, [b'{"symbol":"A"}', b'{"symbol":"A"}'])
    steps, _ = writes.read(topic, rows, world.engine.arrivals(topic, 2, world.now))
    writes.apply("w", 1, "ticks", steps, world.now)
    world.settle()
    times = [record["at"] for record in world.records("ticks")]
    assert len(set(times)) == len(times) == 1004
    assert times == sorted(times)
    assert times[0] == world.now / SECOND
    assert world.restart().records("ticks") == world.records("ticks")


@pytest.mark.parametrize("behind_us", [0, 500, SECOND])
def test_no_time_of_arrival_comes_again_after_a_restart_with_another_clock(behind_us):
    world = World(ARRIVALS)
    world.publish("ticks", *({"symbol": "A", "n": n} for n in range(1000)))
    world.settle()
    again = world.restart(start_us=world.now - behind_us)
    again.publish("ticks", *({"symbol": "A", "n": n} for n in range(1000, 2000)))
    assert [record["n"] for record in again.records("ticks")] == [*range(2000)]


def test_fields_that_are_made_of_a_time_need_one():
    world = World(ARRIVALS)
    with pytest.raises(Busy, match="the definition of ticks has just changed"):
        world.engine.topics["ticks"].records.read([b'{"symbol":"A"}'])


def test_what_is_keyed_by_its_arrival_is_deleted_by_what_is_stored():
    world = World(ARRIVALS)
    world.publish("ticks", {"symbol": "A"}, {"symbol": "A"}, {"symbol": "B"})
    first, *others = world.records("ticks")
    client = world.client()
    (ack,) = client.say(c="sow_delete", t="ticks", d=first, cid="1", a="completed")
    assert (ack["status"], world.records("ticks")) == ("success", others)
    (ack,) = client.say(c="sow_delete", t="ticks", d={"symbol": "A"}, cid="2")
    assert "/at" in ack["detail"]


def test_an_arrival_is_logged_and_never_made_again():
    world = World(replace(ARRIVALS, enrichment=("UNIX_TIMESTAMP() AS /stored",)))
    world.publish("ticks", {"symbol": "A"})
    before = world.records("ticks")
    world.advance(SECOND)
    again = world.restart()
    assert again.records("ticks") == before
    assert before[0]["stored"] == before[0]["at"]
