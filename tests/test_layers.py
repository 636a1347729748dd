"""The table of layers in docs/ARCHITECTURE.md, checked against every import in the tree."""

import ast
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
        "sow.topics",
        "sow.pipelines",
        "sow.commands",
        "sow.replies",
    ],
    1: [
        "sow.paths",
        "sow.keys",
        "sow.delta",
        "sow.merging",
        "sow.select_list",
        "sow.topic_patterns",
        "sow.wire",
        "sow.config",
        "sow.messages",
        "sow.expressions",
    ],
    2: ["sow.store"],
    3: [
        "sow.engine",
        "sow.as_of",
        "sow.consumers",
        "sow.log_rows",
        "sow.staged_writes",
        "sow.executor",
        "sow.subscriptions",
        "sow.reconfiguration",
        "sow.replay",
        "sow.bookmarks",
        "sow.catalog",
        "sow.batch",
        "sow.updates",
        "sow.rendering",
        "sow.folding",
        "sow.pacing",
        "sow.outbox",
        "sow.recovery",
        "sow.expirations",
        "sow.query",
        "sow.indexes",
        "sow.attributes",
        "sow.feeds",
        "sow.router",
        "sow.sessions",
        "sow.snapshot",
        "sow.agenda",
        "sow.keyed_topic",
        "sow.conflated_copy",
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
    0: {"asyncio", "aiohttp", "lmdb", "orjson", "msgspec", "numpy", "socket"},
    1: {"asyncio", "time", "aiohttp", "lmdb", "socket"},
    2: {"asyncio", "time", "aiohttp", "socket"},
    3: {"asyncio", "time", "aiohttp", "lmdb", "socket", "threading", "random"},
    4: set(),
}
CLOCK = "sow.clock"
MODULES = sorted(
    path for package in ("sow", "conflated_topics") for path in (ROOT / package).rglob("*.py")
)


def name_of(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


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


def imports_of(path):
    """Modules a file imports; those under `if TYPE_CHECKING` count too: they are design."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_imports_only_what_its_layer_may(path):
    name = name_of(path)
    layer, member = layer_of(name)
    if name == "sow":
        return
    assert layer is not None, f"{name} stands in no layer; add it to LAYERS and ARCHITECTURE.md"
    for imported in imports_of(path):
        top = imported.split(".")[0]
        assert top not in NEVER[layer] or name == CLOCK, (
            f"{name} (layer {layer}) imports {imported}"
        )
        if top in ("sow", "conflated_topics") and imported != "sow":
            other, owner = layer_of(imported)
            assert other in MAY_IMPORT[layer], f"{name} ({layer}) imports {imported} ({other})"
            if layer == other == 4 and owner != member:
                assert owner in EDGES[member], f"edge {member} imports edge {owner}"


def test_importing_sow_loads_no_network_disk_or_spark():
    code = "import sys, sow; print([m for m in ('aiohttp', 'lmdb', 'pyspark') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_module_opens_with_what_it_is_for():
    for path in MODULES:
        assert ast.get_docstring(ast.parse(path.read_text())), f"{path} has no docstring"
