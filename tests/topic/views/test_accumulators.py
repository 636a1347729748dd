"""The newest row: by its number, then by when it first came."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.core.containers import SLACK
from sow.expressions import AGGREGATES, ORDERLESS, compile_projection
from sow.topic.views.accumulators import SUMS, Keeping, LastByChange
from sow.topic.views.distinct_values import DistinctOrdered, DistinctValues, SortedMultiset
from sow.topic.views.exact_sum import ExactSum
from tests.effort import examples
from tests.topic.views.naive import aggregate


def test_it_is_the_newest_of_the_rows_that_are_there():
    randomness, newest, rows = random.Random(2), LastByChange(), {}
    for seq in range(3000):
        identity = randomness.randrange(40)
        if identity in rows and randomness.random() < 0.5:
            newest.remove(identity)
            del rows[identity]
        else:
            # Some come late, and some at once.
            number = seq - randomness.choice([0, 0, 1, 50])
            rows[identity] = (number, rows[identity][1] if identity in rows else seq, (seq,))
            newest.add(identity, rows[identity][2], rows[identity][1], number)
        expected = max(rows.values(), default=(0, 0, None))[2]
        assert newest.values() == expected


def test_rows_of_one_change_are_sent_apart_by_their_values_whichever_comes_first():
    for order in (("a", "b", "c"), ("c", "b", "a"), ("b", "c", "a")):
        newest = LastByChange()
        for identity in order:
            newest.add(identity, (identity,), 5, 7)
        assert newest.values() == ("a",)


def test_rows_that_have_gone_do_not_stay_on_the_heap():
    newest = LastByChange()
    newest.add("new", ("new",), 1, 10**6)
    for seq in range(5000):
        newest.add("late", (seq,), 2, seq)
    assert newest.values() == ("new",)
    assert len(newest._waiting) <= 2 + SLACK + 1


def test_one_value_is_that_of_the_newest_row():
    newest = LastByChange()
    assert LastByChange.each([newest]) == [None]
    newest.add("a", (1, 2), 1, 1)
    newest.add("b", (3, 4), 2, 2)
    assert LastByChange.each([newest])[0][1] == 4


def test_many_are_added_as_each_by_itself():
    rows = [("a", (1,), 1, 1), ("b", (2,), 2, 2), ("a", (3,), 1, 3), ("b", (4,), 2, 1)]
    one_by_one, together, alone = LastByChange(), LastByChange(), LastByChange()
    for identity, values, born, seq in rows:
        one_by_one.add(identity, values, born, seq)
        LastByChange.add_each([together], [identity], [values], [born], [seq])
        assert together.values() == one_by_one.values()
        LastByChange.add_each([alone], ["a"], [values], [1], [seq])
        assert alone.values() == values
    together.remove("a")
    one_by_one.remove("a")
    assert together.values() == one_by_one.values() == (4,)


KINDS = sorted({*AGGREGATES, "LAST"})
PROJECTION = compile_projection(
    [
        *(f"{kind}(/v) AS /{kind}" for kind in KINDS if kind != "LAST"),
        "/v AS /LAST",
        "GROUP_CONCAT(/w, '; ') AS /others",
        "MIN(/w) AS /least",
        "SUM(/w) AS /total",
    ],
    ["/desk"],
    {"orders": "json"},
)
NUMBERS = [0.1, 0.2, -0.3, 1e16, 1e-300, 5e-324, 1.7e308, -1.7e308, -0.0, 0.0, 1.0, 2.5, 2.0**60]
STRANGE = [math.nan, math.inf, -math.inf, None, "", [], [None], ["7", 1], True, False, "abc", "Abc"]
WHOLE = [0, 1, 2, 3, 2**53 + 1, 2**60, 10**400, -7]
TEXTS = ["1", "1.0", "10", "9", "01", "1e999", "zz"]
values = st.one_of(
    st.sampled_from(NUMBERS),
    st.sampled_from(WHOLE),
    st.sampled_from(TEXTS),
    st.sampled_from(STRANGE),
    st.floats(allow_nan=False),
)
one_kind = st.sampled_from([NUMBERS, WHOLE, TEXTS, [True, False], NUMBERS + WHOLE]).flatmap(
    lambda pool: st.lists(st.sampled_from(pool), min_size=1, max_size=5)
)


class Rows:
    """A group, and its rows as they are."""

    def __init__(self):
        self.keeping = Keeping(PROJECTION)
        self.group = self.keeping.group()
        self.rows = {}
        self.seq = 0

    def put(self, identity, value, other, seq=None):
        self.seq = self.seq + 1 if seq is None else seq
        new = (value, 1, other)
        old = self.rows.get(identity)
        born = self.seq if old is None else old[1]
        self.rows[identity] = (new, born, self.seq)
        if old is None:
            self.group.add(self.of(new), identity, born, self.seq)
        else:
            self.group.replace(self.of(old[0]), self.of(new), identity, born, self.seq)

    def drop(self, identity):
        found = self.rows.pop(identity, None)
        if found is not None:
            self.group.remove(self.of(found[0]), identity, found[1])

    @staticmethod
    def of(values):
        value, _, other = values
        return [{"[orders]./v": value, "[orders]./w": other}[a.text] for a in PROJECTION.arguments]

    def expected(self):
        borns = [born for _, born, _ in self.rows.values()]
        seqs = [seq for _, _, seq in self.rows.values()]
        found = []
        for one in PROJECTION.aggregates:
            text = PROJECTION.arguments[one.argument].text
            at = 0 if text == "[orders]./v" else 2
            column = [values[at] for values, _, _ in self.rows.values()]
            found.append(aggregate(one.kind, column, borns, seqs, one.separator))
        return found

    def check(self):
        kinds = [one.kind for one in PROJECTION.aggregates]
        found = dict(zip(kinds, map(repr, self.group.results()), strict=False))
        assert found == dict(zip(kinds, map(repr, self.expected()), strict=False))
        assert repr(self.group.results()) == repr(self.expected())


steps = st.one_of(
    st.tuples(st.integers(0, 6), values, values),
    st.tuples(st.integers(0, 6)),
)


@given(st.lists(steps, max_size=30))
@examples(24)
def test_a_group_comes_to_what_its_rows_come_to(history):
    replay(history)


@given(one_kind, st.randoms(use_true_random=False))
@examples(24)
def test_so_it_does_where_values_are_of_one_kind(pool, randomness):
    replay(random_history(pool, randomness, 25))


def replay(history):
    rows = Rows()
    for identity, *new in history:
        if new:
            rows.put(identity, *new)
        else:
            rows.drop(identity)
        rows.check()
    for identity in list(rows.rows):
        rows.drop(identity)
    assert repr(rows.group.results()) == repr(Rows().group.results())


def random_history(pool, randomness, size):
    for _ in range(size):
        identity = randomness.randrange(7)
        if randomness.random() < 0.3:
            yield (identity,)
        else:
            yield identity, randomness.choice(pool), randomness.choice(pool)


@given(st.lists(st.tuples(values, values), max_size=8), st.randoms(use_true_random=False))
@examples(24)
def test_rows_that_come_together_in_any_order_make_the_same(together, randomness):
    one, other = Rows(), Rows()
    for identity, row in enumerate(together):
        one.put(identity, *row)
    order = list(range(len(together)))
    randomness.shuffle(order)
    arguments = [[Rows.of(one.rows[at][0])[n] for at in order] for n in range(2)]
    borns = [one.rows[at][1] for at in order]
    other.keeping.add([other.group] * len(order), arguments, order, borns, borns)
    assert repr(other.group.results()) == repr(one.group.results())


@given(one_kind, st.randoms(use_true_random=False))
@examples(24)
def test_rows_by_column_are_as_rows_one_by_one(pool, randomness):
    by_column, one_by_one = [Rows() for _ in range(3)], [Rows() for _ in range(3)]
    keeping = by_column[0].keeping
    where = [randomness.randrange(3) for _ in range(12)]
    olds = None
    for step in range(5):
        news = [(randomness.choice(pool), 1, randomness.choice(pool)) for _ in where]
        seqs = [step * len(where) + at + 1 for at in range(len(where))]
        groups = [by_column[group].group for group in where]
        columns = [*zip(*map(Rows.of, news), strict=True)]
        if olds is None:
            borns = seqs
            keeping.add(groups, columns, range(len(where)), borns, seqs)
        else:
            before = [*zip(*map(Rows.of, olds), strict=True)]
            keeping.replace(groups, before, columns, range(len(where)), borns, seqs)
        for at, group in enumerate(where):
            one_by_one[group].put(at, news[at][0], news[at][2], seqs[at])
        olds = news
        found = keeping.results([rows.group for rows in by_column])
        for at, rows in enumerate(one_by_one):
            assert repr([column[at] for column in found]) == repr(rows.expected())
            rows.check()


def test_sums_are_those_of_fsum_whatever_came_and_went():
    randomness = random.Random(3)
    group, there = ExactSum(), []
    for _ in range(3000):
        if there and randomness.random() < 0.45:
            group.remove(there.pop(randomness.randrange(len(there))))
        else:
            there.append(randomness.uniform(-1, 1) * 10 ** randomness.randrange(-20, 20))
            group.add(there[-1])
        if there:
            assert group.total() == math.fsum(there)


# Faults that are planted.


class Running:
    """A sum of doubles that is rounded whenever one comes or goes."""

    exact = ExactSum._change, ExactSum.total

    def __init__(self):
        self.sums = {}

    def change(self, exact, value, sign):
        self.exact[0](exact, value, sign)
        if isinstance(value, float) and math.isfinite(value):
            self.sums[id(exact)] = self.sums.get(id(exact), 0.0) + sign * value

    def total(self, exact):
        found = self.exact[1](exact)
        return self.sums[id(exact)] if isinstance(found, float) and math.isfinite(found) else found


def planted(monkeypatch, fault):
    match fault:
        case "the minimum is not looked for again":
            monkeypatch.setattr(SortedMultiset, "remove", _not_looking_again)
        case "a value that goes stays in the sum":
            monkeypatch.setattr(ExactSum, "remove", lambda self, value, born=0: None)
        case "a value that goes stays among the different ones":
            monkeypatch.setattr(DistinctValues, "remove", lambda self, value, born=0: None)
        case "the sum is a running double":
            running = Running()
            monkeypatch.setattr(ExactSum, "_change", lambda *given: running.change(*given))
            monkeypatch.setitem(SUMS, "SUM", lambda these: [*map(running.total, these)])
        case "NaN does not go":
            monkeypatch.setattr(ExactSum, "_change_strange", _not_going)
        case "the newest row that goes is still reported":
            monkeypatch.setattr(LastByChange, "remove", lambda self, identity: None)
        case "a text keeps the place of a row that has gone":
            monkeypatch.setattr(DistinctOrdered, "remove", lambda self, value, born: None)


def _not_looking_again(self, value):
    self.counts[value] -= 1
    if not self.counts[value]:
        del self.counts[value]
        return True
    return False


def _not_going(self, value, sign):
    self._strange = 1


@pytest.mark.parametrize(
    "fault",
    [
        "the minimum is not looked for again",
        "a value that goes stays in the sum",
        "a value that goes stays among the different ones",
        "the sum is a running double",
        "NaN does not go",
        "the newest row that goes is still reported",
        "a text keeps the place of a row that has gone",
    ],
)
def test_a_planted_fault_is_found(monkeypatch, fault):
    planted(monkeypatch, fault)
    pool = [0.1, 0.2, 0.3, 1e16, -1e16, math.nan]
    with pytest.raises((AssertionError, KeyError)):
        replay(random_history(pool, random.Random(5), 500))


def test_what_is_kept_elsewhere_is_the_group():
    texts = [f"{kind}(/v) AS /{kind}" for kind in ORDERLESS]
    keeping = Keeping(compile_projection(texts, ["/desk"], {"orders": "json"}))
    group, moved = keeping.group(), keeping.group()
    for at, value in enumerate([0.1, 0.2, "3", None, 7]):
        group.add((value,), at, at, at)
    moved.restore(group.states())
    group.remove((7,), 4, 4)
    moved.remove((7,), 4, 4)
    assert moved.results() == group.results()
    assert None not in moved.results()


def test_the_newest_row_is_known_of_groups_without_arguments():
    """A view over `GROUP BY /desk` may ask for the newest of its rows."""
    keeping = Keeping(compile_projection(["/desk"], ["/desk"], {"orders": "json"}), True)
    groups = [keeping.group(), keeping.group()]
    keeping.add(groups, [], ["a", "b"], [1, 2], [3, 4])
    assert [group.newest_seq for group in groups] == [3, 4]
    keeping.replace(groups, [], [], ["a", "b"], [1, 2], [6, 5])
    assert [group.newest_seq for group in groups] == [6, 5]
