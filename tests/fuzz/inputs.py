"""Inputs that are nearly right: valid bytes with a few edits, and words in a wrong order."""

import json

from hypothesis import strategies as st

from tests.messages.examples import EXAMPLES

TOPICS = ("orders", "pairs", "short", "keyless", "memory", "orders-C", "dear-C", "nope", "", "o.*")
SERVED = ("nvfix", "fix", "bflat", "binary", "string", "int64", "double")
"""Message types with a topic in `tests.edge.topics`, called like them."""
CONFIGURED = tuple(name for name in EXAMPLES if name not in ("json", *SERVED))
"""All others, with a topic of their own here."""
TYPED = (*SERVED, *CONFIGURED)
MESSAGES = tuple(
    message for example in EXAMPLES.values() for message in (example.good, *example.hostile)
    if len(message) < 1_000
)  # fmt: skip
"""Of every type a good message, and such as would take much."""
CSV = b'id,a,/b/c\r\n1,1.50,"x\r\ny"\r\n2,,"{""d"":[1]}"\r\n'
EVIL = (
    b"\n", b"\r\n", b"\0", b"\xff", b"{", b"}", b"[", b"]", b'"', b"\\", b"\\ud800", b"null",
    b"NaN", b"1e400", b"-0", b"9" * 400, b"\xef\xbb\xbf", b"%", b"&", b"=", b"|", b"\x01", b",",
)  # fmt: skip
WORDS = (
    "/id", "/b/c", "/", "//", "/a[0]", "/a[", "=", "==", "!=", "<>", "<", ">=", "AND", "OR", "NOT",
    "(", ")", "IN", "(1,2)", "LIKE", "'a'", "'", "'(a+)+$'", "'(?=a)'", "'['", "BETWEEN", "1", "-1",
    "1.5", "1e400", "9" * 50, "NULL", "IS", "IS NOT NULL", "TRUE", "BEGINS WITH", "ENDS WITH", "+",
    "*", "UPPER(/a)", "INSTR(/a,'b')", ",", ";", "--", "/* */", "\0", "é", "DESC", "ASC", "$.a.b",
)  # fmt: skip

numbers = st.one_of(
    st.integers(),
    st.floats(),
    st.sampled_from([-1, 0, 1, 2, 10**9, 2**63, 10**30, 10**400, 1e308]),
)
scalars = st.one_of(st.none(), st.booleans(), numbers, st.text(max_size=8))
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)
documents = st.dictionaries(st.sampled_from(["id", "a", "b", "symbol", "price", ""]), values)
expressions = st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join) | st.text(max_size=30)


def json_bytes(value):
    return json.dumps(value).encode()


@st.composite
def edited(draw, originals):
    """A valid input after up to four edits."""
    data = draw(originals)
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, len(data)))
        length = draw(st.sampled_from([0, 0, 1, 2, 10]))
        put = draw(st.sampled_from(EVIL) | st.binary(max_size=4) | st.just(data[:start][-9:]))
        data = data[:start] + put + data[start + length :]
    return data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data
