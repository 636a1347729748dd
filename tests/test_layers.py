"""The table of layers in docs/ARCHITECTURE.md, checked against every import in the tree.

Looked at are imports at the top, in functions, under `if TYPE_CHECKING`, relative ones, of packages
(`from sow import engine`), and by name (`import_module("sow.engine")`). The last tests plant what
is forbidden and see that it is found.
"""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LAYERS = {
    "K": ["conflated_topics"],
    0: [
        "sow.errors",
        "sow.clock",
        "sow.changes",
        "sow.definitions",
        "sow.pipelines",
        "sow.commands",
        "sow.replies",
        "sow.budget",
    ],
    1: [
        "sow.paths",
        "sow.hosts",
        "sow.keys",
        "sow.delta",
        "sow.select_list",
        "sow.topic_patterns",
        "sow.frames",
        "sow.lists",
        "sow.suggest",
        "sow.options",
        "sow.wire",
        "sow.encodings",
        "sow.config",
        "sow.messages",
        "sow.expressions",
    ],
    2: ["sow.store"],
    3: [
        "sow.indexes",
        "sow.query",
        "sow.topic",
        "sow.delivery",
        "sow.history",
        "sow.engine",
        "sow.requests",
    ],
    4: ["sow.server", "sow.client", "sow.spark", "sow.cli", "conflated_topics.spark"],
}
MAY_IMPORT = {
    "K": {"K"},
    0: {0},
    1: {0, 1, "K"},
    2: {0, 2},
    3: {0, 1, 2, 3, "K"},
    4: {0, 1, 2, 3, 4, "K"},
}
EDGES = {
    "sow.server": set(),
    "sow.client": set(),
    "sow.spark": {"conflated_topics.spark"},
    "conflated_topics.spark": set(),
    "sow.cli": {"sow.server", "sow.client", "sow.spark", "conflated_topics.spark"},
}
NEVER = {
    "K": {"asyncio", "time", "aiohttp", "lmdb", "socket", "pyspark"},
    0: {"asyncio", "time", "aiohttp", "lmdb", "orjson", "msgspec", "numpy", "socket"},
    1: {"asyncio", "time", "aiohttp", "lmdb", "socket"},
    2: {"asyncio", "time", "aiohttp", "socket"},
    3: {"asyncio", "time", "aiohttp", "lmdb", "socket", "threading", "random"},
    4: set(),
}
CLOCK = "sow.clock"
"""The one module below layer 4 that reads a clock; nobody there may use what reads it."""
CLOCK_READERS = {
    "sow.clock.SystemClock",
    *(f"datetime.{kind}.{read}" for kind in ("datetime", "date") for read in ("now", "utcnow")),
    *(f"datetime.{kind}.today" for kind in ("datetime", "date")),
    "os.times",
}
OURS = ("sow", "conflated_topics")
MODULES = sorted(path for package in OURS for path in (ROOT / package).rglob("*.py"))


