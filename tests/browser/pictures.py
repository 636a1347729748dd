"""The pictures of the console in the documents: `python -m tests.browser.pictures` makes them anew.

What they show is the demo's market, so every time another moment of it.
"""

import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

from sow.config import loads
from tests.browser.test_console import Looked
from tests.edge.serving import Running
from tests.pages import Browser

PLACE = Path(__file__).parents[2] / "docs/images"
RATE = 2000
SETTLED_S = 20
"""What lines over time need to be lines."""
PICTURES = {
    "topics": ("dark", ("topics", "", {})),
    "topic": ("light", ("topic", "quotes", {"filter": "/bid > 100", "order": "/bid DESC"})),
    "slider": ("dark", ("slider", "quotes", {"interval": "2s"})),
    "sessions": ("light", ("sessions", "", {})),
    "explain": ("dark", ("explain", "orders", {"filter": "/symbol = 'AAPL' AND /price > 100"})),
}


def main():
    PLACE.mkdir(exist_ok=True)
    text = files("sow.cli").joinpath("demo.xml").read_bytes()
    configuration = loads(text).configuration
    with tempfile.TemporaryDirectory() as directory:
        server = Running(replace(configuration, port=0), Path(directory))
        browser = Browser()
        feed = [sys.executable, "-m", "sow.cli.feed", server.url, str(RATE), "1"]
        feeding = subprocess.Popen(feed)
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
            feeding.terminate()
            feeding.wait()
            browser.close()
            server.close()


if __name__ == "__main__":
    main()
