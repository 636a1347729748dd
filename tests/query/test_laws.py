"""The one law of indexes: whatever they are, the answer is that of looking at every record."""

import dataclasses
import itertools

import pytest
from hypothesis import HealthCheck, event, given
from hypothesis import strategies as st

from sow import indexes
from sow.core.cooperative import run_to_completion
from sow.core.keys import sow_key
from sow.indexes import (
    ComputedColumn,
    ConditionCache,
    column_cache,
    sorting,
)
from sow.indexes.pending_rows import PendingRows
from sow.query import Query, answering, answers, index_build
from sow.query import query as access
from tests.effort import examples
from tests.query.topic import Topic, naive, query

SCALARS = st.sampled_from(
    [None, "", "5", "05", "5.0", 5, 5.0, True, False, 0, 1, -2, 7.25, "a", "ab", "true", "1e400",
     2**53, 2**53 + 1, float(2**53), 10**30, 1e30, "9007199254740993", "-2"]
)  # fmt: skip
VALUES = st.one_of(SCALARS, SCALARS, st.lists(SCALARS, max_size=3), st.just({"c": 1}))
LITERALS = st.sampled_from(
    ["5", "'5'", "'05'", "5.0", "'5.0'", "0", "1", "-2", "7.25", "'a'", "'ab'", "'true'", "NULL",
     "''", "TRUE_VALUE()", "9007199254740992", "9007199254740993", "1e30", "1e999", "'1e400'",
     "1000000000000000000000000000000"]
)  # fmt: skip
FIELDS = st.sampled_from(["/a", "/b", "/id", "/a[1]"])
OPERATORS = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])


KEYS = st.sampled_from([str(sow_key("topic", name)) for name in ("1", "2", '"x"')] + ["7"])


@st.composite
def conditions(draw: st.DrawFn) -> str:
    field, literal, other = draw(FIELDS), draw(LITERALS), draw(LITERALS)
    members = ", ".join(draw(st.lists(LITERALS, min_size=1, max_size=4)))
    operand = draw(FIELDS | LITERALS)
    return draw(
        st.sampled_from(
            [
                f"{field} = {literal}",
                f"{literal} = {field}",
                f"{field} {draw(OPERATORS)} {literal}",
                f"{literal} {draw(OPERATORS)} {field}",
                f"{operand} BETWEEN {literal} AND {other}",
                f"{field} IN ({members})",
                f"{operand} IS NULL",
                f"{operand} LIKE '{draw(st.sampled_from(['a', '5', '^a$', '[0-9]']))}'",
                f"{field} {draw(OPERATORS)} {draw(FIELDS)}",
                f"{operand} BEGINS WITH ({members})",
                f"{operand} ENDS WITH ({members})",
                f"{operand} IS NAN",
                f"{field} {draw(st.sampled_from('+-*/%'))} {literal} = {other}",
                f"COALESCE({field}, {literal}) = {other}",
                f"IF({field} = {literal}, 1, 2) = 2",
                f"({field} = {literal}) IS NULL",
                f"LENGTH({operand}) = 1",
                f"{literal} IN ({field}, {draw(FIELDS)} * 1)",
                "1 = 1",
                f"MESSAGE_SIZE() {draw(OPERATORS)} {draw(st.integers(8, 30))}",
                f"LAST_UPDATED() {draw(OPERATORS)} {draw(st.integers(0, 6))}",
                f"{field} {draw(OPERATORS)} MESSAGE_SIZE()",
                f"{field} {draw(OPERATORS)} UNIX_TIMESTAMP()",
                f"SOW_KEY() % 3 = {draw(st.integers(0, 2))}",
                f"IF(TOPIC_NAME() = 'topic', {field}, 2) = {literal}",
                "BOOKMARK() IS NULL",
                f"SOW_KEY() = '{draw(KEYS)}'",
                f"SOW_KEY() IN ('{draw(KEYS)}', '{draw(KEYS)}')",
                f"'{draw(KEYS)}' = SOW_KEY()",
                f"SOW_KEY() = {draw(KEYS)}",
                f"SOW_KEY() IN ('{draw(KEYS)}', NULL)",
            ]
        )
    )


