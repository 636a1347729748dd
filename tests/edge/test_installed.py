"""The commands that a newcomer begins with, where SOW is installed and nothing else is there: an
empty folder, and the files that the package is told to bring.

That these are the files of a wheel, tests/cluster shows with one that is built.
"""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.cli.terminal import Terminal

ROOT = Path(__file__).parents[2]
WAIT_S = 60


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder with what setuptools is told to install."""
    told = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    found = tmp_path_factory.mktemp("site")
    for package, globs in told["package-data"].items():
        brought = [path for glob in globs for path in (ROOT / package).glob(glob)]
        for path in [*(ROOT / package).rglob("*.py"), *filter(Path.is_file, brought)]:
            target = found / path.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    return found


@pytest.fixture
def run(site, tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(site)}

    def run(*words):
        done = subprocess.run(
            [sys.executable, "-P", *words],
            cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=WAIT_S,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    where = run("-c", "import sow; print(sow.__file__)").strip()
    assert where == str(site / "sow" / "__init__.py"), "this is the checkout, not the package"
    return run


@pytest.mark.edge
def test_a_configuration_is_made_of_a_file_and_served(run, site, tmp_path):
    (tmp_path / "ticks.csv").write_text("symbol,px\nIBM,101.5\nAAPL,7\n")
    assert "written (ticks)" in run("-m", "sow", "init", "ticks.csv", "--yes")
    assert "ok (2 topics)" in run("-m", "sow", "check")
    with Terminal("serve", "--port", "0", cwd=tmp_path, PYTHONPATH=str(site)) as serving:
        url = serving.wait_for(r"listening on http://\S+ \(").split("listening on ")[1].split()[0]
        run("-m", "sow", "publish", "ticks", "ticks.csv", "--format", "csv", "--url", url)
        found = json.loads(run("-m", "sow", "query", "ticks", "--json", "--url", url))
    assert found == [{"symbol": "IBM", "px": 101.5}, {"symbol": "AAPL", "px": 7}]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.xml", "data", "ticks.csv"]


@pytest.mark.edge
def test_topics_are_served_without_a_file(run, site, tmp_path):
    words = ("serve", "--port", "0", "--topic", "quotes:/symbol", "--topic", "orders:/id")
    with Terminal(*words, cwd=tmp_path, PYTHONPATH=str(site)) as serving:
        url = serving.wait_for(r"listening on http://\S+ \(").split("listening on ")[1].split()[0]
        listed = json.loads(run("-m", "sow", "topics", "--json", "--url", url))
    assert [(one["name"], one["keys"]) for one in listed] == [
        ("quotes", ["/symbol"]), ("orders", ["/id"]),
    ]  # fmt: skip


@pytest.mark.edge
def test_the_demo_shows_its_console(run, site, tmp_path):
    words = ("demo", "--port", "0", "--no-browser")
    with Terminal(*words, cwd=tmp_path, PYTHONPATH=str(site)) as demo:
        url = demo.wait_for(r"the console is at http://\S+/").split("console is at ")[1].split()[0]
        asking = f"from urllib.request import urlopen; print(urlopen('{url}').status)"
        assert run("-c", asking) == "200\n"
