"""Large publishes come a slice at a time: refused before the first, finished after it."""

import json
from dataclasses import replace

import numpy as np
import pytest

from sow.core.cooperative import run_to_completion
from sow.core.definitions import WRITES as ACCOUNTS
from sow.core.definitions import WRITES_BEFORE, Limits, Topic
from sow.core.security_definitions import Allow
from sow.engine import bulk_publish
from sow.engine.bulk_publish import slices
from sow.engine.topic_changes import TopicChanges
from sow.errors import BadMessage, DiskFull, Full, NotEntitled, StoreFailing, TooLarge, UnknownTopic
from sow.messages.json import Json
from sow.sessions.commands.commit_plan import StagedRows
from sow.sessions.commands.staged_writes import StagedWrites
from sow.store.memory import RECORD_BYTES
from tests.engine.test_capacity import BODY, DESKS, bodies, ids
from tests.laws.guarding import A, B, guarded, reading, rights, two_desks
from tests.laws.harness import ORDERS, World


@pytest.fixture(autouse=True)
def _two_at_once(monkeypatch):
    monkeypatch.setattr(bulk_publish, "SLICE_ROWS", 2)


def begin(world, *numbers, topic="orders", **more):
    """A publish of which no step has been taken yet."""
    live = world.engine.publishable(topic)
    read = run_to_completion(
        bulk_publish.reading(
            bodies(*numbers), lambda part: world.engine.read(live, part, now_us=world.now)
        )
    )
    return world.engine.publications.carry_out(topic, read, world.now, **more)


def limited(world, **limits):
    world.engine.adopt(replace(world.engine.configuration, limits=Limits(**limits)))


def left(world):
    """What the server would be told to finish."""
    found = []
    world.engine.publications.on_left(found.append)
    return found


def end(steps):
    """The result of steps that have one more to take."""
    with pytest.raises(StopIteration) as over:
        next(steps)
    return over.value.value


def test_slices_are_bounded_by_messages_and_by_bytes(monkeypatch):
    monkeypatch.setattr(bulk_publish, "SLICE_BYTES", 10)
    parts = slices([b"1", b"2", b"3", b"4" * 9, b"5" * 99, b"6", b"7"])
    assert [b",".join(part)[:4] for part in parts] == [b"1,2", b"3,44", b"5555", b"6,7"]
    assert list(slices([])) == [[]]
    assert list(slices([b"x" * 99])) == [[b"x" * 99]]


def test_a_bad_message_is_named_by_its_place_among_all():
    world = World()
    topic = world.engine.publishable("orders")
    with pytest.raises(BadMessage) as refused:
        run_to_completion(
            bulk_publish.reading(
                [*bodies(1, 2, 3), b"x"],
                lambda part: world.engine.read(topic, part, now_us=world.now),
            )
        )
    assert refused.value.index == 3


def test_others_come_between_two_slices_and_bookmarks_are_in_order():
    world = World()
    large = begin(world, 1, 2, 3, 4, 5)
    next(large)
    assert ids(world) == ["1", "2"]
    assert begin_and_end(world, 9) == 3
    next(large)
    table = world.engine.topics["orders"].records.table
    run_to_completion(world.engine.removal("orders", np.array([table.slots["1"]]), world.now))
    assert end(large) == world.engine.seq == 7
    assert ids(world) == ["2", "3", "4", "5", "9"]
    world.settle()
    log = [(entry.seq, len(entry)) for entry in world.journal.read(0)]
    assert log == [(1, 2), (3, 1), (4, 2), (6, 1), (7, 1)]
    world.check()


def begin_and_end(world, *numbers, **more):
    return run_to_completion(begin(world, *numbers, **more))


def test_nothing_is_put_before_all_is_found_good():
    world = World(replace(ORDERS, records_max=4))
    begin_and_end(world, 1)
    with pytest.raises(Full, match="it has 1, and 4 more"):
        begin_and_end(world, 2, 3, 4, 5)
    assert ids(world) == ["1"]
    begin_and_end(world, 1, 2, 3, 1, 4)
    assert ids(world) == ["1", "2", "3", "4"]