FILTERS = st.recursive(
    conditions(),
    lambda inner: st.one_of(
        inner.map(lambda text: f"NOT ({text})"),
        st.tuples(inner, st.sampled_from(["AND", "AND", "OR"]), inner).map(
            lambda three: f"({three[0]}) {three[1]} ({three[2]})"
        ),
    ),
    max_leaves=5,
)
CALCULATED = st.one_of(
    st.tuples(FIELDS, st.sampled_from([" + ", " * ", " / ", " % "]), st.one_of(FIELDS, LITERALS)),
    st.tuples(FIELDS, OPERATORS.map(lambda symbol: f" {symbol} "), LITERALS),
    st.tuples(
        st.sampled_from(["LENGTH(", "ABS(", "ARRAY_COUNT(", "CONCAT(/b, ", "COALESCE(/b, "]),
        FIELDS,
        st.just(")"),
    ),
    st.tuples(FIELDS, st.sampled_from([" IS NULL", " IS NAN", " LIKE '5'", " IN (5, 'a')"])),
    st.tuples(st.just("IF(/a = 5, /b, "), FIELDS, st.just(")")),
    st.sampled_from(
        [("LAST_UPDATED()",), ("SOW_KEY()",), ("/a * MESSAGE_SIZE()",), ("LAST_UPDATED() % 2",)]
    ),
).map("".join)
ORDERS = st.one_of(
    st.none(),
    st.lists(
        st.tuples(
            st.one_of(FIELDS, CALCULATED), st.sampled_from(["", " DESC", " TEXT", " DESC TEXT"])
        ).map("".join),
        min_size=1,
        max_size=2,
    ).map(", ".join),
)
RECORDS = st.fixed_dictionaries(
    {"id": st.sampled_from([1, 2, 3, 5, "5", "05", True, "1.0", 7.25, "x"])},
    optional={"a": VALUES, "b": VALUES},
)
HASHES = st.lists(st.sampled_from(["/a", "/b", "/a,/b", "/a,/id", "/a[1]"]), unique=True)
STEPS = st.lists(
    st.one_of(
        st.lists(RECORDS, min_size=1, max_size=6),
        st.lists(st.sampled_from(["1", "2", "3", "5", "05", "true"]), min_size=1),
        st.tuples(FILTERS, ORDERS, st.integers(0, 3), st.none() | st.integers(0, 5)),
        st.integers(0, 5),
    ),
    max_size=14,
)


def run(topic: Topic, steps: list) -> None:
    for step in steps:
        match step:
            case int():
                topic.indexes.refresh(step or None)
            case tuple():
                agree(topic, *step)
            case [str(), *_]:
                topic.drop(*step)
            case _:
                topic.put(*step)


def agree(topic: Topic, filter_: str, order: str | None, skip_n: int, top_n: int | None) -> None:
    requested = query(filter_, order, skip_n=skip_n, top_n=top_n)
    answer = run_to_completion(answering(topic.indexes, requested))
    event(answer.index.split("(")[0])
    assert (answer.slots.tolist(), answer.matches) == naive(topic.table, requested)


@given(HASHES, STEPS, st.tuples(FILTERS, ORDERS, st.integers(0, 3), st.none() | st.integers(0, 5)))
@examples(36)
def test_indexes_never_change_an_answer(hashes: list, steps: list, last: tuple) -> None:
    topic = Topic(*hashes)
    run(topic, steps)
    agree(topic, *last)
    topic.indexes.check()


def test_nor_when_few_means_none(monkeypatch) -> None:
    monkeypatch.setattr(answers, "FEW_ROWS", 0)
    monkeypatch.setattr("sow.query.answers.FEW_ROWS", 0)
    test_indexes_never_change_an_answer()


@given(st.lists(RECORDS, min_size=1), st.lists(st.integers(0, 30)), FILTERS)
@examples(15)
def test_sow_keys_and_a_filter_must_both_hold(records: list, chosen: list, filter_: str) -> None:
    topic = Topic("/a")
    topic.put(*records)
    keys = [topic.table.sow_key(slot) for slot in topic.table.slots.values()]
    some = tuple(keys[at % len(keys)] for at in chosen)
    requested = query(filter_, keys=(*some, "12345", "no key"))
    answer = run_to_completion(answering(topic.indexes, requested))
    assert (answer.slots.tolist(), answer.matches) == naive(topic.table, requested)


CHANGES = st.lists(
    st.one_of(
        st.lists(RECORDS, min_size=1, max_size=3),
        st.lists(st.sampled_from(["1", "2", "3", "5", "05", "true"]), min_size=1),
        st.integers(0, 5),
    ),
    max_size=12,
)


