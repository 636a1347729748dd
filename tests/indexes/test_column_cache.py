"""A memo column holds what the bodies say, and evaluates each text once."""

import gc
import json
import weakref

import numpy as np

from sow.core.cooperative import run_to_completion
from sow.core.paths import parse_path
from sow.indexes import MemoColumn, column_cache
from sow.indexes import column_cache as module
from sow.indexes.column_cache import ABSENT, NULL, NUMBER, OTHER, TEXT, PerValueCache
from sow.indexes.sorting import Interval
from sow.messages import message_type


class Requested:
    """Texts, and which of them were asked whether they are long."""

    def __init__(self, *texts, cost=1):
        self.texts, self.requested = list(texts), []
        self.cache = PerValueCache(lambda: self.texts, self._judge, cost)

    def _judge(self, texts):
        self.requested += texts
        return [len(text) > 1 for text in texts]


def test_texts_are_requested_when_they_are_wanted_and_once():
    one = Requested("a", "bb")
    assert one.cache.of_all().tolist() == [False, True]
    one.texts.append("cc")
    assert one.cache.dirty_count == 1
    assert one.cache.of_all().tolist() == [False, True, True]
    assert one.requested == ["a", "bb", "cc"]


def test_so_many_are_requested_in_a_step():
    one = Requested(*"abcde")
    assert [one.cache.refresh(2) for _ in range(4)] == [2, 2, 1, 0]
    assert one.cache.dirty_count == 0
    assert one.requested == [*"abcde"]


def test_of_long_texts_or_for_dear_tests_fewer(monkeypatch):
    monkeypatch.setattr(module, "CHARS_AT_ONCE", 20)
    texts = ["aaaa", "bbbb", "cccc" * 100, "d", "e"]
    cheap = Requested(*texts)
    assert [cheap.cache.refresh(10) for _ in range(3)] == [2, 1, 2]
    dear = Requested(*texts, cost=4)
    assert [dear.cache.refresh(10) for _ in range(4)] == [1, 1, 1, 2]


def test_other_texts_are_evaluated_again():
    one = Requested("a", "bb")
    one.cache.refresh(1)
    one.texts = ["cc"]
    one.cache.touch([1])
    assert one.cache.dirty_count == 1
    assert one.cache.of_all().tolist() == [True]


def test_of_no_texts_nothing_is_requested():
    one = Requested()
    assert one.cache.of_all().tolist() == []
    assert one.requested == []


A = parse_path("/a")


def column(*values: object) -> tuple[MemoColumn, list[bytes | None]]:
    bodies: list[bytes | None] = [body(value) for value in values]
    made = MemoColumn(A, message_type("json").decoder((A,)), bodies)
    made.refresh()
    return made, bodies


def body(value: object) -> bytes:
    return json.dumps({"a": value}).encode()


def kinds(*values: object) -> list[int]:
    made, _ = column(*values)
    return made.kinds[: len(values)].tolist()


def test_values_are_kept_by_kind() -> None:
    assert kinds(None, "", 1.5, 2, True, "x") == [NULL, NULL, NUMBER, NUMBER, NUMBER, TEXT]


def test_what_a_double_cannot_hold_is_left_to_the_bodies() -> None:
    assert kinds([1, 2], 2**53 + 1, 10**400) == [OTHER, OTHER, OTHER]


def test_a_large_integer_that_is_a_double_is_a_number() -> None:
    assert kinds(2**60, 10**20) == [NUMBER, NUMBER]


def test_containers_and_absent_fields_are_null() -> None:
    made, _ = column({"b": 1})
    assert made.kinds[0] == NULL


def test_a_touched_slot_is_read_again() -> None:
    made, bodies = column(1, 2)
    bodies[1] = body(7)
    made.touch([1, 1])
    made.refresh()
    assert made.numbers[:2].tolist() == [1, 7]


def test_an_untouched_slot_is_not() -> None:
    made, bodies = column(1, 2)
    bodies[0] = body(7)
    made.touch([1])
    made.refresh()
    assert made.numbers[0] == 1


def test_a_freed_slot_is_absent() -> None:
    made, bodies = column("x", 1)
    bodies[0] = bodies[1] = None
    made.touch([0, 1])
    made.refresh()
    assert made.kinds[:2].tolist() == [ABSENT, ABSENT]
    assert np.isnan(made.numbers[1])
    assert made.codes[0] == -1


def test_a_refresh_can_be_limited() -> None:
    made, _ = column(*range(10))
    made.touch(list(range(10)))
    assert made.refresh(4) == 4
    assert made.dirty_count == 6
    assert made.refresh() == 6


def test_a_table_that_grew_is_covered() -> None:
    made, bodies = column(1)
    bodies.extend([body("x")] * 5)
    made.touch([1, 2, 3, 4, 5])
    made.refresh()
    assert made.codes[:6].tolist() == [-1, 0, 0, 0, 0, 0]


def test_counts_follow_every_change() -> None:
    made, bodies = column(1, "x", None, [1])
    bodies[0], bodies[3] = body("y"), None
    made.touch([3, 0, 0])
    made.refresh()
    seen = np.bincount(made.kinds, minlength=5).tolist()
    assert made.counts[1:].tolist() == seen[1:] == [1, 0, 2, 0]


