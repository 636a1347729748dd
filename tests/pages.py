"""Pages in a real Chromium, for tests that look at what a page does.

Playwright drives Debian's Chromium (or what else `tests.needs.chromium` finds); none is fetched.
Its loop has a thread of its own, since tests run loops of theirs. One browser serves all tests of a
process; each page has a context of its own, without cookies or anything else of an earlier one.
What a page asks for elsewhere than at its own origin is refused, and kept as an error.
"""

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from tests.needs import chromium

WAIT_S = 60.0
"""For what should come soon, on a machine that has much other work."""
OPTIONS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    # What a test answers for a page comes from nowhere, and might not ask this machine.
    "--disable-features=LocalNetworkAccessChecks",
)
CSP = "default-src 'self'; script-src 'self'; connect-src 'self'; object-src 'none'"
"""Of pages that a test brings along: as strict as those of the server's own."""


class Browser:
    """A Chromium without a window, from the first page on until `close`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.call(self._begin())

    async def _begin(self) -> None:
        from playwright.async_api import async_playwright

        self._playwright = await async_playwright().start()
        self._browser = await self._playwright.chromium.launch(
            executable_path=chromium(), args=list(OPTIONS)
        )

    def call(self, work: Coroutine[Any, Any, Any]) -> Any:
        """What a coroutine of Playwright's returns."""
        # Playwright says what it has waited for, if it gives up by itself.
        waited = asyncio.wait_for(work, WAIT_S + 10)
        return asyncio.run_coroutine_threadsafe(waited, self._loop).result()

    def page(self, **options: Any) -> "Page":
        """A new page, in a context with these options of Playwright's."""

        async def made() -> Any:
            context = await self._browser.new_context(**options)
            context.set_default_timeout(1000 * WAIT_S)
            return await context.new_page()

        return Page(self, self.call(made()))

    def close(self) -> None:
        async def end() -> None:
            await self._browser.close()
            await self._playwright.stop()

        self.call(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Page:
    """A page; `raw` is Playwright's, to be used by `call`. `errors` are those of its console, what
    it throws, and what it asks for elsewhere; `sockets` are the addresses of its WebSockets."""

    def __init__(self, browser: Browser, raw: Any) -> None:
        self.raw = raw
        self.errors: list[str] = []
        self._browser = browser
        self._files: dict[str, tuple[str, str, str]] = {}
        self._origin = ""
        self.sockets: list[str] = []
        self.call(self._listen())

    async def _listen(self) -> None:
        # On Playwright's own loop, like everything that it tells its driver.
        self.raw.on("console", self._hear)
        self.raw.on("pageerror", lambda error: self.errors.append(f"thrown: {error}"))
        self.raw.on("websocket", lambda socket: self.sockets.append(socket.url))
        await self.raw.route("**/*", self._answer)

    def _hear(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(f"{message.type}: {message.text}")

    async def _answer(self, route: Any) -> None:
        from playwright.async_api import Error

        url = route.request.url
        found = self._files.get(url)
        if found is not None:
            text, kind, csp = found
            headers = {"Content-Security-Policy": csp}
            await route.fulfill(body=text, content_type=kind, headers=headers)
        elif self._origin in ("", origin(url)):
            # A page that has gone on meanwhile waits for no answer.
            with suppress(Error):
                await route.continue_()
        else:
            self.errors.append(f"asked elsewhere: {url}")
            await route.abort()

    def call(self, work: Coroutine[Any, Any, Any]) -> Any:
        """What a coroutine of Playwright's returns."""
        return self._browser.call(work)

    def serve(self, url: str, text: str, kind: str, csp: str = CSP) -> None:
        """Answer what the page asks for at this address with a text of the test's."""
        self._files[url] = (text, kind, csp)

    def open(self, url: str) -> None:
        """Go there; from now on that is its origin."""
        self._origin = origin(url)
        self.call(self.raw.goto(url))

    def evaluate(self, script: str, value: Any = None) -> Any:
        """What a function of JavaScript returns in the page."""
        return self.call(self.raw.evaluate(script, value))

    def wait_for(self, condition: str) -> None:
        """Wait until an expression of JavaScript is true in the page."""
        self.call(self.raw.wait_for_function(patient(f"() => ({condition})")))

    def close(self) -> None:
        # What it is just asking for is answered by nobody any more.
        self.call(self.raw.unroute_all(behavior="ignoreErrors"))
        self.call(self.raw.context.close())


def patient(function: str) -> str:
    """A function of JavaScript as one to wait for: it says no while the page lacks an element that
    it looks at, instead of throwing, which ends the wait and is an error of the page."""
    return f"""(given) => {{
      try {{
        return ({function})(given);
      }} catch (error) {{
        if (error instanceof TypeError) return false;
        throw error;
      }}
    }}"""


def origin(url: str) -> str:
    """Whose an address is."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
