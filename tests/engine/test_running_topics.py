"""Sources and copies: what each does by itself, and what of it is logged."""

from dataclasses import replace

import pytest

from sow.core.cooperative import run_to_completion
from sow.core.definitions import WRITES
from sow.engine.running_topics import CopyTopic, SourceTopic
from sow.errors import ClientError
from tests.engine.making import ORDERS, SLOW, catalog, documents, put

EXPIRING = replace(ORDERS, expires=True, expiration_us=50)


def source(definition):
    made, sequencer = catalog(definition)
    return made.topics[definition.name], sequencer


def logged(sequencer):
    return [
        (entry.op, entry.seq, entry.identities, entry.bodies) for entry in sequencer.open.entries
    ]


def test_a_publish_is_numbered_and_logged_without_identities_that_follow_from_bodies():
    topic, sequencer = source(ORDERS)
    batch = put(topic, {"id": 1}, {"id": 2})
    assert list(batch.changes.seqs) == [1, 2]
    assert logged(sequencer) == [("publish", 1, None, [b'{"id": 1}', b'{"id": 2}'])]
    topic.check()


def test_keys_that_no_body_reports_are_logged():
    topic, sequencer = source(replace(ORDERS, keys=()))
    topic.put(topic.records.read([b"{}"], ["k"]), 0, 0)
    assert logged(sequencer) == [("publish", 1, ["k"], [b"{}"])]


@pytest.mark.parametrize("keeps", [False, True])
def test_messages_that_say_when_they_expire_do_then_also_in_the_log(keeps):
    topic, sequencer = source(EXPIRING)
    put(topic, {"id": 1}, now_us=10, expires_us=90)
    messages = topic.records.read([b'{"id":1}', b'{"id":2}', b'{"id":3}'])
    messages = topic.finished(messages._replace(expires_us=[70, 0, 80]), delta=True)
    topic.put(messages, 20, 999, keeps)
    assert [*topic.records.table.expiries(["1", "2", "3"], -1)] == [70, 0, 80]
    assert [*sequencer.open.entries[-1].expires_us] == [70, 0, 80]
    assert topic.due_us() == 70
    topic.check()


def test_of_a_transient_topic_only_the_number_is_logged():
    topic, sequencer = source(replace(ORDERS, durability="transient"))
    put(topic, {"id": 1})
    assert logged(sequencer) == [("publish", 1, None, [b""])]
    assert topic.is_logged is False


def test_an_account_takes_no_number_and_names_its_records():
    topic, sequencer = source(WRITES)
    put(topic, {"writer": "w", "topic": "t"})
    (entry,) = sequencer.open.entries
    assert (entry.account, entry.seq, len(entry.identities)) == (True, 0, 1)
    assert (topic.is_system, topic.is_logged) == (True, False)


def test_only_records_that_are_there_are_removed_each_once():
    topic, sequencer = source(ORDERS)
    put(topic, {"id": 1})
    batch = topic.remove(["1", "nobody", "1"], "delete", 5)
    assert batch.changes.identities == ["1"]
    assert logged(sequencer)[1:] == [("delete", 2, ["1"], ())]
    assert topic.remove(["1"], "delete", 5) is None
    assert sequencer.seq == 2


def test_a_source_removes_what_has_expired_when_it_falls_due():
    topic, sequencer = source(EXPIRING)
    put(topic, {"id": 1}, expires_us=30)
    put(topic, {"id": 2})
    assert (topic.falls_due, topic.due_us()) == (True, 30)
    assert topic.advance(29) == []
    (batch,) = topic.advance(30)
    assert (batch.changes.identities, batch.changes.reason) == (["1"], "expired")
    assert logged(sequencer)[-1][0] == "expire"
    assert (topic.due_us(), topic.advance(99)) == (None, [])


def test_a_source_whose_records_stay_never_falls_due():
    topic, _ = source(ORDERS)
    assert (topic.falls_due, topic.due_us(), topic.advance(10**9)) == (False, None, [])


def test_a_restored_source_takes_over_the_expiries_of_its_records():
    topic, _ = source(EXPIRING)
    topic.records.put(["1"], [b'{"id":1}'], {}, [1], [0], 40)
    run_to_completion(topic.restore_expirations())
    topic.check()
    assert topic.due_us() == 40


@pytest.mark.parametrize(
    ("definition", "requested_s", "expires_us"),
    [
        (ORDERS, None, 0),
        (EXPIRING, None, 150),
        (EXPIRING, 2, 2_000_100),
        (EXPIRING, 0, 0),
        (ORDERS, 0, 0),
        (EXPIRING, 1e9, 10**15 + 100),
    ],
)
def test_a_lifetime_is_the_clients_or_the_topics(definition, requested_s, expires_us):
    assert source(definition)[0].expiry_us(requested_s, 100) == expires_us


