"""Each text is asked once, a few at a time, whatever becomes of the texts meanwhile."""

from sow.indexes import per_value_cache as module
from sow.indexes.per_value_cache import PerValueCache


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
