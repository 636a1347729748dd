"""What a newcomer has: a wheel in an environment with what it asks for, and an empty folder.

Nothing of it needs a network. The client's environment has no library of the server's.
"""

import hashlib
import json
import re
import subprocess
import tarfile
import zipfile
from contextlib import contextmanager
from email import message_from_bytes

import pytest

from tests.cli.terminal import Terminal, sow_of
from tests.installed.handed_out import (
    PROJECT,
    ROOT,
    WAIT_S,
    built,
    copy_of_the_source,
    environment,
    requested_for,
    run,
)

pytestmark = pytest.mark.edge

SERVING = r"listening on (http://\S+) \("
CLIENT = """
import asyncio, sys
from sow.client import Client
from sow.client.sync import Client as BlockingClient
from sow.errors import ClientError

async def main(url):
    async with Client(url) as client:
        await client.publish("quotes", {"symbol": "IBM", "px": 101.5})
        async with client.live("quotes") as live:
            print(dict(live))
        answer = await client.query("quotes", filter="/px > 100")
        print(answer.records)
        try:
            await answer.to_arrow()
        except ClientError as error:
            print(error)

asyncio.run(main(sys.argv[1]))
with BlockingClient(sys.argv[1]) as client:
    print(client.delete("quotes", filter="/px > 100"))
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("made")


@pytest.fixture(scope="module")
def source(place):
    return copy_of_the_source(place / "source")


@pytest.fixture(scope="module")
def wheel(place, source):
    return built("wheel", source, place / "wheels")


@pytest.fixture(scope="module")
def of_server(place, wheel):
    return environment(place / "server", wheel, frozenset({"server"}))


@pytest.fixture(scope="module")
def of_client(place, wheel):
    return environment(place / "client", wheel, frozenset({"client"}))


def files_of(wheel):
    """The files of a wheel, each with a digest of what it holds, but the list of them."""
    with zipfile.ZipFile(wheel) as packed:
        return {
            name: hashlib.sha256(packed.read(name)).hexdigest()
            for name in packed.namelist()
            if not name.endswith("/RECORD")
        }


def requested(python, *words, cwd):
    """What became of a program that may fail."""
    return subprocess.run(
        [python, "-P", *words],
        cwd=cwd, capture_output=True, text=True, timeout=WAIT_S, check=False,
    )  # fmt: skip


def sow(python, *words, cwd):
    return run(python, "-P", "-m", "sow", *words, cwd=cwd)


@contextmanager
def serving(python, cwd, *words):
    """A server of this environment; its address."""
    with Terminal("serve", "--port", "0", *words, cwd=cwd, program=sow_of(python)) as terminal:
        yield re.search(SERVING, terminal.wait_for(SERVING))[1]


def test_a_wheel_has_the_packages_the_console_and_the_configuration_and_nothing_else(wheel):
    found = set(files_of(wheel))
    console = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "sow/server/console").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert console < found
    assert {"sow/cli/demo.xml", "sow/py.typed", "conflated_topics/py.typed"} < found
    share = f"sow-{PROJECT['version']}.data/data/share/sow"
    units = ("sow.service", "sow-edge@.service", "sow-follower@.service")
    assert {name for name in found if name.startswith(share)} == {
        f"{share}/{name}" for name in ("alerts.yml", "config.xml", "grafana.json", *units)
    }
    assert {name.split("/")[0] for name in found} == {
        "conflated_topics",
        "pyspark_sow.py",
        "sow",
        *(f"sow-{PROJECT['version']}.{kind}" for kind in ("data", "dist-info")),
    }


LINK = re.compile(r"\]\(\s*<?([^)\s>]+)|(?:href|src)=[\"']?([^\"'\s>]+)|^\[[^\]]+\]:\s*(\S+)", re.M)
FILE = re.compile(r"\(`([\w./-]+)`\)")


def description_of(wheel):
    """What an index shows of a wheel: it has nothing but this text."""
    with zipfile.ZipFile(wheel) as packed:
        (name,) = (name for name in packed.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_bytes(packed.read(name))


def test_the_page_of_an_index_has_no_link_that_leads_nowhere(wheel):
    said = description_of(wheel)
    assert said["Description-Content-Type"] == "text/markdown"
    page = said.get_payload()
    links = ["".join(found) for found in LINK.findall(page)]
    assert [link for link in links if not re.match(r"https?://[\w.-]+\.\w+/|#", link)] == []
    assert "# SOW\n" in page
    files = set(FILE.findall(page))
    assert {"docs/tutorial.md", "CONTRIBUTING.md", "LICENSE"} <= files
    assert [name for name in files if not (ROOT / name).is_file()] == []


def test_links_of_all_kinds_are_found():
    text = "[a](b) ![c](<d>) [![e](f)](g) <a href='h'> <img src=i>\n[j]: k\n"
    assert ["".join(found) for found in LINK.findall(text)] == ["b", "d", "f", "g", "h", "i", "k"]


def test_the_source_that_is_handed_out_builds_the_same_wheel(place, source, wheel):
    packed = built("sdist", source, place / "sdists")
    with tarfile.open(packed) as archive:
        archive.extractall(place / "unpacked", filter="data")
    (unpacked,) = (place / "unpacked").iterdir()
    for name in ("docs/operations.md", "tests/conftest.py", "Makefile", "config.xml"):
        assert (unpacked / name).is_file()
    assert files_of(built("wheel", unpacked, place / "again")) == files_of(wheel)


def test_it_is_installed_as_what_it_says(of_server, tmp_path):
    asking = "import sow; print(sow.__file__, sow.__version__)"
    where, version = run(of_server, "-P", "-c", asking, cwd=tmp_path).split()
    assert where.startswith(str(of_server.parents[1])), "this is the checkout, not the wheel"
    assert version == PROJECT["version"]
    assert run(of_server.parent / "sow", "--version") == f"sow {version}\n"
    checked = sow(
        of_server, "check", of_server.parents[1] / "share" / "sow" / "config.xml", cwd=tmp_path
    )
    assert "ok (" in checked


def test_a_configuration_is_made_of_a_file_and_served(of_server, tmp_path):
    (tmp_path / "ticks.csv").write_text("symbol,px\nIBM,101.5\nAAPL,7\n")
    assert "written (ticks)" in sow(of_server, "init", "ticks.csv", "--yes", cwd=tmp_path)
    assert "ok (2 topics)" in sow(of_server, "check", cwd=tmp_path)
    with serving(of_server, tmp_path) as url:
        words = ("publish", "ticks", "ticks.csv", "--format", "csv", "--url", url)
        sow(of_server, *words, cwd=tmp_path)
        requested = ("query", "ticks", "--json", "--url", url)
        found = json.loads(sow(of_server, *requested, cwd=tmp_path))
    assert found == [{"symbol": "IBM", "px": 101.5}, {"symbol": "AAPL", "px": 7}]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.xml", "data", "ticks.csv"]


def test_topics_are_served_without_a_file(of_server, tmp_path):
    with serving(of_server, tmp_path, "--topic", "quotes:/symbol", "--topic", "orders:/id") as url:
        listed = json.loads(sow(of_server, "topics", "--json", "--url", url, cwd=tmp_path))
    assert [(one["name"], one["keys"]) for one in listed] == [
        ("quotes", ["/symbol"]), ("orders", ["/id"]),
    ]  # fmt: skip


def test_the_demo_answers_and_shows_its_console(of_server, tmp_path):
    shown = r"console is at (http://[^/\s]+)/"
    words = ("demo", "--port", "0", "--no-browser")
    with Terminal(*words, cwd=tmp_path, program=sow_of(of_server)) as demo:
        url = re.search(shown, demo.wait_for(shown))[1]
        asking = (
            "import sys; from urllib.request import urlopen; "
            "print(*(urlopen(sys.argv[1] + path).status for path in "
            "('/', '/console/app.js', '/v1/topics/quotes-C/records?top_n=1')))"
        )
        assert run(of_server, "-c", asking, url) == "200 200 200\n"


def test_the_client_works_without_the_libraries_of_the_server(of_client, of_server, tmp_path):
    brought = {found.name for found in requested_for(frozenset({"client"}))}
    assert not brought & {"lmdb", "lxml", "google-re2", "numpy", "pyarrow", "pymongo"}
    with serving(of_server, tmp_path, "--topic", "quotes:/symbol") as url:
        program = tmp_path / "program.py"
        program.write_text(CLIENT)
        view, records, refused, deleted = run(
            of_client, "-P", program, url, cwd=tmp_path
        ).splitlines()
        (tmp_path / "quotes.ndjson").write_text('{"symbol":"AAPL","px":7}\n')
        sow(of_client, "publish", "quotes", "quotes.ndjson", "--url", url, cwd=tmp_path)
        found = sow(of_client, "query", "quotes", "--json", "--url", url, cwd=tmp_path)
        sow(of_client, "dump", "quotes", "all.ndjson", "--url", url, cwd=tmp_path)
        words = ("-m", "sow", "dump", "quotes", "all.parquet", "--url", url)
        dumping = requested(of_client, *words, cwd=tmp_path)
    assert ("'px': 101.5" in view, "'px': 101.5" in records, deleted) == (True, True, "1")
    assert refused.startswith("pyarrow is not installed; pip install 'sow[arrow]'")
    assert json.loads(found) == [{"symbol": "AAPL", "px": 7}]
    assert (tmp_path / "all.ndjson").read_text() == '{"symbol":"AAPL","px":7}\n'
    assert dumping.returncode == 1
    assert dumping.stderr.startswith("sow: pyarrow is not installed; pip install 'sow[arrow]'")
    assert not (tmp_path / "all.parquet").exists()


@pytest.mark.parametrize("words", [["serve"], ["serve", "--topic", "quotes:/symbol"], ["doctor"]])
def test_a_command_of_the_server_says_what_installs_it(of_client, tmp_path, words):
    done = requested(of_client, "-m", "sow", *words, cwd=tmp_path)
    assert done.returncode == 1
    said = rf"sow: sow {words[0]} needs the server's libraries, and \w+ is not installed; "
    assert re.fullmatch(rf"{said}pip install 'sow\[server\]'\n", done.stderr)
    assert f"  {words[0]} " in sow(of_client, "--help", cwd=tmp_path)
