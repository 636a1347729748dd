"""A server that speaks S3, moto's, as a process of a test; what it has is in its memory.

It does one request at a time: moto's own threads look whether an object is there and put theirs a
moment later, so that of writers that meet two may be told that they were first.
"""

import io
import sys
import threading
import urllib.request
from contextlib import suppress

from aiohttp import ClientSession, web

from tests.ports import free_port
from tests.shared_log.adapters.processes import ROOT, Processes, until

BUCKET = "logs"
SERVE = """
import sys
sys.path.insert(0, {root!r})
from tests.shared_log.adapters.s3_server import serve
serve({port})
"""


def serve(port):
    """Be the server."""
    from moto import server

    turn = threading.Lock()

    class OneAtATime(server.DomainDispatcherApplication):
        def __call__(self, environ, start_response):
            # A client that sends slowly has no turn yet.
            body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            environ["wsgi.input"] = io.BytesIO(body)
            with turn:
                return [*super().__call__(environ, start_response)]

    server.DomainDispatcherApplication = OneAtATime
    server.main(["-H", "127.0.0.1", "-p", str(port)])


def url(port, name):
    """The address of a log behind a port."""
    return (
        f"s3://{BUCKET}/{name}?endpoint=http://127.0.0.1:{port}&region=us-east-1"
        "&access_key_id=a&secret_access_key=b"
    )


class S3Server:
    """One server with one bucket."""

    def __init__(self):
        self.port = free_port()
        self.ports = {"moto": self.port}
        self.processes = Processes("s3")
        command = ("-c", SERVE.format(root=str(ROOT), port=self.port))
        try:
            self.processes.start("moto", sys.executable, *command)
            until(self._has_bucket, "there is a bucket")
        except BaseException:
            self.processes.close()
            raise

    def restart(self):
        """Only clients begin again: it would forget everything."""

    def _has_bucket(self):
        assert self.processes.is_running("moto"), self.processes.said("moto")
        with suppress(OSError):
            request = urllib.request.Request(f"http://127.0.0.1:{self.port}/{BUCKET}", method="PUT")
            urllib.request.urlopen(request, timeout=5).close()
            return True
        return False

    def close(self):
        self.processes.close()


class WithoutCondition:
    """The same server for those who believe that it knows `If-None-Match`: it passes the header
    over, or refuses it."""

    def __init__(self, port, refuses):
        self._port, self._refuses = port, refuses
        self.port = None

    async def __aenter__(self):
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_):
        await self._runner.cleanup()

    async def _answer(self, request):
        headers = request.headers.copy()
        if headers.popall("If-None-Match", None) and self._refuses:
            said = "<Error><Code>NotImplemented</Code><Message>a header</Message></Error>"
            return web.Response(status=501, text=said, content_type="application/xml")
        headers.popall("Host")
        there = f"http://127.0.0.1:{self._port}{request.path_qs}"
        async with (
            ClientSession() as http,
            http.request(request.method, there, headers=headers, data=await request.read()) as one,
        ):
            kept = {name: one.headers[name] for name in ("ETag",) if name in one.headers}
            kept["Last-Modified"] = one.headers.get("Last-Modified", "")
            return web.Response(status=one.status, body=await one.read(), headers=kept)
