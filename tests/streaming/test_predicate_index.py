"""Whoever's filter a record passes is found by the record's values, by whatever it is filed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sow.expressions import access_of, compile_filter, compile_term, patterns
from sow.streaming import predicate_index, term_buckets
from sow.streaming.predicate_index import PredicateIndex
from tests.expressions.strategies import PATHS, TRAITS, expressions, values

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
