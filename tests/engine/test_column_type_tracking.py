"""What is known of columns: from the first question on, beyond the records and beyond a restart."""

import json

import pytest

from sow.core.cooperative import run_to_completion
from sow.core.definitions import KNOWN_COLUMNS, Configuration, ConflatedTopic, Declared, Topic
from sow.engine import column_type_tracking
from sow.engine.engine import Engine
from sow.engine.following import FollowingEngine
from sow.engine.topic_changes import TopicChanges
from sow.errors import DiskFull
from sow.messages.column_types import type_of
from sow.store.protocols import LogEntry

SCHEMA = (Declared("/px", "decimal(9,2)"), Declared("/leg/day", "date"), Declared("/n", "int64"))
ORDERS = Topic("orders", "json", keys=("/id",), schema=SCHEMA)
PLAIN = Topic("plain", "json", keys=("/id",))
PASSING = Topic("passing", "json", keys=("/id",), retain=False)
COPY = ConflatedTopic("copy", "json", "orders", enrichment=("/n + 1 AS /n", "1 AS /leg/x"))
COPY_OF_COPY = ConflatedTopic("copy2", "json", "copy")


def engine_of(*topics, **more):
    return Engine(Configuration("test", (*topics, KNOWN_COLUMNS)), **more)


def publish(engine, name, *documents):
    engine.publish(name, [json.dumps(document).encode() for document in documents], 1)


def known(engine, name="plain"):
    types = run_to_completion(engine.columns.making(engine.topic(name)))
    return {field: type_of(kinds) for field, kinds in types.kinds.items()}


def noted(engine):
    """What stands in the account, as log entries of it would have it."""
    table = engine.catalog.account(KNOWN_COLUMNS).records.table
    return [json.loads(table.bodies[slot]) for slot in table.live().tolist()]


def again(engine, *topics):
    """An engine of another life, which knows of the first one what its account says."""
    other = engine_of(*topics)
    account = other.catalog.account(KNOWN_COLUMNS)
    for document in noted(engine):
        publish_account(other, account, document)
    other.columns.restore()
    return other


def publish_account(engine, account, document):
    body = json.dumps(document).encode()
    engine.put(account, account.records.read([body]), 1)


def test_who_sees_some_rows_is_sent_the_fields_of_these_and_what_is_declared():
    engine = engine_of(PLAIN, ORDERS)
    named = engine.columns.names
    rows = [[b'{"id":1,"v":"x"}', b'{"w":null}'], [b'{"id":2}']]
    assert run_to_completion(named(engine.topic("plain"), rows)) == {"id", "v", "w"}
    assert run_to_completion(named(engine.topic("plain"), [])) == set()
    assert run_to_completion(named(engine.topic("orders"), [])) == {"px", "leg", "n"}
    assert engine.topic("plain").records.types is None, "the topic hears of nothing by that"


def test_nothing_is_observed_before_the_first_query():
    engine = engine_of(PLAIN)
    publish(engine, "plain", {"id": 1, "v": "x"}, {"id": 1, "v": 2})
    assert engine.topic("plain").records.types is None
    assert noted(engine) == []
    assert known(engine) == {"id": "int64", "v": "int64"}


def test_what_was_held_once_counts_for_ever_though_it_is_gone():
    engine = engine_of(PLAIN)
    publish(engine, "plain", {"id": 1, "v": 2})
    assert known(engine)["v"] == "int64"
    publish(engine, "plain", {"id": 1, "v": "x"})
    publish(engine, "plain", {"id": 1, "v": 2})
    assert known(engine)["v"] == "json"
    other = again(engine, PLAIN)
    assert known(other) == {"id": "int64", "v": "json"}
    publish(other, "plain", {"id": 1, "w": 0.5})
    assert known(other)["w"] == "float64"


def test_a_topic_that_is_not_there_after_a_restart_goes_on_when_it_comes():
    desks = Topic("desks", "json", keys=("/id",), pattern="^/desk/")
    engine = engine_of(desks)
    publish(engine, "/desk/1", {"id": "a"})
    assert known(engine, "/desk/1") == {"id": "string"}
    other = again(engine, desks)
    publish(other, "/desk/1", {"id": 1})
    assert known(other, "/desk/1") == {"id": "json"}


def test_a_topic_added_after_a_restart_is_observed_before_the_first_query():
    desks = Topic("desks", "json", keys=("/id",), pattern="^/desk/")
    engine = engine_of(desks)
    publish(engine, "/desk/1", {"id": 1, "v": 2})
    known(engine, "/desk/1")
    other = again(engine, desks)
    publish(other, "/desk/1", {"id": 1, "v": "x"})
    publish(other, "/desk/1", {"id": 1, "v": 2})
    assert known(other, "/desk/1") == {"id": "int64", "v": "json"}


