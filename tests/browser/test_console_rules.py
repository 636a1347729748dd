"""What holds of every page: no record is markup, any path and any user will do, and who sees
nothing asks for nothing."""

from dataclasses import replace

import pytest

from sow.config import require as required
from sow.security.authentication.tokens import sum_of
from tests.browser.looking import AXE, FOUND, TOPICS, looked
from tests.browser.prefix import Prefixed
from tests.edge.serving import Running, records

pytestmark = pytest.mark.browser

HOSTILE = '<img src=x onerror="window.hacked=1">\'"&amp;</script><script>window.hacked=1</script>'


def test_what_records_hold_is_never_markup(console, server):
    server.publish("orders", {"id": HOSTILE, "symbol": HOSTILE, HOSTILE: HOSTILE, "price": 1})
    server.publish(f"desk/{HOSTILE}", {"id": HOSTILE})
    with server.socket() as ws:
        ws.ask({"c": "logon", "client": HOSTILE})
        ws.ask({"c": "subscribe", "t": "orders", "filter": f'/symbol = r"{HOSTILE[:20]}"'})
        for page, name, requested in (
            ("topics", "", {}),
            ("topic", "orders", {"order": "/price"}),
            ("topic", f"desk/{HOSTILE}", {}),
            ("topic", "orders", {"filter": HOSTILE}),
            ("topic", "orders", {"columns": f"/{HOSTILE}"}),
            ("slider", "orders", {"key": HOSTILE}),
            ("sessions", "", {}),
            ("explain", "orders", {"filter": f"/symbol = r'{HOSTILE[:20]}'"}),
            (HOSTILE, HOSTILE, {HOSTILE: HOSTILE}),
            ("constructor", "__proto__", {"__proto__": "x", "sort": "toString"}),
            ("topic", "orders", {"as": "constructor", "columns": "$,[,/,x"}),
        ):
            console.open(page, name, **requested)
            console.page.reload()
            console.until("() => document.querySelector('main').textContent.length > 20")
            console.page.wait_for_load_state("networkidle")
            assert console.page.evaluate("() => window.hacked") is None
            assert console.page.locator("img, main script").count() == 0
    # The browser says so of an address that does not exist, which a slider for no record asks for.
    console.expected = "404"


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
            console.page.get_by_text("The name, password or token is wrong.").wait_for()
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
            console.expected = " 40"
    finally:
        server.close()


def test_who_may_not_see_a_topic_any_more_does_not_until_he_may_again(browser, tmp_path):
    (tmp_path / "tokens").write_text(f"ann {sum_of('ann-token')} desk\n")
    config = tmp_path / "config.xml"

    def read(topic="orders"):
        security = f"""<Security>
          <Authentication><Tokens><File>tokens</File></Tokens></Authentication>
          <Role><Name>desk</Name><Member>group:desk</Member>
            <Allow><Topic>{topic}</Topic><Read/><Write/></Allow>
            <Allow><Admin/></Allow></Role></Security>"""
        config.write_text(f"<SOWConfig><Name>t</Name>{security}<SOW>{TOPICS}</SOW></SOWConfig>")
        return replace(required(str(config)), port=0)

    allowed = ["orders"]
    server = Running(read(), tmp_path / "data", reread=lambda: read(allowed[-1]))
    known = {"Authorization": "Bearer ann-token"}
    try:
        server.request("POST", records("orders"), data=b'{"id":1,"symbol":"ACME"}', headers=known)
        with looked(browser, server.url + "/") as console:
            console.open("topic", "orders")
            console.page.get_by_label("or a token").fill("ann-token")
            console.page.get_by_role("button", name="Log on").click()
            console.until_grid("1")
            facet = console.page.get_by_label("Facets").get_by_role("button", name="ACME 1")
            facet.wait_for()
            for topic in ("book", "orders"):
                allowed.append(topic)
                server.request("POST", "/v1/config/reload", headers=known)
                if topic == "book":
                    console.page.locator("#absent").wait_for()
                    assert "ACME" not in console.text("main")
            console.until_grid("1")
            facet.wait_for()
            server.request("POST", records("orders"), data=b'{"id":2}', headers=known)
            console.until_grid("1", "2")
            console.until("() => document.querySelector('#matches').textContent === '2 match'")
            console.expected = " 40"
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


