"""What a snapshot pinned stays what it was, however many rows of it are wanted."""

import json

import numpy as np
import pytest

from sow.core.cooperative import run_to_completion
from sow.history import snapshot as module
from sow.history.snapshot import PinnedColumn, Snapshot
from sow.protocol.replies import LINES
from sow.store.columns import CopyOnWrite
from sow.topic.rendering import LineColumns, Shape
from tests.topic.making import body, put, records


def slots(*found):
    return np.array(found, np.int64)


def all_of(held):
    return held.part(0, len(held))


class Column:
    """A column that tells its holds what is replaced."""

    def __init__(self, values):
        self.values, self.holds = list(values), CopyOnWrite()

    def put(self, slot, value):
        self.holds.save([slot], [self.values[slot]])
        self.values[slot] = value

    def take(self, wanted):
        return PinnedColumn.take(self.values, wanted, self.holds.take)


@pytest.mark.parametrize("few_rows", [0, 10], ids=["held", "picked"])
@pytest.mark.parametrize("wanted", [(), (3,), (3, 0, 1), (0, 1, 2, 3), (3, 2, 1, 0)])
def test_rows_are_as_they_were_before_and_after_they_are_settled(monkeypatch, few_rows, wanted):
    monkeypatch.setattr(module, "PICKED_ROWS_MAX", few_rows)
    monkeypatch.setattr(module, "SETTLED_AT_ONCE", 2)
    column = Column("abcd")
    held = column.take(slots(*wanted))
    was = ["abcd"[slot] for slot in wanted]
    backwards = np.arange(len(wanted))[::-1]

    def check():
        assert all_of(held) == was
        assert all_of(held.at(backwards)) == was[::-1]
        more = held.and_more(["e"]).and_more(["f"])
        assert all_of(more) == [*was, "e", "f"]
        assert all_of(more.at(np.arange(len(more))[::-1])) == ["f", "e", *was[::-1]]
        run_to_completion(more.settle())
        assert all_of(more) == [*was, "e", "f"]

    check()
    for slot, value in enumerate("wxyz"):
        column.put(slot, value)
        column.put(slot, value.upper())
        check()
    for step, _ in enumerate(held.settle()):
        column.put(0, str(step))
        check()
    column.put(3, "last")
    check()


def test_a_column_is_sent_no_more_when_it_is_settled_or_gone(monkeypatch):
    monkeypatch.setattr(module, "PICKED_ROWS_MAX", 0)
    column = Column("ab")
    held = [column.take(slots(0, 1)), column.take(slots(1))]
    assert column.holds.save([0], ["a"])
    run_to_completion(held[0].settle())
    assert column.holds.save([0], ["a"])
    held.pop()
    assert not column.holds.save([0], ["a"])


def test_what_is_in_no_row_is_let_go_when_it_is_settled(monkeypatch):
    monkeypatch.setattr(module, "PICKED_ROWS_MAX", 0)
    held = Column(range(1000)).take(slots(*range(500)))
    steps = held.settle()
    next(steps)
    assert all_of(held) == list(range(500)), "it can be read meanwhile"
    run_to_completion(steps)
    assert len(held._values) == 500


def test_a_step_settles_so_many_rows(monkeypatch):
    monkeypatch.setattr(module, "PICKED_ROWS_MAX", 0)
    monkeypatch.setattr(module, "SETTLED_AT_ONCE", 10)
    held = Column(range(100)).take(slots(*range(0, 100, 2)))
    assert sum(1 for _ in held.settle()) == 5
    assert sum(1 for _ in held.settle()) == 0


def taken(*documents, **more):
    topic = records()
    put(topic, *documents)
    return topic, Snapshot.take(topic, topic.table.live(), **more)


def rows_of(snapshot):
    return snapshot.part(0, len(snapshot))


def documents(snapshot):
    return [json.loads(body) for body in rows_of(snapshot).bodies]


def ids(snapshot):
    return [document["id"] for document in documents(snapshot)]


def at(*rows):
    return np.array(rows, np.int64)