def test_a_copy_that_goes_and_comes_again_knows_what_it_has_held():
    copy = ConflatedTopic("copy", "json", "plain")
    engine = engine_of(PLAIN, copy)
    publish(engine, "plain", {"id": 1, "v": "x"})
    engine.advance(10**9)
    assert known(engine, "copy") == {"id": "int64", "v": "string"}
    run_to_completion(TopicChanges(engine).remove_copies("copy", lambda _topic: None))
    publish(engine, "plain", {"id": 1, "v": 2}, {"id": 2, "w": 1})
    engine.catalog.expect(copy)
    run_to_completion(TopicChanges(engine).add_copies(copy))
    assert known(engine, "copy") == {"id": "int64", "v": "json", "w": "int64"}
    assert known(again(engine, PLAIN, copy), "copy")["v"] == "json"


def test_columns_stand_in_another_life_as_in_this_one_however_the_account_is_kept():
    engine = engine_of(PLAIN)
    publish(engine, "plain", {"id": 1, "v": "x", "b": 1})
    known(engine)
    publish(engine, "plain", {"id": 1, "a": 1, "b": "x"})
    other = engine_of(PLAIN)
    account = other.catalog.account(KNOWN_COLUMNS)
    for document in sorted(noted(engine), key=lambda document: document["field"]):
        publish_account(other, account, document)
    other.columns.restore()
    assert list(known(other)) == list(known(engine)) == ["id", "v", "b", "a"]


def test_what_was_given_up_with_its_records_counts_no_more():
    engine = engine_of(PLAIN)
    publish(engine, "plain", {"id": 1, "v": "x", "w": 1})
    known(engine)
    body = [json.dumps(document).encode() for document in noted(engine)]
    other = engine_of(PLAIN)
    other.sequencer.begin_after(1)
    other.catalog.count_from(lambda _definition, name: 1 if name == "plain" else 0)
    account = other.catalog.account(KNOWN_COLUMNS)
    other.put(account, account.records.read(body), 1)
    other.columns.restore()
    publish(other, "plain", {"id": 1, "v": 2})
    assert known(other) == {"id": "int64", "v": "int64"}
    third = engine_of(PLAIN)
    third.catalog.count_from(lambda _definition, name: 1 if name == "plain" else 0)
    for document in noted(other):
        third.sequencer.begin_after(2 if document["field"] in {"", "/id", "/v"} else 1)
        publish_account(third, third.catalog.account(KNOWN_COLUMNS), document)
    third.columns.restore()
    assert known(third) == {"id": "int64", "v": "int64"}


def test_only_what_has_become_something_else_is_written_down():
    engine = engine_of(PLAIN)
    known(engine)
    publish(engine, "plain", *({"id": number} for number in range(100)))
    before = engine.catalog.account(KNOWN_COLUMNS).updates
    publish(engine, "plain", *({"id": number} for number in range(100)))
    assert engine.catalog.account(KNOWN_COLUMNS).updates == before
    fields = {document["field"] for document in noted(engine)}
    assert fields == {column_type_tracking.TOPIC_ITSELF, "/id"}


def test_looking_at_records_may_be_given_up_and_begun_again(monkeypatch):
    monkeypatch.setattr(column_type_tracking, "OBSERVED_AT_ONCE", 1)
    engine = engine_of(PLAIN)
    publish(engine, "plain", {"id": 1, "a": 1}, {"id": 2, "b": 1})
    steps = engine.columns.making(engine.topic("plain"))
    next(steps)
    steps.close()
    publish(engine, "plain", {"id": 3, "c": 1})
    assert known(engine) == dict.fromkeys(["id", "a", "c", "b"], "int64")


def test_messages_that_are_not_retained_are_observed_too():
    engine = engine_of(PASSING)
    known(engine, "passing")
    publish(engine, "passing", {"id": 1})
    assert known(engine, "passing") == {"id": "int64"}