def test_the_room_of_a_publish_that_has_begun_is_not_taken_by_others():
    world = World(replace(ORDERS, records_max=6))
    large = begin(world, 1, 2, 3, 4, 5)
    next(large)
    with pytest.raises(Full, match="it has 5, and 2 more"):
        begin_and_end(world, 8, 9)
    begin_and_end(world, 9)
    next(large)
    end(large)
    assert ids(world) == ["1", "2", "3", "4", "5", "9"]
    with pytest.raises(Full):
        begin_and_end(world, 8)


def test_room_that_is_given_up_or_done_is_there_for_others_again():
    world = World(ORDERS)
    limited(world, memory_bytes_max=6 * (RECORD_BYTES + len(BODY)))
    large = begin(world, 1, 2, 3, 4, 5)
    next(large)
    with pytest.raises(Full, match="Limits/Memory"):
        begin_and_end(world, 8, 9)
    next(large)
    end(large)
    begin_and_end(world, 1, 2, 3)
    with pytest.raises(Full):
        begin_and_end(world, 6, 7, 8)
    begin_and_end(world, 6)
    assert not world.engine.capacity._reserved
    assert ids(world) == ["1", "2", "3", "4", "5", "6"]


def test_near_a_limit_what_replaces_is_counted_in_steps_and_nothing_may_take_it_meanwhile():
    world = World(replace(ORDERS, records_max=5))
    begin_and_end(world, 1, 2, 3)
    large = begin(world, 1, 2, 3, 4)
    next(large)
    assert world.engine.seq == 3, "the first steps only count"
    with pytest.raises(Full):
        begin_and_end(world, 8)
    next(large)
    next(large)
    end(large)
    assert ids(world) == ["1", "2", "3", "4"]


def test_one_that_goes_before_the_first_slice_puts_none_and_frees_its_room():
    world, abandoned = World(replace(ORDERS, records_max=5)), []
    world.engine.publications.on_left(abandoned.append)
    begin_and_end(world, 1, 2, 3)
    large = begin(world, 1, 2, 3, 4)
    next(large)
    large.close()
    assert not abandoned
    assert not world.engine.capacity._reserved
    begin_and_end(world, 8, 9)


def test_a_publish_that_has_begun_is_finished_without_a_waiting_client():
    world = World()
    heard = left(world)
    large = begin(world, 1, 2, 3, 4, 5)
    next(large)
    large.close()
    assert ids(world) == ["1", "2"]
    assert world.engine.publications.left
    (publication,) = heard
    run_to_completion(world.engine.publications.finish(publication))
    assert ids(world) == ["1", "2", "3", "4", "5"]
    assert publication.is_over
    assert not world.engine.publications.left
    world.check()


def test_what_a_client_sends_next_does_not_come_before_what_it_has_left():
    world = World()
    large = begin(world, 1, 2, 3, 4, 5)
    next(large)
    large.close()
    begin_and_end(world, 5)
    log = [key for entry in logged(world) for key in entry]
    assert log == [1, 2, 3, 4, 5, 5]
    assert not world.engine.publications.left


def test_another_topic_does_not_wait_unless_it_would_leave_as_much():
    world = World(ORDERS, DESKS)
    large = begin(world, 1, 2, 3, 4, 5)
    next(large)
    large.close()
    begin_and_end(world, 1, topic="/desk/1")
    assert world.engine.publications.left
    next(begin(world, 1, 1, 2, topic="/desk/2"))
    assert ids(world) == ["1", "2", "3", "4"], "a large one finishes what is left first"


def logged(world):
    world.settle()
    return [[json.loads(body)["id"] for body in entry.bodies] for entry in world.journal.read(0)]