@pytest.mark.parametrize(
    ("definition", "requested_s", "said"),
    [
        (ORDERS, 1, "keeps records for ever"),
        (EXPIRING, -1, "or 0: for ever"),
        (EXPIRING, 2e9, "up to 1e9"),
    ],
)
def test_a_lifetime_that_is_none_is_refused(definition, requested_s, said):
    with pytest.raises(ClientError, match=said):
        source(definition)[0].expiry_us(requested_s, 100)


def test_records_that_keep_their_lifetimes_are_logged_with_each_of_them():
    topic, sequencer = source(EXPIRING)
    put(topic, {"id": 1}, expires_us=30)
    put(topic, {"id": 2}, expires_us=40)
    messages = topic.records.read([b'{"id":2}', b'{"id":1}', b'{"id":3}'])
    topic.put(messages, 5, 55, keeps=True)
    assert sequencer.open.entries[-1].expires_us == [40, 30, 55]
    assert topic.due_us() == 30
    topic.check()


def test_one_time_for_all_that_keep_their_lifetimes_is_logged_once():
    topic, sequencer = source(EXPIRING)
    put(topic, {"id": 1}, {"id": 2}, expires_us=30)
    messages = topic.records.read([b'{"id":2}', b'{"id":1}'])
    topic.put(messages, 5, 55, keeps=True)
    assert sequencer.open.entries[-1].expires_us == 30
    topic.store(messages, topic.number(messages, 6, 50), 6, 50)
    assert topic.kept_expiries(["1", "2", "3"], 70, {"2"}) == [50, 70, 70]


def test_deltas_are_merged_into_what_is_there_and_change_nothing():
    topic, sequencer = source(ORDERS)
    put(topic, {"id": 1, "px": 1})
    merged = topic.finished(topic.records.read([b'{"id":1,"q":2}']), True)
    assert merged.bodies == [b'{"id":1,"px":1,"q":2}']
    assert (documents(topic.records), sequencer.seq) == ([{"id": 1, "px": 1}], 1)


def test_a_topic_that_retains_nothing_takes_deltas_as_they_are():
    topic, _ = source(replace(ORDERS, retain=False))
    messages = topic.records.read([b'{"id":1}'])
    assert topic.finished(messages, True) is messages


def test_a_copy_releases_its_changes_when_it_is_due():
    made, sequencer = catalog(ORDERS, SLOW)
    orders, slow = made.topics["orders"], made.topics["slow"]
    assert (slow.underlying, slow.copy.due_us()) == ("orders", None)
    assert orders.route(put(orders, {"id": 1, "px": 1}), 10) == ([], [slow.copy])
    assert orders.route(put(orders, {"id": 1, "px": 2}), 20) == ([], [])
    due_us = slow.copy.due_us()
    assert slow.copy.advance(due_us - 1) == []
    (batch,) = slow.copy.advance(due_us)
    assert documents(slow.records) == [{"id": 1, "px": 2}]
    assert batch.changes.topic == "slow"
    assert len(sequencer.open.entries) == 2, "what a copy does is not logged"


def test_a_copy_begins_full():
    made, sequencer = catalog(ORDERS, SLOW)
    put(made.topics["orders"], {"id": 1})
    run_to_completion(made.topics["slow"].fill(lambda: sequencer.seq))
    assert documents(made.topics["slow"].records) == [{"id": 1}]
    (batch,) = made.topics["slow"].introduced()
    assert batch.changes.identities == ["1"]


def test_the_kinds_are_sent_apart():
    made, _ = catalog(ORDERS, SLOW)
    assert [(type(topic), topic.kind) for topic in made] == [
        (SourceTopic, "topic"),
        (CopyTopic, "conflated"),
    ]


def test_only_where_fields_are_made_do_messages_have_to_be_finished_that_are_no_deltas():
    topic, sequencer = source(ORDERS)
    messages = topic.records.read([b'{"id":1}'])
    assert not topic.makes_records
    assert topic.finished(messages, False) is messages
    topic.remake(replace(ORDERS, enrichment=("1 AS /one",)))
    assert topic.makes_records
    topic.put(topic.finished(messages, False), 0, 0)
    assert documents(topic.records) == [{"id": 1, "one": 1}]
    assert logged(sequencer) == [("publish", 1, None, [b'{"id":1,"one":1}'])]
    topic.remake(ORDERS)
    assert not topic.makes_records


def test_an_expiry_that_is_late_is_not_logged_before_what_came_meanwhile():
    topic, sequencer = source(EXPIRING)
    topic.put(topic.records.read([b'{"id": 1}']), 0, 50)
    sequencer.moment(90)
    topic.put(topic.records.read([b'{"id": 2}']), 90, 140)
    (batch,) = topic.advance(60)
    assert [entry.ts_us for entry in sequencer.open.entries] == [0, 90, 90]
    assert list(batch.changes.ts_us) == [90]
    sequencer.check()
