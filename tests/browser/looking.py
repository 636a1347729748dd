"""The console in a real browser, driven by tests.

Nothing here waits for a time: each step waits until the page shows what is to come. A page that
calls anybody but its own server, or complains of anything, fails its test.
"""

import asyncio
import inspect
import json
from contextlib import contextmanager, suppress
from importlib.resources import files
from urllib.parse import quote, urlencode

from tests.edge.serving import records
from tests.pages import patient

TOPICS = """
<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key>
  <HashIndex><Key>/symbol</Key></HashIndex></Topic>
<Topic><Name>desks</Name><MessageType>json</MessageType><Key>/id</Key>
  <Pattern>^desk/</Pattern></Topic>
<Topic><Name>notes</Name><MessageType>xml</MessageType><Key>/note/id</Key></Topic>
<Topic><Name>packed</Name><MessageType>msgpack</MessageType><Key>/id</Key></Topic>
<Topic><Name>buses</Name><MessageType>json</MessageType><Key>/id</Key></Topic>
<Topic><Name>book</Name><MessageType>json</MessageType><Key>/symbol</Key><Key>/side</Key>
  <Key>/price</Key></Topic>
<ConflatedTopic><Name>orders-C</Name><MessageType>json</MessageType>
  <UnderlyingTopic>orders</UnderlyingTopic><Interval>100ms</Interval></ConflatedTopic>
"""


AXE = files("axe_playwright_python").joinpath("axe.min.js").read_text()
FOUND = """async () => {
  const {violations} = await axe.run({resultTypes: ["violations"]});
  return violations.map(({id, nodes}) => [id, ...nodes.map(({html}) => html.slice(0, 200))]);
}"""
"""What axe finds in a page: all its rules, those of best practice among them."""


NOTED = """(selector) => {
  window.noted = [];
  const note = () =>
    document.querySelectorAll(selector).forEach((one) => window.noted.push(one.title));
  const all = {subtree: true, childList: true, attributes: true};
  new MutationObserver(note).observe(document.body, all);
}"""


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
        self.expected = ""
        """What is no error if it is in one's text, whenever it comes: a page goes on asking."""
        self.sockets = self._page.sockets

    def open(self, page="topics", name="", **requested):
        query = "?" + urlencode(requested, quote_via=quote) if requested else ""
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
        self.page.wait_for_function(patient(script), arg=list(given))

    def note(self, selector):
        """Have the page keep the titles of all that matches from now on, however soon it goes, as
        `window.noted`."""
        self.page.evaluate(NOTED, selector)

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
            json.dumps(expected, ensure_ascii=False, separators=(",", ":")),
        )

    def copied(self):
        """What is to be copied of a topic's page, by its language."""
        self.page.get_by_text("Copy as").click()
        found = {}
        for name in ("curl", "Python", "JavaScript", "Spark"):
            self.page.get_by_role("button", name=name).click()
            self.page.get_by_role("button", name=name, pressed=True).wait_for()
            found[name] = self.text("#snippet")
        return found

    def check(self):
        own = self.base.replace("http", "ws", 1)
        elsewhere = [url for url in self.sockets if not url.startswith(own)]
        assert not elsewhere, elsewhere
        errors = [text for text in self.errors if not self.expected or self.expected not in text]
        assert not errors, errors


@contextmanager
def looked(browser, base, **more):
    """A page that calls nobody but its own server, and complains of nothing."""
    found = Looked(browser, base, {"viewport": {"width": 1200, "height": 800}, **more})
    try:
        yield found
        found.check()
    finally:
        found.close()


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
