"""The floors of docs/ARCHITECTURE.md, checked against every import in the tree.

The table there is the rule: this test reads it and has none of its own. A *room* is a module or
package directly in `sow/`, the core `conflated_topics`, or its way into Spark. Counted are imports
at the top, in functions, under `if TYPE_CHECKING`, relative ones, of packages (`from sow import
engine`), and by name (`import_module("sow.engine")`). The last tests plant what is forbidden and
see that it is found. Run as a program it prints rooms and floors as they are.
"""

import ast
import re
import subprocess
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "ARCHITECTURE.md"
FLOORS_MAX = 11
"""Seen from above. More, and a walk from a socket to a record is no walk any more."""
CLOCK = "sow.core.clock"
"""The one module below the edges that reads a clock; nobody there may use what reads it."""
CLOCK_READERS = {
    "sow.core.clock.SystemClock",
    *(f"datetime.{kind}.{read}" for kind in ("datetime", "date") for read in ("now", "utcnow")),
    *(f"datetime.{kind}.today" for kind in ("datetime", "date")),
    "os.times",
}
OURS = ("sow", "conflated_topics")
MODULES = sorted(path for package in OURS for path in (ROOT / package).rglob("*.py"))


class Row(NamedTuple):
    """One row of the table: its rooms, the rooms that they may import, and what they never may."""

    floor: str
    rooms: tuple[str, ...]
    may_import: frozenset[str]
    never: frozenset[str]


@cache
def table():
    """The rows of the page, from the bottom up. A floor's range such as `K–2` is of rows."""
    if not PAGE.exists():
        return []  # nothing is allowed to anybody
    found = re.findall(
        r"^\| (K|\d\w?) \| ([^|]*`[^|]*)\| ([^|]*)\| ([^|]*)\|$", PAGE.read_text(), re.MULTILINE
    )
    rooms = {floor: tuple(re.findall(r"`([\w.]+)`", names)) for floor, names, _, _ in found}
    floors = list(rooms)
    rows = []
    for floor, _, allowed, never in found:
        may = set(re.findall(r"`([\w.]+)`", allowed))
        for first, last in re.findall(r"\b(K|\d\w?)(?:–(\w+))?", re.sub("`[^`]*`", "", allowed)):
            start = floors.index(first)
            stop = floors.index(last or first)
            may |= {room for name in floors[start : stop + 1] for room in rooms[name]}
        rows.append(Row(floor, rooms[floor], frozenset(may), frozenset(never.split())))
    return rows


def row_of(room):
    return next((row for row in table() if room in row.rooms), None)


