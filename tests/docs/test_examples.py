"""Examples in the documents run, and print what they say.

``python`` blocks are executed, like cells of a notebook: what stands alone in the last line shows
itself. ``console`` blocks run in a shell against a server with the shipped
configuration and an empty data directory, one server a page; ``...`` in the shown output stands
for anything. A page that starts a server shows what this one has said; one that kills it kills this
one, and starts it again on its data. A command that shows nothing and does not end is read until
its first line, and interrupted. Where a page asks `curl`, Python does that in its place
(`like_curl.py`), and `curl` itself where there is one.

Pages and blocks that need Spark run in `tests/spark/test_guide.py`.
"""

import ast
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import forks
from tests.docs.blocks import PAGES, README_ADDRESS, ROOT, fenced

ADDRESS = "http://127.0.0.1:8080"
TIMEOUT_S = 180
WITH_SPARK = {"README.md", "spark.md"}
ENDLESS = ("sow watch quotes-C", f"curl -s -N {ADDRESS}/v1/topics/orders/stream")
FILES = {
    "desk.xml": """<SOWConfig>
  <Name>desk</Name>
  <!-- What AMPS has for its monitoring. -->
  <Admin><InetAddr>localhost:9090</InetAddr></Admin>
  <SOW>
    <Topic>
      <Name>orders</Name>
      <MessageType>json</MessageType>
      <Kye>/order_id</Kye>
    </Topic>
  </SOW>
</SOWConfig>
""",
    # What `make` makes; the programs are on the path here already.
    ".venv/bin/activate": "",
    "config.xml": (ROOT / "config.xml").read_text(),
}
"""Files that commands name, as they would have to be for what is shown."""


def blocks(page, language):
    return [block.text for block in fenced(language, [page])]


def with_blocks(language):
    return [page for page in PAGES if blocks(page, language)]


class Server:
    """A server as a user would start it: its address, its data, and its first line."""

    def __init__(self, data):
        self.data = str(data)
        self._port = "0"
        self.start()
        self._port = self.url.rpartition(":")[2]

    def start(self):
        command = [sys.executable, "-m", "sow.cli", "serve", str(ROOT / "config.xml")]
        command += ["--no-pipelines", "--port", self._port, "--data-dir", self.data]
        self._process = forks.started(command, stdout=forks.PIPE, text=True)
        self.line = self._process.stdout.readline()
        self.url = re.search(r"http://\S+", self.line)[0]

    def kill(self):
        self._process.kill()
        self._process.communicate(timeout=TIMEOUT_S)

    def is_killed(self):
        return self._process.returncode is not None

    def stop(self):
        self._process.terminate()
        self._process.communicate(timeout=TIMEOUT_S)


@pytest.fixture
def server(tmp_path):
    server = Server(tmp_path / "data")
    yield server
    server.stop()


@pytest.fixture
def folder(tmp_path):
    """Where the commands run; the files that they name are there."""
    folder = tmp_path / "here"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.mark.edge
@pytest.mark.parametrize(
    "page",
    [page for page in with_blocks("python") if page.name not in WITH_SPARK],
    ids=lambda page: page.name,
)
def test_python_examples_run(page, server):
    names = {}
    for block in blocks(page, "python"):
        if "import session" not in block:  # which needs Spark
            cell(block.replace(ADDRESS, server.url), str(page), names)


def cell(text, page, names):
    """Run a block, and show what its last line is, as a notebook does."""
    *before, last = ast.parse(text, page).body
    if not isinstance(last, ast.Expr):
        before, last = [*before, last], None
    exec(compile(ast.Module(before, []), page, "exec"), names)
    if last is not None:
        shown = eval(compile(ast.Expression(last.value), page, "eval"), names)
        if hasattr(shown, "_repr_html_"):
            assert "<table" in shown._repr_html_()
        elif hasattr(shown, "_repr_mimebundle_"):
            assert shown._repr_mimebundle_()


def commands(block):
    """A console block as (command, output) pairs."""
    for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
        command, _, output = part.partition("\n")
        yield command, output


def pattern(output):
    return re.escape(output.strip()).replace(re.escape("..."), ".*").replace("…", ".*")


def here(text, server):
    """What a page says, of the server of the test."""
    return text.replace(ADDRESS, server.url).replace(README_ADDRESS, server.url)


def expected(output, server):
    return here(output, server).replace("data in data)", f"data in {server.data})")


def instead_of_curl(folder):
    """A folder with a program `curl`, for the path of a shell."""
    folder.mkdir()
    program = folder / "curl"
    words = [sys.executable, str(ROOT / "tests/docs/like_curl.py")]
    program.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    program.chmod(0o755)
    return folder


class Shell:
    """Runs commands as the pages show them, each in a shell of its own; programs of the folders
    `before` are found first."""

    def __init__(self, server, folder, *before):
        found = (*before, forks.programs(), Path(sys.executable).parent, os.environ["PATH"])
        path = ":".join(map(str, found))
        self.server = server
        self._how = {
            "cwd": folder,
            "env": {**os.environ, "SOW_URL": server.url, "PATH": path},
            "text": True,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
        }

    def printed(self, command):
        """What a command prints."""
        if command.startswith("kill -9"):
            self.server.kill()
            return ""
        if command.startswith("sow serve"):
            if self.server.is_killed():
                self.server.start()
            return self.server.line
        command = ["bash", "-c", here(command, self.server)]
        done = subprocess.run(command, timeout=TIMEOUT_S, check=False, **self._how)
        # A complaint is on standard error; everything else that is shown on standard output.
        return done.stdout.strip() or done.stderr.strip()

    def first_line(self, command):
        """The first line of a command that would go on."""
        command = here(f"exec {command}", self.server)
        process = subprocess.Popen(["bash", "-c", command], **self._how)
        line = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=TIMEOUT_S)
        return line


def played():
    """The pages with commands; those that ask curl with curl itself, and with what stands in for it
    where there is none, or in `make slow`."""
    for page in with_blocks("console"):
        asks_curl = re.search(r"\bcurl -", "".join(blocks(page, "console")))
        repeats = [pytest.mark.slow] if asks_curl and shutil.which("curl") else []
        yield pytest.param(page, False, id=page.name, marks=repeats)
        if asks_curl:
            yield pytest.param(page, True, id=f"{page.name} with curl", marks=pytest.mark.curl)


@pytest.mark.edge
@pytest.mark.parametrize(("page", "has_curl"), list(played()))
def test_console_examples_print_what_they_show(page, has_curl, server, folder, tmp_path):
    before = [] if has_curl else [instead_of_curl(tmp_path / "programs")]
    shell = Shell(server, folder, *before)
    for block in blocks(page, "console"):
        for command, output in commands(block):
            if command in ENDLESS:
                assert shell.first_line(command)
                continue
            printed = shell.printed(command)
            shown = re.compile(pattern(expected(output, server)), re.S)
            assert shown.fullmatch(printed.strip()), (command, printed)
