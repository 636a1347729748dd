"""Names of code in docstrings and comments: what they say is there is there.

A module, or what stands in it, is written `sow.streaming.outbox.outbox` or
`sow.streaming.outbox.outbox.Outbox`; what a class has, `Outbox.clear`.
"""

import ast
import re
from collections import defaultdict
from functools import cache
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


@cache  # read when the first test runs: every core imports this file, and one runs its tests
def there_is():
    """What each module holds, and what classes of a name have: the client's stand twice, with
    asyncio and without."""
    modules, classes = {}, defaultdict(set)
    for path in PATHS:
        tree = ast.parse(path.read_text())
        modules[name_of(path)] = set(names_in(tree))
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                classes[node.name].update(names_in(node))
    return modules, classes


def is_there(name):
    """Whether a full name is a module's, or one of what a module or a class of it holds."""
    modules, classes = there_is()
    parts = name.split(".")
    module = next(m for n in range(len(parts), 0, -1) if (m := ".".join(parts[:n])) in modules)
    inside = parts[module.count(".") + 1 :]
    if not inside:
        return True
    owner, *members = inside
    return owner in modules[module] and all(member in classes[owner] for member in members)


def unknown_names(text):
    """Names that a text refers to and nobody has."""
    _, classes = there_is()
    wrong = [name for name in FULL_NAME.findall(text) if not is_there(name)]
    for name in OF_A_CLASS.findall(text):
        owner, _, member = name.partition(".")
        if owner in classes and member not in classes[owner]:
            wrong.append(name)
    return wrong


def test_what_the_code_refers_to_is_there():
    found = {name_of(path): unknown_names(path.read_text()) for path in PATHS}
    assert {name: unknown for name, unknown in found.items() if unknown} == {}


@pytest.mark.parametrize(
    "name",
    ["sow.pacing", "sow.engine.engine.COMMANDS", "sow.engine.Engine.nothing", "Engine.nothing"],
)
def test_a_name_that_is_gone_is_found(name):
    assert unknown_names(f"As `{name}` does.") == [name]
