"""Which index serves a query, and what `explain` says of it."""

import json

import pytest

from sow.indexes import MEMO_COLUMNS_MAX
from sow.query import QueryAnswer, answers
from tests.query.topic import Topic


def orders(count: int = 20, **more: str) -> Topic:
    topic = Topic("/symbol", **more)
    topic.put(
        *({"id": number, "symbol": f"S{number % 4}", "px": number * 1.5} for number in range(count))
    )
    return topic


def terms(answer: QueryAnswer) -> list[tuple]:
    return [tuple(term.values()) for term in answer.explain["terms"]]  # type: ignore[union-attr]


@pytest.mark.parametrize("text", ["/id = 3", "/id = '3'", "3 = /id", "/id IN (3, 3.0) AND /px > 1"])
def test_key_fields_are_served_by_the_table_itself(text: str) -> None:
    answer = orders().answer(text)
    assert (answer.index, answer.matches) == ("hash(/id)", 1)


def test_two_key_fields_are_served_when_both_are_named() -> None:
    topic = Topic(keys="/id,/leg")
    topic.put(*({"id": number % 3, "leg": f"L{number}"} for number in range(9)))
    assert topic.answer("/leg IN ('L1', 'L2') AND /id = 1").index == "hash(/id, /leg)"
    assert topic.found("/leg IN ('L1', 'L2') AND /id = 1") == [1]
    assert topic.answer("/id = 1").index == "memo(/id)"


def test_a_hash_index_serves_every_conjunction_with_its_equality() -> None:
    answer = orders().answer("/px > 3 AND /symbol = 'S1' AND NOT /px = 4")
    assert (answer.index, answer.matches) == ("hash(/symbol)", 4)


def test_a_hash_index_does_not_serve_a_disjunction() -> None:
    assert orders().answer("/symbol = 'S1' OR /px > 3").index == "memo(/symbol), memo(/px)"


def test_a_hash_index_needs_all_its_fields() -> None:
    topic = Topic("/a,/b")
    topic.put({"id": 1, "a": 1, "b": 2}, {"id": 2, "a": 1, "b": 3})
    assert topic.answer("/a = 1").index == "memo(/a)"
    assert topic.answer("/b = 3 AND /a = 1").index == "hash(/a, /b)"
    assert topic.found("/b = 3 AND /a = 1") == [2]


def test_of_two_hash_indexes_the_more_selective_one_goes_first() -> None:
    topic = Topic("/many", "/few")
    topic.put(*({"id": number, "many": 1, "few": number // 2} for number in range(100)))
    topic.indexes.refresh()
    assert topic.answer("/many = 1 AND /few = 7").index == "hash(/few), hash(/many)"


def test_other_fields_are_served_by_memo_columns_made_on_first_use() -> None:
    topic = orders()
    assert not topic.indexes.has_memo(topic.indexes.key.paths[0])
    assert topic.answer("/px > 3 AND /id != 5").index == "memo(/px), memo(/id)"


def test_a_comparison_of_two_fields_uses_both_columns() -> None:
    assert orders().answer("/px > /id").index == "memo(/px), memo(/id)"


def test_what_names_more_fields_than_there_are_columns_is_scanned() -> None:
    many = " + ".join(f"/f{at}" for at in range(MEMO_COLUMNS_MAX + 1))
    assert orders().answer(f"{many} > 1").index == "scan"


def test_plain_tests_are_requested_before_those_that_calculate() -> None:
    requested = orders().answer("/px * 2 > 1 AND /px > 0")
    assert [step.expression for step in requested.steps] == ["/px > 0", "(/px * 2) > 1"]


def test_all_records_are_a_scan() -> None:
    assert (orders().answer().index, orders().answer().matches) == ("scan", 20)


def test_sow_keys_are_looked_up() -> None:
    topic = orders()
    keys = tuple(topic.table.sow_key(slot) for slot in (7, 2, 2))
    answer = topic.answer(keys=(*keys, "1"))
    assert (answer.index, topic.ids(answer.slots)) == ("key", [2, 7])
    assert topic.found("/symbol = 'S3'", keys=keys) == [7]


def test_a_filter_of_constants_holds_for_all_or_none() -> None:
    topic = orders(3)
    topic.drop("1")
    assert topic.found("1 = 1") == [0, 2]
    assert topic.found("1 = 2") == topic.found("NULL = 1 AND /px > 1") == []
    assert topic.found("1 = 1 OR /px > 100") == [0, 2]


def test_few_candidates_are_read_from_their_bodies(monkeypatch) -> None:
    topic = orders(100)
    assert topic.answer("/symbol = 'S1' AND /px > 3").index == "hash(/symbol)"
    monkeypatch.setattr(answers, "FEW_ROWS", 10)
    assert topic.answer("/symbol = 'S1' AND /px > 3").index == "hash(/symbol), memo(/px)"


def test_a_column_that_exists_is_used_for_few_candidates_too() -> None:
    topic = orders(memos="/px")
    topic.indexes.refresh()
    assert topic.answer("/symbol = 'S1' AND /px > 3").index == "hash(/symbol), memo(/px)"


def test_a_column_behind_by_more_than_the_candidates_is_left_alone() -> None:
    topic = orders(memos="/px")
    assert topic.answer("/symbol = 'S1' AND /px > 3").index == "hash(/symbol)"


def test_lists_and_odd_numbers_are_judged_by_their_bodies() -> None:
    topic = Topic()
    values = [[1, 99], 2**53 + 1, 5, "7", None, 2**53]
    topic.put(*({"id": number, "v": value} for number, value in enumerate(values)))
    assert topic.found("/v > 50") == [0, 1, 5]
    assert topic.found("/v = 9007199254740992") == [5]
    assert topic.found("/v = 9007199254740993") == [1]
    assert topic.found("/v < 9007199254740993") == [0, 2, 3, 5]


def test_explain_counts_what_each_term_left() -> None:
    answer = orders().answer("/symbol = 'S1' AND /px > 9 AND /px < 100", "/px DESC")
    assert terms(answer) == [
        ("/symbol = 'S1'", "hash(/symbol)", 5),
        ("/px > 9 AND /px < 100", "scan", 3),
        ("ORDER BY /px DESC", "scan", 3),
    ]
    assert answer.explain["rows_touched"] == 5


def test_explain_of_columns_touches_only_the_answer() -> None:
    answer = orders().answer("/px > 9 AND /symbol != 'S1'", top_n=2)
    assert terms(answer) == [("/px > 9", "memo(/px)", 13), ("/symbol != 'S1'", "memo(/symbol)", 10)]
    assert answer.explain["rows_touched"] == 2


def test_explain_is_plain_json() -> None:
    json.dumps(orders().answer("/id = 3 AND /px > 1", "/px").explain)


def test_a_missing_hash_index_is_advised() -> None:
    topic = orders(1000)
    assert topic.answer("/px = 3").advice == "a HashIndex on /px would serve this"
    assert topic.answer("/symbol = 'S1'").advice == ""


def test_the_first_use_of_a_column_is_sent() -> None:
    topic = orders(1000)
    said = "the column of /px was made just now; the next use is fast"
    assert [topic.answer("/px > 3").advice for _ in range(2)] == [said, ""]


def test_a_small_topic_needs_no_advice() -> None:
    assert orders().answer("/px = 3").advice == ""
