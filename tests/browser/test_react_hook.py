"""The hook of integrations/javascript in a page, with the hooks of Preact, which are React's."""

import pytest

from sow.server.api.static_files import CONSOLE_FOLDER
from tests.docs.blocks import ROOT

pytestmark = pytest.mark.browser

HOOK = ROOT / "integrations" / "javascript" / "react.js"
PAGE = """<!doctype html><meta charset="utf-8"><title>hook</title>
<script type="importmap">{"imports": {"react": "./preact.js"}}</script>
<div id="here"></div><script type="module" src="./begin.mjs"></script>"""
BEGIN = """import { html, render, useState } from "react";
import { connect } from "/sow.js";
import { useLive } from "./react.js";

function Orders({ sow }) {
  const [least, setLeast] = useState(10);
  window.setLeast = setLeast;
  const topic = least === null ? "nothing" : "orders";
  const { rows, order, error, ready } = useLive(sow, topic, { filter: `/price > ${least ?? 0}` });
  window.shown = { rows, order, error: error?.reason, ready };
  return html`<ul>${rows.map((row, at) => html`<li key=${order[at]}>${row.id}</li>`)}</ul>`;
}
const here = document.getElementById("here");
render(html`<${Orders} sow=${null} />`, here);
const sow = await connect();
window.end = () => render(null, here);
render(html`<${Orders} sow=${sow} />`, here);"""
IDS = "[...document.querySelectorAll('li')].map((one) => one.textContent).sort().join()"


def test_a_component_shows_what_is_there_until_it_ends(server, pages):
    page = pages()
    place = f"{server.url}/hook/"
    page.serve(place, PAGE, "text/html", csp="")
    page.serve(f"{place}begin.mjs", BEGIN, "text/javascript")
    page.serve(f"{place}react.js", HOOK.read_text(), "text/javascript")
    preact = (CONSOLE_FOLDER / "vendored" / "htm-preact.js").read_text()
    page.serve(f"{place}preact.js", preact, "text/javascript")
    page.open(place)
    page.wait_for(f"window.shown?.ready && {IDS} === '1,2,3'")
    server.publish("orders", {"id": 2, "symbol": "B", "price": 1}, {"id": 4, "price": 70})
    page.wait_for(f"{IDS} === '1,3,4'")
    page.evaluate("() => window.setLeast(50)")
    page.wait_for(f"{IDS} === '4'")
    page.evaluate("() => window.setLeast(null)")
    page.wait_for("window.shown.error === 'invalid topic'")
    assert page.evaluate(f"() => [{IDS}, window.shown.ready]") == ["4", False]
    page.evaluate("() => window.setLeast(50)")
    page.wait_for("window.shown.ready")
    page.evaluate("() => window.end()")
    page.wait_for("document.querySelectorAll('li').length === 0")
    assert page.errors == []