def test_deltas_are_merged_into_what_stands_there_when_they_are_put():
    world = World()
    topic = world.engine.publishable("orders")
    deltas = [b'{"id":1,"a":1}', b'{"id":2}', b'{"id":1,"b":1}']
    read = run_to_completion(
        bulk_publish.reading(deltas, lambda part: world.engine.read(topic, part, now_us=world.now))
    )
    steps = world.engine.publications.carry_out("orders", read, world.now, delta=True)
    while not world.engine.seq:
        next(steps)
    world.publish("orders", {"id": 1, "c": 1})
    end(steps)
    assert world.records("orders") == [{"id": 1, "c": 1, "b": 1}, {"id": 2}]


@pytest.mark.parametrize(("count", "long_bytes"), [(1, 1_000), (6, 3_000)])
def test_no_step_merges_much_however_long_the_records_are(monkeypatch, count, long_bytes):
    """Short deltas of long records, too."""
    monkeypatch.setattr(bulk_publish, "SLICE_ROWS", 250)
    monkeypatch.setattr(bulk_publish, "MERGED_BYTES", 5_000)
    monkeypatch.setattr(bulk_publish, "LONG_BYTES", long_bytes)
    world, parsed, real = World(ORDERS), [0], Json.parse

    def parse(kind, body):
        parsed.append(parsed.pop() + len(body))
        return real(kind, body)

    pads = {f"f{at}": at for at in range(200)}
    world.publish("orders", *({"id": at, **pads} for at in range(count)))
    topic = world.engine.publishable("orders")
    deltas = [b'{"id":%d,"f7":-1}' % at for at in range(count)]
    read = [world.engine.read(topic, deltas, now_us=world.now)]
    monkeypatch.setattr(Json, "parse", parse)
    for _ in world.engine.publications.carry_out("orders", read, world.now, delta=True):
        parsed.append(0)
    monkeypatch.setattr(Json, "parse", real)
    assert max(parsed) <= 5_000
    assert parsed[-1] < 1_000 or count > 1, "a long one has a step of its own"
    assert world.records("orders") == [{"id": at, **pads, "f7": -1} for at in range(count)]
    assert not topic.records.fields.ahead


def test_deltas_that_come_to_too_much_are_found_before_the_first_is_put():
    world = World()
    limited(world, message_bytes_max=30)
    topic = world.engine.publishable("orders")
    deltas = [b'{"id":1,"a":"xxxxxxx"}', b'{"id":2}', b'{"id":1,"b":"xxxxxxx"}']
    read = run_to_completion(
        bulk_publish.reading(deltas, lambda part: world.engine.read(topic, part, now_us=world.now))
    )
    with pytest.raises(TooLarge):
        run_to_completion(
            world.engine.publications.carry_out("orders", read, world.now, delta=True)
        )
    assert ids(world) == []


def test_more_than_the_disk_has_room_for_is_refused_before_it_begins():
    world = World()
    world.journal.has_room = lambda size_bytes: size_bytes < 30
    begin_and_end(world, 1, 2, 3)
    with pytest.raises(DiskFull, match="nothing was stored; send less at once"):
        begin_and_end(world, 4, 5, 6, 7)
    assert ids(world) == ["1", "2", "3"]


def test_a_disk_that_fails_meanwhile_ends_in_no_acknowledgement_but_in_all_records():
    world = World()
    large = begin(world, 1, 2, 3)
    next(large)
    world.engine.disk.fail(StoreFailing("it fails"))
    with pytest.raises(StoreFailing):
        next(large)
    assert ids(world) == ["1", "2", "3"]
    world.engine.disk.recover()
    assert logged(world) == [[1, 2], [3]]


def test_a_topic_that_goes_between_reading_and_putting_is_refused():
    world = World(ORDERS, replace(DESKS, records_max=1))
    begin_and_end(world, 1, topic="/desk/1")
    large = begin(world, 1, 1, 1, topic="/desk/1")
    next(large)
    run_to_completion(
        TopicChanges(world.engine).give_up(world.engine.topics["/desk/1"], lambda _topic: None)
    )
    world.engine.adopt(replace(world.engine.configuration, limits=Limits(pattern_topics_max=0)))
    with pytest.raises(TooLarge, match="was not made"):
        run_to_completion(large)
    with pytest.raises(UnknownTopic):
        world.engine.topic("/desk/1")


