"""docs/features.md: each row leads to a section that there is, and to a test that there is; and the
pages of both families lead there."""

import re

from tests.cases import all_cases
from tests.docs.test_semantics import ROOT

PAGE = (ROOT / "docs/features.md").read_text()
ROWS = re.findall(r"^\| (.+?) \| \[[^]]+\]\(([^)]+)\) \| `(tests/[^`]+)` \|$", PAGE, re.M)
SHOWN = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def anchors(page):
    """The sections of a page, as links name them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.M)
    return {re.sub(r"[^\w -]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def is_there(test):
    path, _, name = test.partition("::")
    text = (ROOT / path).read_text() if (ROOT / path).is_file() else ""
    return re.search(rf"^(async )?def {name}\(", text, re.M) is not None


def test_every_row_is_read():
    assert len(ROWS) == PAGE.count("\n| ") - 2 * PAGE.count("\n| feature |") > 60


@all_cases(("feature", "link", "test"), ROWS)
def test_a_feature_leads_to_its_page_and_its_test(feature, link, test):
    page, _, anchor = link.partition("#")
    assert (ROOT / "docs" / page).is_file(), f"docs/features.md, {feature}: no page {page}"
    found = anchors(ROOT / "docs" / page)
    assert not anchor or anchor in found, f"docs/features.md, {feature}: no section {link}"
    assert is_there(test), f"docs/features.md, {feature}: no test {test}"


@all_cases("page", ["migration.md", "from-diffusion.md"])
def test_the_tests_that_the_pages_of_both_families_name_are_there(page):
    text = (ROOT / "docs" / page).read_text()
    assert "features.md" in text
    missing = [
        f"{path}::{name}" for path, name in SHOWN.findall(text) if not is_there(f"{path}::{name}")
    ]
    assert not missing, f"docs/{page}: there is no test {missing}"


def test_each_table_of_the_elements_and_commands_of_amps_names_a_test():
    text = (ROOT / "docs/migration.md").read_text()
    for title, part in re.findall(r"^##+ ([^\n]+)\n(.*?)(?=^##|\Z)", text, re.M | re.S):
        if "\n| AMPS" in part:
            assert SHOWN.search(part), f"docs/migration.md, {title}: name the test that shows it"


def test_a_test_and_a_section_that_are_gone_are_found():
    assert not is_there("tests/docs/test_features.py::test_nothing")
    assert "nothing" not in anchors(ROOT / "docs/features.md")
