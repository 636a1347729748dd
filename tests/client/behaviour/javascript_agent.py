"""The steps of the tables, done with sow.js by `agent.mjs`: in a Node, and in a page. One of them
serves any number of clients, one after the other (`renew`)."""

import json
import subprocess
from pathlib import Path
from typing import Any

from sow.server.api.static_files import CONSOLE_FOLDER
from tests.needs import node
from tests.pages import Page

HERE = Path(__file__).parent
PAGE = """<!doctype html><meta charset="utf-8"><title>agent</title>
<script type="module" src="/agent/begin.mjs"></script>"""
BEGIN = """import * as client from "/sow.js";
import { Agent } from "./agent.mjs";
window.agent = new Agent(client);"""


class NodeAgent:
    """A process that reads steps and writes outcomes."""

    def __init__(self, url: str) -> None:
        self._process = subprocess.Popen(
            [*(node() or ()), str(HERE / "node.mjs"), str(CONSOLE_FOLDER / "sow.js"), url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def act(self, verb: str, words: list[Any]) -> Any:
        assert self._process.stdout is not None
        self._send(verb, words)
        return json.loads(self._process.stdout.readline())

    def from_scratch(self) -> None:
        self._send("renew", [])

    def _send(self, verb: str, words: list[Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"verb": verb, "words": words}) + "\n")
        self._process.stdin.flush()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


class BrowserAgent:
    """A page of the server's own, which says of itself what it may load: itself alone."""

    def __init__(self, url: str, page: Page) -> None:
        self._page = page
        page.serve(f"{url}/agent/", PAGE, "text/html")
        page.serve(f"{url}/agent/begin.mjs", BEGIN, "text/javascript")
        page.serve(f"{url}/agent/agent.mjs", (HERE / "agent.mjs").read_text(), "text/javascript")
        page.open(f"{url}/agent/")
        page.wait_for("window.agent")

    def act(self, verb: str, words: list[Any]) -> Any:
        requested = json.dumps({"verb": verb, "words": words})
        script = """async (call) => {
            const {verb, words} = JSON.parse(call);
            return JSON.stringify(await window.agent.act(verb, words));
        }"""
        return json.loads(self._page.evaluate(script, requested))

    def from_scratch(self) -> None:
        self._page.evaluate("() => { window.agent = window.agent.renewed(); }")
        self._check()

    def close(self) -> None:
        self._page.close()
        self._check()

    def _check(self) -> None:
        # A browser says so itself when a connection breaks or is refused.
        assert [one for one in self._page.errors if "WebSocket connection to" not in one] == []
