"""A real browser opens pages of other sites, and they try everything that a page can.

The pages are served by a second server, under names that the browser is told to find on loopback.
Every page runs the same script: what one of them is refused, the other, whose origin the server
lists, is not, so that a refusal is the server's and not the browser's. It needs Chromium.
"""

import json
import queue
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import aiohttp
import pytest

from sow.security.authentication import htpasswd, tokens
from tests.edge.serving import Running, configuration
from tests.needs import chromium

pytestmark = pytest.mark.browser

PAGE = Path(__file__).with_name("page.html").read_bytes()
TOPICS = "<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>"
SITE = ("db.firm.example", "desk.firm.example", "evil.firm.example")
NAMES = ("desk.example", "evil.example", "rebound.example", *SITE)
OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--no-proxy-server",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=" + ",".join(f"MAP {name} 127.0.0.1" for name in NAMES),
)
WAIT_S = 60
TRIES_S = 300
"""The page tries sixteen ways, and waits for none longer than a minute."""


class Pages(BaseHTTPRequestHandler):
    """The other site: its page, and what its page says became of its tries."""

    became: "queue.Queue[dict[str, object]]" = queue.Queue()

    def do_GET(self):
        self._answer(200 if self.path.startswith("/page") else 404, PAGE)

    def do_POST(self):
        self.became.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self._answer(200, b"")

    def _answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format, *arguments):  # noqa: A002
        pass


@pytest.fixture(scope="module")
def port():
    """The port of the other site."""
    site = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    threading.Thread(target=site.serve_forever, daemon=True).start()
    yield site.server_port
    site.shutdown()
    site.server_close()


@pytest.fixture(scope="module")
def running(tmp_path_factory, port):
    origins = f"<AllowedOrigins>http://desk.example:{port}</AllowedOrigins>"
    config = configuration(TOPICS, f"<Security>{origins}</Security>")
    server = Running(config, tmp_path_factory.mktemp("data"))
    yield server
    server.close()
    assert server.errors == []


@pytest.fixture
def server(running):
    running.clear()
    running.publish("orders", {"id": "secret"})
    return running


@pytest.fixture(scope="module")
def port_of_chromium(tmp_path_factory):
    """Where one Chromium, which all tests of this file share, is told what to do."""
    profile = tmp_path_factory.mktemp("profile")
    own = (f"--user-data-dir={profile}", "--remote-debugging-port=0", "about:blank")
    command = [chromium(), *OPTIONS, *own]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield first_line(profile / "DevToolsActivePort")
    finally:
        process.terminate()
        process.communicate(timeout=WAIT_S)


def first_line(file):
    """That of a file, once it is there."""
    command = ["tail", "--follow=name", "--retry", "--lines=+1", file]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as tail:
        try:
            return tail.stdout.readline().strip()
        finally:
            tail.terminate()


class Tab:
    """A tab that a program moves (the DevTools protocol), in a context of its own: it knows nothing
    of what others have been told, such as passwords. `running` lends it a loop."""

    def __init__(self, running, port):
        self._running = running
        self._at = f"127.0.0.1:{port}"
        self._frame, self._loaded = "", set()
        self._browser = self._ws = running.wait(self._connect())
        self._context = self.ask("Target.createBrowserContext")["browserContextId"]
        made = self.ask("Target.createTarget", url="about:blank", browserContextId=self._context)
        self._frame = made["targetId"]
        page = f"ws://{self._at}/devtools/page/{self._frame}"
        self._ws = running.wait(self._calls.ws_connect(page))
        self.ask("Page.enable")
        self.ask("Page.setLifecycleEventsEnabled", enabled=True)

    async def _connect(self):
        self._calls = aiohttp.ClientSession()
        async with self._calls.get(f"http://{self._at}/json/version") as answer:
            told = await answer.json(content_type=None)
        return await self._calls.ws_connect(told["webSocketDebuggerUrl"])

    def hear(self):
        told = self._running.wait(self._ws.receive_json())
        event = told["params"] if told.get("method") == "Page.lifecycleEvent" else {}
        if (event.get("name"), event.get("frameId")) == ("load", self._frame):
            self._loaded.add(event["loaderId"])
        return told

    def ask(self, method, **parameters):
        said = {"id": 1, "method": method, "params": parameters}
        self._running.wait(self._ws.send_json(said))
        while (told := self.hear()).get("id") != 1:
            pass
        return told["result"]

    def open(self, url):
        """Open a page, and return its text when all of it is there."""
        page = self.ask("Page.navigate", url=url)["loaderId"]
        while page not in self._loaded:  # which may come before the answer
            self.hear()
        return self._text()

    def left_by(self, script):
        """The text of the page that this one becomes by a script."""
        before = len(self._loaded)
        self.ask("Runtime.evaluate", expression=script)
        while len(self._loaded) == before:
            self.hear()
        return self._text()

    def _text(self):
        text = self.ask("Runtime.evaluate", expression="document.body.innerText")
        return text["result"]["value"]

    def close(self):
        self._ws = self._browser
        self.ask("Target.disposeBrowserContext", browserContextId=self._context)
        self._running.wait(self._calls.close())


