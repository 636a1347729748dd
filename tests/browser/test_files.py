"""A browser at the addresses themselves: it shows JSON, saves tables under their names, and reads
streams with what every page has, a WebSocket and an EventSource."""

import csv
import io
import json

import pytest

from tests.browser.conftest import ORDERS

pytestmark = pytest.mark.browser

STREAMS = """<!doctype html><meta charset="utf-8"><title>streams</title><script>
window.events = [], window.frames_ = [];
new EventSource("/v1/topics/orders/stream?unnamed=true").onmessage = (event) =>
  window.events.push(JSON.parse(event.data));
const socket = new WebSocket(`ws://${location.host}/v1/ws`, ["other", "sow.text"]);
socket.onopen = () => socket.send('{"c":"sow_and_subscribe","t":"orders"}');
socket.onmessage = (event) => window.frames_.push(event.data);
window.agreed = () => socket.protocol;
</script>"""


def saved(page, url):
    """What the browser saves of an address, and under which name."""

    async def go():
        async with page.raw.expect_download() as found:
            await page.raw.evaluate("(url) => { location.href = url; }", url)
        download = await found.value
        return download.suggested_filename, await download.path()

    return page.call(go())


def test_json_is_shown_and_tables_are_saved_under_their_names(server, pages):
    page = pages(accept_downloads=True)
    page.open(f"{server.url}/v1/topics/orders/records.json")
    assert json.loads(page.evaluate("() => document.body.innerText")) == ORDERS
    name, path = saved(page, f"{server.url}/v1/topics/orders/records.csv?order_by=/id")
    assert name == "orders.csv"
    rows = list(csv.DictReader(io.StringIO(path.read_text())))
    assert [row["symbol"] for row in rows] == ["ACME", "BETA", "ACME"]
    name, path = saved(page, f"{server.url}/v1/log.parquet")
    assert (name, path.read_bytes()[:4]) == ("log.parquet", b"PAR1")
    page.close()


def test_one_handler_hears_every_event_and_frames_are_texts(server, pages):
    page = pages()
    page.serve(f"{server.url}/streams/", STREAMS, "text/html", csp="")
    page.open(f"{server.url}/streams/")
    page.wait_for("window.events.some((line) => line.c === 'group_end')")
    page.wait_for("window.frames_.join('').includes('group_end')")
    server.publish("orders", {"id": 4})
    page.wait_for("window.events.some((line) => line.c === 'p' && line.d.id === 4)")
    page.wait_for("window.frames_.join('').includes('\"id\": 4')")
    kinds = page.evaluate("() => window.events.map((line) => line.c)")
    assert [kind for kind in kinds if kind != "turn_end"][:5] == [
        "group_begin", "sow", "sow", "sow", "group_end",
    ]  # fmt: skip
    assert page.evaluate("() => window.agreed()") == "sow.text"
    page.close()
    assert page.errors == []
