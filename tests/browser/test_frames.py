"""What `frames.py` measures is what is published, told and drawn."""

import pytest

from tests.browser.frames import ROWS, Smoothness

pytestmark = pytest.mark.browser


def test_updates_of_rows_in_view_are_drawn_as_they_come(browser, tmp_path):
    page = Smoothness(browser, tmp_path, per_s=1000)
    try:
        shown = page.console.page.evaluate("() => window.newest()")
        page.console.until(
            """([shown, rows]) => {
              const told = Number(document.querySelector("#rate").dataset.updates);
              const {frames, rows: drawn} = window.drawn;
              const isDrawn = drawn > rows && frames > 5;
              return isDrawn && told > rows && window.newest() >= shown + 5 * rows;
            }""",
            shown,
            ROWS,
        )
        assert page.behind() < page.published
        assert page.heap_bytes() > 0
    finally:
        errors = page.close()
    assert errors == []