@pytest.fixture
def tab(running, port_of_chromium):
    tab = Tab(running, port_of_chromium)
    yield tab
    tab.close()


def opened(tab, site, target):
    """What became of the tries of the page of `site` to use the server at `target`."""
    tab.ask("Page.navigate", url=f"http://{site}/page?server={target}")
    return Pages.became.get(timeout=TRIES_S)


REFUSED = {
    "get": "TypeError",
    "get_without_cors": "TypeError",
    "post": "TypeError",
    "post_without_cors": "TypeError",  # as of a listed page: of what came of it, nothing is told
    "patch": "TypeError",
    "beacon": True,  # which is: it will be sent
    "reload": "TypeError",
    "reload_without_cors": "TypeError",
    "socket": "refused",
    "events": "refused",
    "script": "refused",
    "image": "refused",
    "form": "sent",
    "form_of_fields": "sent",
    "form_to_reload": "sent",
    "delete": "TypeError",
}


DONE = {"secret", "post", "blind", "patch", "beacon", "ws", "form"}
"""What a page has published of which nothing is refused."""


def by_name(server, name):
    return f"http://{name}:{server.address[1]}"


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "rebound.example"])
def test_a_page_of_another_site_is_refused_everything(server, port, tab, name):
    became = opened(tab, f"evil.example:{port}", by_name(server, name))
    assert became == REFUSED
    assert server.records("orders") == [{"id": "secret"}]


def test_so_is_another_program_of_the_same_machine(server, port, tab):
    became = opened(tab, f"localhost:{port}", by_name(server, "localhost"))
    assert became == REFUSED
    assert server.records("orders") == [{"id": "secret"}]


def test_a_page_that_the_server_lists_may_do_all(server, port, tab):
    became = opened(tab, f"desk.example:{port}", by_name(server, "localhost"))
    assert became["get"] == '200 scan [{"id": "secret"}]'
    assert (became["post"], became["patch"]) == (200, 200)
    assert (became["socket"], became["events"]) == ("success", "open")
    assert became["reload"] == 400, "this server was not started from a file, which the page reads"
    assert became["delete"] == 200
    assert ids(server, DONE) == DONE


def test_a_name_that_was_made_to_point_here_shows_nothing(server, tab):
    page = tab.open(by_name(server, "rebound.example") + "/v1/topics")
    assert "unknown host" in page
    assert "orders" not in page


def test_an_address_that_somebody_types_is_shown(server, tab):
    page = tab.open(by_name(server, "localhost") + "/v1/topics")
    assert "orders" in page


# A server that asks who it is, and a user whose browser knows his password.

PASSWORD = "s3cret"
SECURITY = """<Security><AllowedHosts>db.firm.example</AllowedHosts>
<AllowedOrigins>http://desk.example:{port}, http://desk.firm.example:{port}</AllowedOrigins>
<Authentication>
<Users><File>{place}/users</File></Users><Tokens><File>{place}/tokens</File></Tokens>
</Authentication><Role><Name>all</Name><Member>*</Member><Allow><Topic>.*</Topic><Read/><Write/>
<Delete/></Allow><Allow><Topic>/sow/audit</Topic><Read/></Allow><Allow><Admin/></Allow></Role>
</Security>"""


