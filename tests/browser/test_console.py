"""The console in a real browser: what each page shows of a server that is known, and what it never
does: call anybody else, complain, or take what a record holds for markup.

Nothing here waits for a time: each step waits until the page shows what is to come.
"""

import asyncio
import inspect
import json
from contextlib import contextmanager, suppress
from dataclasses import replace
from urllib.parse import quote, urlencode

import pytest

from sow.authentication.tokens import sum_of
from sow.config import require as required
from sow.config import review
from sow.pipelines import Pipeline, Sink, Source
from tests.browser.prefix import Prefixed
from tests.edge.serving import Running, configuration, records

pytestmark = pytest.mark.browser

TOPICS = """
<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key>
  <HashIndex><Key>/symbol</Key></HashIndex></Topic>
<Topic><Name>desks</Name><MessageType>json</MessageType><Key>/id</Key>
  <Pattern>^desk/</Pattern></Topic>
<Topic><Name>buses</Name><MessageType>json</MessageType><Key>/id</Key></Topic>
<Topic><Name>book</Name><MessageType>json</MessageType><Key>/symbol</Key><Key>/side</Key>
  <Key>/price</Key></Topic>
<ConflatedTopic><Name>orders-C</Name><MessageType>json</MessageType>
  <UnderlyingTopic>orders</UnderlyingTopic><Interval>100ms</Interval></ConflatedTopic>
"""
ORDERS = [
    {"id": 1, "symbol": "ACME", "price": 10.25},
    {"id": 2, "symbol": "BETA", "price": 99.5},
    {"id": 3, "symbol": "ACME", "price": 11},
]
HOSTILE = '<img src=x onerror="window.hacked=1">\'"&amp;</script><script>window.hacked=1</script>'


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    directory = tmp_path_factory.mktemp("data")
    path = directory / "config.xml"
    path.write_text(f"<SOWConfig><Name>test</Name><SOW>{TOPICS}</SOW></SOWConfig>")

    def read():
        return replace(required(str(path)), port=0)

    server = Running(
        read(),
        directory / "data",
        reread=read,
        look=lambda: review(str(path)),
    )
    server.path = path
    yield server
    server.close()
    # Playwright logs, too: of what a page asks for that is left in that moment.
    assert [error for error in server.errors if "playwright" not in error] == []


@pytest.fixture
def server(running):
    running.clear()
    running.publish("orders", *ORDERS)
    return running


class Waited:
    """Something of Playwright's whose answers are waited for, and all that it leads to."""

    def __init__(self, browser, raw):
        self._browser, self._raw = browser, raw

    def __getattr__(self, name):
        found = getattr(self._raw, name)
        return self._call(found) if callable(found) else self._made(found)

    def _call(self, method):
        def call(*given, **more):
            answer = method(*given, **more)
            return self._made(self._browser.call(answer) if inspect.isawaitable(answer) else answer)

        return call

    def _made(self, found):
        if isinstance(found, list):
            return [self._made(one) for one in found]
        ours = type(found).__module__.startswith("playwright")
        return Waited(self._browser, found) if ours else found


class Looked:
    """A page of the console, as somebody looks at it."""

    def __init__(self, browser, base, options):
        self.base = base
        self._page = browser.page(**options)
        self.page = Waited(browser, self._page.raw)
        self.errors = self._page.errors
        self.sockets = self._page.sockets

    def open(self, page="topics", name="", **asked):
        query = "?" + urlencode(asked, quote_via=quote) if asked else ""
        self._page.open(f"{self.base}#/{page}{'/' + quote(name, safe='') if name else ''}{query}")
        return self

    def close(self):
        self._page.close()

    def cells(self, selector):
        """The texts of a table, row by row."""
        rows = self.page.locator(f"{selector} tbody tr").all()
        return [[text.strip() for text in row.locator("td").all_inner_texts()] for row in rows]

    def until(self, script, *given):
        """Wait until a function of JavaScript says yes in the page."""
        self.page.wait_for_function(script, arg=list(given))

    def text(self, selector):
        return self.page.locator(selector).inner_text()

    def grid(self):
        return self.cells("regular-table")

    def until_grid(self, *expected):
        """Wait until the first column of the grid, without what is leaving, is this."""
        self.until(
            """([expected]) => expected === JSON.stringify(
              [...document.querySelectorAll("regular-table tbody tr:not(.gone)")]
                .map((row) => row.cells[0]?.textContent.trim()))""",
            json.dumps(expected, separators=(",", ":")),
        )

    def check(self):
        own = self.base.replace("http", "ws", 1)
        assert [url for url in self.sockets if not url.startswith(own)] == []
        assert self.errors == []