@pytest.fixture
def _short_steps(monkeypatch) -> None:
    """Every record that has to be read is a step."""
    monkeypatch.setattr(index_build, "NOTES_FEW", 1)
    monkeypatch.setattr(index_build, "OPERATIONS_A_NOTE", 1)
    monkeypatch.setattr(indexes, "STEP_NOTES_MAX", 1)
    monkeypatch.setattr(answers, "FEW_ROWS", 0)
    monkeypatch.setattr("sow.query.answers.FEW_ROWS", 0)
    monkeypatch.setattr(access, "SORTED_ROWS_MIN", 0)
    monkeypatch.setattr("sow.query.answers.RANKS_AT_ONCE", 0)
    monkeypatch.setattr(sorting, "TEXTS_AT_ONCE", 2)
    monkeypatch.setattr(sorting, "LATER_MAX", 1)
    monkeypatch.setattr(column_cache, "TEXTS_SPARE", 1)
    monkeypatch.setattr(sorting, "MOVED_SPARE", 1)
    monkeypatch.setattr(sorting, "MERGE_ROWS", 2)
    monkeypatch.setattr(sorting, "ROWS_AT_ONCE", 2)
    monkeypatch.setattr(sorting, "ROWS_AT_ONCE_MIN", 1)


def answered(topic: Topic, requested: Query, between: list) -> None:
    """An answer in steps, with changes between them, is that of its last step."""
    keys = [topic.table.sow_key(slot) for slot in topic.table.slots.values()]
    requested = dataclasses.replace(
        requested, keys=(*keys[::2], "12345") if requested.keys else None
    )
    steps, waiting = answering(topic.indexes, requested), iter(between)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            answer = end.value
            break
        run(topic, list(itertools.islice(waiting, 1)))
    assert (answer.slots.tolist(), answer.matches) == naive(topic.table, requested)
    assert not topic.indexes._held


QUESTIONS = st.builds(
    query,
    st.none() | FILTERS,
    ORDERS,
    keys=st.sampled_from([None, None, ("some",)]),
    skip_n=st.integers(0, 3),
    top_n=st.none() | st.integers(0, 5),
)


@pytest.mark.usefixtures("_short_steps")
@given(HASHES, STEPS, QUESTIONS, CHANGES)
@examples(36, suppress_health_check=list(HealthCheck))
def test_an_answer_in_steps_is_that_of_its_last_moment(
    hashes: list, steps: list, requested: Query, between: list
) -> None:
    topic = Topic(*hashes)
    run(topic, steps)
    answered(topic, requested, between)
    topic.indexes.check()
    topic.table.check()


@pytest.mark.usefixtures("_short_steps")
@pytest.mark.parametrize(
    ("deaf", "filter_", "steps_before"),
    [(PendingRows, "/a > 1", 0), (ConditionCache, "/a > /b", 7)],
)
def test_an_index_that_misses_changes_is_found_out(
    deaf, filter_, steps_before, monkeypatch
) -> None:
    between = [["none"]] * steps_before + [[{"id": 0, "a": 0, "b": 1}], ["1"]]
    topic = Topic()
    topic.put(*({"id": at, "a": 2, "b": 1} for at in range(4)))
    answered(topic, query(filter_), between)
    monkeypatch.setattr(deaf, "touch", lambda *_: None)
    topic = Topic()
    topic.put(*({"id": at, "a": 2, "b": 1} for at in range(4)))
    with pytest.raises(AssertionError):
        answered(topic, query(filter_), between)


@pytest.mark.usefixtures("_short_steps")
@pytest.mark.parametrize("order", ["/a * 2", "COALESCE(/none, /a) DESC TEXT", "/a > 1 DESC"])
def test_a_calculated_order_that_misses_changes_is_found_out(order, monkeypatch) -> None:
    between = [["none"]] * 4 + [[{"id": 0, "a": 9}, {"id": 3, "a": 0}]]

    def ask() -> None:
        topic = Topic()
        topic.put(*({"id": at, "a": at} for at in range(4)))
        answered(topic, query(None, order), between)

    ask()
    monkeypatch.setattr(ComputedColumn, "touch", lambda *_: None)
    with pytest.raises(AssertionError):
        ask()
