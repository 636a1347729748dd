"""A server that does nothing: `python -m tests.benchmarks.spark.plain_server DIRECTORY`.

It hands out the files of a directory, which it has read beforehand, and takes what is posted
without looking at it. What Spark needs with such a server is what Spark needs.
"""

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

FILES: dict[str, bytes] = {}


class Handler(BaseHTTPRequestHandler):
    """Answers requests."""

    def do_GET(self) -> None:
        self._answer(FILES[self.path.lstrip("/")])

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(b"")

    def _answer(self, content: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def main() -> None:
    """Serve until terminated; the port is the first line that is written."""
    FILES.update({path.name: path.read_bytes() for path in Path(sys.argv[1]).iterdir()})
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
