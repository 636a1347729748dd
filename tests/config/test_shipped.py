"""The shipped config.xml shows the table of elements, and examples of the guide can be used.

The reference in docs/configuration.md is generated (`tests.docs.generated`).
"""

from pathlib import Path

import pytest

from sow.config import load, loads
from sow.config.elements.table import ROOT
from tests.cases import all_cases

TOP = Path(__file__).parents[2]
SHIPPED = (TOP / "config.xml").read_text()
GUIDE = (TOP / "docs" / "configuration.md").read_text()
IMPLEMENTED = sorted(
    {name for _, e in ROOT.walk() if e.status == "implemented" for name in e.names}
)


def test_the_shipped_file_has_nothing_to_complain_about():
    loaded = load(str(TOP / "config.xml"))
    assert loaded.findings == ()
    assert loaded.configuration is not None


def test_the_shipped_file_shows_every_message_type_and_kind_of_conflation():
    topics = loads(SHIPPED).configuration.topics
    assert {"json", "nvfix", "fix", "bflat", "binary", "string", "int64", "double"} <= {
        topic.message_type for topic in topics
    }
    conflated = {t.name: t for t in topics if hasattr(t, "underlying")}
    assert [t.name for t in topics if hasattr(t, "underlyings")] == ["ranges", "exposure"]
    assert conflated["exposure-C"].underlying == "exposure"
    assert conflated["quotes-C"].interval_us == 1_000_000
    assert conflated["quotes-fast"].interval_us == 100_000
    assert conflated["quotes-slow"].underlying == "quotes-C"
    assert any(t.filter for t in conflated.values())
    assert any(t.hash_indexes for t in conflated.values())


@all_cases("name", IMPLEMENTED)
def test_the_shipped_file_explains_every_element(name):
    comments = " ".join(part.split("-->")[0] for part in SHIPPED.split("<!--")[1:])
    words = comments.replace("<", " ").replace(">", " ").replace(":", " ")
    assert name in words, f"config.xml: explain <{name}> in a comment"


@pytest.mark.parametrize("block", GUIDE.split("```xml\n")[1:], ids=lambda block: block[:20])
def test_the_examples_of_the_guide_can_be_used(block):
    xml = block.split("```")[0]
    if "AMPSConfig" not in xml:
        xml = f"<AMPSConfig><Name>x</Name>{xml}</AMPSConfig>"
    assert loads(xml, variables={"PORT": "9000", "SITE": "z"}).findings == ()