def test_who_uses_the_keys_alone_gets_everywhere_in_the_order_in_which_it_stands(console):
    console.open("topic", "orders", order="/id")
    console.until_grid("1", "2", "3")
    pages = ["SOW", "Topics", "Sessions", "Pipelines", "Config"]
    tabs = ["Records", "Conflation", "Plan", "Definition"]
    parts = ["Filter", "Order", "Columns", "Pivot", "Publish", "Pause", "Copy as", "Export"]
    console.page.get_by_label("Facets").get_by_role("button", name="BETA 1").wait_for()
    for name in [*pages, *tabs, *parts, "As of"]:
        console.page.keyboard.press("Tab")
        assert console.page.evaluate(FOCUSED) == name
    beside = []
    while (name := console.page.evaluate(FOCUSED)) != "Records of orders":
        assert len(beside) < 30, beside
        beside.append(name)
        console.page.keyboard.press("Tab")
    assert {"symbol", "price", "BETA1"} <= set(beside)


FOCUSED = "() => document.activeElement.ariaLabel || document.activeElement.textContent.trim()"
PAGES = (
    ("topics", "", {}),
    ("topic", "orders", {"filter": "/price >"}),
    ("topic", "orders-C", {"order": "/id"}),
    ("topic", "orders", {"group": "/symbol"}),
    ("topic", "orders", {"as_of": "2000-01-01T00:00:00Z"}),
    ("topic", "none", {}),
    ("definition", "book", {}),
    ("slider", "orders", {}),
    ("sessions", "", {}),
    ("explain", "orders", {"filter": "/price > 10.5"}),
    ("config", "", {}),
    ("pipelines", "", {}),
)
LOADED = """() => {
  const text = document.querySelector("main").textContent;
  return text.length > 20 && !text.includes("Loading");
}"""
UNREADABLE = """() => {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", {willReadFrequently: true});
  const seen = (...colours) => {
    canvas.clearRect(0, 0, 1, 1);
    for (const colour of colours) {
      canvas.fillStyle = colour;
      canvas.fillRect(0, 0, 1, 1);
    }
    const parts = [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).map((part) => part / 255);
    const one = (part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    const linear = parts.map(one);
    return linear[0] * 0.2126 + linear[1] * 0.7152 + linear[2] * 0.0722;
  };
  const behind = (element) => {
    const found = [];
    for (let at = element; at; at = at.parentElement) {
      found.unshift(getComputedStyle(at).backgroundColor);
    }
    return found;
  };
  const contrast = (ground, colour) => {
    const [one, other] = [seen(...ground), seen(...ground, colour)];
    return (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
  };
  const bad = [];
  const boxes = "input:not([type=range], [type=checkbox]), select, textarea";
  for (const box of document.querySelectorAll(boxes)) {
    if (!box.checkVisibility() || box.disabled) continue;
    const found = contrast(behind(box.parentElement), getComputedStyle(box).borderTopColor);
    if (found < 3) bad.push(["edge", box.ariaLabel ?? box.name, Number(found.toFixed(2))]);
  }
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    const text = walker.currentNode.data.trim();
    const unseen = ".echo, .hidden, button:disabled, noscript";
    if (!text || !element.checkVisibility() || element.closest(unseen)) continue;
    const found = contrast(behind(element), getComputedStyle(element).color);
    if (found < 4.5) bad.push([text, element.className, Number(found.toFixed(2))]);
  }
  return bad;
}"""
SIDES = """(element) => {
  const {left, right} = element.getBoundingClientRect();
  return [left, right];
}"""
OUTSIDE = """() => {
  const page = document.documentElement;
  const parts = [...document.querySelectorAll("main > *, .split > *")];
  const boxes = parts.map((one) => one.getBoundingClientRect());
  const overlap = (one, other) => one.top < other.bottom - 1 && other.top < one.bottom - 1
    && one.left < other.right - 1 && other.left < one.right - 1;
  const within = (one, other) => one.top >= other.top - 1 && one.bottom <= other.bottom + 1;
  const pairs = boxes.flatMap((one, at) => boxes.slice(at + 1).filter((other) =>
    one.height && other.height && overlap(one, other) && !within(other, one)));
  const main = document.querySelector("main");
  const scrolls = [page, main].some((one) => one.scrollWidth > one.clientWidth);
  return {scrolls, overlaps: pairs.length};
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_can_be_read_on_a_wide_screen_and_on_a_narrow_one(browser, server, scheme):
    """Texts have the contrast that WCAG asks for (AA: 4.5, of the edges of boxes 3), axe finds
    nothing, no page is wider than its screen, and nothing stands upon another."""
    wide, narrow = {"width": 1200, "height": 800}, {"width": 360, "height": 700}
    with looked(browser, server.url + "/", color_scheme=scheme, viewport=wide) as console:
        console.page.add_init_script(AXE)
        for page, name, requested in PAGES:
            console.open(page, name, **requested)
            console.until(LOADED)
            if name == "orders-C":
                console.until_grid("1", "2", "3")
                console.page.locator("regular-table tbody td", has_text="BETA").click()
                console.page.get_by_label("The record").locator("ul.why li").first.wait_for()
            for size in (wide, narrow):
                console.page.set_viewport_size(size)
                assert console.page.evaluate(UNREADABLE) == [], page
                assert console.page.evaluate(OUTSIDE) == {"scrolls": False, "overlaps": 0}, page
                assert console.page.evaluate(FOUND) == [], page
        # The browser says so of a topic that is not there, and of a filter that is wrong.
        console.expected = " 40"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_opens_on_a_page_can_be_read(browser, server, scheme):
    wide, narrow = {"width": 1200, "height": 800}, {"width": 360, "height": 700}
    with looked(browser, server.url + "/", color_scheme=scheme, viewport=wide) as console:
        console.page.add_init_script(AXE)
        console.open("topic", "orders", filter="/symbol = 'ACME' AND /none IS NULL", order="/id")
        console.until_grid("1", "3")
        console.page.locator("#advice").wait_for()
        console.page.locator("regular-table tbody td").first.click()
        pane = console.page.get_by_label("The record")
        for name in ("Edit", "Delete"):
            pane.get_by_role("button", name=name).click()
            opened = "form" if name == "Edit" else "dialog"
            console.page.locator(opened).wait_for()
            for size in (narrow, wide):
                console.page.set_viewport_size(size)
                assert console.page.evaluate(UNREADABLE) == [], name
                assert console.page.evaluate(OUTSIDE)["scrolls"] is False, name
                assert console.page.evaluate(FOUND) == [], name
            console.page.keyboard.press("Escape")
            console.page.locator(opened).wait_for(state="detached")
        console.page.get_by_role("button", name="Publish").click()
        console.page.get_by_label("The message as JSON").wait_for()
        assert console.page.evaluate(UNREADABLE) == []
        for name in ("Columns", "Copy as", "Export"):
            menu = console.page.locator("details.menu", has_text=name)
            menu.locator("summary").click()
            for size in (narrow, wide):
                console.page.set_viewport_size(size)
                assert console.page.evaluate(UNREADABLE) == [], name
                assert console.page.evaluate(FOUND) == [], name
                left, right = menu.locator("> div").evaluate(SIDES)
                assert (left >= 0, right <= size["width"]) == (True, True), name
            menu.locator("summary").click()


def test_what_is_asked_of_pages_is_found_where_it_is_not_so(console):
    """Axe and the contrast of a page with three mistakes."""
    console.page.add_init_script(AXE)
    console.open()
    console.page.locator("#topics").wait_for()
    assert (console.page.evaluate(FOUND), console.page.evaluate(UNREADABLE)) == ([], [])
    console.page.evaluate(
        """() => {
          const [box, text] = ["input", "p"].map((name) => document.createElement(name));
          text.textContent = "pale";
          [box.style.borderColor, text.style.color] = ["#eee", "#bbb"];
          document.querySelector("main").append(box, text);
        }"""
    )
    found = {rule for rule, *_ in console.page.evaluate(FOUND)}
    assert found == {"color-contrast", "label"}
    assert [one[:1] for one in console.page.evaluate(UNREADABLE)] == [["edge"], ["pale"]]
