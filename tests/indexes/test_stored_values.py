"""Stored values: what is taken of them is what bodies say, and what does not fit is not taken."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow import indexes as indexes_package
from sow.core.cooperative import run_to_completion
from sow.indexes import column_cache, pending_rows, stored_values
from sow.indexes import hash as hash_module
from tests.effort import examples
from tests.query.topic import Topic

BINDING = "these indexes"
SIZE = 3
INDEXED = ("/a", "/a,/b")

values = st.one_of(
    st.sampled_from(["x", "y", "05", "5", "", None, True, 1, 5, 5.0, 0.1, -7, "ü"]),
    st.lists(st.sampled_from(["x", 1, None]), max_size=2),
    st.text(max_size=3),
)
documents = st.fixed_dictionaries(
    {"id": st.integers(0, 12), "a": values, "b": values, "px": values}
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.lists(documents, min_size=1, max_size=4)),
        st.tuples(st.just("drop"), st.lists(st.integers(0, 12), min_size=1, max_size=3)),
        st.just(("cut", None)),
        st.just(("refresh", None)),
    ),
    max_size=20,
)


def made():
    return Topic(*INDEXED, memos="/px")


def cut(topic, writer, start):
    """A slice of a checkpoint with its part, as the catalog makes it."""
    part = topic.table.slice(start, SIZE)
    topic.indexes.refresh_columns()
    part.values = writer.part(np.array(topic.table.held(start, SIZE), np.int64))
    return part


def slices(topic, binding=BINDING):
    writer = topic.indexes.writer(binding)
    return [cut(topic, writer, start) for start in range(0, len(topic.table.bodies), SIZE)]


def restored(parts, binding=BINDING, topic=None):
    topic = topic or made()
    for part in parts:
        start = len(topic.table.bodies)
        topic.table.restore(part)
        topic.indexes.restored(start, part, binding)
    return topic


def filled(topic):
    """Its indexes are made; returns how many bodies had to be read for it."""
    read = []
    decoder = topic.indexes._decoder

    class Counting:
        def __init__(self, paths):
            self._decoder = decoder(paths)

        def columns(self, bodies):
            read.extend(bodies)
            return self._decoder.columns(bodies)

    topic.indexes._decoder = Counting
    topic.table.settle()
    run_to_completion(topic.indexes.fill())
    topic.indexes._decoder = decoder
    topic.indexes.check()
    assert topic.indexes.dirty_count == 0
    return len(read)


def some(count=8):
    topic = made()
    topic.put(*({"id": n, "a": n % 3, "b": f"t{n % 2}", "px": n / 2} for n in range(count)))
    return topic


@given(steps, steps)
@examples(60)
def test_changes_while_and_after_it_is_written_agree_with_the_bodies(during, after):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hash_module, "CODES_SPARE", 1)  # codes come to mean something else soon
        patch.setattr(column_cache, "TEXTS_SPARE", 1)
        patch.setattr(stored_values, "GROUPED", 2)
        patch.setattr(indexes_package, "CHUNK_ROWS", 2)
        topic, parts, start = made(), [], 0
        writer = topic.indexes.writer(BINDING)
        for step, given_ in during:
            if step == "put":
                topic.put(*given_)
            elif step == "drop":
                topic.drop(*map(str, given_))
            elif step == "refresh":
                topic.indexes.refresh(2)
            else:
                parts.append(cut(topic, writer, start))
                start += SIZE
        while start < len(topic.table.bodies):
            parts.append(cut(topic, writer, start))
            start += SIZE
        back = restored(parts)
        back.seq = topic.seq
        for step, given_ in after:
            if step == "put":
                bodies = [str(one).encode() for one in given_]
                seqs = range(back.seq + 1, back.seq + 1 + len(bodies))
                back.seq = seqs[-1]
                names = [str(one["id"]) for one in given_]
                read = [stored_values.msgspec.json.encode(one) for one in given_]
                back.table.replay(names, read, seqs, [0] * len(seqs), [0] * len(seqs))
            elif step == "drop":
                back.drop(*map(str, given_))
        filled(back)


def test_of_what_is_as_it_was_no_body_is_read():
    assert filled(restored(slices(some()))) == 0


def test_of_what_has_changed_since_bodies_are_read():
    back = restored(slices(some()))
    for name, seq in (("2", 20), ("new", 21)):
        back.table.replay([name], [b'{"id":2,"a":"other"}'], [seq], [0], [0])
    back.drop("3")
    assert filled(back) == 2
    assert back.found("/a = 'other'") == [2, 2]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda parts: parts[0].__setattr__("values", None),
        lambda parts: parts[0].__setattr__("values", b"\x93nothing"),
        lambda parts: parts[0].__setattr__("values", parts[1].values),
    ],
)
def test_behind_a_part_that_is_missing_or_another_none_is_taken(spoil):
    parts = slices(some())
    spoil(parts)
    assert filled(restored(parts)) == 8


def test_parts_up_to_the_first_that_is_missing_are_taken():
    parts = slices(some())
    parts[1].values = None
    assert filled(restored(parts)) == 8 - SIZE


def test_parts_of_another_binding_or_format_are_not_taken(monkeypatch):
    parts = slices(some())
    assert filled(restored(parts, "other indexes")) == 8
    monkeypatch.setattr(stored_values, "FORMAT", stored_values.FORMAT + 1)
    assert filled(restored(parts)) == 8


def test_values_are_sent_once():
    topic = made()
    topic.put(*({"id": n, "a": "long" * 20, "px": "text" * 20} for n in range(9)))
    first, *others = [part.values for part in slices(topic)]
    assert first.count(b"longlong") > 1 == first.count(b"text" * 20)
    assert not any(b"long" in part or b"text" in part for part in others)


def test_a_value_that_cannot_be_written_ends_what_is_stored():
    topic = some(9)
    topic.table.put(["4"], [b'{"id":4,"a":123456789012345678901234567890}'], [30], [0])
    topic.indexes.put([4], lambda path: [10**29] if str(path) == "/a" else [None])
    assert [part.values is None for part in slices(topic)] == [False, True, True]
    assert filled(restored(slices(topic))) == 9 - SIZE


def test_of_a_column_with_many_notes_nothing_is_stored(monkeypatch):
    topic = some()
    topic.indexes.refresh()
    topic.put({"id": 1, "a": 1, "px": 7})
    writer = topic.indexes.writer(BINDING)
    parts = [writer.part(np.array(pair)) for pair in pairwise(range(4))]
    assert [part is None for part in parts] == [True, True, False]
    monkeypatch.setattr(pending_rows, "LOOKED_THROUGH_MAX", 0)
    assert writer.part(np.array([3])) is None


def test_without_indexes_nothing_is_stored():
    topic = Topic()
    topic.put({"id": 1})
    assert topic.indexes.writer(BINDING).part(np.array([0])) is None
