"""A snapshot is of one moment, however long it is written, and unread rows are bounded."""

import json

import numpy as np
import pytest

from sow.core.cooperative import run_to_completion
from sow.history import snapshot as module
from sow.history.snapshot import Snapshot
from sow.protocol.encodings import LINES
from sow.topic.rendering import LineColumns, Shape
from tests.topic.making import body, put, records


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
    bodies, names, columns = topic.read([body(id=1)], None if keys else ["one"])
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
