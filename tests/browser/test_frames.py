"""What `frames.py` measures is what is published, told, drawn and held by the page."""

import pytest

from tests.browser.frames import ROWS, Smoothness

pytestmark = pytest.mark.browser

TOLD = "Number(document.querySelector('#rate').dataset.updates ?? 0)"
LOADED = """() => {
  const open = [...document.querySelectorAll(".facets details[open]")];
  const isCounted = open.length > 0 && open.every((one) => one.children.length > 1);
  return isCounted && document.querySelector("#topic-rates");
}"""
UPDATES = 2_000
GROWN_MAX = UPDATES // 2
"""One for two updates: two minutes of rates are some hundred objects, tables that are drawn anew
some hundred nodes."""


def test_updates_of_rows_in_view_are_drawn_as_they_come_and_nothing_of_them_is_kept(
    browser, tmp_path
):
    page = Smoothness(browser, tmp_path, per_s=1000)
    try:
        page.console.until(LOADED)
        before = page.held()
        shown, begun = page.console.page.evaluate(f"() => [window.newest(), {TOLD}]")
        page.console.until(
            f"""([shown, most, rows]) => {{
              const {{frames, rows: drawn}} = window.drawn;
              const isDrawn = drawn > rows && frames > 5;
              return isDrawn && {TOLD} >= most && window.newest() >= shown + 5 * rows;
            }}""",
            shown,
            begun + UPDATES,
            ROWS,
        )
        assert page.behind() < page.published
        after = page.held()
    finally:
        errors = page.close()
    assert errors == []
    assert min(before) > 0
    grown = {name: now - getattr(before, name) for name, now in after._asdict().items()}
    assert max(grown["nodes"], grown["listeners"], grown["objects"]) < GROWN_MAX, grown
