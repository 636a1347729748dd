"""A proxy in front of a server: where a test decides what becomes of each request.

`Proxy.way` is called with a request and a function that sends it on; it returns the answer, or
raises Cut to end the connection without one. So a test can act at the very moment a request is
made, has been carried out, or is answered, and needs to wait for nothing.
"""

import http.client
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

from tests.edge.serving import WAIT_S


class Requested(NamedTuple):
    """A request."""

    method: str
    target: str
    headers: dict
    body: bytes

    @property
    def path(self):
        return urlsplit(self.target).path

    @property
    def parameters(self):
        return {name: values[0] for name, values in parse_qs(urlsplit(self.target).query).items()}

    @property
    def step(self):
        """What it is in the course of a batch: read, part, stage, commit, abort; else other."""
        if self.path == "/v1/log":
            return "read"
        if self.path.startswith("/v1/snapshots/"):
            return "part"
        if not self.path.startswith("/v1/writes/"):
            return "other"
        if self.method == "DELETE":
            return "abort"
        return "commit" if self.path.endswith("/commit") else "stage"


class Sent(NamedTuple):
    """An answer."""

    status: int
    headers: dict
    body: bytes


class Cut(Exception):
    """The connection ends without an answer."""


class Proxy:
    """Passes requests on to the server at `upstream`, and keeps the requests in `seen`."""

    def __init__(self, upstream):
        self.seen = []
        self.way = lambda _requested, forward: forward()
        self._address = urlsplit(upstream).netloc
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            def handle_one_request(self):
                self.raw_requestline = self.rfile.readline()
                self.close_connection = True
                if self.raw_requestline and self.parse_request():
                    body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                    proxy._pass(Requested(self.command, self.path, dict(self.headers), body), self)

            def log_message(self, *_arguments):
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        # Who was killed does not wait for an answer.
        self._http.handle_error = lambda *_about: None
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def _pass(self, requested, handler):
        self.seen.append(requested)
        try:
            answer = self.way(requested, lambda: self.forward(requested))
        except Cut:
            return
        handler.send_response(answer.status)
        for name, value in answer.headers.items():
            if name.lower() not in ("transfer-encoding", "content-length", "connection"):
                handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(answer.body)))
        handler.end_headers()
        handler.wfile.write(answer.body)

    def forward(self, requested):
        """The server's answer; a server that is not there, or goes away, cuts."""
        connection = http.client.HTTPConnection(self._address, timeout=WAIT_S)
        try:
            connection.request(
                requested.method, requested.target, requested.body, requested.headers
            )
            response = connection.getresponse()
            return Sent(response.status, dict(response.headers), response.read())
        except (OSError, http.client.HTTPException):
            raise Cut from None
        finally:
            connection.close()

    def steps(self, step):
        """All requests of one kind."""
        return [requested for requested in self.seen if requested.step == step]

    def close(self):
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()
