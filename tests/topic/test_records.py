"""Records: bodies checked and named, put and dropped, and the changes that come of it."""

import gc
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.core.definitions import ConflatedTopic, Topic
from sow.core.keys import sow_key
from sow.core.paths import parse_path
from sow.errors import BadFilter, BadMessage, ClientError
from sow.expressions import compile_filter
from tests.topic.making import ORDERS, body, held, put, records

KEYLESS = Topic("blobs", "json")


def test_bodies_are_named_by_their_key_fields_and_changes_nothing():
    target = records()
    identities = target.read([body(id=1), body(id="1"), body(id=2)]).identities
    assert identities[0] == identities[1] != identities[2]
    assert len(target.table) == 0


def test_what_was_read_of_many_is_kept_from_the_collector(monkeypatch):
    monkeypatch.setattr("sow.topic.records.UNTRACKED_MIN", 2)
    target = records()
    for bodies, tracked in (([body(id=1)], True), ([body(id=1), body(id=2)], False)):
        for messages in (target.read(bodies), target.stored(bodies, None)):
            found = [messages.bodies, messages.identities, *messages.columns.values()]
            assert len(found) > 2
            assert {gc.is_tracked(column) for column in found} == {tracked}


def topics_of(kinds):
    """How many things of these kinds there are."""
    return sum(isinstance(one, kinds) for one in gc.get_objects())


def test_a_topic_that_goes_is_freed_without_the_collector():
    """Topics of patterns come by the hundred thousand, and are also made to be looked at only."""
    gc.disable()
    try:
        target = records(replace(ORDERS, hash_indexes=(("/sym",),), indexes=("/px",)))
        put(target, {"id": 1, "sym": "A", "px": 1})
        kinds = type(target), type(target.table), type(target.indexes)
        before = topics_of(kinds)
        del target
        assert topics_of(kinds) == before - 3
    finally:
        gc.enable()


def test_the_first_bad_body_of_a_batch_is_named():
    with pytest.raises(BadMessage) as caught:
        records().read([body(id=1), b"{", b"["])
    assert caught.value.index == 1


def test_a_topic_with_key_fields_takes_no_keys_and_one_without_takes_one_for_each():
    with pytest.raises(ClientError, match="leave out k") as caught:
        records().read([body(id=1)], ["1"])
    assert caught.value.reason == "bad sow key"
    with pytest.raises(ClientError, match="give the record's key as k"):
        records(KEYLESS).read([body(id=1)])
    with pytest.raises(ClientError, match="one message with each k"):
        records(KEYLESS).read([body(id=1)], ["1", "2"])
    assert records(KEYLESS).read([b"{}"], ["a"])[1] == ["a"]


def test_a_put_reports_what_stood_there_before():
    target = records()
    first = put(target, {"id": 1, "v": 1}, {"id": 1, "v": 2})
    second = put(target, {"id": 1, "v": 3}, {"id": 2, "v": 1}, seq=3)
    assert first.changes.olds == [None, body(id=1, v=1)]
    assert second.changes.olds == [body(id=1, v=2), None]
    assert held(target) == [{"id": 1, "v": 3}, {"id": 2, "v": 1}]


def test_a_topic_that_retains_nothing_only_passes_on():
    target = records(replace(ORDERS, retain=False))
    for _ in range(2):
        batch = put(target, {"id": 1})
        assert batch.changes.olds == [None]
        assert batch.keys() == [str(sow_key("orders", batch.changes.identities[0]))]
    assert len(target.table) == 0


def test_a_drop_reports_of_those_that_were_there():
    target = records()
    one, other = put(target, {"id": 1}, {"id": 2}).changes.identities
    batch = target.drop([other, "nobody"], "deleted", lambda n: (range(9, 9 + n), [5] * n))
    assert batch.changes.identities == [other]
    assert (batch.changes.news, batch.changes.reason) == (None, "deleted")
    assert (list(batch.changes.seqs), batch.changes.ts_us) == ([9], [5])
    assert target.drop([other], "deleted", lambda n: ([], [])) is None
    assert held(target) == [{"id": 1}]
    assert one in target.table


def test_indexes_follow_the_records():
    target = records()
    names = put(target, {"id": 1, "symbol": "A"}, {"id": 2, "symbol": "B"}).changes.identities
    put(target, {"id": 2, "symbol": "A"}, seq=3)
    target.check()
    target.drop([names[0]], "deleted", lambda n: ([9], [0]))
    target.check()
    assert held(target) == [{"id": 2, "symbol": "A"}]


