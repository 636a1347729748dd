"""What a checkpoint holds of topics."""

from dataclasses import replace

from sow.core.cooperative import run_to_completion
from sow.core.definitions import MessageTypeOptions, RecordField
from sow.engine.recovery import redo
from sow.engine.recovery.redo import binding, stored_bytes, stored_slices
from tests.engine.making import DESKS, ORDERS, catalog, put

INDEXED = replace(ORDERS, hash_indexes=(("/a",),), indexes=("/b",))


def test_the_topics_of_a_pattern_share_a_checkpoint():
    made, _ = catalog(DESKS)
    for name in ("/desk/1", "/desk/2"):
        made.enter(made.publishable(name))
        put(made.topics[name], {"id": 1}, {"id": 2})
    identities = [one for part in stored_slices(made, "desks", 1) for one in part.identities]
    assert identities == [f"/desk/{desk}\x1e{n}" for desk in (1, 2) for n in (1, 2)]
    assert run_to_completion(stored_bytes(made, "desks")) == 4 * len('{"id": 1}')


def test_what_indexes_knew_is_used_wherever_the_message_type_is_written():
    def made(line):
        part = MessageTypeOptions("legs", "record", fields=(RecordField("id", line=line),))
        kind = MessageTypeOptions("mine", "json", parts=(part,), line=line)
        topics = (replace(INDEXED, message_type="mine"),)
        found, _ = catalog(*topics, message_types=(kind,))
        return binding(found, found.topics["orders"].records)

    assert made(3) == made(7)


def test_what_indexes_knew_is_not_used_by_another_release(monkeypatch):
    made, _ = catalog(INDEXED)
    records = made.topics["orders"].records
    before = binding(made, records)
    monkeypatch.setattr(redo, "__version__", "another")
    assert binding(made, records) != before


def test_a_checkpoint_stores_nothing_more_of_indexes_that_are_replaced():
    made, _ = catalog(INDEXED)
    topic = made.topics["orders"]
    put(topic, *({"id": n, "a": n} for n in range(6)))
    slices = stored_slices(made, "orders", 2)
    first = next(slices)
    run_to_completion(topic.records.reindex(replace(INDEXED, indexes=())))
    assert [part.values is None for part in (first, *slices)] == [False, True, True]
