"""What running topics have in common, and names that no client can write."""

from dataclasses import replace

import orjson

from sow.core.cooperative import run_to_completion
from sow.engine.live_topic import HiddenTopic, is_hidden
from tests.engine.making import DESKS, ORDERS, catalog, put


def test_a_topic_that_goes_takes_its_records_along_unlogged():
    made, sequencer = catalog(ORDERS)
    topic = made.topics["orders"]
    assert topic.discharge(["1"], 0, 0) is None
    put(topic, {"id": 1}, {"id": 2})
    batch = topic.discharge(["1", "2"], sequencer.seq, 9)
    assert (batch.changes.reason, list(batch.changes.seqs)) == ("deleted", [2, 2])
    assert (len(topic.records.table), len(sequencer.open.entries)) == (0, 1)


def test_another_definition_is_taken_by_a_topic_and_its_records():
    made, _ = catalog(ORDERS)
    topic = made.topics["orders"]
    put(topic, {"id": 1, "a": 7})
    indexed = replace(ORDERS, hash_indexes=(("/a",),))
    run_to_completion(topic.reindex(indexed))
    topic.check()
    assert topic.definition is topic.records.definition is indexed
    assert [str(path) for path in topic.records.indexes.watched] == ["/a"]
    topic.refold(replace(indexed, conflation_policy="off"))
    assert topic.records.folding.policy == "off"


def test_a_topic_of_a_pattern_is_stored_with_the_others():
    made, _ = catalog(DESKS, ORDERS)
    topic, plain = made.publishable("/desk/1"), made.topics["orders"]
    assert (topic.name, topic.pattern, topic.stored_as) == ("/desk/1", "desks", "desks")
    assert (plain.pattern, plain.stored_as) == (None, "orders")


def test_it_reads_as_the_text_and_is_found_by_itself_alone():
    one, other = HiddenTopic("orders"), HiddenTopic("orders")
    assert f"{one}" == "orders"
    assert orjson.dumps({"t": one}) == b'{"t":"orders"}'
    assert one == one
    assert one not in ("orders", other)
    assert one != "orders"
    names = {one: 1, other: 2, "orders": 3}
    assert (names[one], names[other], names["orders"]) == (1, 2, 3)
    assert is_hidden(one)
    assert not is_hidden("orders")
