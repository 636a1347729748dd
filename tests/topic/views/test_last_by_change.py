"""The newest row: by its number, then by when it first came."""

import random

from sow.core.lazy_heap import SLACK
from sow.topic.views.last_by_change import LastByChange


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
