"""What is generated on the pages is what the code says; a failure prints the command to run."""

import pytest

from tests.cases import all_cases
from tests.docs.generated import ABOUT, PAGES, PARTS, ROOT, STALE, generated, part_of, with_part
from tests.docs.sizes import code_lines, numbers, spine


def pages_with(name):
    return [page for page in PAGES if part_of(page.read_text(), name) is not None]


@all_cases("page", PAGES)
def test_a_page_is_as_make_docs_writes_it(page):
    text, expected = page.read_text(), generated(page)
    for name in ABOUT:
        if (part := part_of(text, name)) is not None:
            expected = with_part(expected, name, part)
    assert text == expected, STALE.format(page.relative_to(ROOT))


@pytest.mark.parametrize("name", PARTS)
def test_a_part_stands_on_one_page(name):
    assert len(pages_with(name)) == 1


@pytest.mark.parametrize("name", ABOUT)
def test_figures_are_about_as_generated(name):
    (page,) = pages_with(name)
    written, found = numbers(part_of(page.read_text(), name)), numbers(PARTS[name]())
    assert written == pytest.approx(found, rel=0.15), STALE.format(page.relative_to(ROOT))


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
