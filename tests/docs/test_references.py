"""Names of code in docstrings and comments: what they say is there is there.

A module, or what stands in it, is written `sow.delivery.outbox` or `sow.delivery.outbox.Outbox`;
what a class has, `Outbox.clear`.
"""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PATHS = sorted(
    path for package in ("sow", "conflated_topics") for path in (ROOT / package).rglob("*.py")
)
FULL_NAME = re.compile(r"(?<!`)`((?:sow|conflated_topics)(?:\.\w+)+)(?:\(\))?`(?!`)")
OF_A_CLASS = re.compile(r"(?<!`)`([A-Z]\w*\.\w+)(?:\(\))?`(?!`)")


def name_of(path):
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def names_in(node):
    """What is defined, imported or set in a module or class, at whatever depth."""
    for inner in ast.walk(node):
        match inner:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                yield inner.name
            case ast.Name(ctx=ast.Store()):
                yield inner.id
            case ast.Attribute(ctx=ast.Store()):
                yield inner.attr
            case ast.alias():
                yield inner.asname or inner.name


MODULES = {name_of(path): ast.parse(path.read_text()) for path in PATHS}
INSIDE = {name: set(names_in(tree)) for name, tree in MODULES.items()}
CLASSES = defaultdict(set)
"""What classes of a name have: the client's stand twice, with asyncio and without."""
for _tree in MODULES.values():
    for _node in ast.walk(_tree):
        if isinstance(_node, ast.ClassDef):
            CLASSES[_node.name].update(names_in(_node))


def is_there(name):
    """Whether a full name is a module's, or one of what a module or a class of it holds."""
    parts = name.split(".")
    module = next(m for n in range(len(parts), 0, -1) if (m := ".".join(parts[:n])) in MODULES)
    inside = parts[module.count(".") + 1 :]
    if not inside:
        return True
    owner, *members = inside
    return owner in INSIDE[module] and all(member in CLASSES[owner] for member in members)


def unknown_names(text):
    """Names that a text refers to and nobody has."""
    wrong = [name for name in FULL_NAME.findall(text) if not is_there(name)]
    for name in OF_A_CLASS.findall(text):
        owner, _, member = name.partition(".")
        if owner in CLASSES and member not in CLASSES[owner]:
            wrong.append(name)
    return wrong


@pytest.mark.parametrize("path", PATHS, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_the_code_refers_to_is_there(path):
    assert not unknown_names(path.read_text())


@pytest.mark.parametrize(
    "name",
    ["sow.pacing", "sow.engine.engine.COMMANDS", "sow.engine.Engine.nothing", "Engine.nothing"],
)
def test_a_name_that_is_gone_is_found(name):
    assert unknown_names(f"As `{name}` does.") == [name]
