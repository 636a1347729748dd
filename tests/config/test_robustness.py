"""Whatever stands in the file, the answer is a configuration or findings, never an exception."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from sow.config import loads
from sow.config.elements.table import ROOT

SHIPPED = (Path(__file__).parents[2] / "config.xml").read_text()
NAMES = sorted({name for _, element in ROOT.walk() for name in element.names})
VALUES = [
    "",
    "a",
    "/a",
    "json",
    "binary",
    "5s",
    "1",
    "transient",
    "${X}",
    "/a = 1",
    "..",
    "0",
    ".*",
]
leaves = st.builds("<{0}>{1}</{0}>".format, st.sampled_from(NAMES), st.sampled_from(VALUES))
trees = st.recursive(
    leaves,
    lambda inner: st.builds(
        lambda name, children: f"<{name}>{''.join(children)}</{name}>",
        st.sampled_from(NAMES),
        st.lists(inner, max_size=5),
    ),
    max_leaves=20,
)


def is_an_answer(loaded):
    return (loaded.configuration is None) == bool(loaded.errors) and all(
        finding.line > 0 and str(finding) for finding in loaded.findings
    )


@given(st.lists(trees, max_size=5))
def test_any_arrangement_of_elements_is_answered(children):
    assert is_an_answer(loads(f"<AMPSConfig><Name>x</Name>{''.join(children)}</AMPSConfig>"))


@given(st.integers(0, len(SHIPPED)), st.integers(0, 40), st.text(max_size=5))
def test_any_slip_in_a_file_is_answered(start, length, typed):
    assert is_an_answer(loads(SHIPPED[:start] + typed + SHIPPED[start + length :]))


@given(st.binary(max_size=200))
def test_any_bytes_are_answered(data):
    assert is_an_answer(loads(data))
