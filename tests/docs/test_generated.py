"""What is generated on the pages is what the code says; a failure prints the command to run."""

import pytest

from tests.cases import all_cases
from tests.docs.generated import PAGES, PARTS, ROOT, STALE, generated, part_of, with_part
from tests.docs.sizes import are_about, code_lines, spine


def pages_with(name):
    return [page for page in PAGES if part_of(page.read_text(), name) is not None]


@all_cases("page", PAGES)
def test_a_page_is_as_make_docs_writes_it(page):
    assert page.read_text() == generated(page), STALE.format(page.relative_to(ROOT))


@pytest.mark.parametrize("name", PARTS)
def test_a_part_stands_on_one_page(name):
    assert len(pages_with(name)) == 1


@all_cases(
    ("written", "is_kept"),
    [
        ("| floor 1 | 1,050 | `core` 900, 1 more |", True),
        ("| floor 1 | 1,200 | `core` 900, 1 more |", False),
        ("| floor 1 | 1,000 | `query` 900, 1 more |", False),
        ("| floor 2 | 1,000 | `core` 900, 1 more |", False),
    ],
)
def test_sizes_are_kept_while_they_are_about_right(written, is_kept):
    assert are_about(written, "| floor 1 | 1,000 | `core` 900, 1 more |") == is_kept


def test_a_stale_part_is_found():
    (page,) = pages_with("metrics")
    fresh = generated(page)
    stale = with_part(fresh, "metrics", "| metric |")
    assert part_of(stale, "metrics") == "| metric |"
    assert with_part(stale, "metrics", PARTS["metrics"]()) == fresh != stale


def test_code_lines_are_those_that_do_something():
    source = '"""What."""\n\n# Why.\nA = 1  # how\n"""What A is."""\nB = (\n    2\n)\n'
    assert code_lines(source) == 4


def test_the_spine_is_there():
    files = spine()
    assert len(files) == len(set(files)) > 10
    assert [file for file in files if not file.is_file()] == []
