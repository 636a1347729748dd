"""Pattern sets find what searching for each pattern finds, and are never too quiet."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.expressions import patterns
from sow.expressions.patterns import PatternSets, is_restless, searcher

PATTERNS = ["A", "^a", "b$", "^ab$", "5|1", r"^\d", "it's", "e.*a", "(?i)é", r"\pL+", "[^a]", "."]
texts = st.text("aAbé51'x\ud800\n", max_size=6)
numbers = st.integers(0, len(PATTERNS) - 1)


def found_by(sets, text):
    found = sets.found_in(text)
    assert len(found) == len(set(found))
    return sorted(found)


@pytest.mark.parametrize("most", [(2, 3), (64, 512)])
@given(st.data())
def test_what_is_found_is_what_each_search_finds(most, data):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(patterns, "SMALL_SET_MAX", most[0])
        patch.setattr(patterns, "LARGE_SET_MAX", most[1])
        sets, wanted = PatternSets(), set()
        for number, text in data.draw(st.lists(st.tuples(numbers, texts), max_size=20)):
            pattern = PATTERNS[number]
            (sets.remove if pattern in wanted else sets.add)(pattern)
            wanted ^= {pattern}
            sets.check()
            found = sorted(one for one in wanted if searcher(one, 0)(text))
            assert found_by(sets, text) == found
            assert len(sets) == len(wanted)


def test_thousands_of_patterns_are_a_few_sets_again_when_most_have_gone():
    sets, every = PatternSets(), [f"^S{number}$" for number in range(2000)]
    for pattern in every:
        sets.add(pattern)
    assert len(sets._sets) == 4
    assert found_by(sets, "S77") == ["^S77$"]
    for pattern in every[:1990]:
        sets.remove(pattern)
    sets.check()
    assert len(sets._sets) <= 1
    assert found_by(sets, "S1995") == ["^S1995$"]
    assert found_by(sets, "S77") == []


@pytest.mark.parametrize("bytes_max", [100, 20_000])
def test_an_automaton_without_room_omits_no_pattern(bytes_max, monkeypatch):
    monkeypatch.setattr(patterns, "SET_BYTES_MAX", bytes_max)
    sets = PatternSets()
    every = [f"{letter}.*{other}" for letter in "abcdefgh" for other in "ijklmnop"][:60]
    for pattern in every:
        sets.add(pattern)
    for text in ("axi", "abcdefghabcdefghijklmnop" * 20):
        assert {one for one in every if searcher(one, 0)(text)} <= set(sets.found_in(text))
    assert sets.found_in("abcdefghabcdefgh" * 20) == every, "nothing was found for want of room"


def test_long_programs_fill_a_set_sooner(monkeypatch):
    monkeypatch.setattr(patterns, "SET_STEPS_MAX", 100)
    sets = PatternSets()
    for number in range(40):
        sets.add(f"[0-9]{{5}}x{number}")
    sets.check()
    assert len(sets._sets) > 3


def test_what_is_remembered_is_bounded_and_forgotten_when_a_pattern_comes_or_goes():
    sets = PatternSets()
    sets.add("^a")
    sets.add("b$")
    assert found_by(sets, "ab") == found_by(sets, "ab") == ["^a", "b$"]
    sets.add(".")
    assert found_by(sets, "ab") == [".", "^a", "b$"]
    sets.remove("^a")
    assert found_by(sets, "ab") == [".", "b$"]
    for number in range(1000):
        assert found_by(sets, f"a{number}") == found_by(sets, f"{number}a") == ["."]
        assert len(sets._known) <= patterns.KNOWN_PART * 2
    long = "a" * (patterns.KNOWN_CHARS_MAX + 1)
    assert found_by(sets, long) == ["."]
    assert long not in sets._known


@pytest.mark.parametrize(
    "pattern", ["ab.*cd", "x[0-9]y", "(a|b)*c", r"\d", "ab.{1,7}cd", "a.*b.*c"]
)
def test_what_is_free_makes_patterns_restless(pattern):
    assert is_restless(pattern)


@pytest.mark.parametrize("pattern", ["abc", "^S0*120$", "one|two", r"a\.b", "(?i)apple"])
def test_plain_characters_do_not(pattern):
    assert not is_restless(pattern)
