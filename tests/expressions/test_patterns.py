import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.errors import BadFilter, ClientError, TooLarge
from sow.expressions import compile_filter, patterns
from sow.expressions.patterns import (
    ENDLESS,
    PATTERN_CHARS_MAX,
    SCAN_STEPS,
    SEARCHED_CHARS_MAX,
    SLOW_FACTOR,
    SLOW_STEPS_MAX,
    SLOWLY_SEARCHED_CHARS_MAX,
    STEPS_MAX,
    Patterns,
    copied_from,
    copy_ends,
    copy_name,
    free_positions,
    is_meant_as_pattern,
    is_pattern,
    is_simple,
    search_cost,
    searcher,
    steps_of,
    topic_search,
)
from tests.cases import all_cases

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


@pytest.mark.parametrize("pattern", ["(" * 900 + "a" + ")" * 900, "((a)|(b))+" * 100])
def test_groups_cost_nothing_since_their_text_is_never_used(pattern):
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


@pytest.mark.parametrize("pattern", ["a?" * 25_000, r"\pL" * 25, r"\PL{9}" * 300, "(a|b)*" * 400])
def test_a_pattern_of_much_text_is_refused_before_it_is_read(pattern, monkeypatch):
    monkeypatch.setattr(patterns.re2, "compile", lambda *_: pytest.fail("it was read"))
    with pytest.raises(TooLarge, match=f"the limit is {PATTERN_CHARS_MAX}") as error:
        searcher(pattern, 8)
    assert error.value.position == 8


def test_plain_text_may_be_as_long_as_the_filter():
    assert compile_filter(f"/a LIKE '{'x' * 60_000}'").truth(["x" * 60_001]) is True


@pytest.mark.parametrize(
    ("pattern", "chars_max"),
    [("[x]", SEARCHED_CHARS_MAX), (r"[x]\\d{9}|[x]", SLOWLY_SEARCHED_CHARS_MAX)],
)
def test_longer_texts_than_can_be_searched_are_unknown(pattern, chars_max):
    condition = compile_filter(f"/a LIKE '{pattern}'")
    assert condition.truth(["x" * chars_max]) is True
    assert condition.truth(["x" * (chars_max + 1)]) is None
    assert compile_filter(f"/a NOT LIKE '{pattern}'").truth(["x" * (chars_max + 1)]) is None
    replaced = compile_filter(f"REGEXP_REPLACE(/a, '{pattern}', 'y') IS NULL")
    assert replaced.truth(["z" * chars_max]) is False
    assert replaced.truth(["z" * (chars_max + 1)]) is True


def test_plain_text_is_looked_for_in_texts_of_any_length():
    assert compile_filter("/a LIKE 'xy$'").truth(["x" * 10**6 + "xy"]) is True


