"""Values lead to the places of the terms that may be true of them."""

from hypothesis import given
from hypothesis import strategies as st

from sow.expressions import RESTLESS_CHARS_MAX, compile_filter, find_access
from sow.streaming import term_buckets
from sow.streaming.term_buckets import (
    Intervals,
    PatternBuckets,
    RangeBuckets,
    ValueBuckets,
    keys_of,
    kind_of,
)
from tests.cases import all_cases

NAN = float("nan")


def found(condition, values):
    """The values of a column that lead to the only term of a condition."""
    (term,) = find_access(compile_filter(condition).conjuncts).terms
    places = kind_of(term)()
    for key in keys_of(term):
        places.hold(key, condition)
    places.check()
    at = dict.fromkeys(number for number, _ in places.find(values, range(len(values))))
    for key in keys_of(term):
        places.release(key)
    places.check()
    assert list(places.find(values, range(len(values)))) == []
    return [values[number] for number in at]


@all_cases(
    ("condition", "wanted", "others"),
    [
        ("/a = 5", [5, 5.0, "5", "5.0", "+5", [1, "5"]], [None, "", 4, "five", NAN, []]),
        ("/a = TRUE_VALUE()", [True, 1, "1", "1.0"], [False, "true"]),
        ("/a IN ('A', 10)", ["A", 10, "1e1"], ["B", 1]),
        ("/a > 5", [6, 5.5, "7", "text", "1e999", [1, 9], 10**400], [4, "4", None, "", NAN, [1]]),
        ("/a < 'b'", ["a", "A", 1, 10**400, [1]], ["c", "", None, NAN]),
        ("/a > '5'", ["6", "A", 6, "5.0"], ["4", 4, "1e1"]),
        ("/a BETWEEN 1 AND 5 AND /a > 3", [4, [1, 9]], [2, [1, 2], [6, 7]]),
        ("/a > 'M' AND /a < 'P'", ["N", ["Z", 5], ["Z", "A"]], ["A", ["A", "B"]]),
        ("/a LIKE '^1'", ["1x", 1, True, 10.5, ["x", "1"]], ["x1", 0, None, ""]),
        ("/a LIKE 'nan'", [NAN, "banana"], ["NaN"]),
    ],
)
def test_what_a_term_may_be_true_of_leads_to_it(condition, wanted, others):
    assert repr(found(condition, [*others, *wanted])) == repr(wanted)


def test_terms_are_filed_by_their_kind():
    condition = compile_filter("/a = 1 OR /b > 1 OR /c LIKE 'x'")
    kinds = [kind_of(term) for term in find_access(condition.conjuncts).terms]
    assert kinds == [ValueBuckets, RangeBuckets, PatternBuckets]


def test_keys_that_are_equal_are_one():
    (term,) = find_access(compile_filter("/a IN (5, '5', 5.0, '5.0', 'A')").conjuncts).terms
    assert keys_of(term) == [5, "A"]


def test_patterns_with_something_free_in_them_are_not_looked_for_together_in_long_texts():
    """Their automaton would make a state for each character; each by itself has few."""
    places = PatternBuckets()
    for pattern in ("ab", "a.*b", "^x[0-9]$"):
        places.hold(pattern, pattern)
    places.check()
    short, long = "ac" + "c" * (RESTLESS_CHARS_MAX - 2), "ac" + "c" * (RESTLESS_CHARS_MAX - 1)

    def led_to(text):
        return {pattern for _, pattern in places.find([text], [0])}

    assert led_to(short) == led_to("c") == set()
    assert led_to(short + "b") == {"a.*b", "^x[0-9]$"}
    assert led_to(long) == {"a.*b", "^x[0-9]$"}, "they were looked for together"
    assert led_to("ab" + long) == {"ab", "a.*b", "^x[0-9]$"}
    for pattern in ("a.*b", "^x[0-9]$"):
        places.release(pattern)
    assert led_to(long) == set()
    assert led_to("ab" + long) == {"ab"}


numbers = st.integers(-5, 5) | st.sampled_from([0.5, 10**400, float("inf"), -0.0])
bounds = st.tuples(st.none() | numbers, st.none() | numbers)


def touches(interval, low, high):
    begin, end = interval
    return (begin is None or begin <= high) and (end is None or end >= low)


@given(st.lists(bounds, max_size=20), st.data(), numbers, numbers)
def test_what_is_found_is_what_touches(every, data, one, other):
    intervals, held = Intervals(), dict(enumerate(every))
    for key, (low, high) in held.items():
        intervals.add(key, low, high, key)
    for key in data.draw(
        st.lists(st.sampled_from(range(len(every))), unique=True) if every else st.just([])
    ):
        intervals.remove(key, *held.pop(key))
        intervals.check()
    low, high = sorted((one, other))
    assert sorted(intervals.touching(low, high)) == [
        key for key, interval in held.items() if touches(interval, low, high)
    ]
    intervals.check()
    assert sorted(intervals.all()) == list(held)
    assert len(intervals) == len(held)


def test_what_is_remembered_is_forgotten_when_somebody_comes_or_goes(monkeypatch):
    intervals = Intervals()
    for number in range(3):
        intervals.add(number, 0, 10, number)
        assert intervals.touching(5, 5) is intervals.touching(6, 6)
        assert sorted(intervals.touching(5, 5)) == list(range(number + 1))
    intervals.remove(1, 0, 10)
    assert sorted(intervals.touching(5, 5)) == [0, 2]
    monkeypatch.setattr(term_buckets, "KNOWN_MAX", 1)
    intervals.remove(2, 0, 10)
    intervals.add(3, 7, None, 3)
    assert (sorted(intervals.touching(8, 8)), intervals.touching(6, 6)) == ([0, 3], [0])
    assert len(intervals._known) == 1


def test_places_that_were_left_are_taken_again():
    intervals = Intervals()
    for number in range(1000):
        intervals.add(number, number, number + 1, str(number))
        if number:
            intervals.remove(number - 1, number - 1, number)
    assert intervals.touching(999.5, 999.5) == ["999"]
    assert intervals._lows.size <= 16


def test_texts_are_an_order_like_numbers():
    intervals = Intervals()
    intervals.add("a", "2026-01-01", "2026-02-01", "January")
    intervals.add("b", "2026-02-01", None, "later")
    assert intervals.touching("2026-01-31", "2026-01-31") == ["January"]
    assert sorted(intervals.touching("2026-02-01", "2026-02-01")) == ["January", "later"]
