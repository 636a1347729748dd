import json

import numpy as np
import pytest

from sow import indexes
from sow.core.cooperative import run_to_completion
from sow.core.paths import parse_path
from sow.expressions import MessageColumns, parse_order_by
from sow.indexes import ComputedColumn, ConditionCache, SortKeys
from sow.messages import message_type
from sow.store.columns import Slots
from tests.query.topic import Topic

PX = parse_path("/px")


def test_publishes_hand_over_only_what_hash_indexes_need() -> None:
    topic = Topic("/a", "/a,/b", memos="/px")
    assert [str(path) for path in topic.indexes.watched] == ["/a", "/b"]


def test_the_key_fields_need_no_further_index() -> None:
    assert Topic("/id").indexes.hashes == ()


def test_the_same_fields_are_indexed_once() -> None:
    assert len(Topic("/a,/b", "/b,/a").indexes.hashes) == 1


def test_a_configured_column_is_there_from_the_start() -> None:
    assert Topic(memos="/px").indexes.has_memo(PX)


def test_notes_are_worked_off_in_slices() -> None:
    topic = Topic("/a", memos="/px")
    topic.put(*({"id": number, "a": 1, "px": 2} for number in range(10)))
    assert topic.indexes.dirty_count == 20
    assert [topic.indexes.refresh(8) for _ in range(4)] == [8, 8, 4, 0]


def test_a_table_that_was_filled_is_taken_in_as_a_whole() -> None:
    topic = Topic("/a", memos="/px")
    records = [b'{"id":%d,"a":1,"px":2}' % number for number in range(9)]
    topic.table.put([*map(str, range(9))], records, [*range(9)], [0] * 9)
    topic.table.drop(["3"])
    run_to_completion(topic.indexes.fill())
    topic.indexes.check()
    assert topic.indexes.dirty_count == 0
    assert topic.answer("/a = 1").matches == topic.answer("/px > 1").matches == 8


def test_all_notes_are_worked_off_without_a_limit() -> None:
    topic = Topic("/a", memos="/px")
    topic.put(*({"id": number, "a": 1, "px": 2} for number in range(10)))
    topic.indexes.refresh()
    assert topic.indexes.dirty_count == 0


def test_the_column_used_longest_ago_makes_room(monkeypatch) -> None:
    monkeypatch.setattr(indexes, "MEMO_COLUMNS_MAX", 3)
    topic = Topic(memos="/px")
    a, b, c = map(parse_path, ("/a", "/b", "/c"))
    for path in (a, b, a, c):
        topic.indexes.memo(path)
    assert [topic.indexes.has_memo(path) for path in (PX, a, b, c)] == [True, True, False, True]


def test_a_filter_of_very_many_fields_is_scanned() -> None:
    topic = Topic()
    topic.put({"id": 1, "f7": 1})
    many = " OR ".join(f"/f{number} = 1" for number in range(indexes.MEMO_COLUMNS_MAX + 1))
    answer = topic.answer(many)
    assert (answer.index, answer.matches) == ("scan", 1)


@pytest.mark.parametrize("text", ["/a = 'x'", "/px > 1"])
def test_deleted_records_are_not_found(text: str) -> None:
    topic = Topic("/a", memos="/px")
    topic.put({"id": 1, "a": "x", "px": 2}, {"id": 2, "a": "x", "px": 2})
    topic.indexes.refresh()
    topic.drop("1")
    assert topic.found(text) == [2]


@pytest.mark.parametrize("refreshed", [True, False])
def test_records_in_used_slots_are_found_as_what_they_are(refreshed: bool) -> None:
    topic = Topic("/a")
    topic.put({"id": 1, "a": "old"}, {"id": 2, "a": "old"})
    topic.drop("1")
    topic.put({"id": 3, "a": "new"})
    if refreshed:
        topic.indexes.refresh()
    assert (topic.found("/a = 'old'"), topic.found("/a = 'new'")) == ([2], [3])