def test_what_is_published_later_is_not_seen():
    topic, snapshot = taken({"id": 1, "v": 1}, {"id": 2})
    put(topic, {"id": 1, "v": 2}, seq=3)
    topic.drop(list(snapshot.identities())[1:], "deleted", lambda n: ([4], [0]))
    for _ in range(2):
        assert documents(snapshot) == [{"id": 1, "v": 1}, {"id": 2}]
        assert rows_of(snapshot).seqs == [1, 2]
        run_to_completion(snapshot.settle())


def test_some_of_the_rows():
    _, snapshot = taken({"id": 1}, {"id": 2}, {"id": 3})
    some = snapshot.at(at(2, 0))
    assert ids(some) == [3, 1]
    assert rows_of(some).seqs == [3, 1]
    assert ids(some.at(at(1))) == [1]


@pytest.mark.parametrize("keys", [("/id",), ()])
def test_rows_that_stand_nowhere_come_after_the_others(keys):
    topic = records(keys=keys)
    bodies, names, columns, *_ = topic.read([body(id=1)], None if keys else ["one"])
    topic.put(names, bodies, columns, [1], [0])
    snapshot = Snapshot.take(topic, topic.table.live())
    more = run_to_completion(snapshot.adding([7] if keys else ["seven"], [b'{"id":7}'], [5], [6]))
    assert ids(more) == [1, 7]
    assert more.slots.tolist() == [0, module.NOWHERE]
    row = rows_of(more)
    assert (row.sow_keys[1], row.seqs[1], row.ts_us[1]) == ("7" if keys else "seven", 5, 6)


def test_long_rows_make_short_chunks(monkeypatch):
    monkeypatch.setattr(module, "ANSWER_CHUNK_BYTES", 20)
    _, snapshot = taken({"id": 1}, {"id": 2}, {"id": 3, "text": "x" * 30}, {"id": 4})
    assert list(snapshot.chunks()) == [(0, 2), (2, 3), (3, 4)]
    assert not snapshot.is_short
    assert snapshot.at(at(0, 1)).is_short
    assert snapshot.at(at()).is_short


def test_keys_are_left_out_where_nobody_wants_them():
    _, snapshot = taken({"id": 1}, with_keys=False)
    assert rows_of(snapshot) == LineColumns((), [b'{"id":1}'], (), ())
    assert len(snapshot) == 1


def test_frames_are_made_chunk_by_chunk(monkeypatch):
    monkeypatch.setattr(module, "ANSWER_CHUNK_ROWS", 2)
    topic, snapshot = taken({"id": 1}, {"id": 2}, {"id": 3})
    head = topic.renderer.head("sow", "s")
    frames = list(snapshot.frames(LINES, head, Shape()))
    assert [count for _, count in frames] == [2, 1]
    lines = [
        json.loads(line)
        for start, stop in ((0, 2), (2, 3))
        for line in snapshot.lines(LINES, head, Shape(), start, stop)
    ]
    assert [line["d"]["id"] for line in lines] == [1, 2, 3]
    assert {line["c"] for line in lines} == {"sow"}


def test_of_rows_whose_fields_are_selected_fewer_are_written_in_one_go(monkeypatch):
    monkeypatch.setattr(module, "ANSWER_CHUNK_ROWS", 4)
    monkeypatch.setattr(module, "SELECTED_PART", 2)
    _, snapshot = taken(*({"id": number} for number in range(5)))
    selected, head = Shape(select=("/id",)), b""
    for shape, counts in ((Shape(), [4, 1]), (selected, [2, 2, 1])):
        assert [count for _, count in snapshot.frames(LINES, head, shape)] == counts
        assert list(map(len, snapshot.messages(shape))) == counts
        assert list(map(len, snapshot.documents(False, shape))) == counts


def test_documents_are_bodies_or_wrapped(monkeypatch):
    monkeypatch.setattr(module, "ANSWER_CHUNK_ROWS", 1)
    _, snapshot = taken({"id": 1}, {"id": 2})
    assert list(snapshot.documents(meta=False)) == [[b'{"id":1}'], [b'{"id":2}']]
    ((first,), _) = snapshot.documents(meta=True)
    assert json.loads(first)["bm"] == "1"
