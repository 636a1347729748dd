"""Functions of text at their edges: positions beyond it, letters beyond ASCII, what grows."""

import lzma

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.errors import TooLarge
from sow.expressions import compile_filter
from sow.expressions.codegen import SLOW_MAX
from sow.expressions.function import TEXT_CHARS_MAX
from sow.expressions.text_functions import (
    HASHED_CHARS_MAX,
    REPLACED_CHARS_MAX,
    TEXT_FUNCTIONS,
    lower,
    upper,
)
from tests.cases import all_cases

LONG = "ab" * (TEXT_CHARS_MAX // 2)


@all_cases(
    ("name", "arguments", "result"),
    [
        ("SUBSTR", ("fandango", -3), "ngo"),
        ("SUBSTR", ("fandango", 2, 3), "and"),
        ("SUBSTR", ("fandango", -99, 3), "fan"),
        ("SUBSTR", ("fandango", 2, -1), ""),
        ("SUBSTR", ("fandango", 0), ""),
        ("SUBSTR", ("fandango", float("inf")), ""),
        ("SUBSTR", ("fandango", float("nan")), ""),
        ("SUBSTR", ("fandango", 2, None), None),
        ("LENGTH", ("é",), 2),
        ("LENGTH", (12.5,), 4),
        ("UPPER", ("aé",), "Aé"),
        ("LOWER", ("AÉ",), "aÉ"),
        ("INSTR", ("abc", "x"), 0),
        ("INSTR", ("abc", None), None),
        ("INSTR_I", ("ABC", "bc"), 2),
        ("STREQUAL_I", ("a", "b"), 0),
        ("LEFT", ("abc", 99), "abc"),
        ("LEFT", ("abc", -1), ""),
        ("RIGHT", ("abc", 99), "abc"),
        ("RIGHT", ("abc", 0), ""),
        ("TRIM", ("\t a\n",), "a"),
        ("REPLACE", ("aba", "a", None), "b"),
        ("REPLACE", (LONG, "a", "aa"), None),
        ("REPLACE", (LONG, "a", "c"), LONG.replace("a", "c")),
        ("CONCAT", (LONG, "c"), None),
        ("CHAR_VALUE", (256,), None),
        ("CHAR_VALUE", (-1,), None),
        ("ARRAY_TO_STRING", ([None], ","), None),
        ("ARRAY_TO_STRING", ([1, None, 2.5], None, "-"), "1-2.5"),
        ("CRC32", ("123456789",), 0xCBF43926),
    ],
)
def test_edges(name, arguments, result):
    assert TEXT_FUNCTIONS[name].run(*arguments) == result


@pytest.mark.parametrize(
    ("value", "pattern", "new", "result"),
    [
        ("2024-01-02", r"(\d+)-(\d+)-(\d+)", r"\3.\2.\1", "02.01.2024"),
        ("abc", "x", "y", "abc"),
        ("abc", "b", None, "ac"),
        (None, "b", "x", None),
        ("abc", "b", r"\7", None),
        ("é-é", "é", "e", "e-e"),
        (LONG, "a", "aa", None),
        (LONG, "z", "aa", LONG),
        ("a" * REPLACED_CHARS_MAX, "a", "b", "b" * REPLACED_CHARS_MAX),
    ],
)
def test_what_a_regular_expression_finds_is_replaced(value, pattern, new, result):
    replaced = TEXT_FUNCTIONS["REGEXP_REPLACE"].prepare(pattern, 0)
    assert replaced(value, new) == result


def test_its_patterns_count_with_those_of_like():
    replacing = compile_filter("REGEXP_REPLACE(/a, '[ab]{20}c', 'x') = 'y'")
    assert replacing.search_cost == compile_filter("/a LIKE '[ab]{20}c'").search_cost > 0
    with pytest.raises(TooLarge, match="the limit is"):
        compile_filter(
            " OR ".join(f"REGEXP_REPLACE(/a, '(x{i}){{900}}', '') = ''" for i in range(8))
        )


def test_there_are_few_calls_of_what_may_cost_milliseconds():
    nested = "/a"
    for _ in range(SLOW_MAX):
        nested = f"REGEXP_REPLACE({nested}, 'a', 'b')"
    assert compile_filter(f"{nested} = 'b'").truth(["a"]) is True
    with pytest.raises(TooLarge, match="at most 8 calls") as caught:
        compile_filter(f"REGEXP_REPLACE({nested}, 'a', 'b') = 'b'")
    assert caught.value.position is not None


def test_a_pattern_is_read_once_for_all_messages():
    compiled = compile_filter("REGEXP_REPLACE(/a, r'\\d', '#') = '#x'")
    assert compiled.matches([["1x", "12", None]], 3) == [True, False, False]


@pytest.mark.parametrize(
    "text", ["aÉzé\U0001f600[@`{Z", "ÀbC\ud800D", "x" * 5000 + "ÉQ", "Q" * 5000]
)
def test_case_is_that_of_ascii_letters_alone(text):
    small = "".join(chr(ord(one) + 32) if "A" <= one <= "Z" else one for one in text)
    large = "".join(chr(ord(one) - 32) if "a" <= one <= "z" else one for one in text)
    assert (lower(text), upper(text)) == (small, large)


def test_long_texts_that_differ_in_length_alone_are_not_equal():
    condition = compile_filter("STREQUAL_I(/a, /b) = 1")
    assert [condition.truth(["A" * 5000, "a" * count]) for count in (5000, 5001)] == [True, False]


def test_a_checksum_of_64_bits_is_that_of_xz_and_of_short_texts_alone():
    checksum = TEXT_FUNCTIONS["CRC64"].run
    body = b"\xfd7zXZ\x00"
    for text in ("", "a", "123456789", "é" * 5):
        packed = lzma.compress(text.encode(), check=lzma.CHECK_CRC64)
        assert packed.startswith(body)
        if text:
            # Behind the block, before the index and the footer, as the format of xz has it.
            assert checksum(text).to_bytes(8, "little") in packed
    assert checksum("") is None
    assert checksum("x" * HASHED_CHARS_MAX) is not None
    assert checksum("x" * (HASHED_CHARS_MAX + 1)) is None
    with pytest.raises(TooLarge, match=f"at most {SLOW_MAX} calls of CRC64, REGEXP_REPLACE"):
        compile_filter(" AND ".join(["CRC64(/a) = 1"] * (SLOW_MAX + 1)))


@all_cases(
    "pattern", ["[0-9]+", r"\d", "a", "a+", "[^0-9]+", "[A-Za-z ]", "[a-c-]+", "[^ .,:;#/@_-]"]
)
@all_cases("new", ["", "#", r"\1", "long" * 3, r"a\b"])
def test_a_short_way_to_replace_gives_what_the_engine_gives(pattern, new):
    condition, engine = (f"REGEXP_REPLACE(/a, r'{one}', /b)" for one in (pattern, f"(?:{pattern})"))
    same = compile_filter(f"{condition} = {engine} OR {condition} IS NULL AND {engine} IS NULL")
    for text in (
        "order 12 of desk-3",
        "aaa",
        "é1é",
        "x\n1_ y",
        "12" * 2000,
        "1" * 5000,
        "-",
        "A.b,c",
    ):
        assert same.truth([text, new]) is True


@given(st.text(max_size=6), st.integers(-9, 9), st.integers(-3, 9))
def test_a_part_is_the_same_whether_its_place_is_an_integer_or_a_double(text, position, length):
    run = TEXT_FUNCTIONS["SUBSTR"].run
    assert run(text, position, length) == run(text, float(position), float(length))
    assert run(text, position) == run(text, float(position))
