import pytest

from sow.errors import BadFilter, TooLarge
from sow.expressions import compile_filter
from sow.expressions.patterns import STEPS_MAX, Patterns, searcher
from sow.topic_patterns import topic_search

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


@pytest.mark.parametrize("pattern", ["(" * 5000 + "a" + ")" * 5000, "((a)|(b))+" * 100])
def test_groups_cost_nothing_since_nobody_asks_what_they_matched(pattern):
    assert searcher(pattern, 0)("ab" * 100) is True


@pytest.mark.parametrize("pattern", ["a{1000}" * 30, r"\pL{20}", "(.{200}){4}.{500}"])
def test_a_pattern_of_too_many_steps_is_refused(pattern):
    with pytest.raises(TooLarge, match=f"the limit is {STEPS_MAX}") as error:
        compile_filter(f"/a LIKE r'{pattern}'")
    assert (error.value.position, error.value.status) == (8, 413)
    with pytest.raises(TooLarge, match=r"^topic pattern"):
        topic_search(pattern)


def test_the_patterns_of_a_filter_count_together_and_equal_ones_once():
    patterns = Patterns()
    for _ in range(100):
        patterns.search("a{900}", 0)
    different = " OR ".join(f"/a LIKE 'b{{{least},900}}'" for least in range(20))
    with pytest.raises(TooLarge):
        compile_filter(different)


def test_repetitions_of_repetitions_are_refused():
    with pytest.raises(BadFilter, match="repetition"):
        searcher("(a{1000}){1000}", 0)