def test_notes_stay_in_proportion_to_the_records() -> None:
    made, _ = column(1)
    for _ in range(5000):
        made.touch([0])
    assert made.dirty_count < 3000


def keeps(texts: list[str]) -> list[bool]:
    return [text == "keep" for text in texts]


def test_texts_that_are_gone_are_given_up(monkeypatch) -> None:
    monkeypatch.setattr(column_cache, "TEXTS_SPARE", 2)
    made, bodies = column("keep", None, "old")
    made.per_value_cache("test", keeps).of_all()
    for turn in range(2000):
        bodies[2] = body(f"v{turn}")
        made.touch([2])
        made.refresh()
    assert len(made.texts) < 1100
    assert [made.texts[code] for code in made.codes[[0, 2]]] == ["keep", "v1999"]
    assert made.per_value_cache("test", keeps).of_all().sum() == 1


def test_no_refresh_looks_at_more_texts_than_a_step_may(monkeypatch) -> None:
    monkeypatch.setattr(column_cache, "TEXTS_SPARE", 2)
    monkeypatch.setattr(column_cache, "SWEPT_AT_ONCE", 80)
    made, bodies = column(*[f"old{at}" for at in range(200)])
    made.refresh()
    going: list[str] = []
    number = replaced = gone = 0
    for _ in range(200):
        for slot in range(0, 200, 10):
            number += 1
            bodies[slot] = body(f"v{number}")
            made.touch([slot])
        texts = made.texts
        made.refresh(20)
        made.check()
        if made.texts is not texts:
            going, gone, replaced = texts, 0, replaced + 1
            ranks = made.text_order.ranks()[:-1]
            assert sorted(made.texts) == [made.texts[at] for at in np.argsort(ranks)]
        # The old ones are let go a few at a time, too.
        assert going.count("") <= gone + 80
        gone = going.count("")
    assert replaced > 3
    assert len(made.texts) < 4 * 200
    assert made.values(np.array([1, 190])) == ["old1", f"v{number}"]


def test_a_frozen_column_stays_as_it_was_and_has_no_texts_of_its_own(monkeypatch) -> None:
    monkeypatch.setattr(column_cache, "TEXTS_SPARE", 2)
    made, bodies = column("keep", None, "old")
    frozen = run_to_completion(made.freezing(bodies[:]))
    assert frozen.texts is made.texts, "a million in one step"
    for turn in range(500):
        bodies[2] = body(f"v{turn}")
        made.touch([2])
        made.refresh()
    assert frozen.values(np.arange(3)) == ["keep", None, "old"]
    assert frozen.per_value_cache("test", keeps).of_all()[frozen.codes[[0, 2]]].tolist() == [
        True,
        False,
    ]
    ranks = frozen.text_order.ranks()
    assert ranks[frozen.codes[0]] < ranks[frozen.codes[2]]
    assert (frozen.codes == frozen.text_code("v7")).sum() == 0
    del frozen
    for turn in range(50):
        bodies[2] = body(f"w{turn}")
        made.touch([2])
        made.refresh()
    made.check()
    assert len(made.texts) < 60, "what is gone is given up again"


def test_a_test_sees_each_text_once() -> None:
    seen: list[str] = []

    def verdicts(texts: list[str]) -> list[bool]:
        seen.extend(texts)
        return [text > "b" for text in texts]

    made, bodies = column("a", "b", "a")
    made.per_value_cache("test", verdicts).of_all()
    bodies[0] = body("c")
    made.touch([0])
    made.refresh()
    assert made.per_value_cache("test", verdicts).of_all().tolist() == [False, False, True]
    assert seen == ["a", "b", "c"]


def test_verdicts_of_tests_long_unused_are_forgotten() -> None:
    made, _ = column("a")
    for test in range(100):
        made.per_value_cache(test, lambda texts: [True]).of_all()
    assert len(made._per_value) == column_cache.TESTS_CACHED_MAX


def test_an_unused_column_is_freed_without_the_collector_of_cycles() -> None:
    made, _ = column("a", 1)
    made.per_value_cache("test", lambda texts: [True]).of_all()
    made.in_order().refresh()
    gone = weakref.ref(made)
    gc.disable()
    del made
    gc.enable()
    assert gone() is None


def test_ranks_are_those_of_the_sorted_texts() -> None:
    made, bodies = column("b", "c", "a")
    assert np.argsort(made.text_order.ranks()[:3]).tolist() == [2, 0, 1]
    bodies[0] = body("0")
    made.touch([0])
    made.refresh()
    assert np.argsort(made.text_order.ranks()[made.codes[:3]]).tolist() == [0, 2, 1]


def test_an_order_follows_the_numbers_until_it_is_unused(monkeypatch) -> None:
    made, bodies = column(3, None, 1)
    order = made.in_order()
    order.refresh()
    bodies[2], bodies[1] = None, body(2)
    bodies.append(body(0))
    made.touch([2, 1])
    made.refresh()
    made.check()
    assert sorted(made.numbers[order.slots(Interval())].tolist()) == [0, 2, 3]
    monkeypatch.setattr(order, "merges", 1_000)
    made.forget_unused()
    assert made.sorted is None