def test_every_index_is_sent_of_what_changes() -> None:
    topic = Topic("/a", keys="/id", memos="/b")
    topic.put({"id": "01", "a": 1, "b": 1}, {"id": "2", "a": 2, "b": 2})
    assert topic.found("/id = 1") == ["01"]
    topic.drop("2")
    # The second one takes the slot that has become free.
    topic.put({"id": "01", "a": 3, "b": "x"}, {"id": "02", "a": 4, "b": None})
    topic.indexes.check()
    topic.indexes.refresh()
    topic.indexes.check()
    assert topic.found("/id = 2") == ["02"]
    topic.indexes.check()


class Evens:
    """A condition that holds for even values; counts what it reads."""

    def __init__(self, *values: int) -> None:
        self.values = list(values)
        self.read: list[int] = []

    def __call__(self, slots):
        self.read.extend(slots.tolist())
        return np.array([self.values[slot] % 2 == 0 for slot in slots])


def wanted(known: ConditionCache, *slots: int) -> list[bool]:
    known.want(np.array(slots, np.int64))
    known.refresh()
    return known.of(np.array(slots, np.int64)).tolist()


def test_only_what_is_wanted_is_read_and_only_once() -> None:
    evens = Evens(0, 1, 2, 3)
    known = ConditionCache(evens)
    assert wanted(known, 2, 1) == [True, False]
    assert wanted(known, 1, 2, 3) == [False, True, False]
    assert evens.read == [2, 1, 3]


def test_what_has_changed_is_read_again() -> None:
    evens = Evens(0, 1)
    known = ConditionCache(evens)
    wanted(known, 0, 1)
    evens.values[0] = 7
    known.touch([0, 5])
    assert wanted(known, 0, 1) == [False, False]
    assert evens.read == [0, 1, 0]


def test_nothing_may_be_wanted() -> None:
    assert wanted(ConditionCache(Evens())) == []


def test_reading_goes_in_steps() -> None:
    evens = Evens(*range(10))
    known = ConditionCache(evens)
    known.want(np.arange(10))
    assert [(known.refresh(4), known.dirty_count) for _ in range(4)] == [
        (4, 6),
        (4, 2),
        (2, 0),
        (0, 0),
    ]


def test_a_condition_of_many_fields_reads_fewer_records_in_a_step() -> None:
    known = ConditionCache(Evens(*range(10)), cost=4)
    known.want(np.arange(10))
    assert (known.refresh(8), known.dirty_count) == (2 * 4, 8 * 4)
    known = ConditionCache(Evens(*range(10)), cost=400)
    known.want(np.arange(10))
    assert (known.refresh(8), known.dirty_count) == (400, 9 * 400)


def test_values_are_read_a_chunk_at_a_time(monkeypatch) -> None:
    monkeypatch.setattr(indexes, "CHUNK_ROWS", 3)
    assert wanted(ConditionCache(Evens(*range(7))), *range(7)) == [True, False] * 3 + [True]


JSON = message_type("json")


def bodies_of(*values: object) -> list[bytes | None]:
    return [None if value is ... else json.dumps({"a": value}).encode() for value in values]


def nothing_more(_slots: Slots) -> MessageColumns:
    raise AssertionError("these terms ask for fields alone")


def column_of(text: str, bodies: list[bytes | None], as_keys: bool = False) -> ComputedColumn:
    (term,) = parse_order_by(text)
    return ComputedColumn(term, JSON.decoder(term.paths), bodies, nothing_more, as_keys)


def want(column: ComputedColumn, *slots: int) -> None:
    column.want(np.array(slots, np.int64))


