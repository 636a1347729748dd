"""The pictures of the console in the documents: `python -m tests.browser.pictures` makes them anew.

What they show is the demo's market, every time another moment of it, and the recorded book and
buses (docs/recorded-data.md), or what the tests make where there are none.
"""

import subprocess
import sys
import tempfile
import time
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


def main():
    PLACE.mkdir(exist_ok=True)
    text = files("sow.cli").joinpath("demo.xml").read_bytes()
    configuration = loads(text.replace(b"</SOW>", MORE, 1)).configuration
    assert configuration is not None
    with tempfile.TemporaryDirectory() as directory:
        server = Running(replace(configuration, port=0), Path(directory))
        browser = Browser()
        commands = [["sow.cli.feed", server.url, str(RATE), "1"]]
        folder = recordings(Path(directory) / "made")
        for name, *options in REPLAYS:
            (found,) = folder.glob(name)
            commands.append(["sow.cli", "replay", str(found), "--url", server.url, *options])
        feeding = [subprocess.Popen([sys.executable, "-m", *words]) for words in commands]
        try:
            for name, (scheme, (page, topic, asked)) in PICTURES.items():
                size = {"width": 1120, "height": 620}
                options = {"viewport": size, "color_scheme": scheme}
                console = Looked(browser, server.url + "/", options)
                console.open(page, topic, **asked)
                time.sleep(SETTLED_S)
                console.page.screenshot(path=str(PLACE / f"console-{name}.png"))
                console.close()
        finally:
            for process in feeding:
                process.terminate()
                process.wait()
            browser.close()
            server.close()


if __name__ == "__main__":
    main()
