"""The first records of an order, kept while records change."""

from random import Random

from sow.streaming.windows.window_heads import TO_THE_END, WindowHead


def entry(rank, name):
    return ((2, rank), ord(name[0]), name)


def head_of(*ranks, complete=False):
    head = WindowHead()
    head.fill([entry(rank, name) for name, rank in zip("abcdefgh", ranks, strict=False)], complete)
    return head


def names(head):
    return "".join(one[-1] for one in head.order)


def test_it_knows_of_nothing_before_it_is_filled():
    head = WindowHead()
    assert head.put(entry(1, "a")) is None
    assert len(head) == 0


def test_what_ranks_after_its_bound_is_not_looked_at():
    head = head_of(1, 2, 3)
    assert head.put(entry(4, "x")) is None
    assert head.put(entry(2.5, "x")) == (2, TO_THE_END)
    assert names(head) == "abxc"


def test_what_leaves_is_not_replaced_and_the_bound_stays():
    head = head_of(1, 2, 3)
    assert head.drop("c") == (2, TO_THE_END)
    assert head.put(entry(2.9, "x")) == (2, TO_THE_END), (
        "nothing stands between what is left and the bound"
    )
    assert head.put(entry(3.1, "y")) is None
    assert names(head) == "abx"


def test_the_places_that_are_concerned_are_sent():
    head = head_of(1, 2, 3)
    assert head.put(entry(2, "b")) == (1, 1), "changed in its place"
    assert head.put(entry(2.5, "a")) == (0, 1), "from where it stood"
    assert head.put(entry(0, "c")) == (0, 2), "to where it stands"
    assert names(head) == "cba"
    assert head.put(entry(9, "c")) == (0, TO_THE_END), "all behind it stand elsewhere"
    assert head.drop("z") is None


def test_a_complete_one_takes_whatever_comes_until_it_is_cut():
    head = head_of(1, 2, complete=True)
    for rank, name in enumerate("wxyz", start=5):
        head.put(entry(rank, name))
    head.cut(3)
    assert names(head) == "abwxyz", "not much longer than it should be"
    head.cut(2)
    assert names(head) == "ab"
    assert not head.complete
    assert head.put(entry(5, "w")) is None


def test_it_is_a_beginning_of_the_order_whatever_happens():
    random, head, there = Random(1), WindowHead(), {}
    head.fill([], complete=True)
    for _ in range(2000):
        name, rank = random.choice("abcdefghijkl"), random.randint(0, 30)
        if random.random() < 0.3:
            there.pop(name, None)
            head.drop(name)
        else:
            there[name] = entry(rank, name)
            head.put(there[name])
        head.cut(2)
        order = sorted(there.values())
        assert head.order == order[: len(head)]
        if head.complete or len(head) < 2:
            head.fill(order[:3], complete=len(order) < 3)
        head.check()
