"""What holds of every page: no record is markup, any path and any user will do, and who sees
nothing asks for nothing."""

from dataclasses import replace

import pytest

from sow.authentication.tokens import sum_of
from sow.config import require as required
from tests.browser.looking import TOPICS, looked
from tests.browser.prefix import Prefixed
from tests.edge.serving import Running

pytestmark = pytest.mark.browser

HOSTILE = '<img src=x onerror="window.hacked=1">\'"&amp;</script><script>window.hacked=1</script>'


def test_what_records_hold_is_never_markup(console, server):
    server.publish("orders", {"id": HOSTILE, "symbol": HOSTILE, HOSTILE: HOSTILE, "price": 1})
    server.publish(f"desk/{HOSTILE}", {"id": HOSTILE})
    with server.socket() as ws:
        ws.ask({"c": "logon", "client": HOSTILE})
        ws.ask({"c": "subscribe", "t": "orders", "filter": f'/symbol = r"{HOSTILE[:20]}"'})
        for page, name, asked in (
            ("topics", "", {}),
            ("topic", "orders", {"order": "/price"}),
            ("topic", f"desk/{HOSTILE}", {}),
            ("topic", "orders", {"filter": HOSTILE}),
            ("topic", "orders", {"columns": f"/{HOSTILE}"}),
            ("slider", "orders", {"key": HOSTILE}),
            ("sessions", "", {}),
            ("explain", "orders", {"filter": f"/symbol = r'{HOSTILE[:20]}'"}),
            (HOSTILE, HOSTILE, {HOSTILE: HOSTILE}),
        ):
            console.open(page, name, **asked)
            console.page.reload()
            console.until("() => document.querySelector('main').textContent.length > 20")
            console.page.wait_for_load_state("networkidle")
            assert console.page.evaluate("() => window.hacked") is None
            assert console.page.locator("img, main script").count() == 0
    # The browser says so of an address that does not exist, which a slider for no record asks for.
    console.errors[:] = [text for text in console.errors if "404" not in text]


def test_a_proxy_may_have_put_it_below_a_path(browser, server):
    proxy = Prefixed(server)
    try:
        with looked(browser, proxy.url) as console:
            console.open()
            console.page.get_by_role("link", name="orders", exact=True).click()
            console.until_grid("1", "2", "3")
            server.publish("orders", {"id": 4})
            console.until_grid("1", "2", "3", "4")
    finally:
        proxy.close()


def test_where_users_are_known_it_asks_who_it_is_and_shows_what_he_may_see(browser, tmp_path):
    (tmp_path / "tokens").write_text(f"ann {sum_of('ann-token')} desk\n")
    security = """<Security><Authentication><Tokens><File>tokens</File></Tokens></Authentication>
      <Role><Name>desk</Name><Member>group:desk</Member>
        <Allow><Topic>orders</Topic><Read/></Allow></Role></Security>"""
    config = tmp_path / "config.xml"
    config.write_text(f"<SOWConfig><Name>t</Name>{security}<SOW>{TOPICS}</SOW></SOWConfig>")
    server = Running(replace(required(str(config)), port=0), tmp_path / "data")
    try:
        with looked(browser, server.url + "/") as console:
            console.open()
            console.page.get_by_label("or a token").fill("bad")
            console.page.get_by_role("button", name="Log on").click()
            console.page.get_by_text("not known here").wait_for()
            assert console.page.get_by_role("link", name="Topics").count() == 0
            console.page.get_by_label("or a token").fill("ann-token")
            console.page.get_by_role("button", name="Log on").click()
            console.page.get_by_role("link", name="orders", exact=True).wait_for()
            assert [row[0] for row in console.cells("#topics")] == ["orders"]
            for page in ("Config", "Pipelines"):
                console.page.get_by_role("link", name=page).wait_for(state="detached")
            console.open("topic", "orders")
            console.page.get_by_text("There are no records yet").wait_for()
            assert "ann-token" not in console.page.url
            console.page.get_by_role("button", name="Log off").click()
            console.page.get_by_label("or a token").wait_for()
            # Refusals are what this is about; the browser says each of them.
            console.errors[:] = [text for text in console.errors if " 40" not in text]
    finally:
        server.close()


def test_a_hidden_page_asks_for_nothing(console, server):
    console.open("topic", "orders", order="/id")
    console.until_grid("1", "2", "3")
    hide = """(hidden) => {
      Object.defineProperty(document, "hidden", {value: hidden, configurable: true});
      document.dispatchEvent(new Event("visibilitychange"));
    }"""
    console.page.evaluate(hide, True)
    console.page.locator(".state", has_text="paused").wait_for()
    server.publish("orders", {"id": 9})
    console.page.evaluate(hide, False)
    console.until_grid("1", "2", "3", "9")
