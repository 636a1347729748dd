"""Whoever's filter a record passes is found by the record's values, by whatever it is filed.

The copies of a topic get what concerns them, whether their filter is indexed or evaluated.
"""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sow.core.definitions import ConflatedTopic
from sow.expressions import access_of, compile_filter, compile_term, patterns
from sow.streaming import predicate_index, term_buckets
from sow.streaming.predicate_index import FilteredCopies, PredicateIndex, SharedFilter
from sow.topic.conflated_topic import ConflatedCopy
from tests.cases import all_cases
from tests.effort import examples
from tests.expressions.strategies import PATHS, TRAITS, expressions, values
from tests.topic.making import held, put, records

ODD = [10**400, -(10**400), "1e3", 1000, "1e999", "NaN", "inf", " 5", "+5", "٣", "\ud800"]
odd_values = values | st.sampled_from(ODD) | st.lists(st.sampled_from(ODD), max_size=3)
rows = st.fixed_dictionaries(
    {
        **{path: st.none() | odd_values if at > 1 else odd_values for at, path in enumerate(PATHS)},
        **TRAITS,
    }
)
FORMS = [
    "/a > {0}", "/a <= {0}", "/a > {0} AND /a < {1}", "/a BETWEEN {0} AND {1}", "{0} < /a",
    "/a = {0} OR /b/c > {1}", "/a IN ({0}, {1}) AND /b/c > 1", "/a LIKE '^A' OR /a LIKE '5'",
    "(/a = {0} AND /b/c = {1}) OR (/a = {0} AND /b/c > {1})", "/a = 'A' AND /b/c LIKE '[a-z]+$'",
    "/a > {0} AND NOT /b/c = {1}", "/a = {0} AND /b/c < {1} AND /b/c > {0}",
]  # fmt: skip
LITERALS = ["0", "5", "-1", "1e3", "'5'", "'1e3'", "'A'", "'b'", "NULL", "1e999", "TRUE_VALUE()"]
written = st.builds(
    lambda form, *literals: compile_filter(form.format(*literals)).expression,
    st.sampled_from(FORMS), st.sampled_from(LITERALS), st.sampled_from(LITERALS),
)  # fmt: skip
conditions = st.one_of(written, written, expressions)


class Follower:
    """What a term index knows of a feed."""

    def __init__(self, expression, wants_old=False):
        self.condition = compile_term(expression)
        self.terms = access_of(self.condition)
        self.wants_old = wants_old

    def wants(self, row):
        return self.condition.holds([row[source] for source in self.condition.sources])


def filed(followers, index):
    return {one: one.terms for one in followers if index.add(one, one.terms)}


def found_among(index, batch, old=False):
    found = {}
    columns = {path: [row[path] for row in batch] for path in PATHS}
    index.find(columns.__getitem__, range(len(batch)), found, old=old)
    return found


@pytest.fixture
def crowds_of_two(monkeypatch):
    monkeypatch.setattr(predicate_index, "CROWD_MIN", 2)
    monkeypatch.setattr(patterns, "SMALL_SET_MAX", 2)
    monkeypatch.setattr(patterns, "LARGE_SET_MAX", 3)


def whoever_wants_a_record_is_found(wanted, batch, leaving):
    """The law; some leave at a time, as many as `leaving` gives, until nobody is left."""
    index = PredicateIndex()
    standing = filed([Follower(*one) for one in wanted], index)
    while True:
        index.check(standing)
        for old in (False, True):
            found = found_among(index, batch, old)
            for one in standing:
                needed = {at for at, row in enumerate(batch) if one.wants(row)}
                assert (old and not one.wants_old) or needed <= set(found.get(one, ()))
            assert found.keys() <= standing.keys()
        if not standing:
            break
        for one in list(standing)[::leaving]:
            index.remove(one, standing.pop(one))
    assert not index


law = settings(deadline=None)(
    given(
        st.lists(st.tuples(conditions, st.booleans()), max_size=8),
        st.lists(rows, min_size=1, max_size=3),
        st.integers(1, 3),
    )(whoever_wants_a_record_is_found)
)


def test_whoever_wants_a_record_is_found():
    law()


def test_whoever_wants_a_record_is_found_in_crowds(crowds_of_two):
    law()


@pytest.mark.parametrize(
    ("where", "name", "bug", "condition", "value"),
    [
        (term_buckets, "bisect_right", term_buckets.bisect_left, "/a <= 5 AND /a >= 5", 5),
        (term_buckets, "_rank", lambda text: term_buckets.as_number(text) or 0, "/a > 5", "A"),
        (term_buckets, "value_key", lambda value: value, "/a = '5'", 5),
        (term_buckets, "elements", lambda value: value[:1], "/a LIKE 'A'", ["B", "A"]),
        (term_buckets.RangeBuckets, "_of_text", lambda *_: [], "/a > '2026'", "2027"),
    ],
)
def test_the_law_notices_what_is_wrong(where, name, bug, condition, value, monkeypatch):
    follower = compile_filter(condition).expression, True
    batch = [dict.fromkeys(PATHS) | {PATHS[0]: value}]
    whoever_wants_a_record_is_found([follower], batch, 1)
    monkeypatch.setattr(where, name, bug)
    with pytest.raises(AssertionError):
        whoever_wants_a_record_is_found([follower], batch, 1)


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
    assert held_by_id(focused.slow) == held_by_id(focused.fast)