def test_what_is_known_beside_the_fields_is_requested_of_the_same_records() -> None:
    (term,) = parse_order_by("LAST_UPDATED() * /a DESC")
    bodies = bodies_of(1, ..., 3, 4)

    def messages(slots: Slots) -> MessageColumns:
        some = [bodies[slot] for slot in slots.tolist()]
        return MessageColumns("t", some, list, None, (slots * 1_000_000).tolist())

    column = ComputedColumn(term, JSON.decoder(term.paths), bodies, messages)
    want(column, 3, 1, 2)
    column.refresh()
    assert column.numbers[[2, 3]].tolist() == [6, 12]
    assert np.isnan(column.numbers[[0, 1]]).all()


def test_only_what_is_wanted_is_read() -> None:
    column = column_of("/a * 2", bodies_of(1, 2, 3, 4))
    want(column, 3, 1)
    assert column.dirty_count == 2
    column.refresh()
    assert column.dirty_count == 0
    assert column.numbers[[1, 3]].tolist() == [4, 8]
    assert np.isnan(column.numbers[[0, 2]]).all()


def test_what_is_known_is_not_read_again_until_it_changes() -> None:
    bodies = bodies_of(1, 2, 3)
    column = column_of("/a * 2", bodies)
    want(column, 0, 1, 2)
    column.refresh()
    bodies[1] = b'{"a":10}'
    want(column, 0, 1, 2)
    assert column.dirty_count == 0
    column.touch([1, 99])
    want(column, 0, 1, 2)
    assert column.dirty_count == 1
    column.refresh()
    assert column.numbers[:3].tolist() == [2, 20, 6]


def test_a_step_reads_as_many_as_it_may_and_fewer_of_what_is_long() -> None:
    bodies = bodies_of(*range(100))
    short, long = column_of("-/a", bodies), column_of("+".join(["/a"] * 20), bodies)
    for column in (short, long):
        want(column, *range(100))
    before = long.dirty_count
    assert before > short.dirty_count == 100
    assert 0 < long.refresh(20) <= 20 < short.refresh(20) + 1
    assert long.dirty_count < before
    assert long.refresh(1) > 0, "each step does something"


def test_records_that_have_gone_have_no_value() -> None:
    column = column_of("/a * 2", bodies_of(1, ..., 3))
    want(column, 0, 1, 2)
    column.refresh()
    assert column.counts[1:].tolist() == [0, 2, 0, 0]


@pytest.mark.parametrize("as_keys", [False, True])
def test_a_table_that_grows_is_no_matter(as_keys: bool) -> None:
    bodies = bodies_of("b")
    column = column_of("UPPER(/a)", bodies, as_keys)
    want(column, 0)
    column.refresh()
    bodies += bodies_of("a", "c", "d")
    want(column, 0, 1, 2)
    column.refresh()
    ranks = column.text_order.ranks()[column.codes[:3]]
    assert ranks.argsort().tolist() == [1, 0, 2]


def test_keys_rank_values_of_all_kinds() -> None:
    values = ["b", 2**53 + 1, None, [7, 1], 2**53, "a", 7]
    column = column_of("IF(/a = 0, 1, /a)", bodies_of(*values), as_keys=True)
    want(column, *range(7))
    column.refresh()
    ranks = column.text_order.ranks()[column.codes[:7]]
    assert ranks.argsort(kind="stable").tolist() == [2, 3, 6, 4, 1, 5, 0]


def test_sort_keys_of_all_kinds_are_ranked_and_follow_changes() -> None:
    (term,) = parse_order_by("/a")
    values = ["b", 2**53 + 1, None, [7, 1], 2**53, "a", 7]
    bodies: list[bytes | None] = [json.dumps({"a": value}).encode() for value in values]
    column = SortKeys(term, message_type("json").decoder((term.path,)), bodies)
    column.refresh()
    ranks = column.text_order.ranks()[column.codes]
    assert ranks.argsort(kind="stable").tolist() == [2, 3, 6, 4, 1, 5, 0]
    bodies[0] = b'{"a":0}'
    column.touch([0])
    column.refresh()
    ranks = column.text_order.ranks()[column.codes]
    assert ranks.argsort(kind="stable").tolist() == [2, 0, 3, 6, 4, 1, 5]