def test_a_full_disk_has_the_account_in_its_reserve_and_else_nothing_is_sent():
    room, reserve = [True], [0]
    engine = engine_of(
        PLAIN, has_room=lambda _size: room[0], takes=lambda size: room[0] or size <= reserve[0]
    )
    publish(engine, "plain", {"id": 1})
    room[0] = False
    with pytest.raises(DiskFull, match="types of the columns of plain cannot be written down"):
        known(engine)
    assert noted(engine) == []
    account_bytes = 2 * len('{"topic":"plain","field":"/id","held":99,"at":0}')
    # What it takes to delete the record stays.
    reserve[0] = engine.disk.on_the_way_bytes() + account_bytes + len("1")
    assert known(engine) == {"id": "int64"}
    assert {document["field"] for document in noted(engine)} == {"", "/id"}
    assert known(again(engine, PLAIN)) == {"id": "int64"}


def test_what_a_release_without_an_account_has_published_counts_as_records_hold_it():
    engine = engine_of(PLAIN)
    publish(engine, "plain", {"id": 1, "v": 2})
    assert known(engine) == {"id": "int64", "v": "int64"}
    other = again(engine, PLAIN)
    # It knows of no columns, and whoever asked it was sent types of its own.
    records = other.topic("plain").records
    records.know_columns(None)
    publish(other, "plain", {"id": 1, "v": "text"}, {"id": 2, "w": "text"})
    publish(other, "plain", {"id": 1, "v": 3})
    third = again(engine, PLAIN)
    publish(third, "plain", {"id": 1, "v": 3}, {"id": 2, "w": "text"})
    third.columns.restore()
    assert known(third) == {"id": "int64", "v": "int64", "w": "string"}


@pytest.mark.parametrize(
    ("name", "paths"),
    [("orders", ["/px", "/leg/day", "/n"]), ("copy", ["/px"]), ("copy2", ["/px"])],
)
def test_a_copy_has_the_declared_fields_that_it_does_not_make_itself(name, paths):
    engine = engine_of(ORDERS, COPY, COPY_OF_COPY)
    declared = engine.columns.declared(engine.topic(name))
    assert list(map(str, declared.paths)) == paths


def test_what_declares_nothing_has_no_declared_fields():
    engine = engine_of(PLAIN)
    assert engine.columns.declared(engine.topic("plain")) is None


def sent(engine, name="plain"):
    types = run_to_completion(engine.columns.sent_at_once(engine.topic(name)))
    return types and {field: type_of(kinds) for field, kinds in types.kinds.items()}


def test_columns_of_few_records_are_sent_without_observing_the_topic(monkeypatch):
    engine = engine_of(PLAIN)
    publish(engine, "plain", {"id": 1, "v": "x"}, {"id": 2, "v": 0.5})
    assert sent(engine) == {"id": "int64", "v": "json"}
    assert engine.topic("plain").records.types is None
    assert noted(engine) == []
    monkeypatch.setattr(column_type_tracking, "OBSERVED_AT_ONCE", 1)
    assert sent(engine) is None


def test_columns_that_are_known_are_sent_of_any_number_of_records(monkeypatch):
    monkeypatch.setattr(column_type_tracking, "OBSERVED_AT_ONCE", 1)
    engine = engine_of(PLAIN)
    publish(engine, "plain", {"id": 1, "v": "x"}, {"id": 2, "v": 0.5})
    assert known(engine) == sent(engine)
    other = again(engine, PLAIN)
    publish(other, "plain", {"id": 1})
    assert sent(other) == {"id": "int64", "v": "json"}
    publish(other, "plain", {"id": 2})
    other.topic("plain").records.types.look_again()
    assert sent(other) is None


def test_too_many_columns_are_not_sent(monkeypatch):
    monkeypatch.setattr("sow.messages.column_types.COLUMNS_MAX", 2)
    engine = engine_of(PLAIN)
    publish(engine, "plain", {"id": 1, "v": "x", "w": 1})
    assert sent(engine) is None


def test_what_the_primary_has_widened_widens_on_a_follower_that_tracks_it():
    primary = engine_of(PLAIN)
    follower = FollowingEngine(Configuration("test", (PLAIN, KNOWN_COLUMNS)), "http://primary")

    def follow():
        table = primary.catalog.account(KNOWN_COLUMNS).records.table
        for identity, slot in table.slots.items():
            stamp, body = (int(table.seqs[slot]), int(table.ts_us[slot])), table.bodies[slot]
            note = LogEntry("publish", KNOWN_COLUMNS.name, *stamp, [identity], [body], account=True)
            follower.take_account(note)

    publish(primary, "plain", {"id": 1, "x": 1})
    before = known(primary)
    follow()
    assert known(follower) == before
    publish(primary, "plain", {"id": 1, "x": "text"}, {"id": 2, "new": 1.5})
    publish(primary, "plain", {"id": 1, "x": 1}, {"id": 2})
    follow()
    assert known(follower) == known(primary)
    assert known(follower) != before
