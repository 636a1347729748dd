"""Each text is asked once, a few at a time, whatever becomes of the texts meanwhile."""

from sow.indexes import verdicts as module
from sow.indexes.verdicts import Verdicts


class Asked:
    """Texts, and which of them were asked whether they are long."""

    def __init__(self, *texts, cost=1):
        self.texts, self.asked = list(texts), []
        self.verdicts = Verdicts(lambda: self.texts, self._judge, cost)

    def _judge(self, texts):
        self.asked += texts
        return [len(text) > 1 for text in texts]


def test_texts_are_asked_when_they_are_wanted_and_once():
    one = Asked("a", "bb")
    assert one.verdicts.of_all().tolist() == [False, True]
    one.texts.append("cc")
    assert one.verdicts.dirty_count == 1
    assert one.verdicts.of_all().tolist() == [False, True, True]
    assert one.asked == ["a", "bb", "cc"]


def test_so_many_are_asked_in_a_step():
    one = Asked(*"abcde")
    assert [one.verdicts.refresh(2) for _ in range(4)] == [2, 2, 1, 0]
    assert one.verdicts.dirty_count == 0
    assert one.asked == [*"abcde"]


def test_of_long_texts_or_for_dear_tests_fewer(monkeypatch):
    monkeypatch.setattr(module, "CHARS_AT_ONCE", 20)
    texts = ["aaaa", "bbbb", "cccc" * 100, "d", "e"]
    cheap = Asked(*texts)
    assert [cheap.verdicts.refresh(10) for _ in range(3)] == [2, 1, 2]
    dear = Asked(*texts, cost=4)
    assert [dear.verdicts.refresh(10) for _ in range(4)] == [1, 1, 1, 2]


def test_other_texts_are_asked_anew():
    one = Asked("a", "bb")
    one.verdicts.refresh(1)
    one.texts = ["cc"]
    one.verdicts.touch([1])
    assert one.verdicts.dirty_count == 1
    assert one.verdicts.of_all().tolist() == [True]


def test_of_no_texts_nothing_is_asked():
    one = Asked()
    assert one.verdicts.of_all().tolist() == []
    assert one.asked == []
