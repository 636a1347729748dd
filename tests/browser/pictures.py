"""Pictures of the console for the documents: `python -m tests.browser.pictures` makes them again.

What they show is the demo's market, every time another moment of it, and the recorded book and
buses (docs/recorded-data.md), or what the tests make where there are none.
"""

import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

from sow.config import loads
from tests.browser.looking import Looked
from tests.edge.serving import Running
from tests.pages import Browser
from tests.recordings import recordings

PLACE = Path(__file__).parents[2] / "docs/images"
RATE = 2000
SIZE = {"width": 1120, "height": 620}
SETTLED_S = 20
"""What lines over time need to be lines."""
MORE = b"""<Topic><Name>vehicles</Name><MessageType>json</MessageType>
  <Key>/vehicle_id</Key></Topic>
<Topic><Name>book</Name><MessageType>json</MessageType><Key>/market</Key><Key>/symbol</Key>
  <Key>/side</Key><Key>/price</Key></Topic>
</SOW>"""
REPLAYS = (
    ("**/positions.parquet", "--topic", "vehicles", "--speed", "600x"),
    ("**/book_levels.parquet", "--topic", "book", "--speed", "1x", "--delete-when", "qty == 0"),
)
PICTURES = {
    "map": ("dark", ("topic", "vehicles", {"as": "map"})),
    "ladder": ("light", ("topic", "book", {"as": "ladder"})),
    "topics": ("dark", ("topics", "", {})),
    "topic": ("light", ("topic", "quotes", {"filter": "/bid > 100", "order": "/bid DESC"})),
    "slider": ("dark", ("slider", "quotes", {"interval": "2s"})),
    "sessions": ("light", ("sessions", "", {})),
    "explain": ("dark", ("explain", "orders", {"filter": "/symbol = 'AAPL' AND /price > 100"})),
}


@contextmanager
def shown():
    """A server with all that the pictures show, as long as this is open."""
    text = files("sow.cli").joinpath("demo.xml").read_bytes()
    configuration = loads(text.replace(b"</SOW>", MORE, 1)).configuration
    assert configuration is not None
    with tempfile.TemporaryDirectory() as directory:
        server = Running(replace(configuration, port=0), Path(directory))
        commands = [["sow.cli.market", server.url, str(RATE), "1"]]
        folder = recordings(Path(directory) / "made")
        for name, *options in REPLAYS:
            (found,) = folder.glob(name)
            commands.append(["sow.cli", "replay", str(found), "--url", server.url, *options])
        feeding = [subprocess.Popen([sys.executable, "-m", *words]) for words in commands]
        try:
            yield server
        finally:
            for process in feeding:
                process.terminate()
                process.wait()
            server.close()


def take(browser, server, name, place, settle):
    """Take a picture once its page shows something, and `settle` has been called."""
    scheme, (page, topic, requested) = PICTURES[name]
    options = {"viewport": SIZE, "color_scheme": scheme}
    console = Looked(browser, server.url + "/", options)
    console.open(page, topic, **requested)
    console.until("() => document.querySelector('main').textContent.length > 20")
    settle()
    path = place / f"console-{name}.png"
    console.page.screenshot(path=str(path))
    console.close()
    return path


def main():
    PLACE.mkdir(exist_ok=True)
    browser = Browser()
    try:
        with shown() as server:
            for name in PICTURES:
                take(browser, server, name, PLACE, lambda: time.sleep(SETTLED_S))
    finally:
        browser.close()


if __name__ == "__main__":
    main()