def test_a_watched_field_is_read_as_messages_come_in():
    target = records()
    paths = compile_filter("/px > 3").paths
    target.watched.add(paths)
    target.watched.add(paths)
    target.watched.remove(paths)
    assert put(target, {"id": 1, "px": 4}).column(paths[0]) == [4]
    assert paths[0] in target.read([body(id=1, px=5)]).columns
    target.watched.remove(paths)
    assert paths[0] not in target.read([body(id=1, px=5)]).columns


def test_filters_that_come_and_go_have_nothing_compiled_before_a_message_comes(monkeypatch):
    target = records()
    made = []
    make = target.message_type.decoder
    monkeypatch.setattr(target.message_type, "decoder", lambda at: made.append(at) or make(at))
    wanted = [parse_path(f"/p{number}") for number in range(100)]
    for path in wanted:
        target.watched.add([path])
    assert made == []
    for path in wanted[:50]:
        target.watched.remove([path])
    for _ in range(2):
        assert {*wanted[50:]} <= set(target.read([body(id=1)]).columns)
    assert len(made) == 1


def test_topics_of_a_pattern_share_what_reads_and_folds_their_messages():
    one, other = records(), records()
    assert one.decoder(one.keys) is other.decoder(other.keys)
    assert one.folding is other.folding
    assert one.keys is other.keys


def test_messages_without_fields_cannot_be_filtered():
    texts = records(Topic("texts", "binary"))
    texts.check_filter(None)
    with pytest.raises(BadFilter, match="have no fields"):
        texts.check_filter(compile_filter("/a = 1"))


documents = st.dictionaries(st.sampled_from("abc"), st.integers(0, 3) | st.none(), max_size=3)


@given(documents, st.lists(documents, min_size=1, max_size=3))
def test_deltas_are_merged_one_after_the_other(stored, deltas):
    target = records()
    put(target, {"id": 1, **stored})
    name = put(target, {"id": 1, **stored}, seq=2).changes.identities[0]
    bodies = [body(id=1, **delta) for delta in deltas]
    merged = target.finished([name] * len(bodies), bodies, "set")
    wanted = {"id": 1, **stored}
    for delta, found in zip(deltas, merged, strict=True):
        wanted |= delta
        assert json.loads(found) == wanted


def test_a_delta_of_nobody_is_the_record_byte_for_byte():
    delta = b'{"id" : 1, "v":1.50}'
    assert records().finished(["x"], [delta], "ignore") == [delta]
    null = b'{"id":1,"v":null}'
    assert json.loads(records().finished(["x"], [null], "ignore")[0]) == {"id": 1}


def test_a_copy_has_the_keys_of_what_it_copies():
    copy = records(ConflatedTopic("copy", "json", "orders"), keys=("/id",), domain="orders")
    name = copy.identities_of([body(id=7)])[0]
    assert copy.sow_key_of(name) == records().sow_key_of(name)
    with pytest.raises(ClientError, match="name the records by keys or k"):
        records(KEYLESS).identities_of([b"{}"])


MADE = replace(
    ORDERS, preprocessing=("UPPER(/sym) AS /id",), enrichment=("/n OF PREVIOUS + 1 AS /n",)
)


def test_messages_that_are_sent_are_preprocessed_and_stored_ones_are_not():
    target = records(MADE)
    bodies, names, columns, *_ = target.read([body(sym="a")])
    assert (json.loads(bodies[0]), names) == ({"sym": "a", "id": "A"}, ["A"])
    assert columns[parse_path("/id")] == ["A"]
    assert target.identities_of_sent([body(sym="a", id="b")]) == ["A"]
    assert target.identities_of([body(sym="a", id="b")]) == ["b"]


def test_a_copy_reads_nothing_but_what_it_is_sent():
    definition = ConflatedTopic("c", "json", "orders", enrichment=("1 AS /one",))
    target = records(definition, keys=("/id",))
    sent = body(id=1)
    assert target.read([sent]).bodies == target.finished(["1"], [sent], None) == [sent]


def test_records_are_finished_by_what_they_are_taken_for():
    target = records(MADE)
    put(target, {"sym": "a", "n": 5})
    sent = [body(id="A"), body(id="B"), body(id="B")]
    found = target.finished(["A", "B", "B"], sent, None, {"B": body(n=1)})
    assert [json.loads(one)["n"] for one in found] == [6, 2, 3]
    gone = target.finished(["A"], sent[:1], None, {"A": None})
    assert json.loads(gone[0])["n"] is None


def test_what_was_read_by_a_thread_while_fields_were_remade_is_not_read_so_again():
    target = records(MADE)
    plain = replace(ORDERS, hash_indexes=())

    class Late:
        traits = ()

        def body(self, text):
            target.redefine(plain)
            target.remake()
            return text

    target._preprocessing = Late()
    target.read([body(id=1)])
    assert target.read([body(id=2, sym="a")]).bodies == [body(id=2, sym="a")]
