"""Examples in the documents run, and print what they say.

``python`` blocks are executed, like cells of a notebook: what stands alone in the last line shows
itself. ``console`` blocks run in a shell against a server with the shipped
configuration and an empty data directory, one server a page; ``...`` in the shown output stands
for anything. A page that starts a server shows what this one has said; one that kills it kills this
one, and starts it again on its data. A command that shows nothing and does not end is read until
its first line, and interrupted.

Pages and blocks that need Spark run in `tests/spark/test_guide.py`.
"""

import ast
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import forks
from tests.docs.blocks import PAGES, ROOT, fenced

ADDRESS = "http://127.0.0.1:8080"
TIMEOUT_S = 60
WITH_SPARK = {"README.md", "spark.md", "notebook.md"}
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


def expected(output, server):
    return output.replace(ADDRESS, server.url).replace("data in data)", f"data in {server.data})")


class Shell:
    """Runs commands as the pages show them, each in a shell of its own."""

    def __init__(self, server, folder):
        path = f"{forks.programs()}:{Path(sys.executable).parent}:{os.environ['PATH']}"
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
        command = ["bash", "-c", command.replace(ADDRESS, self.server.url)]
        done = subprocess.run(command, timeout=TIMEOUT_S, check=False, **self._how)
        # A complaint is on standard error; everything else that is shown on standard output.
        return done.stdout.strip() or done.stderr.strip()

    def first_line(self, command):
        """The first line of a command that would go on."""
        command = f"exec {command}".replace(ADDRESS, self.server.url)
        process = subprocess.Popen(["bash", "-c", command], **self._how)
        line = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=TIMEOUT_S)
        return line


@pytest.mark.edge
@pytest.mark.parametrize("page", with_blocks("console"), ids=lambda page: page.name)
def test_console_examples_print_what_they_show(page, server, folder):
    if shutil.which("curl") is None and "$ curl" in page.read_text():
        pytest.fail("the examples use curl; install it")
    shell = Shell(server, folder)
    for block in blocks(page, "console"):
        for command, output in commands(block):
            if command in ENDLESS:
                assert shell.first_line(command)
                continue
            printed = shell.printed(command)
            shown = re.compile(pattern(expected(output, server)), re.S)
            assert shown.fullmatch(printed.strip()), (command, printed)
