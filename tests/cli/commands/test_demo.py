"""`sow demo` brings all it needs with it, and says what it lacks."""

import json
import re
import sys
import tomllib
import webbrowser
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from sow.cli.commands.demo import has_display, open_page
from sow.config import loads, require
from tests import forks
from tests.cli.commands.test_serve import lines_of
from tests.cli.terminal import Terminal

TOP = Path(__file__).parents[3]
WAIT_S = 180
OTHER = """<SOWConfig><Name>other</Name><SOW><Topic><Name>mine</Name>
<MessageType>json</MessageType><Key>/id</Key></Topic></SOW></SOWConfig>"""


def demo(folder, *options):
    words = [sys.executable, "-P", "-m", "sow.cli", "demo", "--port", "0", "--no-browser", *options]
    return forks.run(words, cwd=folder, capture_output=True, text=True, timeout=WAIT_S, check=False)


@pytest.mark.edge
def test_it_runs_its_own_configuration_in_a_folder_with_another(tmp_path):
    (tmp_path / "config.xml").write_text(OTHER)
    for seconds in ("2", "10", "30"):
        # A busy machine needs longer to open the market, and says what has kept it waiting.
        done = demo(tmp_path, "--json", "--seconds", seconds)
        assert (done.returncode, lines_of(done.stderr)) == (0, [])
        topics = {topic["name"]: topic for topic in json.loads(done.stdout)["topics"]}
        if topics["quotes"]["records"]:
            break
    assert {"quotes", "orders", "quotes-C"} <= topics.keys()
    assert topics["quotes"]["records"] > 0
    assert [path.name for path in tmp_path.iterdir()] == ["config.xml"]


@pytest.mark.edge
def test_what_the_feed_is_refused_is_said(tmp_path):
    (tmp_path / "config.xml").write_text(OTHER)
    done = demo(tmp_path, "--config", "config.xml", "--json", "--seconds", "30")
    assert done.returncode == 1
    refusal = json.loads(done.stderr.splitlines()[-1])
    assert refusal["detail"].startswith("the market feed stopped: no topic 'quotes'")


def test_a_configuration_with_a_mistake_is_sent_with_its_place(tmp_path):
    (tmp_path / "config.xml").write_text(OTHER.replace("Key>", "Kye>"))
    done = demo(tmp_path, "--config", "config.xml", "--seconds", "1")
    assert done.returncode == 1
    assert done.stderr.startswith("sow: config.xml:2: Kye: is not an element of Topic")


def test_its_configuration_is_part_of_the_package_and_good():
    loaded = loads((files("sow.cli") / "demo.xml").read_text())
    assert loaded.findings == ()


def test_what_it_shares_with_the_shipped_file_is_the_same():
    own, shipped = (require(str(TOP / name)) for name in ("sow/cli/demo.xml", "config.xml"))
    for name in ("topics", "pipelines"):
        others = {one.name: _anywhere(one) for one in getattr(shipped, name)}
        assert [_anywhere(one) for one in getattr(own, name)] == [
            others[one.name] for one in getattr(own, name)
        ]


def _anywhere(definition):
    return replace(definition, line=0)


def test_every_file_beside_the_modules_is_sent_to_be_packaged():
    told = tomllib.loads((TOP / "pyproject.toml").read_text())["tool"]["setuptools"]
    for package, globs in told["package-data"].items():
        packaged = {path for glob in globs for path in (TOP / package).glob(glob)}
        there = {
            path
            for path in (TOP / package).rglob("*")
            if path.is_file() and path.suffix not in (".py", ".pyc", ".c", ".so")
        }
        assert packaged == there


@pytest.mark.edge
def test_what_a_person_sees_is_where_the_console_is_and_the_rates(tmp_path):
    size = {"columns": 80, "lines": 24}
    with Terminal("demo", "--port", "0", cwd=tmp_path, DISPLAY="", **size) as terminal:
        assert "sow: the console is at http://127.0.0.1:" in terminal.wait_for("the console is at")
        shown = terminal.wait_for("Ctrl-C stops the demo")
        url = re.search(r"SOW demo  (http://127.0.0.1:\d+)", shown)[1]
        page = terminal.wait_for(r"(?m)^AMZN\.T .*\n\nconsole: ").partition("SOW demo")[2]
        assert len(page.splitlines()) < 24, "all of it is seen, what to try included"
        # The console's button does not stand there for nothing.
        reload = Request(f"{url}/v1/config/reload", method="POST")
        with urlopen(reload, timeout=WAIT_S) as answer:
            assert json.loads(answer.read()) == {"changes": []}
        with urlopen(f"{url}/v1/config/file", timeout=WAIT_S) as answer:
            found = json.loads(answer.read())
        with urlopen(f"{url}/v1/config", timeout=WAIT_S) as answer:
            assert found["values"] == json.loads(answer.read())
        # As Ctrl-C does, which all that the terminal has started gets.
        terminal.type("\x03")
        code, text = terminal.end()
    assert (code, "stopped:" in text) == (0, False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("environment", "platform", "seen"),
    [
        ({}, "linux", False),
        ({"DISPLAY": ""}, "linux", False),
        ({"DISPLAY": ":0"}, "linux", True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, "linux", True),
        ({}, "darwin", True),
    ],
)
def test_it_takes_a_display(environment, platform, seen):
    opened = []
    assert has_display(environment, platform) is seen
    assert open_page("http://x/", environment, platform, lambda u: not opened.append(u)) is seen
    assert opened == ["http://x/"] * seen


@pytest.mark.parametrize("error", [webbrowser.Error("none"), OSError("no such program")])
def test_a_browser_that_does_not_start_is_no_error(error):
    def broken(_url):
        raise error

    assert open_page("http://x/", {}, "darwin", broken) is False
