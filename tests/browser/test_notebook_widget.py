"""A live view's widget for notebooks: its script runs in a real page, and draws what the view sends
there. The page stands in for a notebook's: a model that is told what the widget's comm carries."""

import html
import json
import queue
import re

import pytest

from sow.client.sync import Client
from sow.client.tables import SCRIPT
from tests.pages import WAIT_S

pytestmark = pytest.mark.browser

EVIL = '<img src=x onerror="window.hacked=1">'
NAMES = ("caption", "heads", "rows", "facets", "chosen")
PAGE = """<!doctype html><meta charset="utf-8"><title>notebook</title><div id="cell"></div>
<script type="module" src="/notebook/begin.mjs"></script>"""
BEGIN = """import widget from "./widget.mjs";
const state = {};
const heard = [];
const model = {
  get: (name) => state[name],
  on: (names, call) => heard.push([names.split(" "), call]),
  set: (name, value) => { state[name] = value; },
  save_changes: () => { window.saved = state.chosen; },
};
window.told = (changed) => {
  Object.assign(state, changed);
  const names = Object.keys(changed).map((name) => `change:${name}`);
  for (const [known, call] of heard) if (known.some((name) => names.includes(name))) call();
};
window.begin = (first) => {
  Object.assign(state, first);
  widget.render({model, el: document.getElementById("cell")});
};"""
SHOWN = """() => {
  const table = document.querySelector("#cell table");
  const texts = (cells) => [...cells].map((cell) => cell.textContent);
  return [table.caption.textContent, texts(table.tHead.rows[0].cells),
    [...table.tBodies[0].rows].map((row) => texts(row.cells))];
}"""


@pytest.fixture
def notebook(server, pages):
    """A page of its own, as strict as one can be, that has the widget's script."""
    page = pages()
    place = f"{server.url}/notebook/"
    page.serve(place, PAGE, "text/html")
    page.serve(f"{place}begin.mjs", BEGIN, "text/javascript")
    page.serve(f"{place}widget.mjs", SCRIPT, "text/javascript")
    page.open(place)
    page.wait_for("Boolean(window.begin)")
    yield page
    page.close()
    assert page.errors == []


def carried(widget):
    """What there is to tell a page of a widget now, as it travels: JSON."""
    return json.loads(json.dumps({name: getattr(widget, name) for name in NAMES}))


def test_a_widget_is_drawn_again_as_the_view_changes(server, notebook):
    with Client(server.url) as client, client.live("orders", filter="/price > 10") as live:
        widget = live.widget(interval_s=0.1)
        notebook.evaluate("(first) => window.begin(first)", carried(widget))
        caption, heads, rows = notebook.evaluate(SHOWN)
        assert (caption, heads) == ("orders: 3 records", ["sow_key", "id", "symbol", "price"])
        assert [row[1:] for row in rows] == [
            ["1", "ACME", "10.25"],
            ["2", "BETA", "99.5"],
            ["3", "ACME", "11"],
        ]
        table = notebook.evaluate("() => document.querySelector('#cell table').outerHTML")
        assert texts_of(table) == texts_of(live._repr_html_())
        told = queue.Queue()
        widget.observe(lambda change: told.put({change.name: change.new}), list(NAMES))
        server.publish("orders", {"id": 2, "symbol": EVIL, "price": 12}, {"id": 1, "price": 1})
        left = ("orders: 2 records", [["2", EVIL, "12"], ["3", "ACME", "11"]])
        while (caption, [row[1:] for row in rows]) != left:
            notebook.evaluate("(changed) => window.told(changed)", told.get(timeout=WAIT_S))
            caption, _, rows = notebook.evaluate(SHOWN)
        assert notebook.evaluate("() => [window.hacked, document.images.length]") == [None, 0]
        widget.close()


def test_a_click_on_a_value_chooses_the_records_that_have_it(server, notebook):
    with Client(server.url) as client, client.live("orders") as live:
        widget = live.widget(interval_s=60, facets=["/symbol"])
        notebook.evaluate("(first) => window.begin(first)", carried(widget))
        texts = "() => [...document.querySelectorAll('button')].map((one) => one.textContent)"
        assert notebook.evaluate(texts) == ["ACME: 2", "BETA: 1"]
        notebook.evaluate("() => document.querySelector('button').click()")
        widget.chosen = notebook.evaluate("() => window.saved")
        notebook.evaluate("(changed) => window.told(changed)", carried(widget))
        caption, _, rows = notebook.evaluate(SHOWN)
        assert (caption, {row[2] for row in rows}) == ("orders: 2 records", {"ACME"})
        pressed = "() => document.querySelector('button').getAttribute('aria-pressed')"
        assert notebook.evaluate(pressed) == "true"
        notebook.evaluate("() => document.querySelector('button').click()")
        assert notebook.evaluate("() => window.saved") == {}
        widget.close()


def texts_of(table):
    """The cells and the caption of a table that is written as HTML."""
    return [html.unescape(text) for text in re.findall(r"<(?:td|th|caption)>(.*?)</", table, re.S)]