def test_all_that_is_under_way_to_a_topic_can_be_finished_by_who_has_to_wait_for_it():
    world = World()
    first, second = begin(world, 1, 2, 3), begin(world, 4, 5, 6)
    next(first)
    next(second)
    run_to_completion(world.engine.publications.finish_all("orders"))
    assert ids(world) == ["1", "2", "3", "4", "5", "6"]
    assert end(first) == 5
    assert end(second) == 6


@pytest.mark.parametrize("taken", range(4))
def test_a_second_life_has_what_was_stored_of_a_publish_and_can_be_sent_it_again(taken):
    world = World()
    large = begin(world, 1, 2, 3, 4, 5, 6)
    for _ in range(taken):
        next(large, None)
    world.settle()
    again = world.restart()
    assert ids(again) == ["1", "2", "3", "4", "5", "6"][: 2 * taken]
    begin_and_end(again, 1, 2, 3, 4, 5, 6)
    assert ids(again) == ["1", "2", "3", "4", "5", "6"]
    again.check()


def test_each_slice_is_enriched_by_what_has_become_of_the_records_meanwhile():
    counting = replace(ORDERS, enrichment=("COALESCE(/n OF PREVIOUS, 0) + 1 AS /n",))
    world = World(counting)
    steps = begin(world, 1, 2, 3, 4, 1)
    while not world.records("orders"):
        next(steps)
    for _ in range(9):
        world.publish("orders", {"id": 4})
    run_to_completion(steps)
    counted = {record["id"]: record["n"] for record in world.records("orders")}
    assert counted == {1: 2, 2: 1, 3: 1, 4: 10}
    world.check()


CHECK = "/desk = ${user.desk}"
WRITES = Allow(topic="orders", write=True, delete=True, check=CHECK)


@pytest.fixture
def world():
    return two_desks()


@pytest.fixture
def client(world):
    return guarded(world, rights(WRITES, desk="a"))


def outcome(lines):
    (ack,) = [line for line in lines if line["c"] == "ack"]
    return ack.get("reason", ack["status"])


@pytest.mark.parametrize(
    ("command", "document", "expected"),
    [
        ("publish", A | {"px": 9}, "success"),
        ("publish", {"id": 3, "desk": "a"}, "success"),
        ("publish", {"id": 3, "desk": "b"}, "not entitled"),
        ("publish", {"id": 3}, "not entitled"),
        ("publish", A | {"desk": "b"}, "not entitled"),
        ("publish", B | {"desk": "a"}, "not entitled"),
        ("delta_publish", {"id": 1, "px": 9}, "success"),
        ("delta_publish", {"id": 1, "desk": "b"}, "not entitled"),
        ("delta_publish", {"id": 2, "px": 9}, "not entitled"),
        ("delta_publish", {"id": 2, "desk": "a"}, "not entitled"),
    ],
)
def test_old_and_merged_new_state_have_to_pass(world, client, command, document, expected):
    before = world.records("orders")
    assert outcome(client.say(c=command, t="orders", d=document, cid="1")) == expected
    assert (world.records("orders") == before) is (expected != "success")


def test_a_refusal_has_the_position_and_nothing_of_the_record(world, client):
    frame = (
        b'{"c":"publish","t":"orders","n":2,"cid":"1"}\n{"id":1,"desk":"a"}\n{"id":2,"desk":"a"}'
    )
    (ack,) = client.send(frame)
    assert (ack["reason"], ack["index"]) == ("not entitled", 1)
    assert ack["detail"].startswith("message 1 is not entitled")
    assert world.records("orders") == [A, B]


def test_a_large_publish_is_refused_before_its_first_slice(world, client):
    many = [{"id": at, "desk": "a"} for at in range(10, 700)] + [{"id": 2, "desk": "a"}]
    bodies = "\n".join(str(one).replace("'", '"') for one in many)
    header = f'{{"c":"publish","t":"orders","n":{len(many)},"cid":"1"}}\n'
    (ack,) = client.send((header + bodies).encode())
    assert (ack["reason"], ack["index"]) == ("not entitled", 690)
    assert world.records("orders") == [A, B]