def held_by_id(copy):
    return sorted(held(copy.copy), key=lambda document: document["id"])


TEXTS = (
    None, "/px > 2", "/px BETWEEN 1 AND 3", "/symbol = 'A'", "/symbol LIKE '^A'", "NOT /px = 1",
    "/symbol = 'A' AND /px > 1", "/symbol = 'B' OR /px = 4", "/px IS NULL",
)  # fmt: skip


class Following:
    """A topic, and copies of it by their filters."""

    def __init__(self, *texts):
        self.source = records()
        self.focuses = FilteredCopies()
        self.copies = [self.made(text) for text in texts]
        for copy in self.copies:
            self.focuses.add(copy)
        self.seq = 0

    def made(self, text):
        condition = compile_filter(text) if text else None
        kept = records(replace(COPY, name=f"copy {text}", filter=text), keys=("/id",))
        return ConflatedCopy(kept, self.source, COPY, condition)

    def put(self, now_us, *documents):
        batch = put(self.source, *documents, seq=self.seq + 1, ts_us=now_us)
        self.seq += len(documents)
        return self.focuses.on_batch(batch, now_us)

    def drop(self, now_us, *ids):
        names = [str(id_) for id_ in ids]
        batch = self.source.drop(names, "deleted", lambda n: (range(99, 99 + n), [now_us] * n))
        if batch is not None:
            self.focuses.on_batch(batch, now_us)

    def filed(self):
        return list((self.focuses._filed or {}).values())


@pytest.fixture(params=[1, 2, 100])
def crowd(request, monkeypatch):
    """Filters are indexed, all or from the second on; or evaluated."""
    monkeypatch.setattr(predicate_index, "COPIES_INDEXED_MIN", request.param)
    return request.param


def random_documents(random):
    for _ in range(random.choice((1, 1, 3, 20))):
        document = {"id": random.randrange(6), "symbol": random.choice("ABC")}
        if random.random() < 0.9:
            document["px"] = random.randrange(6)
        yield document


def release(copy, now_us):
    """All turns that are due."""
    while (due_us := copy.due_us()) is not None and due_us <= now_us:
        copy.advance(now_us)


@all_cases("seed", range(20))
def test_a_copy_is_its_topic_through_its_filter_one_interval_later(crowd, seed):
    random, following, now_us = Random(seed), Following(*TEXTS), 0
    for _ in range(30):
        if random.random() < 0.2:
            following.drop(now_us, random.randrange(6), random.randrange(6))
        else:
            following.put(now_us, *random_documents(random))
        now_us += random.choice((0, SECOND // 3, SECOND))
        if random.random() < 0.5:
            for copy in following.copies:
                release(copy, now_us)
        following.focuses.check()
    for copy in following.copies:
        release(copy, now_us + 2 * SECOND)
        copy.conflation.check()
        expected = [
            document
            for document in held(following.source)
            if copy.condition is None
            or copy.condition.holds([document.get(str(path)[1:]) for path in copy.condition.paths])
        ]
        assert by_id(held(copy.copy)) == by_id(expected), copy.copy.name


def by_id(documents):
    return sorted(documents, key=lambda document: document["id"])


def test_those_that_have_something_to_release_now_are_sent_of_once(crowd):
    following = Following("/px > 2", "/symbol = 'A'")
    high, a = following.copies
    assert following.put(0, {"id": 1, "px": 9, "symbol": "B"}) == [high]
    assert following.put(1, {"id": 2, "px": 9, "symbol": "A"}) == [a]
    assert following.put(2, {"id": 2, "px": 9, "symbol": "A"}) == []


def test_a_record_that_comes_twice_in_a_batch_is_heard_of_twice(crowd):
    following = Following("/px > 2", "/px = 7")
    high, _ = following.copies
    following.put(0, {"id": 1, "px": 9}, {"id": 1, "px": 1}, {"id": 2, "px": 3})
    high.advance(2 * SECOND)
    assert held(high.copy) == [{"id": 2, "px": 3}]


def test_copies_with_one_filter_are_one_focus():
    following = Following("/px > 2", "/px > 2", None, None, "/px > 3")
    assert [len(focus.copies) for focus in following.focuses] == [2, 2, 1]
    assert list(following.focuses.copies()) == following.copies


def test_who_was_removed_hears_no_more(crowd):
    following = Following(*TEXTS)
    for copy in following.copies:
        following.focuses.remove(copy)
        following.focuses.check()
    assert following.put(0, {"id": 1, "px": 1, "symbol": "A"}) == []
    assert list(following.focuses) == []
    assert all(copy.due_us() is None for copy in following.copies)


def test_of_many_filters_only_those_are_requested_that_nothing_finds(monkeypatch):
    monkeypatch.setattr(predicate_index, "COPIES_INDEXED_MIN", 3)
    following = Following("/px = 1", "NOT /px = 2")
    assert following.filed() == []
    for text in ("/px = 3", "/px = 4"):
        following.focuses.add(following.made(text))
    assert [focus.condition.text for focus in following.filed()] == [
        "/px = 1",
        "/px = 3",
        "/px = 4",
    ]
