import pytest

from sow.errors import BadFilter
from sow.expressions import compile_filter
from sow.expressions.patterns import searcher

SAMPLES = ["", "x", "son", "sonny", "Johnson", "a son b", "sönne", "son\n", "SON"]


@pytest.mark.parametrize("plain", ["son", "^son", "son$", "^son$", "ö"])
def test_plain_text_gives_the_answers_of_the_engine(plain):
    shortcut, engine = searcher(plain, 0), searcher(f"(?:{plain})", 0)
    assert [shortcut(text) for text in SAMPLES] == [engine(text) for text in SAMPLES]


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        (r"(.)\1", "back-references"),
        (r"a(?=b)", "look-ahead"),
        (r"(?<!a)b", "look-behind"),
        (r"a(b", "missing"),
        (r"(?>a)b", "atomic"),
        (r"((a{100}){100}){100}", "repetition"),
    ],
)
def test_what_re2_cannot_do_is_refused_at_compile_time(pattern, reason):
    with pytest.raises(BadFilter, match=reason) as error:
        compile_filter(f"/a LIKE r'{pattern}'")
    assert (error.value.position, error.value.status) == (8, 400)


@pytest.mark.parametrize("pattern", ["''", "5", "/b", "NULL"])
def test_a_pattern_must_be_a_string_that_is_not_empty(pattern):
    with pytest.raises(BadFilter, match="quoted string") as error:
        compile_filter(f"/a LIKE {pattern}")
    assert error.value.position == 8


def test_a_dot_is_a_whole_character():
    assert compile_filter("/a LIKE '^.$'").truth(["é"]) is True


def test_numbers_and_booleans_are_searched_as_text():
    assert compile_filter("/a LIKE '^1(\\\\.5)?$'").matches([[1, 1.5, True, 2]], 4) == [
        *[True, True, True],
        False,
    ]


def test_text_beyond_unicode_does_not_crash_the_search():
    assert compile_filter("/a LIKE '[x]'").truth(["\ud800x"]) is True
