"""Each decision is a short page: a number of its own, context, decision, consequences, measured."""

import re

from tests.cases import all_cases
from tests.docs.generated import ROOT

PAGES = sorted((ROOT / "docs" / "decisions").glob("*.md"))
PARTS = ["Context", "Decision", "Consequences"]


def test_each_has_a_number_of_its_own():
    numbers = [page.name[:3] for page in PAGES]
    assert len(set(numbers)) == len(numbers) > 0


@all_cases("page", PAGES)
def test_a_decision_has_its_parts_in_their_order(page):
    text = page.read_text()
    assert re.fullmatch(r"\d{3}-[a-z-]+\.md", page.name)
    assert text.startswith(f"# {page.name[:3]}. ")
    found = re.findall(r"^- \*\*(\w+)\.\*\* ", text, re.M)
    assert found in (PARTS, [*PARTS, "Measured"])
    assert len(text.splitlines()) <= 30
