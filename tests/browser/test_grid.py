"""The page of examples/ in a browser, against the server that its programs have."""

from dataclasses import replace
from pathlib import Path

import pytest

from sow.config import require
from tests.edge.serving import Running

pytestmark = pytest.mark.browser

EXAMPLES = Path(__file__).parents[2] / "examples"
THERE = "http://127.0.0.1:8080"


@pytest.fixture
def server(tmp_path):
    """A server with the configuration of the examples."""
    configuration = replace(require(str(EXAMPLES / "config.xml")), port=0)
    running = Running(configuration, tmp_path / "data")
    yield running
    running.close()
    assert running.errors == []


def test_the_grid_shows_the_ten_best_bids_and_keeps_to_them(server, pages):
    text = (EXAMPLES / "grid.html").read_text()
    script = text.partition('<script type="module">\n')[2].partition("</script>")[0]
    assert len(script.splitlines()) <= 10
    quotes = [{"symbol": f"S{number}", "bid": number, "ask": number + 1} for number in range(12)]
    server.publish("quotes", *quotes)
    page = pages()
    page.serve(f"{server.url}/grid/", text.replace(THERE, server.url), "text/html", csp="")
    page.open(f"{server.url}/grid/")
    page.wait_for("document.querySelectorAll('tr').length === 10")
    server.publish("quotes", {"symbol": "S0", "bid": 99, "ask": 100})
    page.wait_for("document.querySelector('td').textContent === 'S0'")
    cells = """() => [...document.querySelectorAll("tr")].map(
        (row) => [...row.children].map((cell) => cell.textContent))"""
    found = page.evaluate(cells)
    assert found[:2] == [["S0", "99", "100"], ["S11", "11", "12"]]
    assert len(found) == 10
    assert page.errors == []
