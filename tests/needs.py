"""Programs that some tests need and not every machine has: a browser, a Node.

A test says so by a mark, `browser` or `node`. Where the program is missing such tests are left out,
and the run ends with a line that says how many and what installs it: none is skipped silently.
`SOW_REQUIRE_BROWSER=1` makes a run fail that leaves out a test of the browser, as .ci/run does;
what the JavaScript client does is looked at there as well, so nobody has to have a Node.
"""

import functools
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
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


class Need(NamedTuple):
    """A program: where it is, what it is called, what installs it, and what makes it a must."""

    find: Callable[[], object]
    name: str
    install: str
    required_by: str = ""

    def line(self, count: int) -> str:
        """What the run ends with."""
        tests = "1 test that needs" if count == 1 else f"{count} tests that need"
        return f"not run: {tests} {self.name}, which is not here; {self.install}"

    @property
    def is_required(self) -> bool:
        return bool(self.required_by) and os.environ.get(self.required_by, "") not in ("", "0")


NEEDS: Mapping[str, Need] = {
    "browser": Need(
        chromium,
        "a Chromium",
        "apt-get install --no-install-recommends chromium-headless-shell",
        required_by="SOW_REQUIRE_BROWSER",
    ),
    "node": Need(node, "a Node of 20.19 or newer", "see https://nodejs.org/en/download"),
}


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

    def lines(self) -> list[str]:
        """What the run ends with."""
        return [self._needs[mark].line(count) for mark, count in self.counts.items()]

    @property
    def fails(self) -> bool:
        """Whether one of them should have run."""
        return any(self._needs[mark].is_required for mark in self.counts)
