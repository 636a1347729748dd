"""Copies with one filter: judged once, each by its own windows; some records, or all of a batch."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from sow.core.definitions import ConflatedTopic
from sow.expressions import compile_filter
from sow.topic.conflated_topic import ConflatedCopy
from sow.topic.shared_filter import SharedFilter
from tests.effort import examples
from tests.topic.making import held, put, records

SECOND = 1_000_000
COPY = ConflatedTopic("copy", "json", "orders", interval_us=SECOND)


class Focused:
    """A topic, a focus of two copies of different intervals, and one more copy of its own."""

    def __init__(self, text):
        self.source = records()
        self.condition = compile_filter(text) if text else None
        self.fast = self.made("fast", SECOND)
        self.slow = self.made("slow", 3 * SECOND)
        self.alone = self.made("alone", SECOND)
        self.focus = SharedFilter(self.condition)
        for copy in (self.fast, self.slow):
            self.focus.add(copy)
        self.seq = self.now_us = 0

    def made(self, name, interval_us):
        definition = replace(COPY, name=name, interval_us=interval_us)
        kept = records(definition, keys=("/id",))
        return ConflatedCopy(kept, self.source, definition, self.condition)

    def tell(self, batch, some):
        """Offer all of it, or the records that may pass or that a copy has."""
        self.alone.on_batch(batch, self.now_us)
        if not some:
            return self.focus.on_batch(batch, self.now_us)
        places = {}
        for at, identity in enumerate(batch.changes.identities):
            places.setdefault(identity, []).append(at)
        found = [at for at, inside in enumerate(batch.new_focus(self.condition)) if inside]
        return self.focus.on_some(batch, found, places.keys(), places, self.now_us)

    def put(self, *documents, some=False):
        batch = put(self.source, *documents, seq=self.seq + 1, ts_us=self.now_us)
        self.seq += len(documents)
        return self.tell(batch, some)

    def drop(self, id_, some=False):
        batch = self.source.drop([str(id_)], "deleted", lambda _: ([self.seq + 1], [self.now_us]))
        if batch is not None:
            self.seq += 1
            self.tell(batch, some)

    def wait(self, by_us):
        """What each copy says in this time, as (when, reason or what is there now, partings)."""
        said = {copy.copy.name: [] for copy in (self.fast, self.slow, self.alone)}
        end_us = self.now_us + by_us
        for copy in (self.fast, self.slow, self.alone):
            while (due_us := copy.due_us()) is not None and due_us <= end_us:
                for batch in copy.advance(max(due_us, self.now_us)):
                    changes = batch.changes
                    what = changes.reason or list(changes.news)
                    said[copy.copy.name].append((due_us, what, changes.partings))
        self.now_us = end_us
        return said


def test_each_copy_releases_by_its_own_interval():
    focused = Focused("/v > 1")
    assert focused.put({"id": 1, "v": 2}, {"id": 2, "v": 0}) == [focused.fast, focused.slow]
    assert focused.put({"id": 1, "v": 3}) == []
    said = focused.wait(SECOND)
    assert said["fast"] == [(SECOND, [b'{"id":1,"v":3}'], None)]
    assert said["slow"] == []
    assert held(focused.fast.copy) == [{"id": 1, "v": 3}]


def test_who_has_gone_hears_no_more():
    focused = Focused(None)
    focused.focus.remove(focused.slow)
    assert focused.put({"id": 1}) == [focused.fast]
    assert focused.slow.due_us() is None


def test_who_holds_a_record_hears_of_it_though_it_does_not_pass():
    focused = Focused("/v > 1")
    focused.put({"id": 1, "v": 2})
    focused.wait(4 * SECOND)
    focused.put({"id": 1, "v": 0}, {"id": 2, "v": 0}, some=True)
    focused.put({"id": 1, "v": 1}, some=True)
    said = focused.wait(4 * SECOND)
    assert said["fast"][0][1:] == ("match", [b'{"id":1,"v":1}'])
    assert held(focused.slow.copy) == []


def test_all_changes_count_of_a_record_that_comes_twice_in_a_batch():
    focused = Focused("/v > 1")
    focused.put({"id": 1, "v": 2}, {"id": 2, "v": 0}, {"id": 1, "v": 3}, some=True)
    said = focused.wait(4 * SECOND)
    assert said["fast"] == [(SECOND, [b'{"id":1,"v":3}'], None)]
    focused.put({"id": 1, "v": 4}, {"id": 2, "v": 0}, {"id": 1, "v": 0}, some=True)
    said = focused.wait(4 * SECOND)
    assert [what for _, what, _ in said["fast"]] == ["match"]
    assert held(focused.slow.copy) == []


documents = st.fixed_dictionaries({"id": st.integers(0, 3), "v": st.integers(0, 3)})
acts = st.lists(
    st.one_of(
        st.lists(documents, min_size=1, max_size=5),
        st.integers(0, 3),
        st.sampled_from((SECOND // 3, SECOND, 4 * SECOND)).map(float),
    ),
    max_size=15,
)


@examples(30)
@given(st.sampled_from((None, "/v > 1")), acts, st.booleans())
def test_a_copy_says_what_it_would_say_if_it_heard_alone(text, taken, some):
    focused = Focused(text)
    for act in [*taken, 4.0 * SECOND]:
        if isinstance(act, list):
            focused.put(*act, some=some)
        elif isinstance(act, int):
            focused.drop(act, some=some)
        else:
            said = focused.wait(int(act))
            assert said["fast"] == said["alone"]
        for copy in (focused.fast, focused.slow, focused.alone):
            copy.conflation.check()
    focused.wait(4 * SECOND)
    assert by_id(focused.slow) == by_id(focused.fast)


def by_id(copy):
    return sorted(held(copy.copy), key=lambda document: document["id"])
