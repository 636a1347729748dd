"""How smoothly the grid draws while ten thousand updates a second come, and what memory it keeps.

`python -m tests.browser.frames` publishes to a topic of which all rows are in view, and looks for a
minute at the frames that the page draws, and at the heap, the nodes, the listeners and the objects
that it has after its garbage is gone: none of them may become half as many again. A
window tells once a turn how each of its records stands then, and turns that end together as one, so
the page is told of fewer updates than there are; what it shows of a row is looked for instead: how
many updates, and so how long, it is behind what is published.

It says so, and exits with 1 where there are fewer than 30 frames a second, what is shown is a
second old or what it holds has grown by half. How fast anything is no test asserts: this is for a
machine that has nothing else to do. That it measures what is drawn `test_frames.py` shows.
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tests.browser.looking import TOPICS, Looked
from tests.edge.serving import Running, configuration
from tests.pages import Browser

ROWS = 100
FRAMES_PER_S_MIN = 30
GROWN_MAX = 1.5
BEHIND_S_MAX = 1.0
LOOK_S = 10
SIZE = {"width": 1200, "height": 2500}
"""A screen on end: a hundred rows are in view on it."""
COUNTED = """() => {
  const seen = [];
  const count = () => {
    document.querySelectorAll("regular-table tbody tr").forEach((row, place) => {
      const text = row.textContent;
      if (seen[place] !== undefined && seen[place] !== text) window.drawn.rows += 1;
      seen[place] = text;
    });
    window.drawn.frames += 1;
    requestAnimationFrame(count);
  };
  window.drawn = {frames: 0, rows: 0};
  window.newest = () => Math.max(0, ...[...document.querySelectorAll("regular-table tbody tr")]
    .map((row) => Number(row.cells[3]?.textContent) || 0));
  requestAnimationFrame(count);
}"""


class Held(NamedTuple):
    """What a page holds when its garbage is gone."""

    heap_bytes: int
    nodes: int
    listeners: int
    objects: int


class Look(NamedTuple):
    """What there was to see in some seconds."""

    published_per_s: float
    sent_per_s: float
    frames_per_s: float
    rows_drawn_per_s: float
    behind_s: float
    held: Held


class Feed:
    """Frames of one update of each row, as many as there are to be in a second."""

    def __init__(self, server, per_s):
        self.sent = 0
        self.per_s = per_s
        self._stop = asyncio.Event()
        self._running = asyncio.run_coroutine_threadsafe(self._publish(server, per_s), server.loop)
        self._server = server

    async def _publish(self, server, per_s):
        began = time.monotonic()
        url = server.url.replace("http", "ws", 1) + "/v1/ws"
        async with server._http.ws_connect(url) as ws:
            while not self._stop.is_set():
                while self.sent < (time.monotonic() - began) * per_s:
                    head = {"c": "publish", "t": "orders", "n": ROWS}
                    bodies = [
                        {"id": n % ROWS, "symbol": f"S{n % ROWS}", "price": n / 100, "qty": n}
                        for n in range(self.sent, self.sent + ROWS)
                    ]
                    await ws.send_bytes("\n".join(map(json.dumps, [head, *bodies])).encode())
                    self.sent += ROWS
                await asyncio.sleep(ROWS / per_s / 4)

    def close(self):
        self._server.call(self._stop.set)
        self._running.result(30)


class Smoothness:
    """A page on which all rows of a topic are in view while they change."""

    def __init__(self, browser, directory, per_s):
        self.server = Running(configuration(TOPICS), Path(directory))
        self._feed = Feed(self.server, per_s)
        self.console = Looked(browser, self.server.url + "/", {"viewport": SIZE})
        self.console.open("topic", "orders", order="/id")
        self.console.until(
            f"() => document.querySelectorAll('regular-table tbody tr').length >= {ROWS}"
        )
        self.console.page.evaluate(COUNTED)
        self._session = self.console.page.context.new_cdp_session(self.console._page.raw)

    def look(self, seconds):
        before = self._counts()
        time.sleep(seconds)
        after = self._counts()
        spent = after[0] - before[0]
        per_s = [(now - then) / spent for now, then in zip(after[1:], before[1:], strict=True)]
        return Look(*per_s, self.behind() / self._feed.per_s, self.held())

    @property
    def published(self):
        """How many updates, until now."""
        return self._feed.sent

    def behind(self):
        """How many updates later than the newest that is shown have been published."""
        return max(0, self._feed.sent - self.console.page.evaluate("() => window.newest()"))

    def _counts(self):
        """When it is, and what was published, told and drawn until then."""
        drawn = self.console.page.evaluate("() => window.drawn")
        # Until the first of them there is none.
        told = self.console.page.locator("#rate").get_attribute("data-updates")
        return time.monotonic(), self._feed.sent, int(told or 0), drawn["frames"], drawn["rows"]

    def held(self):
        send = self._session.send
        send("HeapProfiler.collectGarbage")
        counted = send("Memory.getDOMCounters")
        used = send("Runtime.getHeapUsage")["usedSize"]
        return Held(used, counted["nodes"], counted["jsEventListeners"], self._objects())

    def _objects(self):
        """How many objects of JavaScript there are, functions and arrays among them."""
        send, group = self._session.send, {"objectGroup": "counted"}
        of = send("Runtime.evaluate", {"expression": "Object.prototype", **group})["result"]
        found = send("Runtime.queryObjects", {"prototypeObjectId": of["objectId"], **group})
        length = {"functionDeclaration": "function () { return this.length; }"}
        count = send(
            "Runtime.callFunctionOn",
            {"objectId": found["objects"]["objectId"], **length, "returnByValue": True},
        )
        send("Runtime.releaseObjectGroup", group)
        return count["result"]["value"]

    def close(self):
        """Ends it; what went wrong."""
        self._feed.close()
        errors = self.console.errors + self.server.errors
        self.console.close()
        self.server.close()
        return errors


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--rate", type=int, default=10_000)
    requested = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        browser = Browser()
        page = Smoothness(browser, directory, requested.rate)
        looks = [page.look(LOOK_S) for _ in range(max(2, requested.seconds // LOOK_S))]
        errors = page.close()
        browser.close()
    for name, each in zip(
        Look._fields[:-1], zip(*(look[:-1] for look in looks), strict=True), strict=True
    ):
        middle, least, most = statistics.median(each), min(each), max(each)
        print(f"{name}: {middle:,.2f} in the median, {least:,.2f} to {most:,.2f}")
    before, after = looks[0].held, looks[-1].held
    for name, least, most in zip(Held._fields, before, after, strict=True):
        print(f"{name} from {least:,} to {most:,}")
    print("\n".join(errors))
    is_good = (
        min(look.frames_per_s for look in looks) >= FRAMES_PER_S_MIN
        and all(now <= GROWN_MAX * then for then, now in zip(before, after, strict=True))
        and max(look.behind_s for look in looks) < BEHIND_S_MAX
        and not errors
    )
    sys.exit(0 if is_good else 1)


if __name__ == "__main__":
    main()