@contextmanager
def looked(browser, base, **more):
    """A page that calls nobody but its own server, and complains of nothing."""
    found = Looked(browser, base, {"viewport": {"width": 1200, "height": 800}, **more})
    try:
        yield found
        found.check()
    finally:
        found.close()


@pytest.fixture
def console(browser, server):
    with looked(browser, server.url + "/") as found:
        yield found


# What each page shows.


def test_all_topics_are_listed_with_what_they_hold(console):
    console.open()
    console.until("() => document.querySelector('#topics tbody tr')")
    found = {row[0].split()[-1]: row for row in console.cells("#topics")}
    assert found["orders"][1:5] == ["topic", "json", "", "3"]
    assert found["orders-C"][1:4] == ["conflated of orders", "json", "100 ms"]


def test_topics_of_a_pattern_are_folded_under_it(console, server):
    server.publish("desk/1", {"id": 1})
    server.publish("desk/2", {"id": 1}, {"id": 2})
    console.open()
    console.page.get_by_role("button", name="Topics of desks").click()
    console.page.get_by_role("link", name="desk/2").wait_for()
    assert "2 topics" in console.text("#topics")
    console.page.get_by_role("button", name="Topics of desks").click()
    console.page.get_by_role("link", name="desk/2").wait_for(state="detached")


def test_rates_are_those_at_which_is_published(console, server):
    console.open()
    with publishing(server, 5):
        console.until(
            """() => [...document.querySelectorAll("#topics tbody tr")].some(({cells}) =>
              cells[0].textContent.trim() === "orders" && Number(cells[5].textContent) > 0)"""
        )


def test_the_records_of_a_topic_stay_current(console, server):
    console.open("topic", "orders", order="/id")
    console.until_grid("1", "2", "3")
    assert [row[:2] for row in console.grid()] == [["1", "ACME"], ["2", "BETA"], ["3", "ACME"]]
    server.publish("orders", {"id": 2, "symbol": "GAMMA", "price": 1})
    console.until("() => document.body.textContent.includes('GAMMA')")
    server.publish("orders", {"id": 0, "symbol": "NEW", "price": 1})
    console.until_grid("0", "1", "2", "3")
    assert console.text("#matches") in ("3 match", "4 match")
    console.page.get_by_role("button", name="Table").wait_for(state="detached")


@pytest.mark.parametrize("gone", ["match", "deleted"])
def test_a_row_leaves_with_its_reason(console, server, gone):
    console.open("topic", "orders", filter="/price > 1", order="/id")
    console.until_grid("1", "2", "3")
    if gone == "match":
        server.publish("orders", {"id": 2, "price": 0})
    else:
        server.request("DELETE", records("orders", filter="/id = 2"))
    console.page.locator("regular-table tr.gone").wait_for(state="attached")
    assert console.page.locator("regular-table tr.gone td").first.get_attribute("title") == gone
    console.until_grid("1", "3")
    console.page.locator("#left", has_text=gone).wait_for()
    console.page.locator("regular-table tr.gone").wait_for(state="detached")


def test_a_cell_that_changes_is_lit_up_for_a_moment(console, server):
    console.open("topic", "orders", order="/id")
    console.until_grid("1", "2", "3")
    server.publish("orders", {"id": 2, "symbol": "BETA", "price": 7})
    console.page.locator("regular-table td.hot, regular-table td.warm").first.wait_for()
    console.until("() => !document.querySelector('regular-table td.hot, regular-table td.warm')")


def test_what_is_wrong_in_a_filter_is_underlined_where_it_stands(console):
    console.open("topic", "orders")
    box = console.page.get_by_role("combobox", name="Filter")
    box.fill("/price > 1 AND AND /id = 1")
    box.press("Enter")
    wrong = console.page.locator(".echo .wrong")
    wrong.wait_for(state="attached")
    assert wrong.inner_text() == "AND"
    before = console.page.evaluate("() => document.querySelector('.wrong').previousSibling.data")
    assert before == "/price > 1 AND "
    assert box.get_attribute("aria-invalid") == "true"
    assert "position 15" in console.text("#filter-told")
    box.fill("/price > 11")
    box.press("Enter")
    console.until_grid("2")
    assert "filter=%2Fprice+%3E+11" in console.page.url


def test_fields_and_functions_are_offered_while_one_types(console):
    console.open("topic", "orders", order="/id")
    console.until_grid("1", "2", "3")
    box = console.page.get_by_role("combobox", name="Filter")
    box.press_sequentially("/pr")
    console.page.get_by_role("option", name="/price").wait_for()
    box.press("Tab")
    assert box.input_value() == "/price"
    box.fill("")
    box.press_sequentially("conca")
    console.page.get_by_role("option").first.wait_for()
    box.press("Tab")
    assert box.input_value() == "CONCAT("


