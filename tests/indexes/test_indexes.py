import pytest

from sow import indexes
from sow.core.cooperative import run_to_completion
from sow.core.paths import parse_path
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
