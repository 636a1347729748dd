"""The same view in other languages: each text is run as it stands, and finds what the grid shows.
Spark's is run where Spark's tests are (`tests/spark/test_copied.py`)."""

import ast
import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.browser

AWKWARD = """O'Neil "x" $HOME `id` \\ ü"""
ROWS = [{"id": number, "symbol": AWKWARD, "price": number} for number in (5, 6, 7)]
SHOWN = [{"id": 7, "symbol": AWKWARD}, {"id": 6, "symbol": AWKWARD}]
SAID = """<!doctype html><meta charset="utf-8"><title>said</title>
<script>window.said = []; console.log = (one) => window.said.push(one);</script>
<script type="module">{}</script>"""
"""A page that runs a text, and keeps what it prints."""


@pytest.fixture
def copied(console, server):
    """The texts of a view with a filter of all that a language may stumble over."""
    literal = AWKWARD.replace("\\", "\\\\").replace("'", "\\'")
    server.publish("orders", *ROWS)
    view = {"filter": f"/symbol = '{literal}' AND /price > 5", "order": "/price DESC"}
    console.open("topic", "orders", columns="/id,/symbol", **view)
    console.until_grid("7", "6")
    assert console.grid() == [[str(row["id"]), row["symbol"]] for row in SHOWN]
    return console.copied()


def test_the_text_for_a_shell_finds_what_the_grid_shows(copied):
    done = subprocess.run(["bash", "-c", copied["curl"]], capture_output=True, check=True)
    assert json.loads(done.stdout) == SHOWN


def test_the_text_for_python_finds_what_the_grid_shows_and_goes_on(copied, server):
    command = [sys.executable, "-u", "-c", copied["Python"]]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert [ast.literal_eval(process.stdout.readline()) for _ in SHOWN] == SHOWN
        server.request("DELETE", "/v1/topics/orders/records?filter=/id=7")
        assert process.stdout.readline().startswith("Change(key=")
        process.kill()


def test_the_text_for_a_page_finds_what_the_grid_shows_and_goes_on(copied, server, pages):
    page = pages()
    page.serve(f"{server.url}/said/", SAID.format(copied["JavaScript"]), "text/html", csp="")
    page.open(f"{server.url}/said/")
    page.wait_for("window.said.length === 2")
    assert page.evaluate("() => window.said") == SHOWN
    server.request("DELETE", "/v1/topics/orders/records?filter=/id=7")
    page.wait_for("window.said.length > 2")
    page.close()
    assert page.errors == []


def test_a_text_is_copied_where_a_browser_gives_no_clipboard(console):
    """As on a page over plain HTTP from another machine."""
    without = "() => Object.defineProperty(navigator, 'clipboard', {value: undefined})"
    console.page.add_init_script(f"({without})()")
    console.open("topic", "orders")
    text = console.copied()["Spark"]
    console.page.evaluate(
        "() => document.addEventListener('copy', () => { window.got = String(getSelection()); })"
    )
    console.page.get_by_role("button", name="copy", exact=True).click()
    console.page.get_by_role("button", name="copied").wait_for()
    assert console.page.evaluate("() => window.got") == text
