from sow.expressions import TextCache


def test_the_latest_are_kept_up_to_a_weight():
    kept = TextCache(10)
    for name, weight in (("a", 4), ("b", 4), ("c", 4)):
        kept.keep(name, name.upper(), weight)
    assert [kept.get(name) for name in "abc"] == [None, "B", "C"]
    assert (kept.weight, len(kept)) == (8, 2)


def test_one_that_is_too_heavy_is_not_kept_and_costs_the_others_nothing():
    kept = TextCache(10)
    kept.keep("a", "A", 10)
    kept.keep("b", "B", 11)
    assert [kept.get(name) for name in "ab"] == ["A", None]


def test_what_is_kept_again_counts_once():
    kept = TextCache(10)
    for weight in (9, 3, 3):
        kept.keep("a", weight, weight)
    kept.keep("a", 11, 11)
    assert (kept.get("a"), kept.weight) == (None, 0)