class Asking(Running):
    """A server that asks who it is. Ann may do everything there; so may a program, by a token."""

    def __init__(self, place, port):
        htpasswd.put(str(place / "users"), "ann", PASSWORD)
        self.token = tokens.create(str(place / "tokens"), "program", (), "")
        security = SECURITY.format(port=port, place=place)
        super().__init__(configuration(TOPICS, security), place / "data")

    async def _request(self, method, path, **more):
        more["headers"] = more.get("headers", {}) | {"Authorization": f"Bearer {self.token}"}
        return await super()._request(method, path, **more)

    def deeds_of_ann(self):
        """What she is noted to have done, but for logons."""
        noted = [one for one in self.records("/sow/audit") if one["user"] == "ann"]
        return [one["what"] for one in noted if one["deed"] != "logon"]

    def is_known(self, name):
        return name in {one["user"] for one in self.records("/sow/audit")}


@pytest.fixture
def asking(tmp_path, port):
    server = Asking(tmp_path, port)
    server.publish("orders", {"id": "secret"})
    yield server
    server.close()
    assert server.errors == []


def logged_on(tab, server, name):
    """What a server says to Ann, whose password this tab knows from now on."""
    url = by_name(server, name).replace("://", f"://ann:{PASSWORD}@")
    return tab.open(f"{url}/v1/topics")


def tried(tab, site, server):
    """What became of the tries of the page of `site`, which is there to the end in this tab."""
    tab.open(f"http://{site}/page?server={by_name(server, SITE[0])}")
    return Pages.became.get(timeout=TRIES_S)


def left_by_a_form(tab):
    """What the browser shows when the page in this tab has sent a form and become its answer."""
    form = """form(records, "text/plain", '{"id":"top","x":"', '"}', "_top")"""
    return tab.left_by(f"{form}; 1")


@pytest.mark.parametrize("site", ["evil.example", "evil.firm.example"])
def test_no_page_of_another_site_does_anything_as_who_has_logged_on(asking, port, tab, site):
    assert "orders" in logged_on(tab, asking, SITE[0])
    assert tried(tab, f"{site}:{port}", asking) == REFUSED
    assert "foreign origin" in left_by_a_form(tab)
    assert asking.records("orders") == [{"id": "secret"}]
    assert asking.deeds_of_ann() == []


def test_a_listed_page_does_all_as_who_has_logged_on(asking, port, tab):
    """Pages of the same firm: for those of others Chromium keeps what it knows of users apart."""
    logged_on(tab, asking, SITE[0])
    became = tried(tab, f"desk.firm.example:{port}", asking)
    check_that_all_was_done(asking, became, {"blind", "beacon", "form"})
    assert "POST /v1/config/reload" in asking.deeds_of_ann(), "the browser showed her password"
    assert "bookmark" in left_by_a_form(tab)


def test_a_listed_page_does_all_by_a_token(asking, port, tab):
    target = f"{by_name(asking, 'localhost')}&token={asking.token}"
    became = opened(tab, f"desk.example:{port}", target)
    # Nobody but the page knows the token: what a browser sends by itself is nobody's.
    assert became["events"] == "refused"
    check_that_all_was_done(asking, became | {"events": "open"}, set())


def test_a_page_of_another_site_does_nothing_by_a_token_that_is_good(asking, port, tab):
    target = f"{by_name(asking, 'localhost')}&token={asking.token}"
    assert opened(tab, f"evil.example:{port}", target) == REFUSED
    assert asking.records("orders") == [{"id": "secret"}]


def test_a_name_that_was_made_to_point_here_asks_nobody_for_a_password(asking, tab):
    assert "unknown host" in logged_on(tab, asking, "rebound.example")
    assert not asking.is_known("ann")


def check_that_all_was_done(server, became, by_itself):
    """Records are there of all that came with what makes a user known."""
    assert became["get"] == '200 scan [{"id": "secret"}]'
    statuses = [became[name] for name in ("post", "patch", "reload", "delete")]
    assert statuses == [200, 200, 400, 200]
    assert (became["socket"], became["events"]) == ("success", "open")
    wanted = {"secret", "post", "patch", "ws"} | by_itself
    assert ids(server, wanted) == wanted


def ids(server, wanted):
    """Whose records are there, once those that are wanted are: the browser says that it will send a
    beacon, and not when."""
    end_s = time.monotonic() + WAIT_S
    while True:
        found = {record["id"] for record in server.records("orders")}
        if found >= wanted or time.monotonic() > end_s:
            return found
        time.sleep(0.02)