def name_of(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = {name_of(path) for path in MODULES}


def layer_of(name):
    """The layer of a module and the entry that says so: the longest that names it."""
    found = [
        (member, layer)
        for layer, members in LAYERS.items()
        for member in members
        if name == member or name.startswith(member + ".")
    ]
    member, layer = max(found, default=(None, None), key=lambda entry: len(entry[0] or ""))
    return layer, member


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
    used = [node for node in ast.walk(tree) if isinstance(node, ast.Name | ast.Attribute)]
    for text in (*known, *map(ast.unparse, used)):
        for name, stands_for in known.items():
            if text == name or text.startswith(name + "."):
                full = stands_for + text[len(name) :]
                if full in CLOCK_READERS:
                    yield full


def faults(name, source):
    """What a module does that its layer may not, as sentences."""
    layer, member = layer_of(name)
    if name == "sow":
        return
    if layer is None:
        yield f"{name} stands in no layer; add it to LAYERS and ARCHITECTURE.md"
        return
    tree = ast.parse(source)
    for imported in imports_of(name, tree):
        top = imported.split(".")[0]
        if top in NEVER[layer] and not (name == CLOCK and top == "time"):
            yield f"{name} (layer {layer}) imports {imported}"
        # A package itself stands in no layer, and what it gives out is no module.
        if top in OURS and (layer_of(imported)[0] is not None or imported in NAMES - {"sow"}):
            other, owner = layer_of(imported)
            if other not in MAY_IMPORT[layer]:
                yield f"{name} ({layer}) imports {imported} ({other})"
            elif layer == other == 4 and owner != member and owner not in EDGES[member]:
                yield f"edge {member} imports edge {owner}"
    if layer != 4 and name != CLOCK:
        yield from (f"{name} ({layer}) reads a clock: {used}" for used in readers_of_clocks(tree))


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_imports_only_what_its_layer_may(path):
    assert not list(faults(name_of(path), path.read_text()))


def test_the_table_in_the_architecture_is_the_one_that_is_checked():
    text = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
    rows = re.findall(r"^\| ([K0-4]) \| ([^|]*)\|", text, re.MULTILINE)
    written = {layer: set(re.findall(r"`([\w.]+)`", modules)) for layer, modules in rows}
    assert written == {str(layer): set(members) for layer, members in LAYERS.items()}


@pytest.mark.parametrize(
    ("name", "source"),
    [
        # Upwards, in every way there is to write it.
        ("sow.definitions", "import sow.engine"),
        ("sow.definitions", "import sow.engine as machine"),
        ("sow.definitions", "from sow.engine import Engine"),
        ("sow.definitions", "from sow import engine"),
        ("sow.definitions", "from sow import errors, engine"),
        ("sow.definitions", "from . import engine"),
        ("sow.definitions", "from .engine import Engine"),
        ("sow.store", "from .. import engine"),
        ("sow.store.journal", "from ..engine import Engine"),
        ("sow.definitions", "def later():\n    from sow.engine import Engine"),
        ("sow.definitions", "if TYPE_CHECKING:\n    from sow.engine import Engine"),
        ("sow.definitions", "from importlib import import_module\nimport_module('sow.engine')"),
        ("sow.definitions", "__import__('sow.engine')"),
        ("sow.paths", "from sow import store"),
        ("sow.engine", "from sow import server"),
        ("sow.engine", "from sow.server import driver"),
        ("conflated_topics.topic", "from conflated_topics import spark"),
        ("conflated_topics.topic", "from . import spark"),
        ("conflated_topics.topic", "from sow import delta"),
        # Edge to edge.
        ("sow.client.client", "from sow import server"),
        ("sow.server.app", "from sow.client import Client"),
        # What only the edge may touch.
        ("sow.engine", "import asyncio"),
        ("sow.engine", "from asyncio import sleep"),
        ("sow.delivery.outbox", "def late():\n    import threading"),
        ("sow.store.memory", "import aiohttp.web"),
        ("sow.clock", "import asyncio"),
        # Clocks.
        ("sow.engine", "import time"),
        ("sow.definitions", "from time import monotonic"),
        ("sow.engine", "from sow.clock import SystemClock"),
        ("sow.engine", "from sow import clock\nclock.SystemClock()"),
        ("sow.engine", "import sow.clock\nsow.clock.SystemClock()"),
        ("sow.engine", "from datetime import datetime\ndatetime.now()"),
        ("sow.engine", "from datetime import UTC, datetime as moment\nread = moment.now"),
        ("sow.wire", "import datetime\ndatetime.datetime.utcnow()"),
        ("sow.wire", "import datetime as dt\ndt.date.today()"),
        # In no layer.
        ("sow.newcomer", "import sow.errors"),
    ],
)
def test_what_is_planted_is_found(name, source):
    assert list(faults(name, source))


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("sow.engine", "from sow import errors, store\nfrom sow.clock import Clock"),
        ("sow.requests.executor", "from sow import __version__, replies"),
        ("sow.engine", "from conflated_topics import Conflator"),
        ("sow.wire", "from datetime import UTC, datetime\ndatetime.fromtimestamp(0, UTC)"),
        ("sow.clock", "import time\ntime.time_ns()"),
        ("sow.server.app", "import time\nfrom sow.clock import SystemClock"),
        ("sow.cli.main", "from sow import client, server"),
        ("sow.spark.conflation", "from conflated_topics import spark"),
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
        assert ast.get_docstring(ast.parse(path.read_text())), f"{path} has no docstring"