def test_costly_patterns_of_a_filter_have_few_steps_together():
    costly = [f"{at}[ab]{{100}}c" for at in range(SLOW_STEPS_MAX // 100)]
    assert compile_filter(f"/a LIKE '{costly[0]}' OR /b LIKE '{costly[0]}'")
    with pytest.raises(TooLarge, match=f"the limit is {SLOW_STEPS_MAX}") as error:
        compile_filter(" OR ".join(f"/a LIKE '{one}'" for one in costly))
    assert error.value.position > 0


def test_plain_text_counts_where_it_is_looked_for_anywhere():
    likes = [f"/a LIKE 'text{at}'" for at in range(STEPS_MAX // SCAN_STEPS)]
    compile_filter(" OR ".join(likes))
    compile_filter(" OR ".join(f"/a LIKE '^text{at}'" for at in range(300)))
    for more in ("/a LIKE 'one'", "INSTR(/a, 'b') = 1", "INSTR_I(/a, 'b') = 1"):
        with pytest.raises(TooLarge, match="plain text counts for 100") as error:
            compile_filter(" OR ".join([*likes, more]))
        assert error.value.expected == f"patterns of at most {STEPS_MAX} steps"


@pytest.mark.parametrize(
    ("pattern", "free"),
    [
        ("", 0),
        ("abc", 0),
        ("^abc$", 0),
        ("a.*b", 1),
        ("AB.*CD|EF", 1),
        ("one|two|three|four|five|six|seven|eight|nine|ten", 0),
        ("^(EUR|USD|GBP)/(JPY|CHF)$", 2),
        ("(?i)apple", 0),
        (r"[A-Z]{3}-\d{4}", 7),
        (r"a\{3\}\.\[b\]", 0),
        (r"\pL\p{Greek}[[:alpha:]]", 3),
        (r"[^\]]x[]a]", 2),
        ("(?P<n>a.)b", 1),
        ("[ab]?[ab]?[ab]?", 3),
        ("a{3}", 3),
        ("a{2,}", 2),
        (".{0}", 1),
        ("a[ab]{10}c", 10),
        ("(a|b)*a(a|b){15}[cd]", 17),
        ("((a|b){5}){6}", 30),
        ("(a.{0,20}b.{0,20}){1,4}c", 160),
        ("((((.{1000}){1000}){1000}){1000})", ENDLESS),
        ("()((", 0),
        (")a{2}", 2),
    ],
)
def test_what_takes_more_than_one_character_is_free_as_often_as_it_is_repeated(pattern, free):
    assert free_positions(pattern) == free


@given(st.text(r"ab.[]{}()|*+?,\^$19-:pP", max_size=40))
def test_any_text_has_an_answer(pattern):
    assert 0 <= free_positions(pattern) <= ENDLESS


@pytest.mark.parametrize("pattern", ["^ab.*c", "one|two", r"[A-Z]{3}\d{5}"])
def test_a_simple_pattern_costs_its_steps(pattern):
    assert is_simple(pattern)
    assert search_cost(pattern) == steps_of(pattern)


@pytest.mark.parametrize("pattern", ["a[ab]{9}c", "(a|b)*a(a|b){15}", ".{9}"])
def test_another_one_costs_many_times_as_much(pattern):
    assert not is_simple(pattern)
    assert search_cost(pattern) == SLOW_FACTOR * steps_of(pattern)


names = st.text("ab.%n_", max_size=8)


@all_cases("name", ["^a", "a$", "a.b", "a*", "a+", "a?", "(a)", "[a]", "a|b", "a\\d"])
def test_a_name_with_a_metacharacter_may_be_a_pattern(name):
    assert is_pattern(name)


@pytest.mark.parametrize("name", ["orders", "/orders/eu", "a-b_c:d", "Aufträge", ""])
def test_every_other_name_is_only_a_name(name):
    assert not is_pattern(name)


def test_a_pattern_is_found_anywhere_in_a_name():
    matches = topic_search("ord.rs")
    assert matches("my-orders-eu")
    assert not matches("order")
    assert not topic_search("^ord")("my-orders")


def test_what_is_wrong_with_a_pattern_is_said_of_the_topic():
    with pytest.raises(ClientError, match=r"^topic ") as caught:
        topic_search("ord(")
    assert caught.value.reason == "bad regex topic"
    assert "LIKE" not in caught.value.detail


def test_a_pattern_that_would_need_too_much_is_refused():
    with pytest.raises(TooLarge, match=r"^topic "):
        topic_search("a{1000}" * 10)


@given(names, names, names.filter(bool))
def test_the_source_of_a_copy_is_found_from_its_name(before, after, source):
    topic_format = f"{before}%n{after}"
    assert copied_from(topic_format, copy_name(topic_format, source)) == source


@given(names, names)
def test_a_source_is_found_only_where_it_gives_that_copy(topic_format, copy):
    source = copied_from(topic_format, copy) if "%n" in topic_format else None
    assert source is None or copy_name(topic_format, source) == copy
    if source is not None:
        begins, ends = copy_ends(topic_format)
        assert copy.startswith(begins)
        assert copy.endswith(ends)


@pytest.mark.parametrize(
    ("topic_format", "copy", "source"),
    [
        ("%n-conflated", "orders-conflated", "orders"),
        ("%n-conflated", "-conflated", None),
        ("%n-conflated", "orders", None),
        ("%n/%n", "a/a", "a"),
        ("%n/%n", "a/b", None),
        ("%n/%n", "a/aa", None),
    ],
)
def test_names_of_copies(topic_format, copy, source):
    assert copied_from(topic_format, copy) == source


@pytest.mark.parametrize(
    ("name", "is_meant"),
    [("orders", False), ("md.spot", False), ("md.*", True), ("^/desk/", True), ("a|b", True)],
)
def test_a_name_with_nothing_but_dots_is_hardly_meant_as_a_pattern(name, is_meant):
    assert is_meant_as_pattern(name) is is_meant