def name_of(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = {name_of(path) for path in MODULES}


def room_of(name):
    """The room that a module stands in: of those in the table, the one deepest in the tree. A
    package of `sow` that the table lacks is a room all the same; `sow` itself holds nothing. What
    ``python -m sow`` runs is the front door of the command line, and no room behind it."""
    if name == "sow.__main__":
        return "sow.cli"
    parts = name.split(".")
    above = [".".join(parts[:end]) for end in range(len(parts), 0, -1)]
    listed = next((package for package in above if row_of(package)), None)
    if listed or parts[0] == "conflated_topics":
        return listed or parts[0]
    return ".".join(parts[:2]) if parts[0] == "sow" and len(parts) > 1 else None


def imports_of(name, tree):
    """What a module imports, in full: `from sow import engine` is `sow.engine`.

    Those under `if TYPE_CHECKING` count too: they are design.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = node.module or ""
            if node.level:
                parts = name.split(".")
                above = parts[: len(parts) - node.level + (ROOT.joinpath(*parts).is_dir())]
                package = ".".join([*above, *filter(None, [node.module])])
            yield from (f"{package}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and _called(node) in ("import_module", "__import__"):
            yield from (arg.value for arg in node.args[:1] if isinstance(arg, ast.Constant))


def _called(call):
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def readers_of_clocks(tree):
    """Names that read a clock, such as `datetime.datetime.now`, however they were imported."""
    known = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            known |= {alias.asname or alias.name: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            known |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    known = {
        name: full
        for name, full in known.items()
        if any(f"{reader}.".startswith(f"{full}.") for reader in CLOCK_READERS)
    }
    if not known:
        return  # as in most modules
    used = [node for node in ast.walk(tree) if isinstance(node, ast.Name | ast.Attribute)]
    for text in (*known, *map(ast.unparse, used)):
        for name, stands_for in known.items():
            if text == name or text.startswith(name + "."):
                full = stands_for + text[len(name) :]
                if full in CLOCK_READERS:
                    yield full


@cache
def tree_of(source):
    """A module, parsed; several tests look through all of them."""
    return ast.parse(source)


def faults(name, source):
    """What a module does that its floor may not, as sentences."""
    room = room_of(name)
    if room is None:
        return
    row = row_of(room)
    if row is None:
        yield f"{name} stands on no floor; give {room} a place in docs/ARCHITECTURE.md"
        return
    tree = tree_of(source)
    for imported in imports_of(name, tree):
        if imported.split(".")[0] in row.never and not (name == CLOCK and imported == "time"):
            yield f"{name} (floor {row.floor}) imports {imported}"
        other = room_of(imported)
        # What `sow` itself gives out, such as its version, is no room.
        is_module = other is not None and (imported in NAMES or row_of(other) is not None)
        if is_module and other != room and other not in row.may_import:
            yield f"{name} (floor {row.floor}) imports {imported}"
    if "clock" in row.never and name != CLOCK:
        yield from (f"{name} (floor {row.floor}) reads {used}" for used in readers_of_clocks(tree))


# What stands.


@cache
def graph():
    """Which of our modules each one imports."""
    found = {}
    for path in MODULES:
        name = name_of(path)
        imported = set(imports_of(name, tree_of(path.read_text())))
        # A name that is no module was taken out of one.
        modules = {one if one in NAMES else one.rpartition(".")[0] for one in imported}
        found[name] = (modules & NAMES) - {name, "sow"}
    return found


def circle_in(imports):
    """Modules that import each other, or None."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return error.args[1]
    return None


def rooms_of(imports):
    """Which rooms each room imports, as `ls sow` shows them."""
    found = {outer_room_of(name): set() for name in imports if outer_room_of(name)}
    for name, others in imports.items():
        room = outer_room_of(name)
        found.get(room, set()).update(set(map(outer_room_of, others)) - {room, None})
    return found


def outer_room_of(name):
    """The package directly in `sow/`, or that of the core, that a module's room stands in."""
    room = room_of(name)
    return room and ".".join(room.split(".")[:2])


def height_of(rooms):
    """On which floor each room stands, counted from 1; only for rooms without circles."""
    height = {}
    for room in TopologicalSorter(rooms).static_order():
        height[room] = 1 + max((height[other] for other in rooms[room]), default=0)
    return height


# The tests.


def test_each_module_imports_only_what_its_floor_may():
    assert [f for path in MODULES for f in faults(name_of(path), path.read_text())] == []


def test_no_modules_import_each_other():
    assert circle_in(graph()) is None


def test_there_are_few_floors_and_no_arrow_runs_back_up():
    rooms = rooms_of(graph())
    assert circle_in(rooms) is None
    assert max(height_of(rooms).values()) <= FLOORS_MAX


def test_every_room_of_the_table_is_there_and_may_only_import_what_is_below_it():
    below = set()
    for row in table():
        for room in row.rooms:
            assert room in map(room_of, NAMES), f"{room} is not there"
        assert row.may_import <= below | set(row.rooms), row.floor
        below |= set(row.rooms)


UPWARDS = [
    ("sow.core.definitions", "import sow.engine.engine"),
    ("sow.core.definitions", "import sow.engine.engine as machine"),
    ("sow.core.definitions", "from sow.engine.engine import Engine"),
    ("sow.core.definitions", "from sow import engine"),
    ("sow.core.definitions", "from sow import errors, engine"),
    ("sow.errors", "from . import engine"),
    ("sow.core.definitions", "from .. import engine"),
    ("sow.core.definitions", "from ..engine.engine import Engine"),
    ("sow.store", "from .. import engine"),
    ("sow.store.journal", "from ..engine.engine import Engine"),
    ("sow.core.definitions", "def later():\n    from sow.engine.engine import Engine"),
    ("sow.core.definitions", "if TYPE_CHECKING:\n    from sow.engine.engine import Engine"),
    ("sow.core.definitions", "from importlib import import_module\nimport_module('sow.engine')"),
    ("sow.core.definitions", "__import__('sow.engine')"),
    ("sow.core.paths", "from sow import store"),
    ("sow.store.journal", "from sow.messages import json"),
    ("sow.indexes.hash", "from sow.query import Query"),
    ("sow.query.answers", "from sow.topic.records import Records"),
    ("sow.topic.records", "from sow.streaming.feeds import Feed"),
    ("sow.streaming.sessions", "from sow.sessions.subscriptions.subscriptions import Subscription"),
    ("sow.streaming.feeds", "from sow.engine.catalog import Catalog"),
    ("sow.engine.engine", "from sow.sessions.commands import executor"),
    ("sow.engine.engine", "from sow import server"),
    ("sow.sessions.commands.executor", "from sow.server import driver"),
    ("conflated_topics.topic", "from conflated_topics import spark"),
    ("conflated_topics.topic", "from . import spark"),
    ("conflated_topics.topic", "from sow.core import delta"),
]
SIDEWAYS = [
    ("sow.streaming.feeds", "from sow.history.snapshot import Snapshot"),
    ("sow.history.snapshot", "from sow.streaming.outbox.outbox import Outbox"),
    ("sow.client.client", "from sow import server"),
    ("sow.server.loop.scheduler", "from sow.server.http import tls"),
    ("sow.server.api.records", "from sow.server.boot.app import Server"),
    ("sow.security.authorization", "from sow.protocol import wire"),
    ("sow.server.boot.app", "from sow.client import Client"),
    ("sow.spark.source", "from sow.client import Client"),
]
OUTSIDE = [
    ("sow.engine.engine", "import asyncio"),
    ("sow.engine.engine", "from asyncio import sleep"),
    ("sow.streaming.outbox.outbox", "def late():\n    import threading"),
    ("sow.store.memory", "import aiohttp.web"),
    ("sow.core.clock", "import asyncio"),
]
CLOCKS = [
    ("sow.engine.engine", "import time"),
    ("sow.core.definitions", "from time import monotonic"),
    ("sow.engine.engine", "from sow.core.clock import SystemClock"),
    ("sow.engine.engine", "from sow.core import clock\nclock.SystemClock()"),
    ("sow.engine.engine", "import sow.core.clock\nsow.core.clock.SystemClock()"),
    ("sow.engine.engine", "from datetime import datetime\ndatetime.now()"),
    ("sow.engine.engine", "from datetime import UTC, datetime as moment\nread = moment.now"),
    ("sow.protocol.wire", "import datetime\ndatetime.datetime.utcnow()"),
    ("sow.protocol.wire", "import datetime as dt\ndt.date.today()"),
]
ORPHANED = [("sow.newcomer", "import sow.errors"), ("sow.newroom.module", "import sow.errors")]


@pytest.mark.parametrize(("name", "source"), UPWARDS + SIDEWAYS + OUTSIDE + CLOCKS + ORPHANED)
def test_what_is_planted_is_found(name, source):
    assert list(faults(name, source))


def test_a_circle_that_is_planted_is_found():
    planted = graph() | {
        "sow.topic.batch": {"sow.core.delta"},
        "sow.core.delta": {"sow.topic.batch"},
    }
    assert set(circle_in(planted)) == {"sow.topic.batch", "sow.core.delta"}


def test_a_circle_of_rooms_without_one_of_modules_is_found():
    modules = {"sow.a.x": {"sow.b.x"}, "sow.b.x": set(), "sow.b.y": {"sow.a.y"}, "sow.a.y": set()}
    assert circle_in(modules) is None
    assert circle_in(rooms_of(modules)) is not None


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("sow.engine.engine", "from sow import errors, store\nfrom sow.core.clock import Clock"),
        ("sow.sessions.commands.executor", "from sow import __version__, replies"),
        ("sow.engine.engine", "from conflated_topics import Conflator"),
        ("sow.protocol.wire", "from datetime import UTC, datetime\ndatetime.fromtimestamp(0, UTC)"),
        ("sow.core.clock", "import time\ntime.time_ns()"),
        ("sow.server.boot.app", "import time\nfrom sow.core.clock import SystemClock"),
        ("sow.cli.main", "from sow import client, server"),
        ("sow.spark.pipeline_conflation", "from conflated_topics import spark"),
        ("sow.store.journal", "from . import layout"),
    ],
)
def test_what_is_allowed_is_let_through(name, source):
    assert not list(faults(name, source))


def test_importing_sow_loads_no_network_disk_or_spark():
    code = "import sys, sow; print([m for m in ('aiohttp', 'lmdb', 'pyspark') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_module_opens_with_what_it_is_for():
    for path in MODULES:
        assert ast.get_docstring(tree_of(path.read_text())), f"{path} has no docstring"


if __name__ == "__main__":
    heights = height_of(rooms_of(graph()))
    for floor in range(max(heights.values()), 0, -1):
        print(floor, *sorted(room for room, height in heights.items() if height == floor))
