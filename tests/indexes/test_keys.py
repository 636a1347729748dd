from hypothesis import given
from hypothesis import strategies as st

from sow.core.keys import identities
from sow.core.paths import parse_path
from sow.expressions import compare
from sow.indexes import KeyIndex, keys
from sow.store.memory import Table
from tests.effort import examples

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
    monkeypatch.setattr(keys, "UNUSUAL_MAX", 1)
    topic = Keyed(A)
    topic.put("05")
    topic.put("06")
    assert topic.index.find([[5]]) is None


def test_very_many_combinations_are_declined() -> None:
    many = [f"v{number}" for number in range(1000)]
    assert Keyed(A, B).index.find([many, many]) is None
