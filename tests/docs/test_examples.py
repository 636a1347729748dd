"""Examples in the documents run, and print what they say.

``python`` blocks are executed. ``console`` blocks run in a shell against a server with the shipped
configuration and an empty data directory, one server a page; ``...`` in the shown output stands
for anything.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))
ADDRESS = "http://127.0.0.1:8080"
TIMEOUT_S = 60


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.M | re.S)


def with_blocks(language):
    return [page for page in PAGES if blocks(page, language)]


@pytest.fixture
def server(tmp_path):
    """A server as a user would start it; its address."""
    command = [sys.executable, "-m", "sow.cli", "serve", str(ROOT / "config.xml")]
    command += ["--no-pipelines"]
    process = subprocess.Popen(
        [*command, "--port", "0", "--data-dir", str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
    )
    line = process.stdout.readline()
    yield re.search(r"http://\S+", line)[0]
    process.terminate()
    process.communicate(timeout=TIMEOUT_S)


@pytest.mark.edge
@pytest.mark.parametrize("page", with_blocks("python"), ids=lambda page: page.name)
def test_python_examples_run(page, server):
    names = {}
    for block in blocks(page, "python"):
        exec(compile(block.replace(ADDRESS, server), str(page), "exec"), names)


def commands(block):
    """A console block as (command, output) pairs."""
    for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
        command, _, output = part.partition("\n")
        yield command, output


def pattern(output):
    return re.escape(output.strip()).replace(re.escape("..."), ".*").replace("…", ".*")


def expected(output, address):
    return output.replace(ADDRESS, address)


@pytest.mark.edge
@pytest.mark.parametrize("page", with_blocks("console"), ids=lambda page: page.name)
def test_console_examples_print_what_they_show(page, server):
    if shutil.which("curl") is None and "$ curl" in page.read_text():
        pytest.fail("the examples use curl; install it")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "SOW_URL": server, "PATH": path}
    for block in blocks(page, "console"):
        for command, output in commands(block):
            done = subprocess.run(
                ["bash", "-c", command.replace(ADDRESS, server)],
                capture_output=True,
                text=True,
                env=environment,
                timeout=TIMEOUT_S,
                check=False,
            )
            shown = re.compile(pattern(expected(output, server)), re.S)
            # A complaint is on standard error; everything else that is shown on standard output.
            printed = done.stdout.strip() or done.stderr.strip()
            assert shown.fullmatch(printed), (command, done.stdout, done.stderr)
