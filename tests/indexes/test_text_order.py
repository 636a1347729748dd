import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.indexes import text_order as module
from sow.indexes.text_order import TextOrder
from tests.effort import examples


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch) -> None:
    monkeypatch.setattr(module, "TEXTS_AT_ONCE", 4)
    monkeypatch.setattr(module, "LATER_MAX", 3)


def agree(order: TextOrder, texts: list[str]) -> None:
    ranks = order.ranks().tolist()
    assert [texts[code] for code in np.argsort(ranks[: len(texts)])] == sorted(texts)
    assert len(set(ranks)) == len(texts) + 1
    assert ranks[-1] == -np.inf


@given(st.lists(st.lists(st.text(max_size=3), max_size=9), max_size=6), st.booleans())
@examples(48)
def test_texts_rank_as_they_sort_however_they_came(additions: list, in_steps: bool) -> None:
    texts: list[str] = []
    order = TextOrder(texts)
    for more in additions:
        while in_steps and order.dirty_count:
            order.refresh(1)
        texts += [text for text in dict.fromkeys(more) if text not in texts]
        agree(order, texts)


def test_many_texts_are_sorted_in_steps_and_few_at_once() -> None:
    texts = [f"t{number * 7 % 40}" for number in range(40)]
    order = TextOrder(texts)
    steps = 0
    while order.dirty_count:
        order.refresh(1)
        steps += 1
    assert steps > 40 / 4
    texts += ["a", "b", "z"]
    assert order.dirty_count == 0
    agree(order, texts)


def test_texts_that_come_while_others_are_sorted_are_not_lost() -> None:
    texts = [f"t{number}" for number in range(40)]
    order = TextOrder(texts)
    for text in ("s", "u"):
        order.refresh(1)
        texts.append(text)
    while order.dirty_count:
        order.refresh(1)
    agree(order, texts)


def test_what_is_known_of_ranks_is_kept() -> None:
    order = TextOrder(["b", "a"])
    assert order.ranks() is order.ranks()
