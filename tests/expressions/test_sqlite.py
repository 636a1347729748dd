"""The part of the language that SQL has too, against SQLite.

Expressions that mean the same in both, over records whose fields hold what both take alike: NULL,
integers of up to 53 bits, doubles and texts that spell no number. Where the languages differ by
their definition, such as what a text is to a number, nothing is compared; those rules have tests of
their own.
"""

import sqlite3

from hypothesis import given
from hypothesis import strategies as st

from sow.expressions import compile_filter
from tests.effort import examples

NAMES = ("a", "b", "s", "t")
NUMBERS = st.one_of(
    st.none(),
    st.integers(-30, 30),
    st.sampled_from([2**31, -(2**40), 0.0, 0.5, -2.25, 1e10, 3.0]),
)
TEXTS = st.sampled_from([None, "A", "ab", "abc", "B", "x y", " pad ", "it's", "éa", "zz"])
RECORDS = st.fixed_dictionaries({"a": NUMBERS, "b": NUMBERS, "s": TEXTS, "t": TEXTS})
BASE = sqlite3.connect(":memory:")

Pair = tuple[str, str]
"""An expression of ours, and the same of SQLite."""


def quoted(text: str) -> Pair:
    doubled = text.replace("'", "''")
    return "'" + text.replace("'", "\\'") + "'", f"'{doubled}'"


def same(text: str) -> Pair:
    return text, text


def joined(form: str, *parts: Pair) -> Pair:
    """`form` filled with the parts, in both languages."""
    ours, theirs = zip(*parts, strict=True)
    return form.format(*ours), form.format(*theirs)


def part_of(whole: Pair, place: str) -> Pair:
    """What is empty is NULL here."""
    return f"SUBSTR({whole[0]}, {place})", f"NULLIF(SUBSTR({whole[1]}, {place}), '')"


letters = st.sampled_from([("/s", "s"), ("/t", "t"), quoted("Abc"), quoted("x")])
texts = st.one_of(
    letters,
    st.builds(joined, st.sampled_from(["UPPER({})", "LOWER({})", "TRIM({})"]), letters),
    st.builds(part_of, letters, st.sampled_from(["2", "1, 2", "-2", "2, 0"])),
    st.builds(joined, st.just("REPLACE({}, 'a', 'q')"), letters),
)
small = st.sampled_from([("/b", "b"), *map(same, ("2", "0.5", "-3"))])
divisors = st.sampled_from([same("2"), same("-3"), same("0.5")])
COMPARISONS = st.sampled_from(["{} = {}", "{} != {}", "{} < {}", "{} <= {}", "{} > {}", "{} >= {}"])


def calculated(parts: st.SearchStrategy[Pair]) -> st.SearchStrategy[Pair]:
    chosen = ("IF({0} > {1}, {0}, {2})", "IIF({0} > {1}, {0}, {2})")
    return st.one_of(
        st.builds(joined, st.sampled_from(["({} + {})", "({} - {})"]), parts, parts),
        st.builds(joined, st.just("({} * {})"), parts, small),
        st.builds(joined, st.just("({} / {})"), parts, divisors),
        st.builds(joined, st.just("ABS({})"), parts),
        st.builds(joined, st.just("COALESCE({}, {})"), parts, parts),
        st.tuples(parts, parts, parts).map(
            lambda three: (
                chosen[0].format(*[one for one, _ in three]),
                chosen[1].format(*[other for _, other in three]),
            )
        ),
    )


numbers = st.recursive(
    st.one_of(
        st.sampled_from([("/a", "a"), ("/b", "b"), *map(same, ("0", "2", "7", "1.5", "NULL"))]),
        letters.map(lambda one: (f"LENGTH({one[0]})", f"LENGTH(CAST({one[1]} AS BLOB))")),
        st.builds(joined, st.just("INSTR({}, {})"), texts, texts),
    ),
    calculated,
    max_leaves=4,
)
conditions = st.recursive(
    st.one_of(
        st.builds(joined, COMPARISONS, numbers, numbers),
        st.builds(joined, COMPARISONS, texts, texts),
        st.builds(joined, st.just("{} BETWEEN {} AND {}"), numbers, numbers, numbers),
        st.builds(joined, st.just("{} NOT IN ({}, {})"), numbers, numbers, numbers),
        st.builds(joined, st.just("{} IN ({}, {})"), texts, texts, texts),
        st.builds(joined, st.sampled_from(["{} IS NULL", "{} IS NOT NULL"]), numbers),
    ),
    lambda parts: st.one_of(
        st.builds(joined, st.just("(NOT ({}))"), parts),
        st.builds(joined, st.sampled_from(["({} AND {})", "({} OR {})"]), parts, parts),
    ),
    max_leaves=3,
)


@examples(60)
@given(conditions, st.lists(RECORDS, min_size=1, max_size=4))
def test_what_sql_has_too_means_the_same(condition: Pair, records: list) -> None:
    ours, theirs = condition
    compiled = compile_filter(ours)
    for record in records:
        values = [record[path.steps[0]] for path in compiled.paths]
        row = BASE.execute(
            f"SELECT {theirs} FROM (SELECT :a AS a, :b AS b, :s AS s, :t AS t)", record
        ).fetchone()
        expected = None if row[0] is None else bool(row[0])
        assert compiled.truth(values) is expected, (ours, theirs, record)
