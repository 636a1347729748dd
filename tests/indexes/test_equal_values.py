"""The values that equal a literal are those of the rules of `=`, and keys are found by them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.core.keys import identities
from sow.core.paths import parse_path
from sow.expressions import compare
from sow.indexes import KeyIndex
from sow.indexes.equal_values import (
    Spellings,
    equal_values,
    number_forms,
    unusual_number,
    usual_texts,
)
from sow.store.memory import Table
from tests.effort import examples

LITERALS = [5, 5.0, "5", "5.0", "05", "5e0", 0, -0.0, "-0", 0.5, "a", 2**70, 1e300, float("inf")]
singles = st.sampled_from([*LITERALS, None, "", True, " 5", "+5", "٥"])
values = singles | st.lists(singles, max_size=3).map(tuple)


@given(st.lists(values), st.sampled_from(LITERALS))
def test_a_dictionary_finds_what_comparing_finds(noted, literal):
    spellings = Spellings()
    for value in noted:
        spellings.note(value)
    found = spellings.equal(literal)
    for value in noted:
        as_field = list(value) if isinstance(value, tuple) else value
        assert (value in found) == (compare("=", as_field, literal) is True), value


@given(st.lists(values), st.lists(values), st.sampled_from(LITERALS))
def test_what_is_forgotten_equals_nothing_any_more(kept, noted, literal):
    spellings, others = Spellings(), Spellings()
    for value in kept:
        others.note(value)
    for value in (*noted, *kept):
        spellings.note(value)
    for value in noted:
        spellings.forget(value)
    assert spellings.equal(literal) == others.equal(literal)


@pytest.mark.parametrize("literal", [None, ""])
def test_nothing_equals_null(literal):
    assert equal_values(literal) == []
    assert Spellings().equal(literal) == set()


@pytest.mark.parametrize(
    ("number", "forms"),
    [(5, [5, 5.0]), (5.0, [5, 5.0]), (0.5, [0.5]), (2**53 + 1, [2**53 + 1]), (10**400, [10**400])],
)
def test_a_number_has_its_forms(number, forms):
    assert [(type(form), form) for form in number_forms(number)] == [(type(f), f) for f in forms]


def test_usual_texts_are_what_programs_write():
    assert usual_texts(5) == ["5", "5.0"]
    assert usual_texts(0.5) == ["0.5"]


@pytest.mark.parametrize(
    ("text", "number"),
    [("5", None), ("5.0", None), ("05", 5), ("5e0", 5), ("5.00", 5), ("a", None), ("", None)],
)
def test_only_unusual_spellings_are_noted(text, number):
    assert unusual_number(text) == number


A, B = parse_path("/a"), parse_path("/b")
VALUES = [5, 5.5, "5", "05", "5.0", "a", True, False, "true", 1, "1", 0, 2**53 + 1, 10**30, 1e30,
          "+5", "", "a\\b", "x\x1fy"]  # fmt: skip


class Keyed:
    """A table without bodies' meaning: only the key values count."""

    def __init__(self, *paths) -> None:
        self.paths = paths
        self.table = Table(None)
        self.index = KeyIndex(self.table, paths)
        self.records: dict[str, tuple] = {}

    def put(self, *values) -> None:
        (name,) = identities(self.paths, [[value] for value in values])
        slots, _ = self.table.put([name], [b"{}"], [len(self.table.bodies) + 1], [0])
        self.index.touch(slots)
        self.records[name] = values

    def drop(self, *values) -> None:
        names = identities(self.paths, [[value] for value in values])
        self.index.touch(self.table.drop(names)[1])
        self.records.pop(names[0], None)

    def found(self, *literals) -> list[str]:
        slots = self.index.find([[literal] for literal in literals])
        assert slots is not None
        return sorted(str(self.table.identities[slot]) for slot in slots)

    def equal(self, *literals) -> list[str]:
        return [
            name
            for name, values in self.records.items()
            if all(compare("=", *pair) for pair in zip(values, literals, strict=True))
        ]


@given(st.lists(st.tuples(st.sampled_from(["put", "put", "drop", "ask"]), st.sampled_from(VALUES))))
@examples(36)
def test_no_record_whose_key_equals_the_literal_is_missed(steps: list) -> None:
    topic = Keyed(A)
    for what, value in steps:
        if what == "ask":
            assert set(topic.equal(value)) <= set(topic.found(value))
        else:
            getattr(topic, what)(value)
        topic.index.check()
    for value in VALUES:
        assert set(topic.equal(value)) <= set(topic.found(value))


@given(st.lists(st.tuples(st.sampled_from(VALUES), st.sampled_from(VALUES)), max_size=30))
@examples(15)
def test_nor_when_keys_have_two_fields(records: list) -> None:
    topic = Keyed(A, B)
    for values in records:
        topic.put(*values)
    for values in [*records, (5, "5"), (1, 0)]:
        assert set(topic.equal(*values)) <= set(topic.found(*values))


def test_a_text_finds_its_one_record() -> None:
    topic = Keyed(A)
    for value in ("05", "7", "a"):
        topic.put(value)
    assert topic.found("7") == ["7"]


def test_a_number_finds_unusual_spellings_too() -> None:
    topic = Keyed(A)
    for value in ("05", "7", "a"):
        topic.put(value)
    assert topic.found(5) == ["05"]


def test_a_number_finds_a_key_that_is_true() -> None:
    topic = Keyed(A)
    topic.put(True)
    assert topic.found(1) == ["true"]


def test_the_empty_key_equals_nothing() -> None:
    topic = Keyed(A)
    topic.put("")
    assert topic.found("") == []


def test_a_slot_used_again_is_not_taken_for_its_former_record() -> None:
    topic = Keyed(A)
    topic.put("05")
    topic.found(5)
    topic.drop("05")
    topic.put("7")
    assert topic.found(5) == []


def test_very_many_unusual_spellings_are_declined(monkeypatch) -> None:
    monkeypatch.setattr("sow.indexes.equal_values.UNUSUAL_MAX", 1)
    topic = Keyed(A)
    topic.put("05")
    topic.put("06")
    assert topic.index.find([[5]]) is None


def test_very_many_combinations_are_declined() -> None:
    many = [f"v{number}" for number in range(1000)]
    assert Keyed(A, B).index.find([many, many]) is None
