"""Random expressions and records that meet often: few paths, few values, every node."""

from hypothesis import strategies as st

from sow.core.paths import Path
from sow.expressions import (
    Affix,
    And,
    Arithmetic,
    Between,
    Call,
    Compare,
    Identifier,
    In,
    IsNan,
    IsNull,
    Like,
    Literal,
    MessageTrait,
    Not,
    Or,
    Trait,
)

PATHS = [Path(("a",)), Path(("b", "c")), Path(("a",), 0), Path(("odd name",)), Path(("x*y",), 2)]
TEXTS = ["", "A", "B", "ab", "5", "5.0", "-1", "1e1", "it's", "\\d", "é", "zebra"]

texts = st.sampled_from(TEXTS)
numbers = st.one_of(
    st.sampled_from([0, 1, 5, 5.0, -1, 10, 0.5, -0.0, 2**64, float("inf"), float("-inf")]),
    st.integers(-3, 12),
)
scalars = st.one_of(texts, numbers, st.none(), st.booleans(), st.just(float("nan")))
values = st.one_of(scalars, st.lists(scalars, max_size=3))
TRAITS = {
    Trait.SOW_KEY: st.sampled_from(["5", "A", "18446744073709551610"]),
    Trait.TOPIC_NAME: st.sampled_from(["A", "zebra"]),
    Trait.MESSAGE_SIZE: st.integers(1, 12),
    Trait.LAST_UPDATED: st.sampled_from([0.5, 5.0, 1e9]),
    Trait.BOOKMARK: st.sampled_from([None, "5", "10"]),
    Trait.UNIX_TIMESTAMP: st.sampled_from([5.0, 1e9]),
}
records = st.fixed_dictionaries({**dict.fromkeys(PATHS, values), **TRAITS})

identifiers = st.sampled_from(PATHS).map(Identifier)
literals = st.one_of(texts, numbers, st.none(), st.booleans()).map(Literal)
traits = st.sampled_from([*TRAITS]).map(MessageTrait)
simple = st.one_of(identifiers, identifiers, literals, literals, traits)


def _calculated(parts: st.SearchStrategy) -> st.SearchStrategy:
    one = st.tuples(parts)
    some = st.lists(parts, min_size=1, max_size=3).map(tuple)
    return st.one_of(
        st.builds(Arithmetic, st.sampled_from("+-*/%"), parts, parts),
        st.builds(Call, st.sampled_from(["ABS", "LENGTH", "ARRAY_COUNT"]), one),
        st.builds(Call, st.sampled_from(["CONCAT", "COALESCE"]), some),
        st.builds(Call, st.just("IF"), st.tuples(parts, parts, parts)),
        st.builds(Compare, operators, parts, parts),
        st.builds(Not, st.builds(IsNull, parts)),
    )


operators = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])
operands = st.one_of(simple, st.recursive(simple, _calculated, max_leaves=5))
patterns = st.sampled_from(["A", "^a", "b$", "5|1", r"^\d", "it's", "e.*a"]).map(Literal)

tests = st.one_of(
    st.builds(Compare, operators, operands, operands),
    st.builds(Compare, operators, identifiers, literals),
    st.builds(Between, operands, operands, operands),
    st.builds(Between, identifiers, literals, literals),
    st.builds(In, operands, st.lists(operands, min_size=1, max_size=4).map(tuple)),
    st.builds(In, identifiers, st.lists(literals, min_size=1, max_size=4).map(tuple)),
    st.builds(In, identifiers, st.lists(texts.map(Literal), min_size=1, max_size=4).map(tuple)),
    st.builds(In, identifiers, st.lists(numbers.map(Literal), min_size=1, max_size=4).map(tuple)),
    st.builds(Like, operands, patterns),
    st.builds(IsNull, operands),
    st.builds(IsNan, operands),
    st.builds(Affix, operands, st.lists(operands, min_size=1).map(tuple), st.booleans()),
)


def _combined(parts: st.SearchStrategy) -> st.SearchStrategy:
    several = st.lists(parts, min_size=2, max_size=3).map(tuple)
    return st.one_of(st.builds(Not, parts), st.builds(And, several), st.builds(Or, several))


expressions = st.recursive(tests, _combined, max_leaves=8)