def test_publishes_that_share_their_cost_are_each_judged(world, client):
    lines = client.send(
        b'{"c":"publish","t":"orders","cid":"1","d":{"id":5,"desk":"a"}}\n'
        b'{"c":"publish","t":"orders","cid":"2","d":{"id":6,"desk":"b"}}'
    )
    assert [line.get("reason") for line in lines] == [None, "not entitled"]
    assert {one["id"] for one in world.records("orders")} == {1, 2, 5}


@pytest.mark.parametrize(
    ("requested", "left"),
    [
        ({"filter": "1=1"}, [B]),
        ({"filter": "/desk = 'b'"}, [A, B]),
        ({"d": {"id": 1}}, [B]),
        ({"d": {"id": 2}}, [A, B]),
    ],
)
def test_deletes_concern_what_may_be_deleted(world, requested, left):
    client = guarded(world, rights(WRITES, reading(), desk="a"))
    (ack,) = client.say(c="sow_delete", t="orders", cid="1", **requested)
    assert ack["deleted"] == 2 - len(left)
    assert world.records("orders") == left


def test_a_delete_finds_nothing_out_about_what_is_hidden(world):
    given = rights(reading(select=("-/px",)), Allow(topic="orders", delete=True))
    client = guarded(world, given)
    (ack,) = client.say(c="sow_delete", t="orders", cid="1", filter="/px > 0")
    assert ack["deleted"] == 0


def test_a_user_that_may_write_all_pays_nothing(world):
    given = rights(Allow(topic="orders", write=True))
    assert given.write_guard("orders", "write") is None
    assert outcome(guarded(world, given).say(c="publish", t="orders", d=B, cid="1")) == "success"


ROWS = {
    "others": [("publish", {"id": 2, "desk": "a"})],
    "gives away": [("publish", {"id": 1, "desk": "b"})],
    "takes in two steps": [("delete", {"id": 2}), ("publish", {"id": 2, "desk": "a"})],
    "gives away by a delta": [("delta", {"id": 1, "desk": "b"})],
}


@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
def test_staged_rows_are_judged_as_the_batch_makes_them(rows):
    world = World(Topic("orders", "json", keys=("/id",)), ACCOUNTS, WRITES_BEFORE)
    world.publish("orders", A, B)
    staged = StagedWrites(world.engine)
    bodies = [str(body).replace("'", '"').encode() for _, body in rows]
    taken = StagedRows([op for op, _ in rows], [None] * len(rows), bodies)
    steps, rejected = staged.read(world.engine.topics["orders"], taken)
    assert not rejected
    given = rights(WRITES, desk="a")
    with pytest.raises(NotEntitled):
        run_to_completion(staged.applying("w", 1, "orders", steps, world.now, rights=given))
    world.settle()
    assert world.records("orders") == [A, B]
    world.check()


@pytest.mark.parametrize(("desk", "allowed"), [("b", False), ("a", True)])
def test_a_batch_deletes_what_it_has_written_only_where_that_may_be_deleted(desk, allowed):
    world = World(Topic("orders", "json", keys=("/id",)), ACCOUNTS, WRITES_BEFORE)
    world.publish("orders", A, B)
    staged = StagedWrites(world.engine)
    bodies = [f'{{"id": 2, "desk": "{desk}"}}'.encode(), b'{"id": 2}']
    rows = StagedRows(["publish", "delete"], [None, None], bodies)
    steps, _ = staged.read(world.engine.topics["orders"], rows)
    all_may_write = Allow(topic="orders", write=True)
    given = rights(all_may_write, Allow(topic="orders", delete=True, check=CHECK), desk="a")
    applying = staged.applying("w", 1, "orders", steps, world.now, rights=given)
    if allowed:
        run_to_completion(applying)
    else:
        with pytest.raises(NotEntitled):
            run_to_completion(applying)
    assert world.records("orders") == ([A] if allowed else [A, B])
    world.check()