def test_the_address_holds_the_view(console):
    console.open("topic", "orders")
    console.until("() => document.querySelectorAll('regular-table tbody tr').length === 3")
    console.page.locator("regular-table thead th", has_text="price").click()
    console.page.locator("regular-table thead th", has_text="price ▲").click()
    console.until_grid("2", "3", "1")
    console.page.locator("regular-table tbody td", has_text="BETA").click()
    console.page.get_by_label("The record").get_by_text('"symbol": "BETA"').wait_for()
    console.page.reload()
    console.until_grid("2", "3", "1")
    console.page.get_by_label("The record").get_by_text('"symbol": "BETA"').wait_for()


def test_the_same_view_is_said_in_other_languages(console, server):
    console.open("topic", "orders", filter="/symbol = 'ACME'", order="/id")
    console.page.get_by_text("Copy as").click()
    assert "curl -s '" in console.text("#snippet")
    languages = {"Python": "client.live(", "JavaScript": "/sow.js", "Spark": 'format("sow")'}
    for name, said in languages.items():
        console.page.get_by_role("button", name=name).click()
        assert said in console.text("#snippet")
        assert "/symbol = 'ACME'" in console.text("#snippet")


def test_only_what_is_in_view_is_followed_however_many_records_there_are(console, server):
    server.publish("orders", *({"id": number, "price": number} for number in range(1500)))
    console.open("topic", "orders", order="/id")
    console.until("() => document.querySelector('#matches')?.textContent.startsWith('1,500')")
    console.page.locator("regular-table").evaluate("(table) => { table.scrollTop = 1000 * 22 }")
    console.until(
        """() => [...document.querySelectorAll("regular-table tbody tr")]
          .some((row) => row.cells[0]?.textContent.trim() === "1005")"""
    )
    (session,) = [one for one in server.get("/v1/sessions").json if one["connected"]]
    (followed,) = server.get(f"/v1/sessions/{session['id']}").json["following"]
    assert followed["window"] is True
    assert console.page.locator("regular-table tbody tr").count() < 100


def test_records_with_coordinates_are_shown_where_they_are(console, server):
    places = [(30.2, -97.7), (30.4, -97.8), (30.3, -97.6)]
    buses = [{"id": n, "latitude": lat, "longitude": lon} for n, (lat, lon) in enumerate(places)]
    server.publish("buses", *buses, {"id": "lost"})
    console.open("topic", "buses")
    console.page.get_by_role("button", name="Map").click()
    console.page.get_by_role("img", name="Where 3 records").wait_for()
    colours = """() => {
      const map = document.querySelector("#map");
      const drawn = map.getContext("2d").getImageData(0, 0, map.width, map.height);
      return new Set(new Uint32Array(drawn.data.buffer)).size;
    }"""
    assert console.page.evaluate(colours) > 3
    server.request("DELETE", records("buses", filter="/id = 0"))
    console.page.get_by_role("img", name="Where 2 records").wait_for()
    assert "as=map" in console.page.url


def test_a_book_is_shown_as_a_ladder(console, server):
    levels = [("bid", 9.5, 3), ("bid", 9.0, 2), ("ask", 10.25, 4), ("ask", 11, 1)]
    server.publish(
        "book",
        *({"symbol": "A", "side": side, "price": price, "qty": n} for side, price, n in levels),
        {"symbol": "B", "side": "bid", "price": 5, "qty": 1},
    )
    console.open("topic", "book")
    console.page.get_by_role("button", name="Ladder").click()
    console.page.locator("#ladder .bid").nth(1).wait_for()
    assert [[text.strip() for text in row] for row in console.cells("#ladder")] == [
        ["", "11", "1"],
        ["", "10.25", "4"],
        ["", "spread 0.75", ""],
        ["3", "9.5", ""],
        ["2", "9", ""],
    ]
    server.publish("book", {"symbol": "A", "side": "bid", "price": 10, "qty": 7})
    console.page.locator("#ladder .spread", has_text="0.25").wait_for()


def test_it_is_said_why_a_record_of_a_conflated_topic_is_as_it_is(console, server):
    console.open("topic", "orders-C", order="/id")
    console.until_grid("1", "2", "3")
    console.page.locator("regular-table tbody td", has_text="BETA").click()
    console.page.get_by_label("The record").locator("ul.why li").first.wait_for()
    assert "orders-C" in console.text("ul.why")


def test_the_slider_changes_how_much_is_told(console, server):
    console.open("slider", "orders", interval="10s", filter="/id = 1")
    number = "Number(document.querySelector('{}').textContent.replaceAll(',', ''))"
    taken, given = number.format("#updates-in"), number.format("#updates-out")
    with publishing(server, 20):
        console.until(f"() => {taken} > 2 && {given} < {taken} / 2")
        console.page.get_by_role("button", name="none").click()
        console.until(f"() => {given} > 2 && {given} > {taken} / 2")
        assert "interval=none" in console.page.url
        console.page.get_by_role("slider").press("End")
        console.until(f"() => {given} < {taken} / 2")


