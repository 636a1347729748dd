"""A real browser opens pages of other sites, and they try everything that a page can.

The pages are served by a second server, under names that the browser is told to find on loopback.
Every page runs the same script: what one of them is refused, the other, whose origin the server
lists, is not, so that a refusal is the server's and not the browser's. `make browser` runs this; it
needs Chromium.
"""

import json
import queue
import shutil
import subprocess
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.edge.serving import Running, configuration

pytestmark = pytest.mark.browser

PAGE = Path(__file__).with_name("page.html").read_bytes()
TOPICS = "<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>"
NAMES = ("desk.example", "evil.example", "rebound.example")
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


@contextmanager
def browser(profile, *arguments):
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    assert program, "no Chromium is installed: apt-get install chromium"
    command = [program, *OPTIONS, f"--user-data-dir={profile}", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=WAIT_S)


def opened(profile, site, target):
    """What became of the tries of the page of `site` to use the server at `target`."""
    with browser(profile, f"http://{site}/page?server={target}"):
        return Pages.became.get(timeout=WAIT_S)


def shown(profile, url):
    """What the browser shows at an address that somebody types."""
    with browser(profile, "--dump-dom", url) as process:
        return process.communicate(timeout=WAIT_S)[0].decode()


REFUSED = {
    "get": "TypeError",
    "get_without_cors": "opaque",  # which nobody can read, nor tell from a refusal
    "post": "TypeError",
    "post_without_cors": "opaque",
    "patch": "TypeError",
    "reload": "TypeError",
    "socket": "refused",
    "events": "refused",
    "script": "refused",
    "form": "sent",
}


def by_name(server, name):
    return f"http://{name}:{server.address[1]}"


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "rebound.example"])
def test_a_page_of_another_site_is_refused_everything(server, port, tmp_path, name):
    became = opened(tmp_path / "profile", f"evil.example:{port}", by_name(server, name))
    assert became == REFUSED
    assert server.records("orders") == [{"id": "secret"}]


def test_so_is_another_program_of_the_same_machine(server, port, tmp_path):
    became = opened(tmp_path / "profile", f"localhost:{port}", by_name(server, "localhost"))
    # Of the same site, as browsers see it: a script may be asked for, and cannot be read.
    assert became | {"script": ""} == REFUSED | {"script": ""}
    assert server.records("orders") == [{"id": "secret"}]


def test_a_page_that_the_server_lists_may_do_all(server, port, tmp_path):
    became = opened(tmp_path / "profile", f"desk.example:{port}", by_name(server, "localhost"))
    assert became["get"] == '200 scan [{"id": "secret"}]'
    assert (became["post"], became["patch"]) == (200, 200)
    assert (became["socket"], became["events"]) == ("open", "open")
    assert became["reload"] == 400, "this server was not started from a file, which the page reads"
    ids = {record["id"] for record in server.records("orders")}
    assert {"secret", "post", "patch", "ws"} <= ids


def test_a_name_that_was_made_to_point_here_shows_nothing(server, tmp_path):
    page = shown(tmp_path / "profile", by_name(server, "rebound.example") + "/v1/topics")
    assert "unknown host" in page
    assert "orders" not in page


def test_an_address_that_somebody_types_is_shown(server, tmp_path):
    page = shown(tmp_path / "profile", by_name(server, "localhost") + "/v1/topics")
    assert "orders" in page
