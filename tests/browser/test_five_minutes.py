"""The first minutes in the console, as the tutorial tells them: the demo's market, its slider, its
grid, and a filter that somebody types. What comes after them runs in `tests/docs/test_examples.py`
(the shell, the notebook, `kill -9`) and `tests/spark/test_guide.py`."""

import re
import sys
from dataclasses import replace
from importlib.resources import files

import pytest

from sow.cli.commands.demo import OPENED
from sow.config import loads
from tests import forks
from tests.browser.looking import looked
from tests.docs.blocks import ROOT
from tests.edge.serving import Running

pytestmark = pytest.mark.browser

RATE = 300
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text()


@pytest.fixture
def market(tmp_path):
    """The server of the demo, and what is published to it."""
    configuration = loads(files("sow.cli").joinpath("demo.xml").read_bytes()).configuration
    server = Running(replace(configuration, port=0), tmp_path / "data")
    command = [sys.executable, "-m", "sow.cli.market", server.url, str(RATE), "1"]
    feed = forks.started(command)
    yield server
    feed.terminate()
    feed.wait()
    server.close()


def test_what_the_tutorial_says_of_the_console_is_seen(browser, market):
    (typed,) = re.findall(r"Type `(.*?)` into \*Filter\*", TUTORIAL)
    with looked(browser, market.url + "/") as console:
        page = console.page
        # The demo opens the slider; who opens the address that it prints is one click away.
        console.open()
        page.get_by_role("link", name="quotes", exact=True).click()
        page.get_by_role("link", name="Conflation").click()
        console.until("() => location.hash.startsWith('#/slider/quotes')")
        page.goto(f"{market.url}/{OPENED}")
        number = "Number(document.querySelector('{}').textContent.replaceAll(',', ''))"
        taken, given = number.format("#updates-in"), number.format("#updates-out")
        page.get_by_role("slider").press("End")
        console.until(f"() => {taken} > 10 && {given} < {taken} / 2")
        page.get_by_role("slider").press("Home")
        console.until(f"() => {given} > 10 && {given} > {taken} / 2")
        page.get_by_role("link", name="Records").click()
        page.locator("regular-table tbody td", has_text="AAPL").first.wait_for()
        box = page.get_by_role("combobox", name="Filter")
        box.fill(typed)
        box.press("Enter")
        page.locator("regular-table tr.gone td[title*=match]").first.wait_for(state="attached")
        page.locator("#left", has_text="match").wait_for()
