"""How smoothly the grid draws while ten thousand updates a second come, and what memory it keeps.

`python -m tests.browser.frames` publishes to a topic of which all rows are in view, and looks for a
minute at the frames that the page draws and at the heap that it has after its garbage is gone. It
says so, and exits with 1 where there are fewer than 30 frames a second or the heap has grown by
half. How fast anything is no test asserts: this is for a machine that has nothing else to do.
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

from tests.browser.looking import TOPICS, Looked
from tests.edge.serving import Running, configuration
from tests.pages import Browser

ROWS = 30
FRAMES_PER_S_MIN = 30
GROWN_MAX = 1.5
COUNTED = """() => {
  window.frames_drawn = 0;
  const count = () => { window.frames_drawn += 1; requestAnimationFrame(count); };
  requestAnimationFrame(count);
}"""


async def publish(server, per_s, stop):
    """Frames of a hundred updates, as many as there are to be in a second; returns how many."""
    sent, began = 0, time.monotonic()
    url = server.url.replace("http", "ws", 1) + "/v1/ws"
    async with server._http.ws_connect(url) as ws:
        while not stop.is_set():
            due = int((time.monotonic() - began) * per_s)
            while sent < due:
                head = {"c": "publish", "t": "orders", "n": 100}
                bodies = [
                    {"id": n % ROWS, "symbol": f"S{n % ROWS}", "price": n / 100, "qty": n}
                    for n in range(sent, sent + 100)
                ]
                await ws.send_bytes("\n".join(map(json.dumps, [head, *bodies])).encode())
                sent += 100
            await asyncio.sleep(0.01)
    return sent / (time.monotonic() - began)


def heap_bytes(console):
    """What the page has in use when its garbage is gone."""
    session = console.page.context.new_cdp_session(console._page.raw)
    session.send("HeapProfiler.collectGarbage")
    found = session.send("Runtime.getHeapUsage")["usedSize"]
    session.detach()
    return found


def measure(seconds, per_s):
    with tempfile.TemporaryDirectory() as directory:
        server, browser = Running(configuration(TOPICS), Path(directory)), Browser()
        stop = asyncio.Event()
        publishing = asyncio.run_coroutine_threadsafe(publish(server, per_s, stop), server.loop)
        console = Looked(browser, server.url + "/", {"viewport": {"width": 1200, "height": 900}})
        console.open("topic", "orders", order="/id")
        console.until("() => document.querySelectorAll('regular-table tbody tr').length >= 29")
        console.page.evaluate(COUNTED)
        frames, heaps, updates = [], [], []
        for _ in range(max(2, seconds // 10)):
            began, before = time.monotonic(), console.page.evaluate("() => window.frames_drawn")
            time.sleep(10)
            drawn = console.page.evaluate("() => window.frames_drawn") - before
            frames.append(drawn / (time.monotonic() - began))
            told = console.page.locator(".status", has_text="in view").inner_text()
            updates.append(told.replace("\n", " "))
            heaps.append(heap_bytes(console))
        server.call(stop.set)
        rate = publishing.result(30)
        errors = console.errors + server.errors
        console.close()
        browser.close()
        server.close()
    return rate, frames, heaps, updates, errors


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--rate", type=int, default=10_000)
    asked = parser.parse_args()
    rate, frames, heaps, updates, errors = measure(asked.seconds, asked.rate)
    print(f"{rate:,.0f} updates/s published; the page says at the end: {updates[-1]}")
    print(f"frames/s: {min(frames):.0f} at least, {statistics.median(frames):.0f} in the median")
    print("heap, MB: " + ", ".join(f"{size / 1e6:.1f}" for size in heaps))
    print("\n".join(errors))
    is_good = min(frames) >= FRAMES_PER_S_MIN and heaps[-1] <= GROWN_MAX * heaps[0] and not errors
    sys.exit(0 if is_good else 1)


if __name__ == "__main__":
    main()