def test_without_a_topic_the_slider_shows_the_busiest(console, server):
    server.publish("desk/1", {"id": 1})
    console.open("slider")
    console.until("() => location.hash === '#/slider/orders'")
    console.page.get_by_role("slider").wait_for()
    console.page.get_by_role("link", name="Records").click()
    console.page.get_by_role("heading", name="orders").wait_for()
    console.page.get_by_role("navigation").get_by_role("link", name="Explain").click()
    console.until("() => location.hash === '#/explain/orders'")


def test_sessions_are_shown_with_their_queues_and_can_be_closed(console, server):
    with server.socket() as ws:
        ws.ask({"c": "logon", "client": "grid 7"})
        ws.ask({"c": "subscribe", "t": "orders", "opts": "conflation=1h", "filter": "/price > 1"})
        console.open("sessions")
        console.page.get_by_role("link", name="grid 7").click()
        console.page.get_by_label("What the session follows").get_by_text("/price > 1").wait_for()
        why = console.page.get_by_label("Why")
        why.get_by_text("It has been told everything").wait_for()
        for price in (2, 3, 4):
            server.publish("orders", {"id": 1, "price": price})
        why.get_by_text("updates of orders became one with later ones").wait_for()
        row = console.page.locator("#sessions tr", has_text="grid 7")
        row.get_by_role("button", name="conflate on").click()
        row.get_by_role("button", name="conflate off").wait_for()
        why.get_by_text("switched off").wait_for()
        row.get_by_role("button", name="disconnect").click()
        gone = console.page.locator("#gone tr", has_text="grid 7")
        gone.get_by_text("closed by an operator").wait_for()


def test_a_query_is_explained(console):
    console.open("explain", "orders", filter="/symbol = 'ACME' AND /price > 10.5")
    console.page.locator("#plan").wait_for()
    terms = console.cells("#plan")
    assert terms[0] == ["/symbol = 'ACME'", "hash(/symbol)", "2"]
    assert console.text("#rows-touched") in ("1", "2")
    assert console.text("#advice")


def test_the_configuration_is_shown_with_what_is_wrong_and_read_again(console, server):
    whole = server.path.read_text()
    console.open("config")
    console.page.locator("#verdict", has_text="valid").wait_for()
    assert "Name" in console.page.locator(".listing").inner_text()
    console.page.get_by_role("button", name="Reload").click()
    console.page.locator("#changes", has_text="nothing has changed").wait_for()
    try:
        assert console.page.locator("#difference td", has_text="100ms").count() == 0
        server.path.write_text(whole.replace("100ms", "250ms", 1))
        console.page.reload()
        slower = console.page.locator("#difference tr", has_text="interval_us")
        slower.wait_for()
        assert [one.strip() for one in slower.locator("td").all_inner_texts()] == [
            "100000",
            "250000",
        ]
        server.path.write_text(whole.replace("<SOW>", "<SOW>\n<Tpoic/>\n", 1))
        console.page.reload()
        console.page.locator(".finding", has_text="Tpoic").wait_for()
        assert console.page.get_by_role("button", name="Reload").is_disabled()
    finally:
        server.path.write_text(whole)


def test_pipelines_are_shown_with_how_they_run(browser, tmp_path):
    source, sink = Source(format="sow", topic="orders"), Sink(topic="bars")
    bars = Pipeline(name="bars", sources=(source,), sink=sink, autostart=True)
    running = Running(replace(configuration(TOPICS), pipelines=(bars,)), tmp_path / "data")
    note = running.server.board.note
    try:
        running.call(lambda: note("bars", state="failed", error="no such topic", rows_per_s=1200))
        with looked(browser, running.url + "/") as console:
            console.open("pipelines")
            console.page.locator("#pipelines td").first.wait_for()
            (row,) = console.cells("#pipelines")
            assert row[0] == "bars"
            assert row[4:] == ["failed", "1,200", "", "no such topic"]
    finally:
        running.close()


# What no page does.


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


@contextmanager
def publishing(server, each_s):
    """An update of order 1, so often a second, as long as this is open."""

    async def work():
        number = 0
        while True:
            number += 1
            body = json.dumps({"id": 1, "symbol": "ACME", "price": 1000 + number}).encode()
            url = server.url + records("orders", ack="processed")
            async with server._http.post(url, data=body, headers=JSON) as answer:
                await answer.read()
            await asyncio.sleep(1 / each_s)

    task = asyncio.run_coroutine_threadsafe(work(), server.loop)
    try:
        yield
    finally:
        task.cancel()
        with suppress(Exception):
            task.result(1)


JSON = {"Content-Type": "application/json"}
